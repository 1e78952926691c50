"""Reading a policy's file, by path or by the name of a ready one that ships with safeser.

The one rule: a name is looked up among the files that ship and nowhere else; there is no search
path on which somebody could leave a file of that name.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from safeser.errors import ConfigError
from safeser.policy.faults import did_you_mean, shown
from safeser.policy.loader import MAX_BYTES

__all__ = ["is_ready", "locate", "read_file", "ready_policies"]

_SHIPPED = Path(__file__).parent.parent / "policies"


def ready_policies() -> tuple[str, ...]:
    """Return the names of the ready policies."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.yaml")))


def locate(path_or_name: str | os.PathLike[str]) -> Path:
    """Return the file that *path_or_name* means: a path, or the bare name of a ready policy.

    :raises ConfigError: if it is a name and no ready policy has it.
    """
    if not isinstance(path_or_name, str):
        return Path(path_or_name)
    separators = {"/", os.sep, os.altsep or os.sep}
    if any(mark in path_or_name for mark in separators) or path_or_name.endswith(".yaml"):
        return Path(path_or_name)
    if path_or_name not in ready_policies():
        raise ConfigError(
            f"there is no ready policy {shown(path_or_name)}",
            rule="config.policy-name",
            fix=f"{did_you_mean(path_or_name, ready_policies())} A file is given as a path, such"
            " as ./mine.yaml.".strip(),
        )
    return _SHIPPED / f"{path_or_name}.yaml"


def is_ready(path_or_name: str) -> bool:
    """Tell whether *path_or_name* names a policy that ships with safeser, and no file."""
    return locate(path_or_name).parent == _SHIPPED


def read_file(path: Path) -> bytes:
    """Return the bytes of the policy at *path*, at most one more than a policy may have.

    :raises ConfigError: if it cannot be read, is no regular file, or somebody else may change it.
    """
    try:
        # O_NONBLOCK: opening a FIFO would otherwise wait for somebody to write to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            data = file.read(MAX_BYTES + 1) if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "that is not a path"
        raise ConfigError(
            f"the policy cannot be read: {reason}",
            rule="config.file",
            where=_named(path),
            fix="Name a file that this process may read, or a ready policy; 'safeser policy show'"
            " lists those.",
        ) from None
    if data is None:
        raise ConfigError("a policy is a regular file", rule="config.file", where=_named(path))
    # As with a roster: whoever owns the file can list their own key as anybody's. What ships lies
    # beside this module, whoever installed it.
    if path.parent != _SHIPPED and status.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            "this policy belongs to another user",
            rule="config.file-owner",
            where=_named(path),
            fix="Use a copy of your own, or change the owner.",
        )
    # A checkout under umask 002 is its group's to write, and so is the code that would refuse it.
    forbidden = stat.S_IWOTH if path.parent == _SHIPPED else stat.S_IWOTH | stat.S_IWGRP
    if status.st_mode & forbidden:
        raise ConfigError(
            "other users of this machine may change this policy"
            f" (mode {stat.S_IMODE(status.st_mode):04o})",
            rule="config.file-mode",
            where=_named(path),
            fix="Run 'chmod go-w' on it.",
        )
    return data


def _named(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else ascii(text)
