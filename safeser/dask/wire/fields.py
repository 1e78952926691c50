"""Finding fields and payloads of a parsed message by the paths of the table of operations.

The one rule: it only looks. A path that does not fit a message finds nothing in it, and says
nothing of its payloads. For these, the paths are compiled once for each operation, and a message is
walked once, however many they are.

Paths: ``msg.message`` is a key inside a field, ``[]`` each element of a sequence, ``*`` each value
of a mapping, and the empty path the whole message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from safeser.dask.wire.reader import LEAVES, Reference


@lru_cache(maxsize=1024)  # paths come from the table, of which there are fewer
def steps_of(path: str) -> tuple[str, ...]:
    """Return the steps of a path of the table."""
    return tuple(step for step in path.replace("[]", ".[].").split(".") if step)


def select(message: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the values at *path* in *message*, each with its place for people."""
    yield from _select(message, steps_of(path), "")


def _select(value: Any, steps: tuple[str, ...], where: str) -> Iterator[tuple[str, Any]]:
    if not steps:
        yield where, value
        return
    step, rest = steps[0], steps[1:]
    if step == "[]":
        if isinstance(value, tuple | list):
            for position, item in enumerate(value):
                yield from _select(item, rest, _item_place(where, position))
    elif isinstance(value, dict):
        if step == "*":
            for key, item in value.items():
                yield from _select(item, rest, _place(where, key))
        elif step in value:
            yield from _select(value[step], rest, _place(where, step))


#: As much of a path as places are told apart by, for people; what is deeper is told by that.
_MAX_PATH = 256


def _place(where: str, key: Any) -> str:
    if len(where) >= _MAX_PATH:
        return where
    return f"{where}.{_step(key)}" if where else _step(key)


def _item_place(where: str, position: int) -> str:
    # Each of a million items below a hundred long keys would have six kilobytes of its own.
    return where if len(where) >= _MAX_PATH else f"{where}[{position}]"


def pickled(value: Any, where: str) -> Iterator[tuple[str, bytes]]:
    """Yield each bytes value at or below *value*: what a handler would unpickle there."""
    if isinstance(value, bytes):
        if value:
            yield where, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from pickled(item, _place(where, key))
    elif isinstance(value, tuple | list | set):
        for position, item in enumerate(value):
            yield from pickled(item, _item_place(where, position))


def holds_reference(value: Any) -> bool:
    """Tell whether a payload reference is at or below *value*."""
    if isinstance(value, Reference):
        return True
    if isinstance(value, dict):
        return any(map(holds_reference, value)) or any(map(holds_reference, value.values()))
    return isinstance(value, tuple | list | set) and any(map(holds_reference, value))


def transform(message: Any, path: str, change: Callable[..., Any], *more: Any) -> Any:
    """Return *message* with ``change(value, *more)`` for each value at *path*."""
    return _transform(message, steps_of(path), change, *more)


def _transform(value: Any, steps: tuple[str, ...], change: Callable[..., Any], *more: Any) -> Any:
    if not steps:
        return change(value, *more)
    step, rest = steps[0], steps[1:]
    if step == "[]" and isinstance(value, tuple | list):
        return type(value)([_transform(item, rest, change, *more) for item in value])
    if step == "*" and isinstance(value, dict):
        return {key: _transform(item, rest, change, *more) for key, item in value.items()}
    if isinstance(value, dict) and step in value:
        return {**value, step: _transform(value[step], rest, change, *more)}
    return value


# --- payloads ------------------------------------------------------------------------------------

#: How much of one key, and how many parts of it, a path to a payload names.
_STEP, _SHOWN = 64, 4

#: Steps that a longer path names, from each of its ends.
_ENDS = 4


class Role(NamedTuple):
    """What the table says of a payload because of where it stands.

    :param declared: its field holds pickles; so does all that is inside the field's value.
    :param failure: its field says why something failed, likewise.
    :param whole: it is the field's value, a failure as its process pickled it, see
        ``translate.outgoing``.
    :param wrapped: it is the field's value, whose bytes a handler unpickles.
    """

    declared: bool = False
    failure: bool = False
    whole: bool = False
    wrapped: bool = False

    def __or__(self, other: Role) -> Role:
        return Role(*map(operator.or_, self, other))

    def inside(self) -> Role:
        """Return what the table says of payloads inside a value that has this role."""
        return Role(self.declared, self.failure)


DECLARED, FAILURE = Role(declared=True), Role(failure=True)
WHOLE, WRAPPED = Role(whole=True), Role(wrapped=True)


class Slot(NamedTuple):
    """One payload of a message: where it stands, for people, and what the table says of it."""

    where: str
    reference: Reference
    role: Role


class Plan:
    """What the paths of the table say of one value and of all inside it; made by :func:`plan`.

    :ivar role: of the value itself.
    :ivar keys: plans of the values under keys that paths name.
    :ivar each: the plan of the values under all other keys.
    :ivar item: the plan of the elements of a sequence.
    :ivar rest: the plan of keys, and of members of a set.
    """

    __slots__ = ("each", "item", "keys", "rest", "role")

    def __init__(self, role: Role) -> None:
        self.role = role
        self.keys: dict[Any, Plan] = {}
        self.each = self.item = self.rest = self


def plan(paths: Iterable[tuple[str, Role]]) -> Plan:
    """Return the plan that finds what *paths* lead to, each with the role of that.

    Several may lead to the same value, which then has all of their roles.
    """
    return _compiled([(steps_of(path), role) for path, role in paths], Role())


_Paths = Sequence[tuple[tuple[str, ...], Role]]


def _compiled(paths: _Paths, outer: Role) -> Plan:
    """Return the plan of a value that *paths* start from, inside one that has the role *outer*."""
    role = reduce(operator.or_, (role for steps, role in paths if not steps), outer)
    made, inner = Plan(role), role.inside()
    made.each = made.item = made.rest = Plan(inner)

    def through(*heads: str) -> Plan:
        found = [(steps[1:], role) for steps, role in paths if steps and steps[0] in heads]
        return _compiled(found, inner) if found else made.rest

    made.each, made.item = through("*"), through("[]")
    named = {steps[0] for steps, _ in paths if steps} - {"*", "[]"}
    made.keys.update((name, through(name, "*")) for name in named)
    return made


def find(value: Any, plan: Plan) -> list[Slot]:
    """Return each payload in *value*, in order, with its place; keys are shortened for people."""
    found: list[Slot] = []
    _find(value, [], plan, found)
    return found


def _find(value: Any, steps: list[tuple[Any, bool]], plan: Plan, found: list[Slot]) -> None:
    """Append what is in *value*, which *steps* lead to: a key and True, or a position and False.

    They become text where something was found, since most containers of most messages hold nothing.
    """
    if isinstance(value, Reference):
        found.append(Slot(_path(steps), value, plan.role))
    elif isinstance(value, dict):
        above = None  # text of *steps*, once it is needed
        for key, item in value.items():
            if item.__class__ is Reference and len(steps) < 2 * _ENDS:
                above = _path(steps) if above is None else above
                where = f"{above}.{_step(key)}" if steps else _step(key)
                found.append(Slot(where, item, plan.keys.get(key, plan.each).role))
            elif item.__class__ not in LEAVES:
                steps.append((key, True))
                _find(item, steps, plan.keys.get(key, plan.each), found)
                steps.pop()
            if key.__class__ not in LEAVES:
                steps.append(("(key)", True))
                _find(key, steps, plan.rest, found)
                steps.pop()
    elif isinstance(value, tuple | set):
        inside = plan.item if isinstance(value, tuple) else plan.rest
        for position, item in enumerate(value):
            if item.__class__ not in LEAVES:
                steps.append((position, False))
                _find(item, steps, inside, found)
                steps.pop()


def _path(steps: Sequence[tuple[Any, bool]]) -> str:
    if len(steps) > 2 * _ENDS:
        # Each payload below a hundred long keys would name them all, and so would its record.
        return f"{_path(steps[:_ENDS])}....{_path(steps[-_ENDS:])}"
    text = ""
    for step, key in steps:
        text += f".{_step(step)}" if key else f"[{step}]"
    return text.removeprefix(".")


def _step(key: Any) -> str:
    # Each payload below a key names it: a megabyte in a key is not to be written out each time.
    if key.__class__ is str and len(key) <= _STEP and key.isprintable():
        return key
    if isinstance(key, tuple):
        shown = [*map(_shown, key[:_SHOWN]), *(["..."] if len(key) > _SHOWN else [])]
        text = f"({', '.join(shown)})"
    else:
        text = key if isinstance(key, str) else _shown(key)
    text = text[:_STEP]
    return text if text.isprintable() else "".join(c for c in text if c.isprintable())


def _shown(key: Any) -> str:
    if isinstance(key, str | bytes):
        return repr(key[:_STEP])
    return repr(key) if key.__class__ in LEAVES else "..."
