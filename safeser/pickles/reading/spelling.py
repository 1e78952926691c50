"""Recognize what older protocols spell by calls: nested names, and instances without an opcode.

The one rule: a spelling is exactly what pickle itself writes, and means what the opcode of later
protocols means. Its parts have no other use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from safeser.pickles.nodes import Call, DictOf, GlobalRef, Node, Step, TupleOf, children, container

__all__ = [
    "GETATTR",
    "RECONSTRUCTOR",
    "Keywords",
    "base_of",
    "held_elsewhere",
    "keywords",
    "without",
]

GETATTR: Final = "builtins:getattr"
RECONSTRUCTOR: Final = "copyreg:_reconstructor"
_PARTIAL = "functools:partial"
# Not dict: SciPy's matrices have a reviewed function for that one.
_BASES = frozenset(f"builtins:{name}" for name in ("float", "int", "list", "str", "tuple"))


def base_of(items: list[Any]) -> str:
    """Return the class whose ``__new__`` ``_reconstructor(class, base, content)`` calls, or ""."""
    if len(items) != 3 or type(items[0]) is not GlobalRef or type(items[1]) is not GlobalRef:
        return ""
    base = items[1].name
    return base if base in _BASES or (base == "builtins:object" and items[2] is None) else ""


@dataclass(frozen=True, slots=True)
class Keywords:
    """An instantiation with keyword arguments, as protocols 2 and 3 spell it.

    :param names: what only names ``functools.partial`` and the class's ``__new__``.
    :param parts: the partial and the tuples that it was made of.
    """

    cls: GlobalRef
    args: list[Any]
    kwargs: DictOf
    names: tuple[GlobalRef, ...]
    parts: tuple[Node, ...]


def keywords(call: Call) -> Keywords | None:
    """Return the instantiation that calling *call*'s result without arguments spells, if any.

    That is ``partial(cls.__new__)``, given the state ``(cls.__new__, (cls, *args), kwargs, None)``.
    """
    state, partial = call.state, call.callee
    if type(partial) is not GlobalRef or partial.name != _PARTIAL or type(state) is not TupleOf:
        return None
    if call.new or call.old or call.items or call.pairs or len(call.args.items) != 1:
        return None
    if len(state.items) != 4 or type(state.items[1]) is not TupleOf or not state.items[1].items:
        return None
    new, given, kwargs, fields = state.items
    cls = given.items[0]
    named = type(cls) is GlobalRef and type(new) is GlobalRef and new.name == f"{cls.name}.__new__"
    if not named or new is not call.args.items[0] or type(kwargs) is not DictOf:
        return None
    if fields is not None:
        return None
    return Keywords(cls, given.items[1:], kwargs, (partial, new), (call, call.args, state, given))


def held_elsewhere(parts: dict[int, Node], nodes: Iterable[Node], root: Any) -> bool:
    """Whether one of *parts*, which only spell an instantiation, is also part of the value."""
    if isinstance(root, Node) and root.index in parts:
        return True
    return any(
        isinstance(child, Node) and child.index in parts
        for node in nodes
        if node.index not in parts
        for child in children(node)
    )


def without(parts: dict[int, Node], nodes: list[Node], steps: list[Step]) -> list[Step]:
    """Return *steps* without those of *parts*, in whose place *nodes* hold nothing from now on."""
    for index, part in parts.items():
        blank = nodes[index] = container(TupleOf, [])
        blank.index, blank.offset = part.index, part.offset
    return [
        step
        for step in steps
        if (step.index if isinstance(step, Node) else step[1].index) not in parts
    ]
