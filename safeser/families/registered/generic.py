"""Send objects as their attributes: Dask's ``register_generic`` as documented, but without code.

The one rule: an instance is an empty object of a registered class, and its attributes are stored
where the interpreter keeps them. No method, property or hook of the class runs to read or to set
them; registration refuses a class that needs one.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import Any, TypeVar

from safeser.errors import ConfigError
from safeser.families import records
from safeser.families.plain import Unencodable, label
from safeser.families.registered.constructed import cached_names, other_bases
from safeser.families.registered.naming import refuse_class, wire_name
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.pickles.reading.layout import layout
from safeser.values import Limits

__all__ = ["plan_generic", "register_generic"]

T = TypeVar("T", bound=type)

#: What decides how instances are made, kept and looked at; of these a class may have object's only.
_OWN = (
    "__new__",
    "__getattribute__",
    "__setattr__",
    "__delattr__",
    "__class__",
    "__reduce__",
    "__reduce_ex__",
)

#: What says that an object is more, or less, than its attributes; of these a class may have none.
#: Since Python 3.11 object itself has a __getstate__, which adds nothing to the attributes.
_STATE = ("__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")

_BY_FUNCTIONS = "Register it with register_serialization, whose functions say what it consists of."

#: Weak references to an instance are no part of it.
_NO_STATE = frozenset({"__weakref__", "__dict__"})


def register_generic(
    cls: T,
    serializer_name: str = "dask",
    *,
    name: str | None = None,
    attributes: Sequence[str] | None = None,
) -> T:
    """Let direct instances of *cls* travel as their attributes; both sides must register it.

    Attributes are those in ``__dict__`` and ``__slots__``. Each is a value like any other, held to
    the same policy; small ones stand in the header. Nothing of the class is called: it must not
    need more than ``object.__new__(cls)``. A subclass is another class, registered on its own.

    A peer can make an instance with any attributes, so where that would be harmful (a path that
    ``close()`` removes, a flag that identifies a user) let the constructor check them, and use
    :func:`~safeser.families.registered.classes.register_class`.

    :param serializer_name: only ``"dask"``; there to be called as Dask's own function is.
    :param name: ``module:qualname`` on the wire; the class's own, if it can be imported by that.
    :param attributes: the only names that instances may have; else any that source could spell.
    :raises ConfigError: for a class that is more than its attributes, or registered already.
    """
    if serializer_name != "dask":
        raise ConfigError(
            "register_generic registers for family dask only",
            rule="families.register",
            fix="Which families may carry what is inside is decided by policy.",
        )
    if not isinstance(cls, type):
        raise ConfigError("only classes can be registered", rule="families.register")
    allowed = None if attributes is None else frozenset(attributes)
    registry.register(plan_generic(cls, name, allowed), remade=True)
    return cls


def plan_generic(cls: type, name: str | None, allowed: frozenset[str] | None = None) -> Typed:
    """Return the serializer of a class whose instances are their attributes.

    :raises ConfigError: for a class that is more than its attributes.
    """
    _review(cls)
    return _typed(cls, wire_name(cls, name), allowed)


def _review(cls: type) -> None:
    """Refuse a class whose instances consist of more than their attributes."""
    if other_bases(cls):
        refuse_class(
            cls,
            "derives from a built-in class, whose content is in no attribute",
            fix=_BY_FUNCTIONS,
        )
    if inspect.isabstract(cls):
        refuse_class(cls, "is abstract")
    for member in (*_OWN, *_STATE):
        if any(member in vars(base) for base in cls.__mro__[:-1]):
            _refuse_hook(cls, member)
    if any("__del__" in vars(base) for base in cls.__mro__):
        refuse_class(
            cls,
            "has a __del__, which would run on attributes that a peer chose",
            fix=_BY_FUNCTIONS,
        )
    if cls.__dictoffset__ and layout(cls).fields is None:
        refuse_class(cls, "has a __dict__ of its own making")


def _refuse_hook(cls: type, member: str) -> None:
    refuse_class(
        cls,
        f"has a {member} of its own, so it is not simply its attributes",
        fix=_BY_FUNCTIONS,
    )


def _typed(cls: type, name: str, allowed: frozenset[str] | None) -> Typed:
    known = layout(cls)
    slots = {n: s for n, s in known.slots.items() if n not in _NO_STATE}
    cached = cached_names(cls)

    def fits(attribute: str) -> bool:
        if allowed is not None and attribute not in allowed:
            return False
        if attribute in cached or attribute in known.methods:
            return False
        return records.is_attribute(attribute) and (known.fields is not None or attribute in slots)

    def encode(x: Any, limits: Limits) -> Parts:
        held = _held(x, known.fields, slots)
        found = {key: value for key, value in held.items() if key not in cached}
        for key in found:
            if type(key) is not str or not fits(key):
                problem = "hides a method, or has a name that is not allowed"
                raise Unencodable(x, f"its attribute {label(key)} {problem}")
        return records.encode(found, limits)

    def check(node: Node, limits: Limits) -> None:
        if not all(map(fits, records.check(node, limits))):
            node.refuse(
                "one of its attributes has a name that is no plain attribute of that class",
                "families.attribute",
            )

    def decode(node: Node, values: list[Any]) -> Any:
        made: Any = object.__new__(cls)
        fields = {} if known.fields is None else known.fields.__get__(made)
        for attribute, value in records.values(node, values).items():
            if attribute in slots:
                slots[attribute].__set__(made, value)
            else:
                fields[attribute] = value
        return made

    return Typed(name, (cls,), encode, check, decode)


def _held(
    x: object,
    fields: types.GetSetDescriptorType | None,
    slots: dict[str, types.MemberDescriptorType],
) -> dict[str, Any]:
    """Return what *x* holds, by the interpreter's own descriptors: slots first, then its dict."""
    held: dict[str, Any] = {}
    for attribute, slot in slots.items():
        try:
            held[attribute] = slot.__get__(x)
        except AttributeError:  # it was never set
            continue
    own: dict[str, Any] = {} if fields is None else fields.__get__(x)
    if not held.keys().isdisjoint(own):
        raise Unencodable(x, "one of its attributes is both in a slot and in its __dict__")
    return {**held, **own}
