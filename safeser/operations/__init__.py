"""Every operation of Dask's protocol: its server, its fields, and its kind.

The one rule: an operation that is not in this table is not known, and an unknown one is refused.
``python -m verification.compat.operations`` compared the rows, in both directions, with the
handlers that running servers register in each release from :data:`FIRST` on. A row or field that
not all have says ``since`` or ``until``; a newer release has those of the newest compared one.

Grants are by name and a name may stand for different things on different servers. Four do:
``gather``, ``task-erred`` and ``close`` are in two groups, and ``restart``, which a client merely
hears of, stays with the authority that it is on a scheduler or nanny.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from safeser.operations.ceilings import FLOOR, MANY, UNBOUNDED, Ceiling, ceilings
from safeser.operations.operation import Channel, Encoding, Operation, Server
from safeser.operations.releases import FIRST, Release, installed, is_between, release
from safeser.operations.shapes import Shape, fields
from safeser.operations.table import ROWS

__all__ = [
    "ENVELOPE",
    "FIRST",
    "FLOOR",
    "GROUPS",
    "IN_ANY_RELEASE",
    "MANY",
    "NAMES",
    "OPERATIONS",
    "UNBOUNDED",
    "Ceiling",
    "Channel",
    "Encoding",
    "Operation",
    "Release",
    "Server",
    "installed",
    "is_alone",
    "lookup",
    "operations_in",
    "release",
]

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


#: The rows of all releases, without their fields: what a policy is about. A policy file is valid or
#: not whatever release is installed where it is read.
IN_ANY_RELEASE: tuple[Operation, ...] = ROWS


def operations_in(given: Release) -> tuple[Operation, ...]:
    """Return the rows of the release *given*, server by server, with the fields that it takes."""
    return tuple(_with_fields(row, given) for row in IN_ANY_RELEASE if row.is_in(given))


#: The rows of the installed release, or of the newest one where none is installed.
OPERATIONS: tuple[Operation, ...] = operations_in(installed())

#: Every name that stands for an operation on any server in any release: what a policy can grant.
NAMES = frozenset(operation.name for operation in IN_ANY_RELEASE)

#: Names of operations, by group.
GROUPS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        group: frozenset(row.name for row in IN_ANY_RELEASE if row.group == group)
        for group in sorted({row.group for row in IN_ANY_RELEASE})
    }
)


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
