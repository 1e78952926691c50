"""Represent the content of a pickle as inert nodes, which cannot import, call or hold objects.

The one rule: only the machine makes nodes, in the order of the stream, so a list of steps over
nodes describes everything that an unpickler would do, and does none of it. Leaves (None, bool, int,
float, str, bytes) stand for themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar


class _Absent:
    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


#: No state was given to BUILD; None would be a state.
ABSENT: Final = _Absent()

#: Types whose values are nodes themselves.
LEAVES: Final = frozenset((type(None), bool, int, float, str, bytes))

# Names of callables that return immutable objects.
_CONSTANTS: Final = frozenset(("numpy:dtype",))

# What a step does with its node.
EXTEND, UPDATE, ADD, BUILD = range(4)


class Node:
    """Base of everything in a tree that isn't a leaf. Compared by identity, as memo entries are.

    Containers have no ``__init__``: it would take longer than all else that is done for one.
    """

    __slots__ = ("index", "offset")

    index: int
    offset: int


class ListOf(Node):
    __slots__ = ("items",)

    items: list[Any]


class SetOf(Node):
    __slots__ = ("items",)

    items: list[Any]


class TupleOf(Node):
    __slots__ = ("items",)

    items: list[Any]


class FrozenSetOf(Node):
    __slots__ = ("items",)

    items: list[Any]


class DictOf(Node):
    """A dict; *items* is flat: key, value, key, value, in the order of the stream."""

    __slots__ = ("items",)

    items: list[Any]


class ByteArray(Node):
    __slots__ = ("data",)

    def __init__(self, data: memoryview) -> None:
        self.data = data


class Buffer(Node):
    """The *number*-th out-of-band buffer."""

    __slots__ = ("number", "readonly")

    def __init__(self, number: int, *, readonly: bool) -> None:
        self.number = number
        self.readonly = readonly


class Apart(Node):
    """The *number*-th value that travels beside a tree, in a spelling of its own."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Persistent(Node):
    """The object that ``persistent_load`` returns for an id: text, or a plain judged value."""

    __slots__ = ("pid",)

    def __init__(self, pid: Any) -> None:
        self.pid = pid


class GlobalRef(Node):
    """A name, and only that; ``module`` and ``qualname`` are well-formed, not looked up."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def module(self) -> str:
        return self.name.partition(":")[0]

    @property
    def qualname(self) -> str:
        return self.name.partition(":")[2]


#: Few calls are handed anything; a list for each would take as much memory as all the rest.
_UNFILLED: Any = ()


class Call(Node):
    """A call by REDUCE, or an instantiation (*new*) by NEWOBJ and NEWOBJ_EX, and what followed.

    :param old: by INST or OBJ, Python 2's instances: without arguments the class's ``__new__``
        alone, as for *new*, unless the class has ``__getinitargs__``; else a call of the class.
    :param base: by ``copyreg._reconstructor``, protocol 0's way: the built-in class whose
        ``__new__`` makes it of its content, past a ``__new__`` of the class's own. Else empty.
    :param callee: normally a :class:`GlobalRef`; anything else is never allowed, only shown.
    :param items: what APPEND(S) handed to the result.
    :param pairs: what SETITEM(S) handed to it, flat.
    :param state: what BUILD handed to it, or :data:`ABSENT`.
    """

    __slots__ = ("args", "base", "callee", "items", "kwargs", "new", "old", "pairs", "state")

    def __init__(
        self,
        callee: Any,
        args: TupleOf,
        *,
        new: bool,
        old: bool = False,
        base: str = "",
        kwargs: Any = None,
    ) -> None:
        self.callee = callee
        self.args = args
        self.new = new
        self.old = old
        self.base = base
        self.kwargs = kwargs
        self.items: list[Any] = _UNFILLED
        self.pairs: list[Any] = _UNFILLED
        self.state: Any = ABSENT


_Container = TypeVar("_Container", ListOf, SetOf, TupleOf, FrozenSetOf, DictOf)


def container(kind: type[_Container], items: list[Any]) -> _Container:
    """Return a container of *items*, which it keeps."""
    made = kind()
    made.items = items
    return made


#: A node that is made; or an operation, its node, and the first and last element that it adds.
Step = Node | tuple[int, Node, int, int]


@dataclass(eq=False)
class Program:
    """One whole pickle, read once: what it makes, in order, and what it returns.

    :param refs: how many elements and keys it was charged for.
    :param calls: how many objects it makes by calls.
    :param buffers: how many out-of-band buffers it takes.
    :param longest: no leaf is longer, but for those that fit into 255 bytes.
    :param apart: how many values it takes that travel beside it.
    :param unit: what nodes' offsets count.
    :param unshared: it is known that each node that can be written to is held once.
    :param spelt: indexes of names and tuples that only spelt another node. They stand for nothing
        of their own, unless something else holds them too.
    """

    root: Any
    nodes: list[Node] = field(repr=False)
    steps: list[Step] = field(repr=False)
    size: int
    protocol: int
    refs: int = 0
    calls: int = 0
    spelt: frozenset[int] = frozenset()
    buffers: int = 0
    longest: int = 0
    apart: int = 0
    unit: str = "byte"
    unshared: bool = False

    def __post_init__(self) -> None:
        self._links: _Links | None = None

    @property
    def readonly_buffers(self) -> frozenset[int]:
        """The numbers of buffers that nothing may write to."""
        if not self.buffers:
            return frozenset()
        held = (node for node in self.nodes if type(node) is Buffer and node.readonly)
        return frozenset(node.number for node in held)

    @property
    def argument_tuples(self) -> frozenset[int]:
        """The indexes of tuples that are nothing but the arguments of calls.

        Only in these may a name stand for itself at a position that an entry lists; a tuple that is
        also handed over as a value is judged, and built, like any other.
        """
        return self._linked().arguments if self.calls or self.spelt else frozenset()

    @property
    def names_held(self) -> list[tuple[int, int]]:
        """The indexes of what holds a name as a value, which arguments may, and of that name."""
        return self._linked().names

    def _linked(self) -> _Links:
        if self._links is None:
            self._links = self._find_links()
        return self._links

    def _find_links(self) -> _Links:
        arguments: set[int] = set()
        if self.calls or self.spelt:
            arguments = {node.args.index for node in self.nodes if type(node) is Call}
            arguments.update(at for at in self.spelt if type(self.nodes[at]) is TupleOf)
            if isinstance(self.root, Node):
                arguments.discard(self.root.index)
        names: list[tuple[int, int]] = []
        for node in self.nodes:
            for child in held_as_values(node):
                kind = type(child)
                if kind is TupleOf:
                    arguments.discard(child.index)
                elif kind is GlobalRef:
                    names.append((node.index, child.index))
        return _Links(frozenset(arguments), names)


class _Links(NamedTuple):
    arguments: frozenset[int]
    names: list[tuple[int, int]]


#: Nodes that hold one list, and what their values are called.
KINDS = {ListOf: "list", DictOf: "dict", SetOf: "set", FrozenSetOf: "frozenset", TupleOf: "tuple"}


def children(node: Node) -> list[Any]:
    """Return what *node* holds directly, leaves included, callees and names excluded."""
    if type(node) in KINDS:
        return node.items  # type: ignore[attr-defined,no-any-return]  # each of these has them
    if isinstance(node, Persistent):
        return [node.pid]
    if not isinstance(node, Call):
        return []
    held = [node.args]
    if node.items or node.pairs:
        held += [*node.items, *node.pairs]
    if node.kwargs is not None:
        held.append(node.kwargs)
    if node.state is not ABSENT:
        held.append(node.state)
    if not isinstance(node.callee, GlobalRef):
        held.append(node.callee)
    return held


def is_constant(node: Node) -> bool:
    """Tell whether *node* stands for an immutable object, which may safely be shared."""
    if type(node) is Call:
        return type(node.callee) is GlobalRef and node.callee.name in _CONSTANTS
    return type(node) is GlobalRef


def held_as_values(node: Node) -> Sequence[Any]:
    """Return what *node* holds beside the arguments of a call."""
    kind = type(node)
    if kind is GlobalRef:
        return ()
    if not isinstance(node, Call):
        return children(node)
    if type(node.callee) is GlobalRef and not (node.items or node.pairs or node.kwargs):
        # Most calls: looked at without making a list.
        return () if node.state is ABSENT else (node.state,)
    return children(node)[1:]
