"""The demo's folder: keys, logs and marker files.

It starts empty and is kept; the demo writes nothing outside it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from safeser.errors import ConfigError
from safeser.identities import AUDIT_KEY, key_path, make_identities
from safeser.identity import Roster

__all__ = ["PRINCIPALS", "Folder"]

#: The principals of the ready policy ``demo``.
PRINCIPALS = ("scheduler", "worker", "nanny", "alice", "bob")


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths of the files of one demo."""

    path: Path

    @classmethod
    def make(cls, path: Path | None) -> Folder:
        """Return a new folder at *path*, or a new temporary one.

        :raises ConfigError: if *path* is not empty or cannot be created.
        """
        try:
            base = Path(tempfile.mkdtemp(prefix="safeser-demo-")) if path is None else path
            base = base.absolute()
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(base.iterdir()):
                raise ConfigError(
                    f"{base} is not empty",
                    rule="config.demo",
                    fix="Name an empty or new folder.",
                )
            folder = cls(base)
            for each in (folder.keys, folder.impostor, folder.logs, folder.configuration):
                each.mkdir(mode=0o700)
            for side in ("stock", "safeser"):
                folder.markers(side).mkdir(parents=True)
        except OSError as error:
            raise ConfigError(
                f"the demo's folder cannot be created: {error.strerror}",
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
    def impostor_roster(self) -> Path:
        return self.impostor / "roster-with-impostor"

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
        """An empty folder, so that Dask does not read the user's own configuration."""
        return self.path / "no-dask-config"

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    def markers(self, side: str) -> Path:
        """Return the folder for marker files of attacks on *side* (``stock`` or ``safeser``)."""
        return self.path / "markers" / side

    def key(self, principal: str) -> Path:
        """Return the path of *principal*'s private key."""
        return key_path(self.keys, principal)

    def make_identities(self) -> None:
        """Make a key for each principal, the roster, the audit key, and an impostor's key."""
        roster = make_identities(self.keys, PRINCIPALS)
        (impostor,) = make_identities(self.impostor, ["alice"]).entries
        # In the impostor's own roster, alice has the impostor's key; in no other.
        others = Roster(entry for entry in roster.entries if entry.principal != "alice")
        others.with_entry(impostor).save(self.impostor_roster)
