"""Digest a graph of objects bottom up: shared objects once, cycles by partition refinement.

The one rule: a digest depends on what is reachable and on nothing else. Who shares an object, in
which order a set is iterated and where a cycle is entered make no difference. The walk has a stack
of its own, so that its depth is bounded by memory and never by Python's recursion limit.

1. Objects become nodes, depth first, each object once (Tarjan's algorithm, SIAM J. Comput. 1972).
2. A node whose children all have digests gets its own: SHA-256 over its label and theirs.
3. Nodes of one cycle get colours that are refined until they tell apart all that differ; the digest
   of each is over the whole refined cycle and its own colour (as in Hopcroft's minimization).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from hashlib import sha256
from typing import Any, NamedTuple, cast

from safeser.tokens.encoding import LEAVES, Encoding, Leaves, digest, pack

__all__ = ["Form", "Group", "Node", "Undetermined", "Walk"]

#: How deep objects may be nested: a ``__reduce__`` that makes another object each time would never
#: end. pickle ends some hundreds of levels down.
_DEPTH = 20_000
#: Steps that the refinement of one cycle may take. Each round is linear and a few suffice wherever
#: the parts differ; a ring of alike parts takes as many rounds as it has parts, and cannot be
#: pickled either from some hundreds on.
_STEPS = 4_000_000

_CYCLE = b"\x07"
_COLOUR = b"\x08"
_INSIDE = b"\x09"


class Group(IntEnum):
    """Which order of a node's children counts."""

    ORDERED = 0
    #: None: members of a set.
    MEMBERS = 1
    #: None, in pairs: keys and values.
    PAIRS = 2


class Undetermined(Exception):
    """An object has no canonical form; the text says why, after its type's name."""


class Form(NamedTuple):
    """What an object is made of.

    :param label: its kind and its plain parts.
    :param values: objects that it consists of.
    :param steps: how error messages call the way to each of the *values*.
    :param own: how many *values* belong to the object itself. The others are what an importable
        module holds, which is never sent: one without a canonical form counts by its type.
    """

    label: bytes
    values: Sequence[Any] = ()
    group: Group = Group.ORDERED
    steps: Sequence[str] = ()
    own: int | None = None


class Node:
    """One object of the graph; *encoding* is None until its cycle is known."""

    __slots__ = ("cyclic", "encoding", "form", "index", "kids", "low", "reason", "rest", "value")

    def __init__(self, value: Any, form: Form, index: int, reason: str) -> None:
        self.value = value
        self.form = form
        self.index = self.low = index
        self.reason = reason
        self.kids: list[Encoding | Node] = []
        #: Those values of the form that were not looked at yet.
        self.rest = iter(form.values)
        #: Whether a node is among *kids*: one that had no encoding yet.
        self.cyclic = False
        self.encoding: Encoding | None = None

    def combine(self, kids: list[Encoding]) -> Encoding:
        group = self.form.group
        if not group:  # nearly all
            return digest((self.form.label, 0, kids))
        if group is Group.MEMBERS:
            kids = sorted(kids)
        else:
            paired = sorted(zip(kids[::2], kids[1::2], strict=True))
            return digest((self.form.label, 2, paired))
        return digest((self.form.label, 1, kids))


class Walk:
    """One walk over all that is reachable from one object, or from several one after the other.

    :param describe: returns the form of an object that is no leaf, or raises Undetermined.
    :param leaves: how plain values are written.
    """

    def __init__(self, describe: Callable[[Any], Form], leaves: Leaves = LEAVES) -> None:
        self._describe = describe
        self._leaves = leaves
        #: Nodes keep their objects alive: an address is an identity only as long as that.
        self._nodes: dict[int, Node] = {}
        self._open: list[Node] = []
        #: Whether anything has no canonical form.
        self.undetermined = False

    def __len__(self) -> int:
        return len(self._nodes)

    def encode(self, value: Any) -> Encoding:
        """Return the encoding of *value*, plain or not."""
        write = self._leaves.get(id(type(value)))
        encoding = None if write is None else write(value)
        if encoding is not None:
            return encoding
        known = self._nodes.get(id(value))
        if known is not None:
            return cast(Encoding, known.encoding)
        root = self._node(value)
        path = [root]
        while path:
            node = path[-1]
            below = self._next(node)
            if below is not None:
                path.append(below)
                if len(path) > _DEPTH:
                    path[0].reason = f"is nested more than {_DEPTH:,} levels deep"
                    self.undetermined = True
                    return b""
                continue
            path.pop()
            if node.low == node.index:
                self._close(node)
            if path:
                self._add(path[-1], node)
        return cast(Encoding, root.encoding)

    @staticmethod
    def _add(node: Node, kid: Node) -> None:
        """Add the next of the children of *node*, all of whose own were looked at."""
        if kid.encoding is None:
            node.low = min(node.low, kid.low)
            node.cyclic = True
        node.kids.append(kid if kid.encoding is None else kid.encoding)

    def _node(self, value: Any) -> Node:
        reason = ""
        try:
            form = self._describe(value)
        except Undetermined as error:
            reason = str(error)
        except MemoryError:
            raise
        except Exception as error:  # an object's own code, or one that is not what its type says
            reason = f"cannot be read ({type(error).__name__})"
        if reason:
            form = Form(b"undetermined", (type(value),))
            self.undetermined = True
        node = Node(value, form, len(self._nodes), reason)
        self._nodes[id(value)] = node
        self._open.append(node)
        return node

    def _next(self, node: Node) -> Node | None:
        """Encode what can be of the children of *node*; return the first that is a new node."""
        nodes, leaves, kids = self._nodes, self._leaves, node.kids
        for value in node.rest:
            write = leaves.get(id(type(value)))
            encoding = None if write is None else write(value)
            if encoding is None:
                known = nodes.get(id(value))
                if known is None:
                    known = self._node(value)
                    if known.form.values:
                        return known
                    self._close(known)
                encoding = known.encoding
                if encoding is None:
                    node.low = min(node.low, known.index)
                    node.cyclic = True
                    kids.append(known)
                    continue
            kids.append(encoding)
        return None

    def _close(self, node: Node) -> None:
        """Give digests to *node* and to all that is in one cycle with it."""
        if not node.cyclic and self._open[-1] is node:
            self._open.pop()
            node.encoding = node.combine(cast("list[Encoding]", node.kids))
            node.kids = []
            return
        at = len(self._open) - 1
        while self._open[at] is not node:
            at -= 1
        cycle = self._open[at:]
        del self._open[at:]
        self._refine(cycle)

    def _refine(self, cycle: list[Node]) -> None:
        edges = sum(len(each.kids) for each in cycle)
        colours = _colour(cycle, dict.fromkeys(map(id, cycle), _INSIDE))
        count, steps = 0, 0
        finer = colours
        while True:
            distinct = len(set(finer.values()))
            if distinct == count:
                break
            count, colours = distinct, finer
            steps += edges
            if steps > _STEPS:
                cycle[0].reason = "is part of a cycle of too many parts that are alike"
                self.undetermined = True
                break
            finer = _colour(cycle, colours)
        # Two cycles with the same pairs are alike from any two nodes of one colour on: colours
        # name nodes, and each finer colour is a digest of what the node points to.
        whole = sha256(pack(sorted({(colours[key], finer[key]) for key in colours}))).digest()
        for each in cycle:
            each.encoding = _CYCLE + sha256(whole + finer[id(each)]).digest()
            each.kids = []

    def find_cause(self, value: Any) -> tuple[Node, list[tuple[Node, int]]] | None:
        """Find what has no canonical form and belongs to *value*, and the shortest way to it.

        Returns None if nothing of the kind is sent with *value*.
        """
        root = self._nodes.get(id(value))
        if root is None:  # a plain value
            return None
        came: dict[int, tuple[Node, int] | None] = {id(root): None}
        queue = [root]
        for node in queue:
            if node.reason:
                return node, _way(node, came)
            own = len(node.form.values) if node.form.own is None else node.form.own
            for at, each in enumerate(node.form.values[:own]):
                below = self._nodes.get(id(each))
                if below is not None and id(below) not in came:
                    came[id(below)] = node, at
                    queue.append(below)
        return None


def _colour(cycle: list[Node], colours: dict[int, Encoding]) -> dict[int, Encoding]:
    """Return a colour for each node, from those that its children have."""
    return {
        id(node): _COLOUR
        + node.combine([colours[id(kid)] if isinstance(kid, Node) else kid for kid in node.kids])
        for node in cycle
    }


def _way(node: Node, came: dict[int, tuple[Node, int] | None]) -> list[tuple[Node, int]]:
    way: list[tuple[Node, int]] = []
    step = came[id(node)]
    while step is not None:
        way.append(step)
        step = came[id(step[0])]
    return way[::-1]
