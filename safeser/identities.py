"""Create what a small cluster needs to authenticate: keys, their roster, the log's key.

The one rule: an existing file is never overwritten, and a folder that could not be filled holds
nothing of what was begun.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from safeser.audit import AuditKey
from safeser.errors import ConfigError, SafeserError
from safeser.identity import Identity, Roster, RosterEntry, today

__all__ = ["AUDIT_KEY", "ROSTER", "key_path", "make_identities"]

#: Names of the files beside the private keys, as every process looks for them.
ROSTER = "roster"
AUDIT_KEY = "audit.key"


def key_path(directory: Path, principal: str) -> Path:
    """Return where *principal*'s private key lies in *directory*."""
    return directory / f"{principal}.key"


def make_identities(directory: Path, principals: Iterable[str]) -> Roster:
    """Make one identity for each of *principals*, their roster and a log key in *directory*.

    :param directory: made with mode 0700 if missing; must be empty and one's own otherwise.
    :raises ConfigError: if it cannot be used; nothing is left in it then.
    """
    names = list(principals)
    _claim(directory)
    day = today()
    roster = Roster()
    try:
        for name in names:
            identity = Identity.generate(name)
            identity.save(key_path(directory, name))
            roster = roster.with_entry(RosterEntry.of(identity, created=day))
        roster.save(directory / ROSTER)
        AuditKey.new().save(directory / AUDIT_KEY)
    except SafeserError:
        keys = [key_path(directory, name) for name in names]
        for left in (*keys, directory / ROSTER, directory / AUDIT_KEY):
            with suppress(OSError):
                left.unlink()
        raise
    return roster


def _claim(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConfigError(
                f"{directory} is not empty, and keys are never overwritten",
                rule="config.keys",
                fix="Name a folder that is not there yet.",
            )
        if directory.stat().st_uid != os.geteuid():
            # Another user may have made it first, as in /tmp, and could replace the files in it.
            raise ConfigError(
                f"{directory} belongs to another user",
                rule="config.keys",
                fix="Name a folder that is not there yet.",
            )
        directory.chmod(0o700)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "that is not a path"
        raise ConfigError(
            f"{directory} cannot be used: {reason}",
            rule="config.keys",
            fix="Name a folder that you may write to.",
        ) from None
