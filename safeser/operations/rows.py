"""The rows of the installed release of distributed, and what a name stands for in it.

The one rule: a name that several rows share stands for the most powerful one, unless a message says
that it is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any

from safeser.operations.ceilings import ceilings
from safeser.operations.operation import Channel, Encoding, Operation, Server
from safeser.operations.releases import NEWEST, Release, is_between, release
from safeser.operations.shapes import Shape, fields
from safeser.operations.table import ROWS

__all__ = ["ENVELOPE", "OPERATIONS", "installed", "is_alone", "lookup", "operations_in"]


def installed() -> Release:
    """Return the installed release of distributed, or :data:`NEWEST` where there is none."""
    try:
        return release(version("distributed"))
    except (PackageNotFoundError, ValueError):
        return NEWEST


#: Fields of every request, which Dask's loop takes away before the handler is called.
ENVELOPE: Mapping[str, Shape] = MappingProxyType(
    fields(("op:text", "reply:flag", "close:flag", "serializers:word*?"))
)

#: Groups whose operations hand over code or files, as plain bytes in their fields.
_OF_CODE = frozenset({"run", "plugins", "files", "actors"})

#: How users' values stand in the fields of operations that carry them.
_VALUES = frozenset({Encoding.MARKED, Encoding.WRAPPED, Encoding.NESTED})


def _with_fields(row: Operation, given: Release) -> Operation:
    dated = (each.partition("@") for each in row.spelt)
    listed = tuple(field for field, _, when in dated if _is_in(when, given))
    takes = MappingProxyType(fields(listed))
    loops = ENVELOPE if row.channel is Channel.RPC else {"op": ENVELOPE["op"]}
    # A relay carries any operation, those of code as well.
    code = row.group in _OF_CODE or Encoding.NESTED in row.fields.values()
    values = not _VALUES.isdisjoint(row.fields.values())
    return replace(
        row,
        spelt=listed,
        takes=takes,
        shapes=MappingProxyType({**takes, **loops}),
        ceilings=ceilings(
            listed, code=code, bulk=row.bulk, heard=row.server is Server.CLIENT, values=values
        ),
    )


def _is_in(when: str, given: Release) -> bool:
    if when.startswith("<"):
        return is_between(given, "", when[1:])
    return is_between(given, when, "")


def operations_in(given: Release) -> tuple[Operation, ...]:
    """Return the rows of the release *given*, server by server, with the fields that it takes."""
    return tuple(_with_fields(row, given) for row in ROWS if row.is_in(given))


#: The rows of the installed release, or of the newest one where none is installed.
OPERATIONS: tuple[Operation, ...] = operations_in(installed())


def _by_wire() -> Mapping[tuple[Server, Channel, str], tuple[Operation, ...]]:
    """Return the rows of each name on the wire, the most powerful first."""
    rows: dict[tuple[Server, Channel, str], list[Operation]] = {}
    for row in OPERATIONS:
        rows.setdefault((row.server, row.channel, row.wire), []).append(row)
    return {
        key: tuple(sorted(each, key=lambda row: -row.kind.strength)) for key, each in rows.items()
    }


_FOUND = _by_wire()
_ALONE = {key: rows[0] for key, rows in _FOUND.items() if len(rows) == 1}


def lookup(
    server: Server, channel: Channel, name: str, message: Mapping[str, Any] | None = None
) -> Operation | None:
    """Return what *name* stands for on *server* and *channel*, or None if nothing does.

    :param message: what was said. Where rows share *name*, it is the least powerful one that the
        message fits; without a message, and for one that fits none, the most powerful.
    """
    key = (server, channel, name)
    alone = _ALONE.get(key)  # as nearly all are
    if alone is not None:
        return alone
    rows = _FOUND.get(key)
    if rows is None or message is None:
        return None if rows is None else rows[0]
    return next((row for row in rows[:0:-1] if row.fits(message)), rows[0])


def is_alone(row: Operation) -> bool:
    """Tell whether no other row shares the name of *row* on the wire."""
    return _ALONE.get((row.server, row.channel, row.wire)) == row
