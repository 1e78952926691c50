"""Read a policy's file, by path or by the name of a ready policy that ships with safeser.

The rules: a name is looked up among the files that ship and nowhere else; there is no search path
on which another user could leave a file of that name. A file is used only if it ends with the line
``...``: cut off between two lines, it would be a policy that lacks a setting or a context.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from safeser.errors import ConfigError
from safeser.identity.files import Kept, load, locked, replace_file, require_ended
from safeser.identity.paths import Cause, Unfit
from safeser.policy.source.extends import Text, document
from safeser.policy.source.faults import did_you_mean, fault, shown
from safeser.policy.source.loader import MAX_BYTES

#: YAML's end of a document, as the last line of a policy's file.
MARK = b"..."

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
    """Return the bytes of the policy at *path*, which end with :data:`MARK` as their only one.

    :raises ConfigError: if they do not, if they cannot be read, or another user may change the file
        or choose which it is.
    """
    data = _read(path)
    if len(data) <= MAX_BYTES and not _is_whole(data):
        raise ConfigError(
            "this policy does not end with the line '...', which says that it is whole",
            rule="policy.unfinished",
            where=_named(path),
            fix="If nothing is missing in it, 'safeser policy check --fix"
            f" {shlex.quote(_named(path))}' makes that line its last one; else put the whole file"
            " in its place.",
        )
    return data


def read_policy(path: Path) -> Text:
    """Return the bytes of the policy at *path*, with those of the one that it extends, if it does.

    :raises ConfigError: as :func:`read_file`, for either.
    """
    text = text_of(read_file(path), str(path), folder=path.parent)
    return text if path.parent == _SHIPPED else replace(text, path=path)


def text_of(data: bytes, source: str, *, folder: Path | None = None) -> Text:
    """Return *data* with the bytes of the policy that it extends, if it does.

    :param folder: where a path that it extends begins; None where it may extend ready ones alone.
    :raises ConfigError: if that cannot be read.
    """
    own = document(Text(data, source)) if b"extends" in data else None
    named = None if own is None else own.value.get("extends")
    if own is None or not isinstance(named, str):
        return Text(data, source)
    try:
        path = locate(named)
    except ConfigError as error:
        place, rule = own.place(("extends",)), "config.extends"
        raise fault(error.message, source=source, place=place, rule=rule, fix=error.fix) from None
    if path.parent != _SHIPPED:
        if folder is None:
            raise ConfigError(
                "a policy without a file extends ready policies alone",
                rule="config.extends",
                where=source,
                fix="Load it from a file: what it extends is found from that file's folder.",
            )
        path = folder / path
        return Text(data, source, Text(read_file(path), str(path), path=path))
    return Text(data, source, Text(read_file(path), path.stem))


def write_mark(path: Path, parse: Callable[[Text], object]) -> bool:
    """Make :data:`MARK` the last line of the policy at *path*, and its only one.

    The operator states that the file is whole.

    :param parse: raises :class:`ConfigError` for a text that is no policy.
    :returns: whether that changed the file.
    :raises ConfigError: if it is no policy, or its last line has no end.
    """
    if _is_whole(_read(path)):
        return False
    target = path.resolve()  # a link stays a link
    with locked(target.parent, path, rule="policy.locked"):
        data = _read(path)
        require_ended(data, path, rule="policy.unfinished")
        # Before the mark is moved: nothing but comments may follow it.
        parse(text_of(data, str(path), folder=path.parent))
        lines = data.splitlines(keepends=True)
        kept = (line for line in lines if line.rstrip(b"\r\n") != MARK)
        whole = b"".join([*kept, MARK, b"\n"])
        parse(text_of(whole, str(path), folder=path.parent))
        replace_file(target, whole, like=target.stat(), before=data, rule="config.file")
    return True


def _is_whole(data: bytes) -> bool:
    """Tell whether the last line of *data*, and no other, is :data:`MARK`.

    No part of such a file from its beginning is another one.
    """
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    return lines[-2:] == [MARK, b""] and lines.count(MARK) == 1


def _read(path: Path) -> bytes:
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
