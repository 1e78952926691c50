"""Measure how deep a value nests and how large it is when shared parts are counted each time.

The one rule: a value that is too deep, or too large without sharing, to be walked is refused before
any of it is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import maxsize
from typing import Any, NamedTuple

from safeser.errors import PayloadError
from safeser.gate.values import Limits
from safeser.pickles.budget import over
from safeser.pickles.nodes import (
    LEAVES,
    Apart,
    Buffer,
    ByteArray,
    GlobalRef,
    Node,
    Persistent,
    Program,
    children,
)

__all__ = ["KIB", "Shape", "Tree", "check_shape", "leaf_weight", "weigh"]

#: Bytes that count as one element, as a power of two.
KIB = 10

# A few hundred references in cycles have more paths through them than can be walked; the cycles of
# real objects, links back to a parent or a neighbour, add none.
_WAYS = 100_000


class Tree(NamedTuple):
    """A value without shared parts that affect its size.

    :param elements: how many it holds, on all of its *levels*.
    """

    elements: int
    levels: int


class Shape(NamedTuple):
    """The known size of a value whose shape was checked: either of the two.

    :param weights: of each node, how many elements it stands for once sharing is undone.
    """

    tree: Tree | None
    weights: list[int] | None


def check_shape(program: Program, limits: Limits) -> Shape:
    """Refuse value graphs too deep to walk, or too large once sharing is undone.

    One walk in depth first order without recursion. An edge back to a node that is still open is
    a cycle; it counts as a leaf, as it does for everything that prints such a value. How deep that
    gets, and how often a node is met, depends on the way there, so cycles are then walked as
    printing does.
    """
    tree = _tree(program, limits)
    if tree is not None:
        return Shape(tree, None)
    # Sharing lets a few bytes stand for a tree that no traversal finishes (a list that holds twice
    # a list that holds twice ...). Honest data repeats whole records: it may be some times as much.
    walk = _Walk(program, most=limits.elements * limits.max_sharing, deepest=limits.max_depth)
    walk.all()
    if isinstance(program.root, Node) and program.root.index in walk.cyclic:
        walk.ways(program.root)
    return Shape(None, walk.weight)


def weigh(program: Program, buffers: Sequence[int], apart: Sequence[int] = ()) -> list[int]:
    """Return of each node how many elements it stands for once sharing is undone.

    :param buffers: sizes of the out-of-band buffers, in order.
    :param apart: sizes of the values that travel beside it, in order.
    """
    walk = _Walk(program, buffers, apart)
    walk.all()
    return walk.weight


def leaf_weight(leaf: Any) -> int:
    """Return how many elements a leaf stands for.

    A long string that is shared a million times is large too: a unit for each KiB.
    """
    return 1 + (len(leaf) >> KIB) if isinstance(leaf, (str, bytes)) else 1


def _tree(program: Program, limits: Limits) -> Tree | None:
    """Return the value's size, if it is within the limits without working out what is shared.

    Goes from the root level by level and along every way, so that something shared is met as often
    as a reader would meet it. If that ends by the deepest level that is allowed, there is no cycle
    and nothing is deeper. If it met no more than the pickle was charged for, sharing adds nothing
    that counts, even if each leaf were as long as the longest. And if it met each node, then
    nothing was made and thrown away. For most pickles all of it holds; the others are walked.
    """
    weight, levels, most, seen = 0, 0, program.refs, set[int]()
    level: list[Any] = [program.root] if isinstance(program.root, Node) else []
    while levels <= limits.max_depth:
        levels += 1
        below: list[Any] = []
        for node in level:
            held = children(node)
            weight += 1 + len(held)
            # Before they are looked at: what is shared might be large.
            if weight > most:
                return None
            if not LEAVES.issuperset(map(type, held)):
                below += [child for child in held if type(child) not in LEAVES]
            seen.add(node.index)
        level = below
        if not level:
            break
    else:
        return None
    if weight * (1 + (program.longest >> KIB)) > limits.elements * limits.max_sharing:
        return None
    # What is called is no part of the value.
    whole = len(seen) == len(program.nodes) or all(
        node.index in seen or type(node) is GlobalRef for node in program.nodes
    )
    return Tree(weight, levels) if whole else None


class _Walk:
    """One walk over all nodes of a program, in depth first order and without recursion.

    :param buffers: sizes of the out-of-band buffers, where these are known; *apart*, as above.
    :param most: how many elements a node may stand for; *deepest*, how deep it may nest.
    """

    def __init__(
        self,
        program: Program,
        buffers: Sequence[int] = (),
        apart: Sequence[int] = (),
        *,
        most: int = maxsize,
        deepest: int = maxsize,
    ) -> None:
        self.program = program
        self.buffers = buffers
        self.apart = apart
        self.most = most
        self.deepest = deepest
        self.cyclic: set[int] = set()
        self.depth = [0] * len(program.nodes)
        # 0: not seen, -1: open, otherwise the number of leaves and nodes in the subtree
        self.weight = [0] * len(program.nodes)

    def all(self) -> None:
        """Walk from the root, then from nodes that are made and dropped, which are built too."""
        for root in [self.program.root, *self.program.nodes]:
            if isinstance(root, Node) and self.weight[root.index] == 0:
                self.down(root)

    def place(self, node: Node) -> str:
        return f"{self.program.unit} {node.offset}"

    def own(self, node: Node) -> int:
        """Return the weight of *node* beside what it holds."""
        if type(node) is ByteArray:
            return 1 + (len(node.data) >> KIB)
        if type(node) is Buffer and self.buffers:
            return 1 + (self.buffers[node.number] >> KIB)
        if self.apart and isinstance(node, Apart | Persistent):
            number = node.number if isinstance(node, Apart) else node.pid
            return 1 + (self.apart[number] >> KIB)
        return 1

    def down(self, root: Node) -> None:
        """Walk the content of *root*."""
        depth, weight, cyclic = self.depth, self.weight, self.cyclic
        weight[root.index] = -1
        open_nodes: list[tuple[Node, Any]] = [(root, iter(children(root)))]
        sums = [self.own(root)]
        while open_nodes:
            node, pending = open_nodes[-1]
            for child in pending:
                if not isinstance(child, Node):
                    sums[-1] += leaf_weight(child)
                    continue
                seen = weight[child.index]
                if seen == 0:
                    weight[child.index] = -1
                    open_nodes.append((child, iter(children(child))))
                    sums.append(self.own(child))
                    break
                if seen < 0 or child.index in cyclic:
                    cyclic.add(node.index)
                sums[-1] += max(seen, 1)
                depth[node.index] = max(depth[node.index], depth[child.index] + 1)
            else:
                open_nodes.pop()
                total = weight[node.index] = sums.pop()
                self.check_weight(node, total)
                if open_nodes:
                    parent = open_nodes[-1][0]
                    sums[-1] += total
                    if node.index in cyclic:
                        cyclic.add(parent.index)
                    depth[parent.index] = max(depth[parent.index], depth[node.index] + 1)
            if len(open_nodes) > self.deepest + 1 or depth[node.index] > self.deepest:
                raise over(
                    "max-depth", "the pickle nests deeper than allowed", where=self.place(node)
                )

    def check_weight(self, node: Node, total: int) -> None:
        if total > self.most:
            raise over(
                "sharing",
                "the pickle has more elements than allowed when shared parts count each time",
                where=self.place(node),
                limit="max-sharing",
            )

    def ways(self, root: Node) -> None:
        """Refuse cycles with too many ways through them, or ways that are too deep or too large."""
        path: dict[int, tuple[Node, list[Node]]] = {}
        turns: dict[int, tuple[list[Node], int, int]] = {}
        ways, total, entered = 0, 0, root
        while True:
            # 1. Enter a node: what of it is no part of a cycle was measured before.
            if entered.index not in turns:
                turns[entered.index] = self.turns(entered)
            further, size, deep = turns[entered.index]
            path[entered.index] = entered, further[::-1]
            ways, total = ways + 1 + len(further), total + size
            if ways > _WAYS or total > self.most or len(path) - 1 + deep > self.deepest:
                raise PayloadError(
                    "the pickle has more paths through its reference cycles than can be walked",
                    rule="pickle.cycles",
                    where=self.place(entered),
                    fix="Send what refers to each other as a table with indexes.",
                )
            # 2. Leave those that are done, and go on with the next.
            while path:
                node, pending = path[next(reversed(path))]
                while pending and pending[-1].index in path:
                    pending.pop()
                if pending:
                    entered = pending.pop()
                    break
                del path[node.index]
            else:
                return

    def turns(self, node: Node) -> tuple[list[Node], int, int]:
        """Return where a cycle goes on from *node*, and size and depth of what else it holds."""
        held = [child for child in children(node) if isinstance(child, Node)]
        plain = [child.index for child in held if child.index not in self.cyclic]
        return (
            [child for child in held if child.index in self.cyclic],
            1 + sum(self.weight[index] for index in plain),
            max((1 + self.depth[index] for index in plain), default=0),
        )
