"""Read a pickled NumPy dtype as data (names, letters and offsets) without NumPy.

The one rule: nothing is imported or called, and a dtype is refused if any part of it is not a plain
number, time, text or record of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from safeser.errors import PayloadError
from safeser.gate.values import ELEMENT, Limits
from safeser.pickles.nodes import Call, DictOf, GlobalRef, TupleOf
from safeser.pickles.reading.machine import read

__all__ = ["DtypeRecord", "dtype_record"]

#: A record of a thousand fields takes some 60 KiB.
_LIMITS = Limits(max_bytes=1 << 18, max_memory=100_000 * ELEMENT, max_calls=5000)
_MAX_NESTING = 8
#: Fields of a dtype with those of its fields, beside one for each byte of its pickle: one record
#: can stand for each field of another, so that a thousand bytes took half a minute to tell.
_MAX_FIELDS = 1000
_ORDERS = ("<", ">", "|", "=")
_UNIT_AT = 8
#: Of how many units a step is, a C int in NumPy.
_UNIT_BITS = 32

#: NumPy's flag of a record whose fields lie as a C compiler would lay them.
_ALIGNED = 0x80


@dataclass(frozen=True, slots=True)
class DtypeRecord:
    """A record dtype: its fields by name, dtype (text as NumPy's ``str``, or a record), offset."""

    fields: tuple[tuple[str, DtypeRecord | str, int], ...]
    size: int
    align: bool


def dtype_record(data: bytes) -> DtypeRecord | str | None:
    """Return the pickled dtype *data* as data, or None if it is not made of plain parts."""
    try:
        root = read(data, buffers=0, limits=_LIMITS).root
    except PayloadError:
        return None
    return _dtype(root, _MAX_NESTING, iter(range(_MAX_FIELDS + len(data))))


def _dtype(node: Any, room: int, told: Iterator[int]) -> DtypeRecord | str | None:
    if not isinstance(node, Call) or not isinstance(node.callee, GlobalRef) or room == 0:
        return None
    args = node.args.items
    if node.callee.name != "numpy:dtype" or args[1:] != [False, True] or type(args[0]) is not str:
        return None
    state = node.state.items if isinstance(node.state, TupleOf) else []
    if len(state) < _UNIT_AT or state[1] not in _ORDERS or state[2] is not None:
        return None
    if isinstance(state[3], TupleOf) and args[0][:1] == "V":
        return _record(state, room, told)
    if state[3] is not None or state[4] is not None:
        return None
    unit = _unit(state[_UNIT_AT:])
    return None if unit is None else f"{state[1]}{args[0]}{unit}"


def _unit(rest: list[Any]) -> str | None:
    """Return the unit of a time as it is written, ``""`` of anything else."""
    if not rest:
        return ""
    match rest[0].items if isinstance(rest[0], TupleOf) else []:
        case [None | DictOf(items=[]), TupleOf(items=[bytes() as unit, int() as step, 1, 1])]:
            # What is longer Python itself does not write out.
            if unit.isalpha() and step.bit_length() < _UNIT_BITS:
                return f"[{'' if step == 1 else step}{unit.decode('ascii')}]"
    return None


def _record(state: list[Any], room: int, told: Iterator[int]) -> DtypeRecord | None:
    names, by_name, size, flags = state[3].items, state[4], state[5], state[7]
    pairs = by_name.items if isinstance(by_name, DictOf) else None
    numbers = type(size) is int and type(flags) is int
    if pairs is None or not numbers or len(state) > _UNIT_AT or len(pairs) != 2 * len(names):
        return None
    held = {pairs[at]: pairs[at + 1] for at in range(0, len(pairs), 2) if type(pairs[at]) is str}
    fields = []
    for name in names:
        entry = held.get(name) if type(name) is str else None
        if not isinstance(entry, TupleOf) or len(entry.items) != 2 or len(held) != len(names):
            return None
        spent = next(told, None) is None
        inner = None if spent else _dtype(entry.items[0], room - 1, told)
        offset = entry.items[1]
        if inner is None or type(offset) is not int:
            return None
        fields.append((name, inner, offset))
    return DtypeRecord(tuple(fields), size, bool(flags & _ALIGNED))
