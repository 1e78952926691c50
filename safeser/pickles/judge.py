"""Judge every use of every global in a program against a profile, before any object is built.

The one rule: a use that is not listed, in that role and at that place, is denied; so is a call of
anything but a direct global. Judging imports nothing and takes time linear in the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from safeser.pickles.nodes import ABSENT, Call, DictOf, GlobalRef, Node, Persistent, Program
from safeser.pickles.profiles import Entry, Profile

__all__ = ["Use", "judge", "problem_under"]

_JUDGED = frozenset((GlobalRef, Call, Persistent))


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


#: The fields of a :class:`Use`; most callers need only the denied ones as objects.
_Place = tuple[Call, int]
_Found = tuple[str, str, int, str, Node, _Place | None]


def judge(
    program: Program, profile: Profile, *, persistent: bool = False, only_denied: bool = False
) -> list[Use]:
    """Return every use of a global in *program*, in the order of the stream, with its verdict.

    :param persistent: whether the caller has a ``persistent_load`` function.
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
            problem = "no persistent_load function was given"
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
    """Return every key that the dict ever has; a key that is not text is never listed."""
    return {key if type(key) is str else None for key in kwargs.items[::2]}


def _judge_reference(ref: GlobalRef, profile: Profile, place: _Place | None = None) -> _Found:
    """Judge a name that is not called; an entry may allow it at one *place* only."""
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
