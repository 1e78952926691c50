"""Writing the canonical bytes of a program, once it was judged and built.

The one rule: what is written does what the builder did, step by step and in its order, and only
that. A program for which that cannot be written in these few opcodes gets none and is built again
each time.

A call with state takes two guarded calls, one for each of the builder's steps. What the builder
made from the stream alone and nothing can change any more (a date, a plain dtype) is kept itself.
"""

from __future__ import annotations

import datetime
import decimal
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from safeser.pickles.build import Builder
from safeser.pickles.canonical import (
    Canonical,
    Part,
    apart,
    finishing,
    finishing_own,
    making,
    making_own,
)
from safeser.pickles.leaves import push_leaf, push_memo
from safeser.pickles.nodes import (
    ABSENT,
    ADD,
    BUILD,
    EXTEND,
    UPDATE,
    Buffer,
    ByteArray,
    Call,
    DictOf,
    FrozenSetOf,
    GlobalRef,
    ListOf,
    Node,
    SetOf,
    Step,
    TupleOf,
    children,
)
from safeser.pickles.own import OwnClass
from safeser.pickles.shims import shim

__all__ = ["emit"]

_HEAD: Final = b"\x80\x05"
_MARK, _POP, _POP_MARK, _STOP, _MEMOIZE, _NEXT_BUFFER = b"(", b"0", b"1", b".", b"\x94", b"\x97"
_CALL: Final = b"tR"
_EMPTY: dict[type[Node], bytes] = {ListOf: b"]", DictOf: b"}", SetOf: b"\x8f"}
_GROW = {EXTEND: b"e", UPDATE: b"u", ADD: b"\x90"}
_TUPLES = (b")", b"\x85", b"\x86", b"\x87")
#: Nothing that a receiver does changes an instance of exactly one of these.
_UNCHANGING = frozenset(
    (
        bytes,
        complex,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        datetime.timezone,
        decimal.Decimal,
        range,
        type(None),
        uuid.UUID,
    )
)
# A constant outlives the load, so it must cost little.
_MAX_CONSTANT = 1024
# Each conflict writes the program anew; what is no tree after a few goes by the memo throughout.
_TRIES = 4
# Ours names a string once, however often a stream repeats it by its memo; a few bytes remain for
# each element, and for each short leaf that a stream writes in fewer bytes.
_GROWTH = 4
_GROWTH_FREE = 1024


class _Unwritable(Exception):
    """These opcodes cannot say what the builder does."""


class _Conflict(Exception):
    """Values are not used where the stack has them; they go by the memo instead."""

    def __init__(self, indexes: Iterable[int]) -> None:
        super().__init__()
        self.indexes = frozenset(indexes)


class _Named:
    """A global among the arguments of a call that its entry lets stand there as a mere name."""

    def __init__(self, ref: GlobalRef) -> None:
        self.ref = ref


def emit(builder: Builder) -> Canonical | None:
    """Return the canonical form of the program that *builder* has built, or None.

    Nothing is judged here: only what was judged, and loaded once, may be handed over.
    """
    by_memo: frozenset[int] = frozenset()
    try:
        plan = _Plan(builder)
        for left in reversed(range(_TRIES)):
            try:
                return _Writer(plan, by_memo).write()
            except _Conflict as conflict:
                by_memo |= conflict.indexes
            if left == 1:
                by_memo = frozenset(range(len(builder.program.nodes)))
    except _Unwritable:
        pass
    return None


class _Plan:
    """What has to be written: which nodes, how often each is used, and what is a constant."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.program = builder.program
        self.apart = apart(self.program)
        self._fed = self._fed_by_buffers()
        self.constant = {node.index for node in self.program.nodes if self._is_constant(node)}
        self.uses = Counter[int]()
        self.needed: set[int] = set()
        #: leaves that are used more than once, by identity: two NaNs are two keys, one is one
        self.shared: dict[int, Any] = {}
        self._names: dict[tuple[str, str], GlobalRef] = {}
        self._walk()
        self.table = dict(self._table())

    def operands(self, node: Node) -> Sequence[Any]:
        """Return what the steps of *node* need on the stack."""
        if node.index in self.constant:
            return ()
        if type(node) is not Call:
            return children(node)
        held = [*self.arguments(node), *node.items, *node.pairs]
        return held if node.state is ABSENT else [*held, node.state]

    def arguments(self, call: Call) -> list[Any]:
        entry = self.builder.entry_of(call)
        given: list[Any] = [
            _Named(item)
            if type(item) is GlobalRef and item.name in entry.args.get(position, ())
            else item
            for position, item in enumerate(call.args.items)
        ]
        return given if call.kwargs is None else [*given, call.kwargs]

    def _fed_by_buffers(self) -> set[int]:
        """Return the nodes whose value depends on what the buffers of one load hold."""
        fed = {node.index for node in self.program.nodes if type(node) is Buffer} | set(self.apart)
        pending = list(fed)
        holders: dict[int, list[int]] = {}
        for node in self.program.nodes if fed else ():
            for child in children(node):
                if isinstance(child, Node):
                    holders.setdefault(child.index, []).append(node.index)
        while pending:
            for index in holders.get(pending.pop(), ()):
                if index not in fed:
                    fed.add(index)
                    pending.append(index)
        for node in self.program.nodes if fed else ():
            if any(isinstance(key, Node) and key.index in fed for key in _keys(node)):
                # What it costs to hash, and what it collides with, was judged for those alone.
                raise _Unwritable
        return fed

    def _is_constant(self, node: Node) -> bool:
        if type(node) is not Call or node.index in self._fed or node.items or node.pairs:
            return False
        value, entry = self.builder.values[node.index], self.builder.entry_of(node)
        if entry.role == "enum":
            return True
        if not entry.make:
            # A program's own function may return something new, and its own numbers have fields.
            return False
        if type(value) not in _UNCHANGING and not _is_plain_numpy(value):
            return False
        return sys.getsizeof(value) <= _MAX_CONSTANT

    def _walk(self) -> None:
        """Find what the root needs; calls are made whether or not their result is kept."""
        pending: list[Node] = [
            node
            for node in self.program.nodes
            if type(node) is Call and node.index not in self.constant
        ]
        self.needed.update(node.index for node in pending)
        seen: set[int] = set()
        found: Sequence[Any] = (self.program.root,)
        while True:
            for item in found:
                kind = type(item)
                if kind is _Named:
                    self._names["name", item.ref.name] = item.ref
                elif kind is GlobalRef:
                    self._names["object", item.name] = item
                elif isinstance(item, Node):
                    self.uses[item.index] += 1
                    if item.index not in self.needed:
                        self.needed.add(item.index)
                        pending.append(item)
                elif kind not in (bool, type(None)) and not (kind is int and 0 <= item < 256):
                    if id(item) in seen:
                        self.shared[id(item)] = item
                    seen.add(id(item))
            if not pending:
                return
            found = self.operands(pending.pop())

    def _table(self) -> Iterable[tuple[Any, Any]]:
        """Yield what the opcodes cannot say, each under the key by which they look it up."""
        for (role, name), ref in self._names.items():
            yield (role, name), ref if role == "name" else self.builder.reference(ref)
        for node in self.program.nodes:
            if node.index not in self.needed:
                continue
            if node.index in self.constant:
                yield node.index, self.builder.values[node.index]
            elif type(node) is Buffer:
                yield node.index, Part(node)
            elif node.index in self.apart:
                yield node.index, Part(place=self.apart[node.index])
            elif type(node) is Call:
                yield "site", Part()
                yield from self._guards(node)

    def _guards(self, call: Call) -> Iterable[tuple[Any, Any]]:
        entry = self.builder.entry_of(call)
        made, built = type(self.builder.values[call.index]), call.state is not ABSENT
        if entry.make and (built <= bool(entry.state)) and call.kwargs is None:
            expected = None if built else made
            yield self.maker(call), making(shim(entry.make), entry.name, expected)
            if built:
                yield self.finisher(call), finishing(shim(entry.state), entry.name, made)
        elif entry.role == "class" and not entry.make and not entry.state:
            own = OwnClass(entry, self.builder.profile.live(entry).found)
            yield self.maker(call), making_own(own, call)
            if built:
                yield self.finisher(call), finishing_own(own)
        else:
            raise _Unwritable

    def maker(self, call: Call) -> Any:
        """Return the key of the guard that makes what *call* does."""
        name, built = self.builder.entry_of(call).name, call.state is not ABSENT
        made = type(self.builder.values[call.index])
        return "make", name, made, built, call.new, call.old, call.base, call.kwargs is None

    def finisher(self, call: Call) -> Any:
        """Return the key of the guard that gives what *call* made its state."""
        return "state", self.builder.entry_of(call).name, type(self.builder.values[call.index])

    def checks(self) -> list[Callable[[], None]]:
        """Return what looks at every listed global that the program uses."""
        profile, found = self.builder.profile, {}
        for node in self.program.nodes:
            if type(node) is Call:
                entry = self.builder.entry_of(node)
                if entry.make:
                    found["make", entry.name] = profile.witness(entry.name, shim(entry.make)).check
                else:
                    found["own", entry.name] = profile.live(entry).check
        for name in self.builder.references:
            entry = profile.entries[name]
            found["own", name] = profile.live(entry).check
        return list(found.values())


class _Writer:
    """Writes the opcodes of one plan. What is used once stays on the stack until it is used.

    Each step writes at the end and leaves nothing on the stack but its own value, so that what
    has an effect happens in the builder's order. Only pure pushes (leaves, marks, the memo) may go
    before something written earlier: below an operand that waits on the stack.
    """

    def __init__(self, plan: _Plan, by_memo: frozenset[int]) -> None:
        self.plan = plan
        self.by_memo = by_memo
        self.out: list[bytes] = []
        #: values on the stack, in order: node, where in *out* it begins, and with which step
        self.waiting: list[tuple[int, int, int]] = []
        self.on_stack: set[int] = set()
        #: number in the memo of what is kept there, and the steps since which nodes are
        self.memo: dict[Any, int] = {}
        self.since: dict[int, int] = {}
        self.unfinished: set[int] = set()
        self.step = 0

    def write(self) -> Canonical:
        program, table = self.plan.program, self.plan.table
        head = self._write_head()
        for self.step, step in enumerate(program.steps):
            index = step.index if isinstance(step, Node) else step[1].index
            if index in self.plan.needed and index not in self.plan.constant:
                self._write_step(step)
        last = self._last(program.root)
        code = b"".join([head, *self.out, last, _STOP])
        if len(code) > program.size * _GROWTH + _GROWTH_FREE:
            raise _Unwritable
        return Canonical(
            code,
            tuple(table.values()),
            tuple(self.plan.checks()),
            size=program.size,
            refs=program.refs,
            calls=program.calls,
            visits=self.plan.builder.visits,
            hashable=frozenset(self.plan.builder.hashable),
            apart=tuple(self.plan.apart.values()),
        )

    def _write_head(self) -> bytes:
        """Return what fills the memo with the table and the shared leaves."""
        written = [_HEAD]
        if self.plan.table or self.plan.shared:
            written.append(_MARK)
            for key in self.plan.table:
                self.memo[key] = len(self.memo)
                written.append(_NEXT_BUFFER + _MEMOIZE)
            for identity, leaf in self.plan.shared.items():
                self.memo["leaf", identity] = len(self.memo)
                written.append(push_leaf(leaf) + _MEMOIZE)
            written.append(_POP_MARK)
        self.numbered = len(self.memo)
        return b"".join(written)

    def _last(self, root: Any) -> bytes:
        alone = [index for index, _, _ in self.waiting]
        if isinstance(root, Node) and alone == [root.index]:
            return b""
        if alone:
            raise _Conflict(alone)
        return self._push(root)

    # -- steps ---------------------------------------------------------------------------------

    def _write_step(self, step: Step) -> None:
        if isinstance(step, Node):
            self._make(step)
            return
        operation, node, start, stop = step
        if operation == BUILD:
            assert isinstance(node, Call)
            self._finish(node)
        else:
            held: Any = node
            items = held.pairs if operation == UPDATE and type(node) is Call else held.items
            self._grow(node, items[start:stop], _GROW[operation])

    def _make(self, node: Node) -> None:
        kind = type(node)
        if kind in _EMPTY:
            self._place(node, self._gather((), _EMPTY[kind]))
        elif isinstance(node, TupleOf):
            # The tuple of a call's arguments is needed only where it is a value as well.
            many = len(node.items) >= len(_TUPLES)
            tail = b"t" if many else _TUPLES[len(node.items)]
            self._place(node, self._gather(node.items, tail, head=_MARK if many else b""))
        elif isinstance(node, FrozenSetOf):
            self._place(node, self._gather(node.items, b"\x91", head=_MARK))
        elif node.index in self.plan.apart:
            return
        elif isinstance(node, ByteArray):
            size = len(node.data).to_bytes(8, "little")
            self._place(node, self._gather((), b"".join([b"\x96", size, node.data])))
        elif isinstance(node, Call):
            self._call(node)
        elif not isinstance(node, Buffer | GlobalRef):
            raise _Unwritable

    def _call(self, call: Call) -> None:
        arguments = self.plan.arguments(call)
        guard = self._get(self.plan.maker(call)) + _MARK + self._get("site")
        self._place(
            call, self._gather(arguments, _CALL, head=guard), draft=call.state is not ABSENT
        )

    def _finish(self, call: Call) -> None:
        self.unfinished.discard(call.index)
        guard = self._get(self.plan.finisher(call)) + _MARK + self._get("site")
        self._place(call, self._gather((call, call.state), _CALL, head=guard))

    def _grow(self, node: Node, items: Sequence[Any], tail: bytes) -> None:
        if node.index not in self.on_stack:
            head = self._push(node, grown=True) + _MARK
            self._gather(items, tail + _POP, head=head, since=self.since[node.index])
            return
        self._gather(items, tail, head=_MARK)
        if self.waiting[-1][0] != node.index:
            raise _Conflict((node.index, self.waiting[-1][0]))

    # -- the stack -----------------------------------------------------------------------------

    def _gather(
        self, items: Sequence[Any], tail: bytes, *, head: bytes = b"", since: int = -1
    ) -> tuple[int, int]:
        """Write *head*, *items* and *tail*; return where that begins, and with which step.

        :param since: step before which *head* means nothing.
        """
        here = [item.index for item in items if isinstance(item, Node) and self._waits(item)]
        taken = self.waiting[len(self.waiting) - len(here) :]
        if [index for index, _, _ in taken] != here:
            raise _Conflict([*here, *(index for index, _, _ in taken)])
        pushes = [head]
        operands = iter(taken)
        for item in items:
            if not isinstance(item, Node) or item.index not in self.on_stack:
                pushes.append(self._push(item))
                since = max(since, self._since(item))
                continue
            index, place, first = next(operands)
            if since >= first:
                # Something that is to lie below it exists only since it was begun.
                raise _Conflict((index,))
            self.out[place] = b"".join([*pushes, self.out[place]])
            pushes.clear()
        del self.waiting[len(self.waiting) - len(here) :]
        self.on_stack.difference_update(here)
        self.out.append(b"".join([*pushes, tail]))
        return taken[0][1:] if taken else (len(self.out) - 1, self.step)

    def _waits(self, node: Node) -> bool:
        if node.index in self.unfinished:
            raise _Unwritable
        return node.index in self.on_stack

    def _place(self, node: Node, begun: tuple[int, int], *, draft: bool = False) -> None:
        """Leave the value of *node*, which was just written, on the stack or in the memo."""
        if draft:
            self.unfinished.add(node.index)
        once = draft or self.plan.uses[node.index] == 1
        if once and node.index not in self.by_memo:
            self.waiting.append((node.index, *begun))
            self.on_stack.add(node.index)
            return
        self.out.append(_MEMOIZE + _POP)
        self.memo["node", node.index] = self.numbered
        self.numbered += 1
        self.since[node.index] = self.step

    def _since(self, item: Any) -> int:
        return self.since.get(item.index, -1) if isinstance(item, Node) else -1

    def _push(self, item: Any, *, grown: bool = False) -> bytes:
        if isinstance(item, _Named):
            return self._get(("name", item.ref.name))
        if isinstance(item, GlobalRef):
            return self._get(("object", item.name))
        if not isinstance(item, Node):
            shared = self.memo.get(("leaf", id(item)))
            return push_leaf(item) if shared is None else push_memo(shared)
        if item.index in self.memo:
            return push_memo(self.memo[item.index])
        if item.index in self.unfinished and not grown:
            raise _Unwritable
        if ("node", item.index) not in self.memo:
            raise _Conflict((item.index,))
        return push_memo(self.memo["node", item.index])

    def _get(self, key: Any) -> bytes:
        return push_memo(self.memo[key])


def _keys(node: Node) -> Sequence[Any]:
    """Return what a step of *node* hashes."""
    if isinstance(node, SetOf | FrozenSetOf):
        return node.items
    if isinstance(node, DictOf):
        return node.items[::2]
    return node.pairs[::2] if isinstance(node, Call) else ()


def _is_plain_numpy(value: Any) -> bool:
    """Whether *value* is a dtype of nothing else, or a scalar that nothing can change.

    What its user attached to a dtype can be anything, of any size, and is the receiver's to change.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    if isinstance(value, numpy.dtype):
        return value.names is None and value.subdtype is None and value.metadata is None
    return isinstance(value, numpy.number | numpy.bool_ | numpy.datetime64)
