"""Parse a reduced tree in msgpack into nodes, strictly.

The one rule: only the form that the writer produces is accepted: shortest encodings, complete
steps, references to earlier nodes only. Each element, call and token is charged to the message's
budget, as the opcode machine charges opcodes; nothing is imported, called or looked up.

msgpack's C code reads the tokens. It may open no container of more than one element, so it trusts
no count. A token takes at least one byte of the tree, and the opcodes that the budget has left
bound the number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import msgpack

from safeser.errors import PayloadError
from safeser.gate.values import Limits
from safeser.pickles.budget import Budget, over
from safeser.pickles.names import check_name
from safeser.pickles.nodes import (
    ABSENT,
    ADD,
    BUILD,
    EXTEND,
    LEAVES,
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
    Program,
    SetOf,
    Step,
    TupleOf,
    container,
    is_constant,
)
from safeser.pickles.trees.operations import INT_MAX, INT_MIN, KEPT_ABOVE, Operation

__all__ = ["read_tree"]

_TOKENS = LEAVES | {list}
_TEXTS = frozenset((str, bytes))
#: Arguments of calls for each token, as in the opcode machine: calls may share a tuple of them.
_ARGUMENTS_PER_TOKEN = 8
#: Shorter leaves count as one element each; see :attr:`Program.longest`.
_SHORT = 255


def read_tree(
    data: bytes | bytearray | memoryview,
    *,
    buffers: int,
    apart: int = 0,
    limits: Limits,
    budget: Budget,
) -> Program:
    """Parse the tree *data* into a program.

    :param buffers: how many buffers come with it; it must use each.
    :param apart: how many typed values come with it; it must use each.
    :param budget: the rest of the message's budget, which is charged.
    :raises PayloadError: the tree is malformed or over budget.
    """
    if len(data) > limits.max_bytes:
        raise over("max-bytes", "a tree is larger than allowed")
    tokens = _tokens(data if type(data) is bytes else bytes(data), budget)
    reader = _Reader(tokens, buffers, apart, limits, budget)
    reader.longest = _longest(tokens, len(data), limits)
    program = reader.run(len(data))
    if (program.buffers, program.apart) != (buffers, apart):
        raise _bad("buffers", "a tree does not use each of the buffers and values beside it")
    budget.spend(refs=program.refs, calls=program.calls)
    return program


def _bad(rule: str, message: str, *, where: str = "") -> PayloadError:
    return PayloadError(
        message, rule=f"pickle.{rule}", where=where, fix="No profile and no limit allows this."
    )


def _tokens(data: bytes, budget: Budget) -> list[Any]:
    most = max(budget.opcodes, 0)
    turns = iter(range(most))  # what is left of it is left of the budget
    unpacker = msgpack.Unpacker(
        max_buffer_size=max(len(data), 1),
        max_str_len=len(data),
        max_bin_len=len(data),
        max_array_len=1,
        max_map_len=0,
        max_ext_len=0,
    )
    try:
        unpacker.feed(data)
        with budget.reading(turns):
            tokens = [token for _, token in zip(turns, unpacker, strict=False)]
        read: int = unpacker.tell()
        if read != len(data) and len(tokens) == most:
            raise over("max-memory", "a tree has more tokens than the allowed elements take")
        # Two encodings of one number would give two trees of one value.
        if not _TOKENS.issuperset(map(type, tokens)) or not _same(tokens, data):
            raise _bad("tree", "a tree is not made of whole msgpack scalars in their shortest form")
    except (ValueError, msgpack.UnpackException):
        raise _bad("tree", "a tree is not msgpack") from None
    return tokens


def _same(tokens: list[Any], data: bytes) -> bool:
    packed: bytes = msgpack.packb(tokens)
    start = 1 if len(tokens) < 16 else 3 if len(tokens) < 1 << 16 else 5
    return len(packed) - start == len(data) and memoryview(packed)[start:] == data


def _longest(tokens: list[Any], size: int, limits: Limits) -> int:
    """Return an upper bound of the bytes of the longest leaf; 0 for a short tree."""
    if size <= _SHORT:
        return 0
    longest = 0
    for token in tokens:
        if type(token) in _TEXTS and len(token) > longest:
            longest = len(token)
    if longest > limits.max_string:
        raise over("max-string", "a string is longer than allowed")
    # Characters of up to four bytes.
    return min(size, 4 * longest)


class _Reader:
    """Reads the tokens of one tree, a step at a time."""

    def __init__(
        self, tokens: list[Any], buffers: int, apart: int, limits: Limits, budget: Budget
    ) -> None:
        self.tokens = tokens
        self.most_buffers = buffers
        self.most_apart = apart
        self.limits = limits
        self.pos = 0
        self.at = 0
        self.nodes: list[Node] = []
        self.steps: list[Step] = []
        self.kept: list[Any] = []
        self.names: set[str] = set()
        self.held: set[int] = set()
        self.shared = False
        self.refs = self.granted = budget.refs
        self.calls = self.most_calls = budget.calls
        self.arguments = 0
        self.buffers: set[int] = set()
        self.apart: set[int] = set()
        self.longest = 0

    def run(self, size: int) -> Program:
        tokens = self.tokens
        try:
            while True:
                self.at = self.pos
                operation = tokens[self.at]
                self.pos += 1
                step = _STEPS.get(operation) if type(operation) is int else None
                if step is None:
                    break
                step(self)
            if type(operation) is not int or operation != Operation.RETURN:
                self.refuse("tree", "a tree has an unknown operation")
            root = self.value()
        except IndexError:
            self.refuse("truncated", "a tree ends without its return operation")
        if self.pos != len(tokens):
            self.refuse("trailing", "a tree has data after its end")
        return Program(
            root,
            self.nodes,
            self.steps,
            size,
            0,
            refs=self.granted - self.refs,
            calls=self.most_calls - self.calls,
            buffers=len(self.buffers),
            longest=self.longest,
            apart=len(self.apart),
            unit="token",
            unshared=not self.shared,
        )

    # -- refusing and charging -----------------------------------------------------------------

    def refuse(self, rule: str, message: str) -> NoReturn:
        raise _bad(rule, message, where=f"token {self.at}")

    def charge(self, count: int) -> None:
        self.refs -= count
        if self.refs < 0:
            raise over(
                "max-memory", "a tree holds more elements than allowed", where=f"token {self.at}"
            )

    def push(self, node: Node) -> None:
        # As for a pickle: a container costs two elements' worth, and one for its place in the memo.
        self.charge(3)
        node.index = len(self.nodes)
        node.offset = self.at
        self.nodes.append(node)
        self.steps.append(node)

    # -- operands ------------------------------------------------------------------------------

    def take(self) -> Any:
        token = self.tokens[self.pos]
        self.pos += 1
        return token

    def count(self) -> int:
        count = self.take()
        if type(count) is not int or count < 0:
            self.refuse("tree", "a count in a tree is not a number")
        if count > len(self.tokens) - self.pos:
            self.refuse("truncated", "a tree ends before the number of values that it declares")
        return count

    def node(self, *kinds: type[Node]) -> Any:
        """Return the node whose number comes next, which must be one of *kinds*."""
        number = self.take()
        if type(number) is not int or not 0 <= number < len(self.nodes):
            self.refuse("tree", "a tree refers to what was not made before")
        node = self.nodes[number]
        if type(node) not in kinds:
            self.refuse("tree", "a tree refers to what its operation does not take")
        return node

    def value(self) -> Any:
        token = self.take()
        return self.referred(token) if type(token) is list else token

    def values(self) -> list[Any]:
        count = self.count()
        self.charge(count)
        start = self.pos
        self.pos += count
        items = self.tokens[start : self.pos]
        if LEAVES.issuperset(map(type, items)):
            return items
        return [self.referred(item) if type(item) is list else item for item in items]

    def referred(self, token: list[Any]) -> Any:
        """Return the value that a list of one number refers to."""
        number = token[0] if token else None
        if type(number) is not int:
            self.refuse("tree", "a reference in a tree is not a number")
        if number < 0:
            if ~number >= len(self.kept):
                self.refuse("tree", "a tree refers to a value that was not kept before")
            return self.kept[~number]
        if number >= len(self.nodes):
            self.refuse("tree", "a tree refers to what was not made before")
        return self.hold(self.nodes[number])

    def hold(self, node: Node) -> Node:
        """Note that *node* is held; the tree is shared if a node that may change is held twice."""
        if node.index not in self.held:
            self.held.add(node.index)
        elif not is_constant(node):
            self.shared = True
        return node

    # -- steps ---------------------------------------------------------------------------------

    def do_name(self) -> None:
        name = self.take()
        module, colon, qualname = name.partition(":") if type(name) is str else ("", "", "")
        if not colon or name in self.names:
            self.refuse("name", "a tree has a malformed name, or one twice")
        check_name(module, qualname, dotted=True, where=f"token {self.at}")
        self.names.add(name)
        self.push(GlobalRef(name))

    def do_tuple(self) -> None:
        self.push(container(TupleOf, self.values()))

    def do_frozenset(self) -> None:
        self.push(container(FrozenSetOf, self.values()))

    def do_bytearray(self) -> None:
        content = self.take()
        if type(content) is not bytes:
            self.refuse("tree", "the content of a bytearray is not bytes")
        self.push(ByteArray(memoryview(content)))

    def do_extend(self) -> None:
        target = self.node(ListOf, Call)
        self.grow(EXTEND, target, self.growing(target, "items"))

    def do_update(self) -> None:
        target = self.node(DictOf, Call)
        held = self.growing(target, "pairs" if type(target) is Call else "items")
        self.grow(UPDATE, target, held)
        if len(held) % 2:
            self.refuse("stack", "a key has no value")

    def do_add(self) -> None:
        target = self.node(SetOf)
        self.grow(ADD, target, target.items)

    def growing(self, target: Any, name: str) -> list[Any]:
        """Return the list of the elements that are added to *target*."""
        if type(target) is not Call:
            return target.items  # type: ignore[no-any-return]  # a list
        if target.state is not ABSENT:
            self.refuse("build-order", "an object changes after it was built")
        held = getattr(target, name)
        if not held:
            held = []
            setattr(target, name, held)
        return held  # type: ignore[no-any-return]  # a list

    def grow(self, operation: int, target: Node, held: list[Any]) -> None:
        items = self.values()
        if not items:
            self.refuse("tree", "a tree adds nothing to a container")
        self.charge(1)
        start = len(held)
        held.extend(items)
        self.steps.append((operation, target, start, len(held)))

    def do_call(self) -> None:
        self.call(new=False)

    def do_new(self) -> None:
        self.call(new=True)

    def do_new_with(self) -> None:
        self.call(new=True, named=True)

    def call(self, *, new: bool, named: bool = False) -> None:
        callee, args = self.node(GlobalRef), self.node(TupleOf)
        kwargs = self.hold(self.node(DictOf)) if named else None
        self.hold(args)
        self.calls -= 1
        if self.calls < 0:
            raise over("max-calls", "a tree makes more objects by calls than allowed")
        self.arguments += len(args.items) + (len(kwargs.items) if isinstance(kwargs, DictOf) else 0)
        if self.arguments > _ARGUMENTS_PER_TOKEN * self.pos:
            self.refuse("arguments", "calls share more arguments than so few tokens may stand for")
        self.push(Call(callee, args, new=new, kwargs=kwargs))

    def do_build(self) -> None:
        target = self.node(Call)
        if target.state is not ABSENT:
            self.refuse("build-twice", "an object is built twice")
        self.charge(1)
        target.state = self.value()
        self.steps.append((BUILD, target, 0, 0))

    def do_buffer(self) -> None:
        self.push(Buffer(self.once(self.buffers, self.most_buffers), readonly=False))

    def do_apart(self) -> None:
        self.push(Apart(self.once(self.apart, self.most_apart)))

    def once(self, taken: set[int], most: int) -> int:
        """Return the next number, which refers to a buffer or value that is not *taken* yet."""
        number: int = self.take()
        if type(number) is not int or not 0 <= number < most or number in taken:
            self.refuse("buffers", "a tree refers to a buffer or value twice, or to a missing one")
        taken.add(number)
        return number

    def do_readonly(self) -> None:
        found: Buffer = self.node(Buffer)
        if found.readonly:
            self.refuse("buffers", "a buffer is read-only already")
        self.hold(found)
        self.push(Buffer(found.number, readonly=True))

    def do_keep(self) -> None:
        text = self.take()
        if type(text) not in _TEXTS or len(text) <= KEPT_ABOVE:
            self.refuse("tree", "a tree keeps something other than a long text")
        self.keep(text)

    def do_integer(self) -> None:
        spelt = self.take()
        if type(spelt) is not bytes:
            self.refuse("tree", "a large integer is not bytes")
        if len(spelt) > self.limits.max_int:
            raise over("max-int", "an integer is larger than allowed", where=f"token {self.at}")
        number = int.from_bytes(spelt, "big", signed=True)
        shortest = len(spelt) == _width(number)
        if INT_MIN <= number <= INT_MAX or not shortest:
            self.refuse("tree", "a large integer is not large, or not in its shortest form")
        self.keep(number)

    def do_text(self) -> None:
        spelt = self.take()
        if type(spelt) is not bytes:
            self.refuse("tree", "text with surrogates is not bytes")
        try:
            text = spelt.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self.refuse("text", "a string does not decode")
        if not any("\ud800" <= char <= "\udfff" for char in text):
            self.refuse("tree", "text with surrogates has none")
        self.keep(text)

    def keep(self, leaf: Any) -> None:
        self.charge(1)
        self.kept.append(leaf)


def _width(number: int) -> int:
    return (number.bit_length() if number >= 0 else (~number).bit_length()) // 8 + 1


_STEPS: dict[int, Callable[[_Reader], None]] = {
    Operation.NAME: _Reader.do_name,
    Operation.TUPLE: _Reader.do_tuple,
    Operation.LIST: lambda reader: reader.push(container(ListOf, [])),
    Operation.DICT: lambda reader: reader.push(container(DictOf, [])),
    Operation.SET: lambda reader: reader.push(container(SetOf, [])),
    Operation.FROZENSET: _Reader.do_frozenset,
    Operation.BYTEARRAY: _Reader.do_bytearray,
    Operation.EXTEND: _Reader.do_extend,
    Operation.UPDATE: _Reader.do_update,
    Operation.ADD: _Reader.do_add,
    Operation.CALL: _Reader.do_call,
    Operation.NEW: _Reader.do_new,
    Operation.NEW_WITH: _Reader.do_new_with,
    Operation.BUILD: _Reader.do_build,
    Operation.BUFFER: _Reader.do_buffer,
    Operation.READONLY: _Reader.do_readonly,
    Operation.APART: _Reader.do_apart,
    Operation.KEEP: _Reader.do_keep,
    Operation.INTEGER: _Reader.do_integer,
    Operation.TEXT: _Reader.do_text,
}
