"""Write nodes as a reduced tree in msgpack.

The one rule: the tree reads as the same program. A program with a step that has no operation is
refused; no step is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgpack

from safeser.pickles.nodes import (
    ADD,
    BUILD,
    EXTEND,
    UPDATE,
    Apart,
    Buffer,
    ByteArray,
    Call,
    DictOf,
    FrozenSetOf,
    GlobalRef,
    ListOf,
    Node,
    Persistent,
    Program,
    SetOf,
    Step,
    TupleOf,
    children,
    container,
    is_constant,
)
from safeser.pickles.shims.site import bad
from safeser.pickles.trees.operations import INT_MAX, INT_MIN, KEPT_ABOVE, Operation

__all__ = ["instance", "write"]

_EMPTY: dict[type[Node], Operation] = {
    ListOf: Operation.LIST,
    DictOf: Operation.DICT,
    SetOf: Operation.SET,
}
_FILLED: dict[type[Node], Operation] = {TupleOf: Operation.TUPLE, FrozenSetOf: Operation.FROZENSET}
_GROWS = {EXTEND: Operation.EXTEND, UPDATE: Operation.UPDATE, ADD: Operation.ADD}
_TEXTS = frozenset((str, bytes))
_AS_THEY_ARE = frozenset((type(None), bool, float))
#: Bytes of a pickle from which on repeated texts are searched for.
_WORTH = 512


def write(program: Program, order: Sequence[int] = ()) -> bytes:
    """Return *program* as a tree.

    It also sets ``program.unshared``, as a reader of the tree does.

    :param order: the position at which each buffer travels; empty for their own order.
    :raises PayloadError: if the program has something without an operation: old instances,
        persistent ids, or a call of the result of a call.
    """
    writer = _Writer(program, order or range(program.buffers))
    tokens = writer.all()
    program.unshared = not writer.shared
    packed: bytes = msgpack.packb(tokens)
    # Without the header of the list: a tree is a run of scalars.
    return packed[1 if len(tokens) < 16 else 3 if len(tokens) < 1 << 16 else 5 :]


def instance(name: str, state: Mapping[str, Any]) -> bytes:
    """Return the tree of an instance of *name* that is made empty and given *state*.

    :param state: leaves, :class:`Apart` for values beside the tree, and tuples of these.
    """
    call = Call(GlobalRef(name), container(TupleOf, []), new=True)
    nodes: list[Node] = [call.callee, call.args, call]
    held: list[Any] = []
    for field, value in state.items():
        parts = value if type(value) is tuple else (value,)
        nodes += [part for part in parts if isinstance(part, Apart)]
        if type(value) is tuple:
            nodes.append(container(TupleOf, list(value)))
        held += [field, nodes[-1] if isinstance(value, tuple | Apart) else value]
    fields = container(DictOf, held)
    nodes.append(fields)
    for index, node in enumerate(nodes):
        node.index, node.offset = index, index
    call.state = fields
    steps: list[Step] = [*nodes, (UPDATE, fields, 0, len(held)), (BUILD, call, 0, 0)]
    return write(Program(call, nodes, steps, 0, 0))


class _Writer:
    """Writes one program.

    :ivar numbers: the number of each node in the tree, by its index in the program.
    """

    def __init__(self, program: Program, order: Sequence[int]) -> None:
        self.program = program
        self.order = order
        self.begun: dict[int, int] = {}
        self.tokens: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.names: dict[str | int, int] = {}
        self.kept: dict[Any, int] = {}
        self.made = 0
        self.held: set[int] = set()
        self.shared = False
        self.dropped = _only_spelt(program)
        self.repeated = _repeated(program, self.dropped)

    def all(self) -> list[Any]:
        for step in self.program.steps:
            if isinstance(step, tuple):
                self.change(*step)
            elif step.index not in self.dropped:
                self.make(step)
        root = self.values((self.program.root,))
        self.tokens += (Operation.RETURN, *root)
        return self.tokens

    # -- steps ---------------------------------------------------------------------------------

    def make(self, node: Node) -> None:
        kind = type(node)
        if isinstance(node, GlobalRef | Persistent | Apart):
            if not self.begin(node):
                return
        elif kind in _EMPTY:
            self.tokens.append(_EMPTY[kind])
        elif kind in _FILLED:
            items = node.items  # type: ignore[attr-defined]  # both have them
            values = self.values(items)
            self.tokens += (_FILLED[kind], len(items), *values)
        elif isinstance(node, Call):
            self.call(node)
        elif isinstance(node, ByteArray):
            self.tokens += (Operation.BYTEARRAY, bytes(node.data))
        elif isinstance(node, Buffer):
            self.buffer(node)
        else:
            raise bad("tree", f"a {kind.__name__} has no place in a reduced tree")
        self.numbers[node.index] = self.made
        self.made += 1

    def begin(self, node: GlobalRef | Persistent | Apart) -> bool:
        """Write a part that occurs once in a tree, and tell whether it is new."""
        said: Any
        if isinstance(node, GlobalRef):
            operation, said = Operation.NAME, node.name
        else:
            operation, said = Operation.APART, node.number if isinstance(node, Apart) else node.pid
            if type(said) is not int:
                raise bad("tree", "a persistent id has no place in a reduced tree")
        known = self.names.get(said)
        if known is not None:
            self.numbers[node.index] = known
            return False
        self.names[said] = self.made
        self.tokens += (operation, said)
        return True

    def call(self, node: Call) -> None:
        if node.old or node.base or type(node.callee) is not GlobalRef:
            raise bad("tree", "an object is made in a way that a reduced tree does not have")
        parts = [self.numbers[node.callee.index], self.hold(node.args)]
        if node.kwargs is not None:
            parts.append(self.hold(node.kwargs))
            self.tokens += (Operation.NEW_WITH, *parts)
        else:
            self.tokens += (Operation.NEW if node.new else Operation.CALL, *parts)

    def buffer(self, node: Buffer) -> None:
        if not node.readonly:
            self.begun[node.number] = self.made
            self.tokens += (Operation.BUFFER, self.order[node.number])
        else:
            begun = self.begun[node.number]
            self.shared |= begun in self.held
            self.held.add(begun)
            self.tokens += (Operation.READONLY, begun)

    def change(self, operation: int, node: Node, start: int, stop: int) -> None:
        target = self.numbers[node.index]
        if operation == BUILD:
            (state,) = self.values((node.state,))  # type: ignore[attr-defined]  # a call
            self.tokens += (Operation.BUILD, target, state)
            return
        of_call = isinstance(node, Call) and operation == UPDATE
        held = node.pairs if of_call else node.items  # type: ignore[attr-defined]  # what grows has them
        values = self.values(held[start:stop])
        self.tokens += (_GROWS[operation], target, stop - start, *values)

    # -- values --------------------------------------------------------------------------------

    def values(self, items: Sequence[Any]) -> list[Any]:
        """Return *items* as operands, after writing the values that have to be kept for them."""
        kinds = set(map(type, items))
        if kinds <= _AS_THEY_ARE or (
            kinds == {int} and INT_MIN <= min(items) <= max(items) <= INT_MAX
        ):
            return list(items)
        return [self.value(item) for item in items]

    def value(self, item: Any) -> Any:
        kind = type(item)
        if isinstance(item, Node):
            return [self.hold(item)]
        if kind is int and not INT_MIN <= item <= INT_MAX:
            bits = item.bit_length() if item >= 0 else (~item).bit_length()
            return self.keep(
                item, Operation.INTEGER, item.to_bytes(bits // 8 + 1, "big", signed=True)
            )
        if kind is str and not item.isascii() and not _is_unicode(item):
            return self.keep(item, Operation.TEXT, item.encode("utf-8", "surrogatepass"))
        if kind in _TEXTS and item in self.repeated:
            return self.keep(item, Operation.KEEP, item)
        return item

    def hold(self, node: Node) -> int:
        """Return the number of *node*, and note whether something else holds it as well."""
        number = self.numbers[node.index]
        if number in self.held:
            self.shared |= not is_constant(node)
        else:
            self.held.add(number)
        return number

    def keep(self, item: Any, operation: Operation, spelt: Any) -> list[int]:
        number = self.kept.get(item)
        if number is None:
            number = self.kept[item] = ~len(self.kept)
            self.tokens += (operation, spelt)
        return [number]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _only_spelt(program: Program) -> frozenset[int]:
    """Return the indexes of nodes that only spell another node and that no other node holds."""
    if not program.spelt:
        return program.spelt
    held = {program.root.index} if isinstance(program.root, Node) else set()
    for node in program.nodes:
        if node.index in program.spelt:
            continue
        held.update(child.index for child in children(node) if isinstance(child, Node))
        if isinstance(node, Call) and isinstance(node.callee, GlobalRef):
            held.add(node.callee.index)
    # A spelt tuple that is held also holds its items.
    for index in program.spelt & held:
        held.update(
            child.index for child in children(program.nodes[index]) if isinstance(child, Node)
        )
    return program.spelt - held


def _repeated(program: Program, dropped: frozenset[int]) -> frozenset[Any]:
    """Return the texts and bytes that occur more than once and are worth keeping."""
    if program.size < _WORTH:
        return frozenset()
    counted: Counter[Any] = Counter()
    for node in program.nodes:
        if node.index not in dropped:
            counted.update(_texts(children(node)))
    return frozenset(text for text, count in counted.items() if count > 1)


def _texts(items: Iterable[Any]) -> Iterable[Any]:
    return (item for item in items if type(item) in _TEXTS and len(item) > KEPT_ABOVE)
