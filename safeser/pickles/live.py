"""Resolve listed globals once, and check before each load that they have not been replaced.

The one rule: a global is resolved once and kept. Each load that uses it checks it again; if another
object is in its place, or in the place of a method that the load would run, the load is refused.
That is a tripwire, not a boundary: code that runs here can also reach this file.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from safeser.allowed import own_object
from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles.reading.layout import HEAP_TYPE, IMMUTABLE_TYPE
from safeser.pickles.shims.labels import hide_memory_of

__all__ = ["Live", "Witness", "witness"]

# What instantiating, building, hashing or freeing an instance runs. Every class has these ...
_METHODS = (
    *("__new__", "__init__", "__setattr__", "__getattribute__", "__hash__", "__eq__"),
    *("__reduce_ex__", "__mro__"),
)
# ... and these, some classes: one that is added later counts as a change.
_OPTIONAL = ("__setstate__", "__getattr__", "__del__", "__getinitargs__")
_FUNCTION = ("__code__", "__defaults__", "__kwdefaults__", "__closure__")

_Reader = Callable[[Any], Any]


class _Kept:
    """One object, and those of its attributes that must not change.

    :ivar marked: whether there is anything; C's own classes cannot be written to.
    """

    __slots__ = ("_absent", "_marks", "_names", "_reader", "found", "marked")

    def __init__(self, found: Any) -> None:
        self.found = found
        if isinstance(found, type):
            hide_memory_of(found)
        self._absent, self._reader = _marks_of(found)
        # Views of the names that its classes have by then; a failing look at a class is slow.
        bases = found.__mro__ if self._absent else ()
        self._names = [vars(base).keys() for base in bases if base.__flags__ & HEAP_TYPE]
        self._marks = self._reader(found) if self._reader else None
        self.marked = bool(self._reader) and not (
            isinstance(found, type) and found.__flags__ & IMMUTABLE_TYPE
        )

    def is_changed(self) -> bool:
        if self._reader and self._reader(self.found) != self._marks:
            return True
        return any(not names.isdisjoint(self._absent) for names in self._names)


class Live:
    """One listed global.

    :param name: exact ``module:qualname``; importing its module is the only import of a load.
    :param allowed: the role in which it is allowed; empty for a name of a list that ships.
    :raises PolicyDenied: if an allowed name leads to an object of another name.
    """

    __slots__ = ("_kept", "_parts", "_stable", "found", "module", "name")

    def __init__(self, name: str, *, allowed: str = "") -> None:
        module, _, qualname = name.partition(":")
        self.name = name
        self.module = module
        self._parts = tuple(qualname.split("."))
        try:
            found = importlib.import_module(module)
            self.found: Any = own_object(name, allowed, found) if allowed else self._walk()
        except (ImportError, AttributeError, KeyError):
            raise PayloadError(
                f"{name} is allowed but cannot be found here",
                rule="pickle.unresolved",
                fix="Install the package that defines it, in the version that the sender uses.",
            ) from None
        # A module may make a new object at each look (PEP 562); then there is nothing to compare.
        self._stable = _same(self._walk(), self.found)
        self._kept = _Kept(self.found)

    def _walk(self) -> Any:
        found: Any = sys.modules[self.module]
        for part in self._parts:
            found = getattr(found, part)
        return found

    def check(self) -> None:
        """Refuse if the global, or a method of it that a load would run, was replaced.

        :raises PolicyDenied: naming it.
        """
        try:
            if self._stable and not _same(self._walk(), self.found):
                raise _changed(self.name)
            if self._kept.marked and self._kept.is_changed():
                raise _changed(self.name)
        except (AttributeError, KeyError):
            raise _changed(self.name) from None


class Witness:
    """The code of an entry's reviewed function, and the global under the entry's name.

    That is looked at only once something has imported it, and nothing is imported.
    """

    __slots__ = ("_code", "_function", "_kept", "_leaf", "_module", "_names", "_parts", "name")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._module, _, qualname = name.partition(":")
        self._leaf, *self._parts = qualname.split(".")
        self.name = name
        self._names: Mapping[str, Any] = {}
        self._kept: _Kept | None = None
        self._function = function
        self._code = getattr(function, "__code__", None)
        self.look()

    def look(self) -> None:
        """Record the global under the entry's name, if there is one."""
        module = sys.modules.get(self._module)
        self._names = {} if module is None else vars(module)
        found = self._found()
        # A class method of C's is another object at each look.
        if found is not None and _same(self._found(), found):
            self._kept = _Kept(found)

    def _found(self) -> Any:
        found = self._names.get(self._leaf)
        for part in self._parts:
            found = getattr(found, part, None)
        return found

    def check(self) -> None:
        """Refuse if either was replaced since the entry was first used.

        :raises PolicyDenied: naming it.
        """
        kept = self._kept
        if kept is None:
            # The reviewed function may have imported it since.
            self.look()
        else:
            found = self._found() if self._parts else self._names.get(self._leaf)
            same = found is kept.found or _same(found, kept.found)
            if not same or (kept.marked and kept.is_changed()):
                raise _changed(self.name)
        if self._code is not None and self._function.__code__ is not self._code:
            raise _changed(self.name)


#: Returns how an entry was when this process first used it, under whichever profile.
witness: Callable[[str, Callable[..., Any]], Witness] = functools.cache(Witness)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    # Each look at a class method makes a new object.
    return type(one) is types.MethodType and type(other) is types.MethodType and one == other


def _marks_of(found: Any) -> tuple[tuple[str, ...], _Reader | None]:
    """Return which attributes *found* must not get, and what reads those it must keep."""
    if isinstance(found, type):
        names = [*_METHODS, *(() if type(found) is type else ("__class__.__call__",))]
        absent = tuple(name for name in _OPTIONAL if not hasattr(found, name))
        names += [name for name in _OPTIONAL if name not in absent]
        names += [
            f"{name}.__code__"
            for name in names
            if isinstance(attrgetter(name)(found), types.FunctionType)
        ]
    elif isinstance(found, types.FunctionType | types.MethodType):
        absent, names = (), list(_FUNCTION)
    else:
        return (), None
    # Descriptors that make a new object at each look say nothing.
    stable = [name for name in names if attrgetter(name)(found) is attrgetter(name)(found)]
    return absent, attrgetter(*stable)


def _changed(name: str) -> PolicyDenied:
    return PolicyDenied(
        f"{name} is not what it was when this process first used it",
        rule="pickle.integrity",
        fix="Find what replaced it, and start the process anew. After importing a module again on"
        " purpose, make the profile again.",
    )
