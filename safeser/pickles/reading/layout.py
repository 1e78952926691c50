"""Find where instances of a class store their attributes, without running any code of the class.

The one rule: only the interpreter's own descriptors are used; a property or ``__getattr__`` of the
class is not trusted.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["HEAP_TYPE", "IMMUTABLE_TYPE", "Layout", "held_by", "layout", "layout_now"]

#: Set in the flags of classes that code can change, and that Python code may have made.
HEAP_TYPE = 1 << 9

# What makes an object in a class a descriptor. Those that only set keep the value in the instance's
# ``__dict__`` under their own name, once they have looked at it.
_GUARDS = ("__get__", "__set__", "__delete__")
#: Set in the flags of classes whose attributes nothing can write to.
IMMUTABLE_TYPE = 1 << 8


@dataclass(frozen=True, slots=True)
class Layout:
    """One class.

    :param fields: the interpreter's way to an instance's ``__dict__``, or None.
    :param slots: the interpreter's ways to slots that Python code declares, by name.
    :param methods: names by which the class has a method, property or other descriptor.
    :param callables: names by which it has anything else that can be called.
    :param cached: names of cached properties: computed again when asked for, so never sent.
    """

    fields: Any
    slots: dict[str, Any]
    methods: frozenset[str]
    callables: frozenset[str]
    cached: frozenset[str]


def layout_now(cls: type) -> Layout:
    """Return what :data:`layout` does, of a class that code may have changed since."""
    seen: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        seen.update(vars(base))
    # A property of that name would be code.
    fields = seen.get("__dict__") if cls.__dictoffset__ else None
    if type(fields) is not types.GetSetDescriptorType:
        fields = None
    # A member of a C struct is left out: it may take no other type than its own.
    slots = {
        name: found
        for name, found in seen.items()
        if type(found) is types.MemberDescriptorType and "__slots__" in vars(found.__objclass__)
    }
    # By their types: a proxy, which stands for another object, computes its ``__class__``.
    cached = {n for n, found in seen.items() if issubclass(type(found), functools.cached_property)}
    # What an instance may hold over: defaults, and what caches its own value there.
    methods = {
        name
        for name, found in seen.items()
        if name not in slots
        and name not in cached
        and (issubclass(type(found), type) or any(hasattr(type(found), part) for part in _GUARDS))
    }
    callables = {name for name, found in seen.items() if name not in slots and callable(found)}
    named = map(frozenset, (methods, callables - methods, cached))
    return Layout(fields, slots, *named)


#: Returns where instances of a class keep what they hold.
layout: Callable[[type], Layout] = functools.lru_cache(maxsize=512)(layout_now)


def held_by(value: Any) -> list[Any]:
    """Return the direct content of *value*: fields, slots, and elements of a container."""
    kind = type(value)
    held: list[Any] = []
    for base in (tuple, list, set, frozenset):
        if issubclass(kind, base):
            held.extend(base.__iter__(value))
    if issubclass(kind, dict):
        held.extend(dict.__iter__(value))
        held.extend(dict.values(value))
    known = layout(kind)
    if known.fields is not None:
        held.extend(known.fields.__get__(value).values())
    for slot in known.slots.values():
        try:
            held.append(slot.__get__(value))
        except AttributeError:  # it is empty
            continue
    return held
