"""Reads records for a person: the tail of a file that grows, or the records that match.

The one rule: reading is not verifying. Records that are returned here are unverified; only
:func:`safeser.audit.verify` checks them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing

from safeser.audit.compressed import plain
from safeser.audit.files import COMPRESSED, Directory, Handle, is_log, log_name
from safeser.audit.names import Resolver
from safeser.audit.record import MAX_LINE, Record, printable
from safeser.audit.report import moment, shown
from safeser.errors import AuditError

__all__ = ["read", "render"]

_CHUNK = 64 << 10


def read(
    path: str | os.PathLike[str], *, wait: Callable[[], bool] = lambda: False
) -> Iterator[Record]:
    """Yield the records of one file, or of every log file of a directory, in order of their names.

    Each has all of its fields, those included that the file states once and refers to. A last line
    that is not whole yet is left alone.

    :param wait: called at the end of a single file; if it returns True, reading goes on with what
        was written meanwhile.
    :raises AuditError: if the file cannot be read, or holds a line that is not a record.
    """
    path = os.fspath(path)
    single = not os.path.isdir(path)
    folder, name = os.path.split(path) if single else (path, "")
    with closing(Directory(folder or ".", create=False)) as directory:
        if single:
            yield from _read_file(directory, name, wait)
            return
        for each in sorted({log_name(name) for name in directory.names() if is_log(name)}):
            yield from _read_file(directory, each, lambda: False)


def _read_file(directory: Directory, name: str, wait: Callable[[], bool]) -> Iterator[Record]:
    handle = directory.open(name)
    if handle is None and name.endswith(".log"):
        name += COMPRESSED  # meanwhile, or before
        handle = directory.open(name)
    if handle is None:
        raise AuditError("there is no such file", rule="audit.file", where=shown(name))
    with closing(handle):
        yield from _read_handle(handle, name, wait)


def _read_handle(handle: Handle, name: str, wait: Callable[[], bool]) -> Iterator[Record]:
    # A compressed file is read in order only, and no process writes it any more.
    unpacked = plain(handle, name) if name.endswith(COMPRESSED) else None
    start, number = 0, 0  # of the next line
    resolver = Resolver()
    buffer = b""
    while True:
        at = start + len(buffer)
        chunk = handle.read(_CHUNK, at) if unpacked is None else unpacked(_CHUNK)
        if not chunk:
            # Its writer may take back a line that is not whole, and write another one there.
            buffer = b""
            if not wait():
                return
            continue
        *whole, rest = (buffer + chunk).split(b"\n")
        start += len(buffer) + len(chunk) - len(rest)
        buffer = rest
        if len(buffer) > MAX_LINE:
            raise _not_a_record(name, number + len(whole) + 1)
        for raw in whole:
            number += 1
            try:
                record = resolver.read(raw)
            except AuditError:
                raise _not_a_record(name, number) from None
            yield record


def _not_a_record(name: str, number: int) -> AuditError:
    return AuditError(
        "a line of the log is not a record",
        rule="audit.record",
        where=f"{shown(name)}, line {number}",
        fix="Run safeser audit verify.",
    )


def render(record: Record) -> str:
    """Return one record as one line of printable ASCII; what peers wrote cannot move a cursor."""
    when = moment(record.time)
    time = "-" if when is None else when.isoformat(timespec="milliseconds")
    shown_fields = " ".join(
        f"{printable(name, 32)}={_value(value)}" for name, value in sorted(record.fields.items())
    )
    return f"{time} {record.sequence} {printable(record.type, 32)} {shown_fields}".rstrip()


def _value(value: object) -> str:
    if isinstance(value, str):
        text = printable(value)
        return text if text and " " not in text and "=" not in text else f'"{text}"'
    if isinstance(value, list):
        return "[" + ",".join(map(_value, value)) + "]"
    return "-" if value is None else str(value).lower()
