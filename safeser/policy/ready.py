"""Read a policy's file, by path or by the name of a ready policy that ships with safeser.

The one rule: a name is looked up among the files that ship and nowhere else; there is no search
path on which another user could leave a file of that name.
"""

from __future__ import annotations

import os
from pathlib import Path

from safeser.errors import ConfigError
from safeser.identity.files import Kept, Unfit, load
from safeser.identity.paths import Cause
from safeser.policy.source.faults import did_you_mean, shown
from safeser.policy.source.loader import MAX_BYTES

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

    :raises ConfigError: if it cannot be read, or another user may change it or choose which it is.
    """
    # As with a roster: a user who can write the file can list a key for any principal.
    kept: Kept = "shipped" if path.parent == _SHIPPED else "public"
    try:
        return load(path, kept, limit=MAX_BYTES)
    except Unfit as error:
        fix = error.fix
        if error.cause in ("missing", "unreadable"):
            fix = f"{fix.rstrip('.')}. " if fix else ""
            fix += "Ready policies have names: 'safeser policy show' lists them."
        raise ConfigError(
            f"this policy {error.what}", rule=_RULES[error.cause], where=_named(path), fix=fix
        ) from None


#: The rule of the error for each cause.
_RULES: dict[Cause, str] = {
    "missing": "config.file",
    "unreadable": "config.file",
    "shape": "config.file",
    "owner": "config.file-owner",
    "mode": "config.file-mode",
    "link": "config.file-link",
    "folder": "config.file-folder",
}


def _named(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else ascii(text)
