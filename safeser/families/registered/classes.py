"""Register classes of the host program: enums, dataclasses, named tuples, exceptions and others.

The one rule: the host program registers a class; a name that a peer wrote never imports one.
Instances are built by the class's own constructor or are refused: see :mod:`.constructed`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar, overload

from safeser.errors import ConfigError, PayloadError
from safeser.families import plain
from safeser.families.errors import wire as errors
from safeser.families.plain import Unencodable
from safeser.families.registered import constructed, models, program
from safeser.families.registered.generic import plan_generic, plan_own
from safeser.families.registered.naming import refuse_class, wire_name
from safeser.families.registry import Parts, Typed, registering, registry
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles.building.members import Members
from safeser.pickles.profiles import Entry

__all__ = ["register_class"]

T = TypeVar("T", bound=type)

#: Values of enum members that are compared; all others are known by the member's name alone.
_SCALARS = (int, float, str, bytes, bool, type(None))


#: As in restricted pickle: 2**12 composites take a megabyte.
_MAX_FLAGS = 12


@overload
def register_class(cls: T, *, name: str | None = None, assigned: Sequence[str] = ()) -> T: ...


@overload
def register_class(
    cls: None = None, *, name: str | None = None, assigned: Sequence[str] = ()
) -> Callable[[T], T]: ...


def register_class(
    cls: Any = None, *, name: str | None = None, assigned: Sequence[str] = ()
) -> Any:
    """Let direct instances of *cls* travel in family ``dask``; both sides must register it.

    On a Dask cluster the client that reads them is enough: workers write what tasks return, whether
    or not they registered its class.

    An enum's members are known by name and value. A dataclass, class of attrs or named tuple is
    made by calling the class with its fields, and must then hold exactly what was sent. An
    exception is raised as itself if calling the class with its arguments says the same again. So a
    peer can call that
    constructor with any values that may travel: register classes whose constructors only check and
    keep. Any other class is taken if its instances are their attributes and no more, as
    :func:`~safeser.families.registered.generic.register_generic` says, which calls no constructor.
    Works as a decorator; it returns *cls*. Run again, it takes the class as it is defined now.

    :param name: ``module:qualname`` on the wire; the class's own, if it can be imported by that.
    :param assigned: fields with ``init=False`` that are set after the class was called. All other
        such fields are computed by it, and must come out as they were sent.
    :raises ConfigError: for a class that cannot travel exactly, or whose name another class has.
    """
    if cls is None:
        return lambda decorated: register_class(decorated, name=name, assigned=assigned)
    if not isinstance(cls, type):
        raise ConfigError("only classes can be registered", rule="families.register")
    wire = wire_name(cls, name)
    if issubclass(cls, BaseException):
        errors.register_exception(cls, wire)
    else:
        registry.register(_plan(cls, wire, assigned), remade=True)
    return cls


def _plan(cls: type, wire: str, assigned: Sequence[str] = ()) -> Typed:
    """Return the serializer of *cls*: of the first kind that it is of, else by its attributes."""
    for is_of_kind, plan in _KINDS:
        if is_of_kind(cls):
            return plan(cls, wire, assigned)
    if assigned:
        refuse_class(cls, "is called with no fields, so none of them can be assigned afterwards")
    return plan_generic(cls, wire)


@lru_cache(maxsize=256)
def _for_writing(cls: type) -> Typed | None:
    """Return the serializer that :func:`register_class` would give *cls*, or None."""
    if issubclass(cls, BaseException):
        return None
    try:
        return _plan(cls, wire_name(cls, None))
    except ConfigError:
        return None


registry.for_writing = _for_writing


def _find_own(name: str, where: str) -> Typed | None:
    """Return the serializer of the program's own class *name*, which is not registered."""
    cls = program.find(name)
    if cls is None or issubclass(cls, BaseException):
        return None
    why = program.obstacle(cls)
    try:
        if not why and isinstance(cls, enum.EnumMeta):
            return replace(_enum(cls, name, (), composed=False), own=True)
        if not why:
            return plan_own(cls, name)
    except ConfigError as error:
        why = error.message.partition(" ")[2]
    raise PayloadError(
        f"{name} is a class of this program that has to be registered: it {why}",
        rule="families.type",
        where=where,
        fix=f"Register it in this process: {registering(name)}.",
    )


registry.own = _find_own


# -- enums -------------------------------------------------------------------------------------


def _enum(cls: Any, name: str, assigned: Sequence[str], *, composed: bool = True) -> Typed:
    """Members travel by name and value, both at once; flags of several members by their number.

    :param composed: whether the class may make flags of several members.
    """
    words = {key: _word(member) for key, member in cls._member_map_.items() if key == member._name_}
    by_word = {word: cls._member_map_[key] for key, word in words.items()}
    members = Members(Entry(name, "enum"), cls) if composed and _composes(cls) else None

    def composite(flags: object) -> Any:
        try:
            return members.of(flags) if members and type(flags) is int else None
        except PayloadError:
            return None

    def encode(x: Any, limits: Limits) -> Parts:
        word = words.get(x._name_)
        if word is not None and by_word[word] is x:
            return Parts({"member": word})
        if composite(x._value_) is not x:
            raise Unencodable(x, "it is not composed of the members of its enum")
        return Parts({"flags": x._value_})

    def check(node: Node, limits: Limits) -> None:
        if "flags" in node.meta:
            (flags,) = node.expect("flags")
            if not composed:
                fix = f"Register it in this process: {registering(name)}."
                node.refuse(
                    "flags of several members need a registered class", "families.member", fix=fix
                )
            node.value = composite(flags)
        else:
            (word,) = node.expect("member")
            node.value = by_word.get(word) if type(word) is bytes else None
        if node.value is None:
            node.refuse("this enum has no such member with such a value", "families.member")

    return Typed(name, (cls,), encode, check, lambda node, _: node.value)


def _composes(cls: Any) -> bool:
    """Whether flags of several members travel: a class keeps for good each that is ever made.

    Of larger ones those would that the receiver happened to have made already.
    """
    numbers = [member._value_ for member in cls._member_map_.values()]
    single = {value for value in numbers if type(value) is int and value.bit_count() == 1}
    return issubclass(cls, enum.Flag) and len(single) <= _MAX_FLAGS


def _word(member: Any) -> bytes:
    """Return the key of *member*: name and value, so that versions with other values differ."""
    value = member._value_
    parts = value if type(value) is tuple else (value,)
    compared = all(type(part) in _SCALARS for part in parts)
    return plain.encode((member._name_, value) if compared else (member._name_,))


#: Whether a class is of a kind, in the order in which they are asked, and what plans its
#: serializer, given the class, its wire name and the names of assigned fields. None imports.
_KINDS: tuple[tuple[Callable[[type], bool], Callable[[type, str, Sequence[str]], Typed]], ...] = (
    (lambda cls: isinstance(cls, enum.EnumMeta), _enum),
    (dataclasses.is_dataclass, constructed.plan_dataclass),
    (constructed.is_attrs, constructed.plan_dataclass),
    (constructed.is_named_tuple, constructed.plan_named_tuple),
    (models.is_model, models.plan_model),
)
