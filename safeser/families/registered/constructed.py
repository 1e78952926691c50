"""Build instances of dataclasses and named tuples by calling their class.

The one rule: the class is called with the sent values, as its author would call it, and the
instance must then hold exactly these values. Nothing is set without the constructor, except fields
that the author declared so.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from safeser.errors import PayloadError, SafeserError
from safeser.families import records
from safeser.families.plain import Unencodable, label
from safeser.families.registered.naming import refuse_class
from safeser.families.registry import Parts, Typed
from safeser.families.sending import serialize
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles.reading.layout import HEAP_TYPE, layout


def other_bases(cls: type) -> list[type]:
    """Return the bases of *cls* written in C, which may keep what no attribute shows."""
    return [base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE and base is not object]


def record(
    name: str,
    cls: type,
    fields: Iterable[str],
    read: Callable[[Any], dict[str, Any]],
    build: Callable[[dict[str, Any]], Any],
) -> Typed:
    """Return the serializer of records that have exactly *fields*."""
    expected = frozenset(fields)

    def encode(x: Any, limits: Limits) -> Parts:
        return records.encode(read(x), limits)

    def check(node: Node, limits: Limits) -> None:
        names = records.check(node, limits)
        if len(names) != len(expected) or not expected.issuperset(names):
            node.refuse(
                "its fields are not those that this side registered; both need the same version",
                "families.fields",
            )

    def decode(node: Node, values: list[Any]) -> Any:
        sent = records.values(node, values)
        try:
            return build(sent)
        except Altered as altered:
            raise PayloadError(
                f"a value of type {name} is refused: its class made another {altered}",
                rule="families.constructor",
                where=node.where,
                fix="A field that is set after construction is registered with assigned=.",
            ) from None

    return Typed(name, (cls,), encode, check, decode)


def refuse_others(x: object, held: Iterable[str], known: frozenset[str]) -> None:
    """Refuse an object that holds attributes which are not *known* fields, and name them."""
    others = [label(name) for name in held if name not in known]
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        named = f"{', '.join(others[:_NAMED])}{more}"
        raise Unencodable(x, f"it has attributes that are not fields of its class: {named}")


_NAMED = 3


class Altered(Exception):
    """A field of the constructed instance differs from the sent value."""


def is_same(made: Any, sent: Any) -> bool:
    """Whether *made* is what was sent, to the last type in it.

    A class that copies the list which it is given has the same elements in it. They are not looked
    into: where such objects nest, each would be as often as there are levels above it.
    """
    if made is sent or type(made) is not type(sent):
        return made is sent
    if type(made) in (list, tuple):
        return len(made) == len(sent) and all(map(is_same, made, sent))
    if type(made) is dict:
        return is_same([*made, *made.values()], [*sent, *sent.values()])
    if isinstance(made, (set, frozenset)) and isinstance(sent, (set, frozenset)):
        # Equal sets may be walked in different orders.
        return {(type(m), m) for m in made} == {(type(s), s) for s in sent}
    try:
        return _bytes_of(made) == _bytes_of(sent)
    except SafeserError:
        return False


def _bytes_of(value: object) -> tuple[object, list[bytes]]:
    header, frames = serialize(value, ("dask", "msgpack"))
    return header, [bytes(frame) for frame in frames]


# -- dataclasses -------------------------------------------------------------------------------


def is_attrs(cls: type) -> bool:
    """Whether a decorator of attrs made *cls* itself, and not only a class above it."""
    return "__attrs_attrs__" in vars(cls)


def plan_dataclass(cls: Any, name: str, assigned: Sequence[str]) -> Typed:
    """Return the serializer of *cls*, a dataclass or a class of attrs; see ``register_class``."""
    if is_attrs(cls):
        # What ``__init__`` calls the field; private ones without their underscores.
        called = {each.name: (each.init, each.alias) for each in cls.__attrs_attrs__}
    else:
        called = {each.name: (each.init, each.name) for each in dataclasses.fields(cls)}
    names = [*called]
    given = {field: alias for field, (init, alias) in called.items() if init}
    later = frozenset(assigned)
    _check_dataclass(cls, names, given, later)
    has_dict = hasattr(cls, "__dictoffset__") and cls.__dictoffset__ != 0
    known = frozenset(names) | layout(cls).cached

    def read(x: Any) -> dict[str, Any]:
        refuse_others(x, vars(x) if has_dict else (), known)
        try:
            return {field: getattr(x, field) for field in names}
        except AttributeError:
            raise Unencodable(x, "one of its fields has no value") from None

    def build(sent: dict[str, Any]) -> Any:
        made = cls(**{alias: sent[field] for field, alias in given.items()})
        if type(made) is not cls:
            raise Altered("class")
        for field in names:
            if field in later:
                object.__setattr__(made, field, sent[field])
            elif not is_same(getattr(made, field), sent[field]):
                raise Altered(f"field {field}")
        return made

    return record(name, cls, names, read, build)


def _check_dataclass(
    cls: type, names: Sequence[str], given: Mapping[str, str], later: frozenset[str]
) -> None:
    if "__dataclass_fields__" not in vars(cls) and not is_attrs(cls):
        refuse_class(cls, "inherits from a dataclass, but is none itself")
    if other_bases(cls):
        refuse_class(cls, "derives from a built-in class, whose content is in no field")
    if not later.isdisjoint(given) or not later.issubset(names):
        refuse_class(cls, "has no such field with init=False as one that is said to be assigned")
    if not layout(cls).slots.keys() <= {*names, *_mangled(cls, names)}:
        refuse_class(cls, "keeps values in slots that are no fields")
    if inspect.isabstract(cls):
        refuse_class(cls, "is abstract")
    try:
        inspect.signature(cls).bind(**dict.fromkeys(given.values()))
    except (TypeError, ValueError):
        refuse_class(
            cls,
            "cannot be called with exactly its fields",
            fix="Give each InitVar a default, and let __init__ take the fields by their names.",
        )


def _mangled(cls: type, names: Iterable[str]) -> set[str]:
    return {
        f"_{base.__name__.lstrip('_')}{name}"
        for base in cls.__mro__
        for name in names
        if name.startswith("__")
    }


# -- named tuples ------------------------------------------------------------------------------


def is_named_tuple(cls: type) -> bool:
    """Whether *cls* is what ``typing.NamedTuple`` or ``collections.namedtuple`` makes."""
    names = getattr(cls, "_fields", None)
    return (
        issubclass(cls, tuple)
        and type(names) is tuple
        and all(type(name) is str and name.isidentifier() for name in names)
    )


def plan_named_tuple(cls: Any, name: str, assigned: Sequence[str]) -> Typed:
    """Return the serializer of the named tuple *cls*; a subclass's own attributes do not travel."""
    names: tuple[str, ...] = cls._fields
    if assigned:
        refuse_class(cls, "is a named tuple, whose fields are never assigned")
    cached = layout(cls).cached

    def read(x: Any) -> dict[str, Any]:
        if tuple.__len__(x) != len(names):
            raise Unencodable(x, "it has another number of elements than of fields")
        refuse_others(x, getattr(x, "__dict__", ()), cached)
        return dict(zip(names, tuple.__iter__(x), strict=True))

    def build(sent: dict[str, Any]) -> Any:
        made = cls(*(sent[field] for field in names))
        if type(made) is not cls or tuple.__len__(made) != len(names):
            raise Altered("class")
        for field, value in zip(names, tuple.__iter__(made), strict=True):
            if not is_same(value, sent[field]):
                raise Altered(f"field {field}")
        return made

    return record(name, cls, names, read, build)
