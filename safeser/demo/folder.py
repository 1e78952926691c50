"""The demo's folder: keys, logs and marker files, and the identities that are made in it.

The one rule: it starts empty and is kept; nothing outside it is written.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from safeser.errors import ConfigError
from safeser.identities import AUDIT_KEY, key_path, make_identities
from safeser.keys import Roster

__all__ = ["PRINCIPALS", "Folder"]

#: The principals of the ready policy ``demo``.
PRINCIPALS = ("scheduler", "worker", "nanny", "alice", "bob")


@dataclass(frozen=True, slots=True)
class Folder:
    """Where everything of one demo lies."""

    path: Path

    @classmethod
    def make(cls, path: Path | None) -> Folder:
        """Return a new folder at *path*, or a new temporary one.

        :raises ConfigError: if there is something at *path* already, or it cannot be made.
        """
        try:
            base = Path(tempfile.mkdtemp(prefix="safeser-demo-")) if path is None else path
            base = base.absolute()
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(base.iterdir()):
                raise ConfigError(
                    f"{base} is not empty",
                    rule="config.demo",
                    fix="Name a folder that is not there yet.",
                )
            folder = cls(base)
            for each in (folder.keys, folder.impostor, folder.logs, folder.configuration):
                each.mkdir(mode=0o700)
            for side in ("stock", "safeser"):
                folder.markers(side).mkdir(parents=True)
        except OSError as error:
            raise ConfigError(
                f"the demo's folder cannot be made: {error.strerror}",
                rule="config.demo",
                where=str(path or tempfile.gettempdir()),
                fix="Name a folder that you may write to.",
            ) from None
        return folder

    @property
    def keys(self) -> Path:
        return self.path / "keys"

    @property
    def impostor(self) -> Path:
        return self.path / "impostor"

    @property
    def impostors_roster(self) -> Path:
        return self.impostor / "everybody"

    @property
    def audit(self) -> Path:
        return self.path / "audit"

    @property
    def audit_key(self) -> Path:
        return self.keys / AUDIT_KEY

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def configuration(self) -> Path:
        """An empty folder: Dask would else read the user's own configuration."""
        return self.path / "no-dask-config"

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    def markers(self, side: str) -> Path:
        """Return where attacks on *side* (``stock`` or ``safeser``) would leave their files."""
        return self.path / "markers" / side

    def key(self, principal: str) -> Path:
        """Return the path of *principal*'s private key."""
        return key_path(self.keys, principal)

    def make_identities(self) -> None:
        """Make a key for each principal, their roster, and the log's key; and an impostor's."""
        roster = make_identities(self.keys, PRINCIPALS)
        (impostor,) = make_identities(self.impostor, ["alice"]).entries
        # He knows whom he wants to reach, and lists himself as alice. Nobody else does.
        others = Roster(entry for entry in roster.entries if entry.principal != "alice")
        others.with_entry(impostor).save(self.impostors_roster)
