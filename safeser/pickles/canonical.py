"""Canonical bytes of a judged program: what a cached verdict keeps, and all that C then reads.

The one rule: no opcode in here can name anything: no FRAME, GLOBAL, EXT, PERSID or BUILD. They were
written anew from a program that was judged and built once (``emitting``), or are a peer's own where
each is one that makes plain values (:func:`as_written`). What they call is a reviewed function that
they know by its place in a table alone, so not even a mistake of ours can make them name something.
Whatever goes wrong here is no verdict: the pickle is read, judged and built again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from sys import getsizeof
from typing import Any

from safeser.pickles.budget import Budget
from safeser.pickles.nodes import (
    ABSENT,
    Buffer,
    ByteArray,
    Call,
    DictOf,
    FrozenSetOf,
    Program,
    SetOf,
)
from safeser.pickles.own import OwnClass, charge_copies
from safeser.pickles.shims import Site, are_plain_keys, bad
from safeser.pickles.stock import load_canonical
from safeser.values import Limits

__all__ = [
    "BYTES_PER_REF",
    "Blobs",
    "Canonical",
    "Part",
    "apart",
    "as_written",
    "finishing",
    "finishing_own",
    "making",
    "making_own",
]

#: Where in a pickle something begins and ends, in order.
Blobs = tuple[tuple[int, int], ...]


#: What has fewer elements for its bytes takes longer to copy, or to hash, than to read and build.
BYTES_PER_REF = 512
# Most keys are, and need no further look.
_TEXT = frozenset((str,))
#: What is shorter is hashed as quickly as it is left out.
LARGE = 4096
# BYTEARRAY8 and its eight bytes of length.
_BYTEARRAY8 = 9
# FRAME and its eight bytes of length.
_FRAME = 9


@dataclass(slots=True)
class Canonical:
    """The canonical form of one program.

    :param code: opcodes of protocol 5.
    :param table: what NEXT_BUFFER hands over, in order; a :class:`Part` is filled by each load.
    :param checks: raise where a listed global is not what it was.
    :param size: bytes of the pickle that was judged.
    :param refs: elements that the pickle is charged.
    :param calls: calls that it is charged.
    :param visits: elements that it is charged beside: arguments, and what hashing its keys costs.
    :param hashable: types that its calls let be keys.
    :param apart: where in the pickle the contents are that each load takes from its own bytes.
    """

    code: bytes
    table: tuple[Any, ...]
    checks: tuple[Callable[[], None], ...]
    size: int
    refs: int
    calls: int
    visits: int
    hashable: frozenset[type]
    apart: Blobs = ()
    _proven: bool = field(default=False, compare=False)

    @property
    def cost(self) -> int:
        """Bytes that keeping this takes, roughly."""
        held = sum(map(getsizeof, self.table))
        return len(self.code) + held + 256 * (len(self.table) + len(self.checks)) + 512

    def load(
        self,
        buffers: Sequence[Any],
        limits: Limits,
        budget: Budget | None = None,
        data: bytes = b"",
    ) -> Any:
        """Return the object, made anew from what is kept and from *buffers*.

        :param data: the pickle that is loaded, where not all of it is kept.
        """
        for check in self.checks:
            check()
        # Alone, a pickle that was within its limits once is so again.
        if budget is not None:
            budget.spend(refs=self.refs, calls=self.calls)
        table: Sequence[Any] = self.table
        if table:
            table = self._filled(buffers, limits, budget, data)
        elif budget is not None:
            budget.bring(self.size + _held(buffers))
            budget.charge(self.visits)
        made = load_canonical(self.code, table, proven=self._proven)
        self._proven = True
        return made

    def _filled(
        self, buffers: Sequence[Any], limits: Limits, budget: Budget | None, data: bytes
    ) -> list[Any]:
        site = Site(limits, given=self.size + _held(buffers), budget=budget)
        site.hashable.update(self.hashable)
        site.charge(self.visits)
        return [
            part.fill(site, buffers, data) if type(part) is Part else part for part in self.table
        ]


def as_written(program: Program, data: bytes) -> Canonical | None:
    """Return the canonical form of a *program* of plain opcodes: *data* without its FRAMEs.

    All of them were read and judged, each memo entry is written once and in order, and no opcode
    is left that names, calls or builds anything. What else the builder would look at are the keys;
    None where these take more than a glance, and where copying the bytes takes longer than that.
    """
    if program.frames is None or program.size > program.refs * BYTES_PER_REF:
        return None
    if not _keys_are_plain(program):
        return None
    code = data
    if program.frames:
        parts, begun = [], 0
        for at in program.frames:
            parts.append(data[begun:at])
            begun = at + _FRAME
        parts.append(data[begun:])
        code = b"".join(parts)
    return Canonical(
        code, (), (), program.size, program.refs, calls=0, visits=0, hashable=frozenset()
    )


def _keys_are_plain(program: Program) -> bool:
    for node in program.nodes:
        kind = type(node)
        if kind is DictOf:
            hashed = node.items[::2]  # type: ignore[attr-defined]  # a dict's
        elif kind is SetOf or kind is FrozenSetOf:
            hashed = node.items  # type: ignore[attr-defined]  # a set's
        else:
            continue
        if not _TEXT.issuperset(map(type, hashed)) and not are_plain_keys(hashed, whole=True):
            return False
    return True


def _held(buffers: Sequence[Any]) -> int:
    return sum(memoryview(buffer).nbytes for buffer in buffers) if buffers else 0


class Part:
    """A place of the table that each load fills anew: with its site, a buffer, or its own bytes."""

    __slots__ = ("buffer", "place")

    def __init__(self, buffer: Buffer | None = None, place: tuple[int, int] | None = None) -> None:
        self.buffer = buffer
        self.place = place

    def fill(self, site: Site, buffers: Sequence[Any], data: bytes) -> Any:
        if self.place is not None:
            start, end = self.place
            return bytearray(memoryview(data)[start:end])
        return site if self.buffer is None else site.opened(self.buffer, buffers)


def apart(program: Program) -> dict[int, tuple[int, int]]:
    """Return where the contents are on which no verdict on *program* depends, by their nodes.

    They are those of large arrays in the pickle itself. Whatever is made of them is made, and
    checked, by each load, as it is of buffers; nothing that was made of one is kept for the next.
    """
    if program.frames is not None or not program.calls:
        # It may be loaded as it was written.
        return {}
    return {
        node.index: (node.offset + _BYTEARRAY8, node.offset + _BYTEARRAY8 + len(node.data))
        for node in program.nodes
        if type(node) is ByteArray and len(node.data) >= LARGE
    }


def making(function: Callable[..., Any], name: str, expected: type | None) -> Callable[..., Any]:
    """Return the guard of a call: *function*, and its result only if it is what was judged.

    :param expected: type of the result when it was judged, or None where that is only a draft.
    """

    def guarded(site: Site, *arguments: Any) -> Any:
        made = function(site, name, *arguments)
        if expected is not None and type(made) is not expected:
            raise bad("class", f"{name} made something of another type")
        return made

    return guarded


def finishing(function: Callable[..., Any], name: str, expected: type) -> Callable[..., Any]:
    """Return the guard of a state: *function*, and its result only if it is what was judged."""

    def guarded(site: Site, begun: Any, state: Any) -> Any:
        made = function(site, begun, state)
        if type(made) is not expected:
            raise bad("class", f"{name} made something of another type")
        return made

    return guarded


def making_own(own: OwnClass, call: Call) -> Callable[..., Any]:
    """Return the guard of *call*, which makes an instance of an allowed class.

    The last argument of the guard is a dict of keyword arguments where the call has them.
    """
    keywords, built = call.kwargs is not None, call.state is not ABSENT
    # What it is called with comes anew each time; only how it is called is kept.
    make = partial(own.make, new=call.new, old=call.old, base=call.base)

    def guarded(site: Site, *arguments: Any) -> Any:
        kwargs = arguments[-1] if keywords else {}
        given = arguments[:-1] if keywords else arguments
        charge_copies(site, (*given, *kwargs.values()))
        made, alone = make(given, kwargs)
        if built:
            if not alone:
                raise bad("build-target", f"{own.entry.name} made what somebody else holds too")
            site.unfinished[id(made)] = own
        return made

    return guarded


def finishing_own(own: OwnClass) -> Callable[..., Any]:
    """Return the guard of a state that an instance gets which :func:`making_own`'s guard made."""

    def guarded(site: Site, made: Any, state: Any) -> Any:
        if site.unfinished.pop(id(made), None) is not own:
            raise bad("build-target", f"{own.entry.name} takes no state")
        charge_copies(site, state if type(state) is tuple else (state,))
        own.build(made, state)
        return made

    return guarded
