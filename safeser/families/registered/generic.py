"""Send objects as their attributes: Dask's ``register_generic`` as documented, but without code.

The one rule: an instance is an empty object of a registered class, and its attributes are stored
where the interpreter keeps them. No method, property or hook of the class runs to read or to set
them; registration refuses a class that needs one.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from safeser.errors import ConfigError, PayloadError
from safeser.families import records
from safeser.families.plain import DEFAULTS, Unencodable, label
from safeser.families.receiving import deserialize
from safeser.families.registered.constructed import other_bases
from safeser.families.registered.dispatch import dask_deserialize, dask_serialize
from safeser.families.registered.hosted import current_limits
from safeser.families.registered.naming import refuse_class, wire_name
from safeser.families.registered.program import HOOKS, is_generated
from safeser.families.registry import Typed, registry
from safeser.families.sending import serialize
from safeser.families.tree import Node
from safeser.gate.values import Grant, Limits
from safeser.pickles.reading.layout import layout, layout_now

__all__ = ["plan_generic", "plan_own", "register_generic"]

T = TypeVar("T", bound=type)

_BY_FUNCTIONS = "Register it with register_serialization, whose functions say what it consists of."

#: Families that carry attributes where the program has a dispatch of its own.
_WITHIN = ("dask", "msgpack")

#: Weak references to an instance are no part of it.
_NO_STATE = frozenset({"__weakref__", "__dict__"})


class Registers(Protocol):
    """One half of a pair of dispatches: Dask's, or one made as Dask's."""

    def register(self, cls: type, /) -> Callable[[Callable[..., Any]], object]: ...


def register_generic(
    cls: T,
    serializer_name: str = "dask",
    serialize_func: Registers = dask_serialize,
    deserialize_func: Registers = dask_deserialize,
    *,
    name: str | None = None,
    attributes: Sequence[str] | None = None,
) -> T:
    """Let direct instances of *cls* travel as their attributes; both sides must register it.

    Attributes are those in ``__dict__`` and ``__slots__``. Each is a value like any other, held to
    the same policy; small ones stand in the header. Nothing of the class is called: it must not
    need more than ``object.__new__(cls)``. A subclass is another class, registered on its own; but
    ``sklearn.base.BaseEstimator`` registers all estimators that derive from it and are loaded,
    except scikit-learn's own.

    A peer can make an instance with any attributes, so where that would be harmful (a path that
    ``close()`` removes, a flag that identifies a user) let the constructor check them, and use
    :func:`~safeser.families.registered.classes.register_class`.

    :param serializer_name: only ``"dask"``; there to be called as Dask's own function is.
    :param serialize_func: a dispatch of the program's own that takes the function which returns
        header and frames; family ``dask`` does not know the class then. Attributes are written by
        families ``dask`` and ``msgpack``.
    :param deserialize_func: the dispatch beside it that takes the function which reads them.
    :param name: ``module:qualname`` on the wire; the class's own, if it can be imported by that.
    :param attributes: the only names that instances may have; else any that source could spell.
    :raises ConfigError: for a class that is more than its attributes, or registered already, or if
        one dispatch is family dask's and the other is not.
    """
    if serializer_name != "dask":
        raise ConfigError(
            "register_generic registers for family dask only",
            rule="families.register",
            fix="Which families may carry what is inside is decided by policy.",
        )
    if not isinstance(cls, type):
        raise ConfigError("only classes can be registered", rule="families.register")
    own = serialize_func is dask_serialize, deserialize_func is dask_deserialize
    if any(own) and not all(own):
        raise ConfigError(
            "serialize_func and deserialize_func belong to two different registries",
            rule="families.register",
            fix="Pass both, or neither.",
        )
    allowed = None if attributes is None else frozenset(attributes)
    if all(own) and _is_bare_base(cls):
        registry.register_below(cls, lambda derived: _plan_derived(derived, allowed))
        return cls
    if all(own):
        registry.register(plan_generic(cls, name, allowed), remade=True)
        return cls
    _review(cls)
    held = _Attributes(cls, allowed)
    serialize_func.register(cls)(held.serialize)
    deserialize_func.register(cls)(held.deserialize)
    return cls


def plan_generic(cls: type, name: str | None, allowed: frozenset[str] | None = None) -> Typed:
    """Return the serializer of a class whose instances are their attributes.

    :raises ConfigError: for a class that is more than its attributes.
    """
    _review(cls)
    return _typed(cls, wire_name(cls, name), allowed)


def plan_own(cls: type, name: str) -> Typed:
    """Return the serializer of a class of the program's own that is not registered.

    :raises ConfigError: for a class that is more than its attributes.
    """
    _review(cls)
    return _typed(cls, name, None, own=True)


def _is_bare_base(base: type) -> bool:
    """Tell whether *base* adds nothing to the attributes of other packages' classes."""
    return base is getattr(sys.modules.get("sklearn.base"), "BaseEstimator", None)


def _plan_derived(cls: type, allowed: frozenset[str] | None) -> Typed | None:
    """Return the serializer of *cls*, which derives from a bare base, or None."""
    try:
        return plan_generic(cls, None, allowed)
    except ConfigError:
        return None


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
    package = cls.__module__.partition(".")[0]
    bases = [
        base
        for base in cls.__mro__[:-1]
        if not _is_bare_base(base) or base.__module__.partition(".")[0] == package
    ]
    for member in HOOKS:
        if not all(is_generated(base, member) for base in bases if member in vars(base)):
            refuse_class(
                cls,
                f"has a {member} of its own, so it is not simply its attributes",
                fix=_BY_FUNCTIONS,
            )
    if any("__del__" in vars(base) for base in cls.__mro__):
        refuse_class(
            cls,
            "has a __del__, which would run on attributes that a peer chose",
            fix=_BY_FUNCTIONS,
        )
    if cls.__dictoffset__ and layout(cls).fields is None:
        refuse_class(cls, "has a __dict__ of its own making")


class _Attributes:
    """The attributes of direct instances of one reviewed class.

    :param allowed: the only names that they may have; None for any that source could spell.
    :param own: whether the class is not registered, and its attributes hide plain defaults alone.
    """

    def __init__(self, cls: type, allowed: frozenset[str] | None, *, own: bool = False) -> None:
        self._cls = cls
        self._allowed = allowed
        known = layout_now(cls) if own else layout(cls)
        self._fields = known.fields
        self._methods = known.methods | known.callables if own else known.methods
        self._slots = {n: s for n, s in known.slots.items() if n not in _NO_STATE}
        self._cached = known.cached

    def fits(self, attribute: str) -> bool:
        if self._allowed is not None and attribute not in self._allowed:
            return False
        if attribute in self._cached or attribute in self._methods:
            return False
        placed = self._fields is not None or attribute in self._slots
        return records.is_attribute(attribute) and placed

    def of(self, x: Any) -> dict[str, Any]:
        """Return the attributes of *x* without those that a property caches; else Unencodable."""
        held = _held(x, self._fields, self._slots)
        found = {key: value for key, value in held.items() if key not in self._cached}
        for key in found:
            if type(key) is not str or not self.fits(key):
                problem = "hides a method, or has a name that is not allowed"
                raise Unencodable(x, f"its attribute {label(key)} {problem}")
        return found

    def made(self, attributes: Mapping[str, Any]) -> Any:
        """Return an instance with *attributes*, whose names fit."""
        made: Any = object.__new__(self._cls)
        fields = {} if self._fields is None else self._fields.__get__(made)
        for attribute, value in attributes.items():
            if attribute in self._slots:
                self._slots[attribute].__set__(made, value)
            else:
                fields[attribute] = value
        return made

    def serialize(self, x: Any) -> tuple[dict[str, Any], list[Any]]:
        """Return header and frames of the attributes of *x*, for another dispatch than dask's.

        :raises Unencodable: for an instance of a subclass, which may consist of more.
        """
        if type(x) is not self._cls:
            raise Unencodable(x, f"it is no direct instance of {self._cls.__qualname__}")
        return serialize(self.of(x), _WITHIN, limits=DEFAULTS)

    def deserialize(self, header: dict[str, Any], frames: list[Any]) -> Any:
        """Return the instance that :meth:`serialize` took apart.

        :raises PayloadError: for attributes that no instance of the class may have.
        """
        limits = current_limits.get() or DEFAULTS
        found = deserialize(header, frames, Grant(context="", families=_WITHIN), limits=limits)
        if type(found) is not dict or not all(type(key) is str and self.fits(key) for key in found):
            raise PayloadError(f"that is no {self._cls.__qualname__}", rule="families.attribute")
        return self.made(found)


def _typed(cls: type, name: str, allowed: frozenset[str] | None, *, own: bool = False) -> Typed:
    held = _Attributes(cls, allowed, own=own)

    def check(node: Node, limits: Limits) -> None:
        if not all(map(held.fits, records.check(node, limits))):
            node.refuse(
                "one of its attributes has a name that is no plain attribute of that class",
                "families.attribute",
            )

    return Typed(
        name,
        (cls,),
        lambda x, limits: records.encode(held.of(x), limits),
        check,
        lambda node, values: held.made(records.values(node, values)),
        own=own,
        keeps=True,
    )


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
