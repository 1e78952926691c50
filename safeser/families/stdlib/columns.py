"""Encode many scalars of one type as one value in one frame.

The one rule: the functions for single scalars also check and build each element of a column, which
only saves the header of each. What does not fit a column is sent element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from safeser.errors import PayloadError
from safeser.families import plain
from safeser.families.keys import table_of
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.stdlib import zones
from safeser.families.tree import Node
from safeser.gate.values import Limits

__all__ = ["Column", "add", "parts_of", "register"]

#: Fewer are sent as fast one by one.
_LEAST = 4


class Column(NamedTuple):
    """The functions that encode and decode a column of scalars of one type.

    :param name: the type's name on the wire.
    :param width: plain values that describe one; 0 where a single one does, without a tuple.
    :param describe: scalar to its plain values.
    :param build: plain values, and what makes time zones, to the scalar; checks them.
    :param zoned: whether the last of its values is a time zone, which all in a column share.
    """

    name: str
    width: int
    describe: Callable[[Any], Any]
    build: Callable[[Any, Callable[[Any], Any]], Any]
    zoned: bool = False


@dataclass(frozen=True, slots=True)
class _Zoned:
    """Checked moments whose time zone is looked up only when they are built."""

    column: Column
    flat: list[Any]
    zone: Any

    def __len__(self) -> int:
        return len(self.flat) // self.column.width


_BY_CLASS: dict[type, Column] = {}
_BY_NAME: dict[str, Column] = {}


def add(cls: type, column: Column) -> None:
    """Let lists and tuples of direct instances of *cls* be sent as columns."""
    _BY_CLASS[cls] = _BY_NAME[column.name] = column


def parts_of(x: Any, limits: Limits) -> tuple[str, Parts] | None:
    """Return the type's name and the parts of *x*, a collection, or None if it is no column."""
    kind = type(x)
    if len(x) < _LEAST or kind not in (list, tuple, dict):
        return None
    items = x.values() if kind is dict else x
    first = next(iter(items))
    column = _BY_CLASS.get(type(first))
    if column is None or len(set(map(type, items))) != 1:
        return None
    if column.zoned and len({id(item.tzinfo) for item in items}) != 1:
        return None
    if kind is dict:
        halves = ((".keys()", tuple(x)), (".values()", list(items)))
        return "builtins:dict", Parts({}, (), halves)
    meta: dict[str, Any] = {"of": column.name}
    rows = _rows(column, x, limits)
    if column.zoned:
        meta["zone"] = plain.encode(zones.describe(first.tzinfo), limits=limits)
    return f"builtins:{kind.__name__}", Parts(meta, [plain.encode(rows, limits=limits)])


def _rows(column: Column, x: Sequence[Any], limits: Limits) -> list[Any]:
    rows: list[Any] = []
    try:
        for item in x:
            rows.append(column.describe(item))
    except PayloadError as error:  # out of bounds
        refused = Unencodable(x[len(rows)], error.message)
        refused.inside(x, f"[{len(rows)}]")
        raise refused from None
    except Unencodable as error:
        error.inside(x, f"[{len(rows)}]")
        raise
    if not column.width:
        return rows
    return [part for row in rows for part in row[: column.width]]


def _check(node: Node, limits: Limits) -> None:
    name = node.meta.get("of")
    column = _BY_NAME.get(name) if type(name) is str else None
    if column is None:
        node.refuse("it is a column of no type that is listed here", "families.type")
    if column.zoned:
        _, zone = node.expect("of", "zone", frames=1)
        if type(zone) is not bytes:
            node.refuse("its time zone is not bytes", "families.header")
        shared: tuple[Any, ...] = (node.plain(zone, limits),)
    else:
        node.expect("of", frames=1)
        shared = ()
    flat = node.plain(node.frames[0], limits)
    if type(flat) is not list or (column.width and len(flat) % column.width):
        node.refuse("its frame holds no whole number of elements", "families.count")
    try:
        for zone in shared:  # the column may be empty
            zones.check(zone)
        node.value = [column.build(row, zones.check) for row in _split(flat, column.width, shared)]
    except (ValueError, TypeError, ArithmeticError, LookupError):
        node.refuse("one of its elements describes no such object", "families.value")
    if shared and shared != (None,):
        node.value = _Zoned(column, flat, shared[0])


def _split(flat: list[Any], width: int, shared: tuple[Any, ...]) -> Iterator[Any]:
    if not width:
        return iter(flat)
    rows = zip(*[iter(flat)] * width, strict=True)
    return (row + shared for row in rows) if shared else rows


def _decode(node: Node, values: list[Any]) -> list[Any]:
    waiting = node.value
    if type(waiting) is not _Zoned:
        return waiting  # type: ignore[no-any-return]  # the check made it a list
    zone = zones.build(waiting.zone)
    rows = _split(waiting.flat, waiting.column.width, (waiting.zone,))
    return [waiting.column.build(row, lambda _: zone) for row in rows]


def _check_dict(node: Node, limits: Limits) -> None:
    node.expect(children=2)
    keys, held = node.children
    if keys.yields != "builtins:tuple" or held.yields != "builtins:list":
        node.refuse("it does not hold a tuple of keys and a list of values", "families.child-type")


def _decode_dict(node: Node, values: list[Any]) -> dict[Any, Any]:
    made: dict[Any, Any] = table_of(*values, where=node.where)
    return made


def _not_encoded(x: object, limits: Limits) -> Parts:
    raise Unencodable(x)


def register() -> None:
    """List the columns, which no object alone is sent as; called once, by safeser.families."""
    registry.register(Typed("builtins:list", (), _not_encoded, _check, _decode))
    registry.register(
        Typed("builtins:tuple", (), _not_encoded, _check, lambda n, v: tuple(_decode(n, v)))
    )
    registry.register(Typed("builtins:dict", (), _not_encoded, _check_dict, _decode_dict))
