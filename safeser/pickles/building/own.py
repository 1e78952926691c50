"""Build instances of classes that a policy or a library's author allows, and set their fields.

The one rule: only the class's own ``__new__`` runs, and ``__init__`` where the pickle calls the
class; the author of the policy entry vouches for both. Fields are stored in the instance's
``__dict__`` and declared slots directly, without any property, ``__setattr__`` or ``__setstate__``
of the class.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from safeser.errors import PayloadError
from safeser.pickles.profiles import Entry
from safeser.pickles.reading.layout import HEAP_TYPE, layout
from safeser.pickles.shims import bad
from safeser.types.stdlib import is_attribute

__all__ = ["OwnClass", "unfit"]

# What @dataclass(frozen=True, slots=True) puts into a class: a list of its fields' values.
_SLOTTED_STATE: Any = getattr(dataclasses, "_dataclass_setstate", None)


def _references(make: Callable[..., Any], arguments: Sequence[Any], kwargs: Any) -> tuple[Any, int]:
    made = make(*arguments, **kwargs)
    return made, sys.getrefcount(made)


_BASES: dict[str, type] = {
    f"builtins:{kind.__name__}": kind for kind in (float, int, list, object, str, tuple)
}
#: The reference count of an object that has no other references.
_ALONE = _references(object, (), {})[1]


class OwnClass:
    """One allowed class, inspected once.

    :raises PayloadError: for what a ``class`` role can never mean.
    """

    __slots__ = ("_dict", "_fields", "_methods", "_old", "_slots", "cls", "entry")

    def __init__(self, entry: Entry, found: Any) -> None:
        if not isinstance(found, type):
            raise unfit(entry, "is not a class")
        if issubclass(found, type | types.ModuleType):
            raise unfit(entry, "makes classes or modules, which belong to the whole process")
        if issubclass(found, enum.Enum):
            raise unfit(entry, "is an enum, whose members belong to the whole process")
        self.entry = entry
        self.cls = found
        self._old = hasattr(found, "__getinitargs__")
        known = layout(found)
        self._dict, self._slots, self._methods = known.fields, known.slots, known.methods
        listed = "*" not in entry.fields
        self._fields = entry.fields if listed else None

    # -- making --------------------------------------------------------------------------------

    def make(
        self,
        arguments: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        new: bool,
        old: bool,
        base: str,
    ) -> tuple[Any, bool]:
        """Return an instance, and whether it was created here and has no other references.

        A class may hand out an object that it keeps; giving that one fields would change it for
        the whole process.
        """
        if base:
            made, held = _references(self._made_of, (base, arguments), {})
        elif new or (old and not arguments and not self._old):
            made, held = _references(self.cls.__new__, (self.cls, *arguments), kwargs)
        else:
            made, held = _references(self.cls, arguments, kwargs)
        if type(made) is not self.cls:
            raise unfit(self.entry, "made something of another type")
        alone = held <= _ALONE and (
            not self.cls.__weakrefoffset__ or not weakref.getweakrefcount(made)
        )
        return made, alone

    def _made_of(self, base: str, arguments: Sequence[Any]) -> Any:
        """Return what protocols 0 and 1 make by a built-in base's ``__new__``, past the class's.

        That is the same if the class has none. A named tuple's only counts its fields.
        """
        kind: Any = _BASES[base]
        # The base that copyreg writes: the first that no Python code made.
        if next(each for each in self.cls.__mro__ if not each.__flags__ & HEAP_TYPE) is not kind:
            raise bad("class", f"{self.entry.name} is not based on what it is made of")
        if kind is list and self.entry.grows != "list":
            raise bad(
                "class",
                f"{self.entry.name} may not be filled",
                fix=f'Say so where it is allowed: \'{{"{self.entry.name}":'
                " {role: class, grows: list}}'.",
            )
        content: Any = arguments[0] if arguments else None
        if arguments and type(content) is not kind:
            raise bad("arguments", f"{self.entry.name} is made of something else")
        if kind is tuple and hasattr(self.cls, "_fields"):
            made: Any = self.cls.__new__(self.cls, *content)
            if isinstance(made, tuple) and tuple.__eq__(made, content):
                return made
        if self.cls.__new__ is not kind.__new__:
            raise bad(
                "class",
                f"{self.entry.name} has a __new__ of its own, which protocol 0 goes past",
                fix="Write it with protocol 2 or later.",
            )
        made = kind.__new__(self.cls, *arguments)
        if kind is list:
            list.extend(made, content)
        return made

    # -- fields --------------------------------------------------------------------------------

    def build(self, made: Any, state: Any) -> None:
        """Do what BUILD does: a dict of fields, or that (or None) and a dict of slots."""
        setstate = getattr(self.cls, "__setstate__", None)
        if setstate is BaseException.__setstate__:
            # An exception's sets attributes, any at all; here they are fields like others.
            self._fill(made, state)
            return
        if setstate is not None:
            self._build_itself(made, state, setstate)
            return
        fields, slots = state, None
        if type(state) is tuple and len(state) == 2:
            fields, slots = state
            if type(slots) is not dict:
                raise self._refused("takes no such state")
        if slots is None or fields is not None:
            self._fill(made, fields)
        if slots:
            self._set_slots(made, slots)

    def _build_itself(self, made: Any, state: Any, setstate: Any) -> None:
        if setstate is _SLOTTED_STATE:
            names = [field.name for field in dataclasses.fields(made)]
            if type(state) is not list or len(state) != len(names):
                raise self._refused("takes one value for each of its fields")
            self._set_slots(made, dict(zip(names, state, strict=True)))
        elif self.entry.setstate:
            setstate(made, state)
        else:
            raise bad(
                "state",
                f"{self.entry.name} has a __setstate__ of its own, which is not listed",
                fix=f'If it is safe for any plain state, allow it: \'{{"{self.entry.name}":'
                " {role: class, trust: [__setstate__]}}'. The risk: it runs on what its sender"
                " wrote.",
            )

    def _check_names(self, names: Mapping[Any, Any]) -> None:
        for name in names:
            if not is_attribute(name):
                raise self._refused("has no such field")
            listed = self._fields is None and name not in self._methods
            if not listed and (self._fields is None or name not in self._fields):
                raise bad(
                    "state",
                    f"{self.entry.name} has no such field",
                    fix="List it under 'fields' where the class is allowed. The risk: a method or"
                    " field that the class relies on is then the sender's.",
                )

    def _fill(self, made: Any, fields: Any) -> None:
        if type(fields) is not dict or self._dict is None:
            raise self._refused("takes no such state")
        self._check_names(fields)
        held = self._dict.__get__(made)
        held.update((sys.intern(name), value) for name, value in fields.items())

    def _set_slots(self, made: Any, fields: dict[str, Any]) -> None:
        self._check_names(fields)
        for name, value in fields.items():
            slot = self._slots.get(name)
            if slot is not None:
                slot.__set__(made, value)
            elif self._dict is not None and name not in self._methods:
                # Python sets what is no slot by setattr, which ends in the dict for plain names.
                self._dict.__get__(made)[sys.intern(name)] = value
            else:
                raise self._refused("has no such slot")

    def _refused(self, problem: str) -> PayloadError:
        return bad("state", f"{self.entry.name} {problem}")


def unfit(entry: Entry, problem: str) -> PayloadError:
    """Return the error for an entry whose role does not fit its global."""
    return bad(
        "class",
        f"{entry.name} {problem}",
        fix="Allow it in the role that it has: class, enum, constant or reference.",
    )
