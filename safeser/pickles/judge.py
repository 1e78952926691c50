"""Judging a program against a profile: every use of every global, before anything is built.

The one rule: a use that is not listed, in that role and at that place, is denied; so is a call of
anything but a direct global. Judging imports nothing and takes time linear in the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from safeser.errors import PayloadError
from safeser.pickles.budget import over
from safeser.pickles.nodes import (
    ABSENT,
    LEAVES,
    Call,
    DictOf,
    GlobalRef,
    Node,
    Persistent,
    Program,
    children,
)
from safeser.pickles.profiles import Entry, Profile
from safeser.values import Limits

__all__ = ["Use", "check_shape", "judge", "problem_under"]

_JUDGED = frozenset((GlobalRef, Call, Persistent))
# Through a few hundred references that go round in circles there are more ways than anybody can
# walk; what honest objects have of them, links back to a parent or a neighbour, adds none.
_WAYS = 100_000


@dataclass(frozen=True, slots=True)
class Use:
    """One use of one global.

    :param name: ``module:qualname``; ``"<result of a call>"`` where a result is called.
    :param role: ``"called"``, ``"instantiated"``, ``"built"``, ``"referenced"`` or, of an id,
        ``"persistent"``.
    :param offset: byte at which the stream names or uses it.
    :param problem: why the profile denies it, or the empty string.
    :param node: where it stands in the tree.
    :param place: the call among whose arguments a mere name stands, and its position there.
    """

    name: str
    role: str
    offset: int
    problem: str = ""
    node: Node | None = field(default=None, repr=False, compare=False)
    place: tuple[Call, int] | None = field(default=None, repr=False, compare=False)


#: What a :class:`Use` is made of; most of them nobody asks for.
_Place = tuple[Call, int]
_Found = tuple[str, str, int, str, Node, _Place | None]


def judge(
    program: Program, profile: Profile, *, persistent: bool = False, only_denied: bool = False
) -> list[Use]:
    """Return every use of a global in *program*, in the order of the stream, with its verdict.

    :param persistent: whether somebody stands ready to say what persistent ids mean.
    :param only_denied: leave out those that *profile* allows.
    """
    found = _uses(program, profile, persistent=persistent)
    uses = [Use(*use) for use in found if use[3] or not only_denied]
    return sorted(uses, key=lambda use: use.offset)


def _uses(program: Program, profile: Profile, *, persistent: bool) -> Iterator[_Found]:
    # A name that is used in no other way may still be imported for its effect: judged as a value.
    values: set[int] = set()
    for node in program.nodes:
        kind = type(node)
        if kind not in _JUDGED:
            continue
        if kind is GlobalRef:
            values.add(node.index)
        elif isinstance(node, Call):
            yield from _judge_call(node, profile)
            if isinstance(node.callee, GlobalRef):
                values.discard(node.callee.index)
                for position, argument in enumerate(node.args.items):
                    if isinstance(argument, GlobalRef):
                        yield _judge_reference(argument, profile, (node, position))
                        values.discard(argument.index)
        elif not persistent:
            problem = "nobody stands ready to say what it means"
            yield "<persistent id>", "persistent", node.offset, problem, node, None
    if values or program.calls:
        values -= program.spelt
        values |= _names_as_values(program)
    for index in values:
        ref = program.nodes[index]
        assert isinstance(ref, GlobalRef)
        yield _judge_reference(ref, profile)


def problem_under(use: Use, profile: Profile) -> str:
    """Return why *profile* denies *use*, or the empty string; for saying which one would not."""
    if isinstance(use.node, GlobalRef):
        return _judge_reference(use.node, profile, use.place)[3]
    if isinstance(use.node, Call):
        same = [found[3] for found in _judge_call(use.node, profile) if found[1] == use.role]
        return same[0] if same else use.problem
    return use.problem


def _names_as_values(program: Program) -> set[int]:
    skipped = program.argument_tuples
    found = {name for holder, name in program.names_held if holder not in skipped}
    if isinstance(program.root, GlobalRef):
        found.add(program.root.index)
    return found


def _judge_call(call: Call, profile: Profile) -> Iterator[_Found]:
    role = "instantiated" if call.new or (call.old and not call.args.items) else "called"
    if not isinstance(call.callee, GlobalRef):
        problem = "only a direct global may be called, never the result of a call"
        yield "<result of a call>", role, call.offset, problem, call, None
        return
    name, offset = call.callee.name, call.callee.offset
    entry = profile.get(name)
    yield name, role, offset, _call_problem(call, entry, role), call, None
    if call.state is not ABSENT:
        problem = "" if entry and entry.buildable else "it may not be given state (BUILD)"
        yield name, "built", offset, problem, call, None


def _call_problem(call: Call, entry: Entry | None, role: str) -> str:
    if entry is None:
        return "it is not listed"
    if entry.role not in ("callable", "class", "enum") or role not in entry.via:
        return f"it is listed as {entry.role}, not to be {role}"
    unreviewed = call.base not in ("", "builtins:object") and entry.make
    if unreviewed or (call.old and entry.role != "class"):
        return f"it is listed as {entry.role}, not to be made in this old way"
    if call.kwargs is not None and not _keywords(call.kwargs) <= entry.kwargs:
        return "it may not be given these keyword arguments"
    if (call.items and entry.grows != "list") or (call.pairs and entry.grows != "dict"):
        return "its result may not be filled"
    return ""


def _keywords(kwargs: DictOf) -> set[Any]:
    """Return every key that the dict ever has; a key that is no text is none that is listed."""
    return {key if type(key) is str else None for key in kwargs.items[::2]}


def _judge_reference(ref: GlobalRef, profile: Profile, place: _Place | None = None) -> _Found:
    """Judge a mere name where it stands; an entry may let it stand at one *place* only."""
    entry = profile.get(ref.name)
    problem = ""
    if place is not None and _may_stand(ref.name, profile, *place):
        pass
    elif entry is None:
        problem = "it is not listed"
    elif not entry.referable:
        problem = f"it is listed as {entry.role}, not to be referenced"
    return ref.name, "referenced", ref.offset, problem, ref, place


def _may_stand(name: str, profile: Profile, call: Call, position: int) -> bool:
    entry = profile.get(call.callee.name)
    return entry is not None and name in entry.args.get(position, ())


def check_shape(program: Program, limits: Limits) -> None:
    """Refuse value graphs too deep to walk, or too large once sharing is undone.

    One walk in depth first order without recursion. An edge back to a node that is still open is
    a cycle; it counts as a leaf, as it does for everything that prints such a value. How deep that
    gets, and how often a node is met, depends on the way there, so cycles are then walked as
    printing does.
    """
    if _is_small(program, limits):
        return
    cyclic: set[int] = set()
    depth = [0] * len(program.nodes)
    # 0: not seen, -1: open, otherwise the number of leaves and nodes in the subtree
    weight = [0] * len(program.nodes)
    # Sharing lets a few bytes stand for a tree that no traversal finishes (a list that holds twice
    # a list that holds twice ...). Honest data repeats whole records: it may be some times as much.
    most = limits.max_refs * limits.max_sharing
    # From the root, then what is made and thrown away: that is built, and hashed, all the same.
    for root in [program.root, *program.nodes]:
        if isinstance(root, Node) and weight[root.index] == 0:
            _walk(root, depth, weight, cyclic, most=most, deepest=limits.max_depth)
    if isinstance(program.root, Node) and program.root.index in cyclic:
        _walk_ways(program.root, depth, weight, cyclic, most=most, deepest=limits.max_depth)


def _is_small(program: Program, limits: Limits) -> bool:
    """Whether the value is seen to be within the limits without working out what is shared.

    Goes from the root level by level and along every way, so that something shared is met as often
    as a reader would meet it. If that ends by the deepest level that is allowed, there is no cycle
    and nothing is deeper. If it met no more than the pickle was charged for, sharing adds nothing
    that counts, even if each leaf were as long as the longest. And if it met each node, then
    nothing was made and thrown away. For most pickles all of it holds; the others are walked.
    """
    weight, most, seen = 0, program.refs, set[int]()
    level: list[Any] = [program.root] if isinstance(program.root, Node) else []
    for _ in range(limits.max_depth + 1):
        below: list[Any] = []
        for node in level:
            held = children(node)
            weight += 1 + len(held)
            # Before they are looked at: what is shared might be large.
            if weight > most:
                return False
            if not LEAVES.issuperset(map(type, held)):
                below += [child for child in held if type(child) not in LEAVES]
            seen.add(node.index)
        level = below
        if not level:
            break
    else:
        return False
    if weight * (1 + (program.longest >> 10)) > limits.max_refs * limits.max_sharing:
        return False
    # What is called is no part of the value.
    return len(seen) == len(program.nodes) or all(
        node.index in seen or type(node) is GlobalRef for node in program.nodes
    )


def _walk_ways(
    root: Node,
    depth: list[int],
    weight: list[int],
    cyclic: set[int],
    *,
    most: int,
    deepest: int,
) -> None:
    """Refuse cycles with too many ways through them, or ways that are too deep or too large."""
    path: dict[int, tuple[Node, list[Node]]] = {}
    turns: dict[int, tuple[list[Node], int, int]] = {}
    ways, total, entered = 0, 0, root
    while True:
        # 1. Enter a node: what of it is no part of a cycle was measured before.
        if entered.index not in turns:
            held = [child for child in children(entered) if isinstance(child, Node)]
            plain = [child.index for child in held if child.index not in cyclic]
            turns[entered.index] = (
                [child for child in held if child.index in cyclic],
                1 + sum(weight[index] for index in plain),
                max((1 + depth[index] for index in plain), default=0),
            )
        further, size, deep = turns[entered.index]
        path[entered.index] = entered, further[::-1]
        ways, total = ways + 1 + len(further), total + size
        if ways > _WAYS or total > most or len(path) - 1 + deep > deepest:
            raise PayloadError(
                "the pickle goes round in circles in more ways than anybody can walk",
                rule="pickle.cycles",
                where=f"byte {entered.offset}",
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


def _walk(
    root: Node,
    depth: list[int],
    weight: list[int],
    cyclic: set[int],
    *,
    most: int,
    deepest: int,
) -> None:
    weight[root.index] = -1
    open_nodes: list[tuple[Node, Any]] = [(root, iter(children(root)))]
    sums = [1]
    while open_nodes:
        node, pending = open_nodes[-1]
        for child in pending:
            if not isinstance(child, Node):
                # A long string shared a million times is large too: a unit for each KiB.
                sums[-1] += 1 + (len(child) >> 10 if isinstance(child, (str, bytes)) else 0)
                continue
            seen = weight[child.index]
            if seen == 0:
                weight[child.index] = -1
                open_nodes.append((child, iter(children(child))))
                sums.append(1)
                break
            if seen < 0 or child.index in cyclic:
                cyclic.add(node.index)
            sums[-1] += max(seen, 1)
            depth[node.index] = max(depth[node.index], depth[child.index] + 1)
        else:
            open_nodes.pop()
            total = weight[node.index] = sums.pop()
            if total > most:
                raise over(
                    "sharing",
                    "the pickle stands for more elements than allowed once sharing is undone",
                    where=f"byte {node.offset}",
                    limit="max-sharing",
                )
            if open_nodes:
                parent = open_nodes[-1][0]
                sums[-1] += total
                if node.index in cyclic:
                    cyclic.add(parent.index)
                depth[parent.index] = max(depth[parent.index], depth[node.index] + 1)
        if len(open_nodes) > deepest + 1 or depth[node.index] > deepest:
            raise over(
                "max-depth", "the pickle nests deeper than allowed", where=f"byte {node.offset}"
            )
