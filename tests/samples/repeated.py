"""The attack of the sweep: one listed call, repeated over arguments that the pickle holds once.

The one rule: the arguments are those of a sample, to the letter; what the attack changes is how
often the call is made. A call takes some nine bytes, whatever its arguments hold.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from safeser.gate.values import Limits
from safeser.pickles.nodes import (
    ABSENT,
    ByteArray,
    Call,
    DictOf,
    FrozenSetOf,
    GlobalRef,
    ListOf,
    Node,
    SetOf,
    TupleOf,
)
from safeser.pickles.reading.machine import read
from safeser.pickles.shape import weigh

__all__ = ["Template", "templates"]

_LIMITS = Limits()


class _Writer:
    """Writes nodes as opcodes; each container, call and name is written once and then recalled."""

    def __init__(self) -> None:
        self.parts: list[bytes] = [b"\x80\x05"]
        self.memo: dict[int, int] = {}

    def memoize(self, node: Node) -> None:
        self.parts.append(b"\x94")
        self.memo[node.index] = len(self.memo)

    def recall(self, value: Any) -> bytes:
        """Return the opcodes that push what was written as *value*, or a leaf."""
        if not isinstance(value, Node):
            return _leaf(value)
        number = self.memo[value.index]
        return b"h%c" % number if number < 256 else b"j" + struct.pack("<I", number)

    def keep(self, value: Any) -> None:
        """Write *value*, if it is no leaf, and leave it in the memo alone."""
        if isinstance(value, Node) and value.index not in self.memo:
            self.write(value)
            self.parts.append(b"0")

    def write(self, value: Any) -> None:
        if not isinstance(value, Node) or value.index in self.memo:
            self.parts.append(self.recall(value))
        elif isinstance(value, GlobalRef):
            self.parts += [_leaf(value.module), _leaf(value.qualname), b"\x93"]
            self.memoize(value)
        elif isinstance(value, ByteArray):
            self.parts += [b"\x96", struct.pack("<Q", len(value.data)), bytes(value.data)]
            self.memoize(value)
        elif isinstance(value, Call):
            self.call(value)
        else:
            self.container(value)

    def container(self, node: Any) -> None:
        kind = type(node)
        if kind is TupleOf or kind is FrozenSetOf:
            self.many(node.items, b"t" if kind is TupleOf else b"\x91")
            self.memoize(node)
            return
        self.parts.append({ListOf: b"]", DictOf: b"}", SetOf: b"\x8f"}[kind])
        self.memoize(node)
        if node.items:
            self.many(node.items, {ListOf: b"e", DictOf: b"u", SetOf: b"\x90"}[kind])

    def many(self, items: list[Any], end: bytes) -> None:
        self.parts.append(b"(")
        for item in items:
            self.write(item)
        self.parts.append(end)

    def call(self, call: Call) -> None:
        self.write(call.callee)
        self.write(call.args)
        if call.kwargs is not None:
            self.write(call.kwargs)
        self.parts.append(_how(call))
        self.memoize(call)
        for items, end in ((call.items, b"e"), (call.pairs, b"u")):
            if items:
                self.many(items, end)
        if call.state is not ABSENT:
            self.write(call.state)
            self.parts.append(b"b")


def _how(call: Call) -> bytes:
    if call.kwargs is not None:
        return b"\x92"
    return b"\x81" if call.new else b"R"


def _leaf(value: Any) -> bytes:
    # What pickle writes for it, without PROTO, STOP and the memo of text.
    raw = pickle.dumps(value, 3)[2:-1]
    return raw[:-2] if type(value) in (str, bytes) else raw


@dataclass(frozen=True, slots=True)
class Template:
    """One listed call with valid arguments.

    :param name: the entry that is called.
    :param label: the sample that has it.
    :param size: bytes that its arguments take, and then each call of it.
    """

    name: str
    label: str
    size: int
    unit: bytes = field(repr=False)
    prefix: bytes = field(repr=False)
    callee: bytes = field(repr=False)
    kind: Any = field(repr=False, compare=False)

    def named(self, name: str) -> Template:
        """Return the same call of another entry."""
        callee = _named(name)
        start = self.prefix.removesuffix(self.callee)
        return replace(self, name=name, prefix=start + callee, callee=callee)

    def repeated(self, count: int) -> bytes:
        """Return a pickle that makes the call *count* times and returns all results."""
        return self.prefix + b"(" + self.unit * count + b"t."

    def filling(self, size: int) -> bytes:
        """Return one of *size* bytes, or of two calls where that takes more."""
        return self.repeated(max(2, (size - self.size) // len(self.unit)))


def templates(data: bytes, label: str) -> Iterator[Template]:
    """Yield each kind of call in the sample *data*."""
    program = read(data, buffers=0, limits=_LIMITS)
    weights = weigh(program, ())
    largest: dict[tuple[Any, ...], tuple[int, Call]] = {}
    for node in program.nodes:
        if type(node) is Call and isinstance(node.callee, GlobalRef) and not node.base:
            kind, weight = (node.callee.name, *_kind(node)), weights[node.index]
            if kind not in largest or largest[kind][0] < weight:
                largest[kind] = weight, node
    for _, call in largest.values():
        yield _template(call, label)


def _kind(call: Call) -> tuple[Any, Any]:
    return _shape(call.args), _shape(call.state)


def _shape(value: Any) -> Any:
    """Return what tells calls apart that do different things: names and types of arguments."""
    if isinstance(value, GlobalRef):
        return value.name
    if isinstance(value, (TupleOf, DictOf)):
        return tuple(_shape(item) for item in value.items[:20])
    if isinstance(value, Call) and isinstance(value.callee, GlobalRef):
        code = value.args.items[0] if value.callee.name == "numpy:dtype" else None
        if type(code) is str:
            return code[:1]
        return value.callee.name, _shape(value.args)
    return type(value).__name__


def _template(call: Call, label: str) -> Template:
    writer, name = _Writer(), call.callee.name
    parts = [call.args, *call.items, *call.pairs]
    parts += [part for part in (call.kwargs, call.state) if part is not None and part is not ABSENT]
    for part in parts:
        writer.keep(part)
    named, callee = _named(name), len(writer.memo)
    writer.parts.append(named)
    unit = [b"h%c" % callee if callee < 256 else b"j" + struct.pack("<I", callee)]
    unit.append(writer.recall(call.args))
    if call.kwargs is not None:
        unit.append(writer.recall(call.kwargs))
    unit.append(_how(call))
    for items, end in ((call.items, b"e"), (call.pairs, b"u")):
        if items:
            unit += [b"(", *map(writer.recall, items), end]
    if call.state is not ABSENT:
        unit += [writer.recall(call.state), b"b"]
    prefix = b"".join(writer.parts)
    return Template(name, label, len(prefix), b"".join(unit), prefix, named, _kind(call))


def _named(name: str) -> bytes:
    module, _, qualname = name.partition(":")
    return _leaf(module) + _leaf(qualname) + b"\x93\x940"
