"""Find classes of the program itself, whose instances arrive as data without being registered.

The one rule: own is positive. A class counts only where a loaded module of the program has it under
the very name that a peer wrote, and all that it derives from counts, too. Nothing is imported for
a name, nothing is asked of a class, and no method of one runs while its instances are made.
"""

from __future__ import annotations

import builtins
import enum
import os
import sys
import sysconfig
import types
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from safeser.allowed import refusal
from safeser.families.records import is_attribute
from safeser.pickles.names import shown
from safeser.pickles.reading.layout import Layout, layout, layout_now
from safeser.pickles.shims.stdlib.exceptions import check_arguments

__all__ = [
    "HOOKS",
    "find",
    "find_exception",
    "hides",
    "is_generated",
    "made",
    "name_modules",
    "obstacle",
    "speaks",
]

#: What decides how instances are made, kept, looked at and taken apart. Since Python 3.11 object
#: itself has a ``__getstate__``, which adds nothing to the attributes.
HOOKS = (
    *("__new__", "__getattribute__", "__setattr__", "__delattr__", "__class__"),
    *("__reduce__", "__reduce_ex__"),
    *("__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__"),
)

#: What an own class may not define either: it would run on attributes that a peer chose. Workers
#: of Dask ask each value for its size.
_RUN = (*HOOKS, "__getattr__", "__del__", "__sizeof__")

#: What BaseException does with what is set on it; an own class may only say how it is made and
#: printed. ``__dict__`` belongs to each class that brings one.
_OF_ERRORS = frozenset({*vars(BaseException), "__notes__", *_RUN}) - {
    *("__dict__", "__doc__", "__init__", "__str__", "__repr__"),
}

#: Python's own exceptions; a group of an own class is none, since its members would be lost.
_ERRORS = frozenset(
    found
    for found in vars(builtins).values()
    if isinstance(found, type)
    and issubclass(found, BaseException)
    and not issubclass(found, BaseExceptionGroup)
)

_OF_ENUMS = frozenset(
    {*filter(lambda found: isinstance(found, type), vars(enum).values()), int, str, float, bytes}
)

_named: set[str] = set()


def name_modules(names: Iterable[str]) -> None:
    """Let classes of the modules *names* count as the program's own, once they are loaded."""
    _named.update(names)


# --- modules --------------------------------------------------------------------------------------


def _is_own(name: str, module: Any) -> bool:
    """Tell whether *module*, loaded as *name*, is of the program.

    A module of another type may import or compute what it is asked for.
    """
    if type(module) is not types.ModuleType:
        return False
    if name == "__main__":
        return True
    main: Any = sys.modules.get("__main__")
    place = vars(main).get("__file__") if type(main) is types.ModuleType else None
    file = vars(module).get("__file__")
    # Instances of classes that C made, without their constructors, hold what C does not expect.
    if type(file) is not str or not file.endswith(".py"):
        return False
    return name in _named or (type(place) is str and _is_beside(file, place))


@cache  # of each loaded module once: peers do not choose files
def _is_beside(file: str, main: str) -> bool:
    """Tell whether *file* lies under the folder of *main*, where nothing was installed.

    An environment may lie there as well, with the standard library and packages in it. A package
    that was copied there without its ``*.dist-info`` is the program's own, like one that is
    installed to be edited there: its files are those that the program's author writes.
    """
    path, folder = Path(file).resolve(), Path(main).resolve().parent
    if folder not in path.parents:
        return False
    installed = [Path(each).resolve() for each in sysconfig.get_paths().values()]
    if any(each in path.parents for each in installed):
        return False
    try:
        beside = [name for each in path.parents for name in os.listdir(each)]
    except OSError:  # then it is not known
        return False
    return not any(name.endswith(".dist-info") for name in beside)


# --- classes --------------------------------------------------------------------------------------


def find(name: str) -> type | None:
    """Return the class that a loaded module of the program has as *name*, or None."""
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    if not _is_own(module, found) or refusal(name, "class"):
        return None
    for part in qualname.split("."):
        found = vars(found).get(part)
        if type(found) not in (type, enum.EnumMeta):
            return None
    return found if (found.__module__, found.__qualname__) == (module, qualname) else None


def obstacle(cls: type) -> str:
    """Return why instances of the own class *cls* cannot be made without running anything of it.

    :return: what follows its name in a sentence; empty if nothing is in the way.
    """
    stock: Iterable[type] = (object,)
    hooks: Iterable[str] = _RUN
    if type(cls) is enum.EnumMeta:
        stock, hooks = {object, *_OF_ENUMS}, ()  # members are there already
    elif issubclass(cls, BaseException):
        stock, hooks = {object, *_ERRORS}, _OF_ERRORS
    for base in cls.__mro__:
        if base in stock:
            continue
        name = f"{base.__module__}:{base.__qualname__}"
        known = find(name)
        if known is not base:
            what = "which is none of its classes" if known is None else "which was defined again"
            return f"derives from {shown(name)}, {what}"
        for hook in hooks:
            if hook in vars(base) and not is_generated(base, hook):
                return f"has a {hook} of its own"
    if issubclass(cls, BaseException) and (layout(cls).slots or layout(cls).fields is None):
        return "keeps its attributes elsewhere than other exceptions"
    return ""


def is_generated(base: type, hook: str) -> bool:
    """Tell whether dataclasses or attrs wrote *hook* of *base*: it adds nothing to the fields.

    A frozen dataclass refuses to be made where the class has such methods of its own.
    """
    frozen = getattr(vars(base).get("__dataclass_params__"), "frozen", False)
    if hook in ("__setattr__", "__delattr__") and frozen:
        return True
    # By its file: cloudpickle makes new functions of the same code for a class that it sends.
    file = getattr(getattr(vars(base)[hook], "__code__", None), "co_filename", None)
    makers = (sys.modules.get(name) for name in ("dataclasses", "attr._make"))
    return any(maker is not None and file == maker.__file__ for maker in makers)


def hides(known: Layout, attribute: str) -> bool:
    """Tell whether an instance that held *attribute* would hide more than a plain default."""
    return (
        not is_attribute(attribute)
        or attribute in known.methods | known.cached
        or (attribute in known.callables and attribute not in known.slots)
    )


# --- exceptions -----------------------------------------------------------------------------------


def find_exception(name: str) -> type[Exception] | None:
    """Return the exception of the program's own as which a failure of *name* is raised, or None."""
    cls = find(name)
    fits = cls is not None and issubclass(cls, Exception) and not obstacle(cls)
    return cls if fits else None


def speaks(cls: type[BaseException]) -> bool:
    """Tell whether printing a *cls* runs code that is not Python's own."""
    return any("__str__" in vars(base) for base in {*cls.__mro__} - {object, *_ERRORS})


def made(cls: type[Exception], args: tuple[Any, ...], fields: dict[str, Any]) -> Exception | None:
    """Return the own exception of *args* and *fields*, or None if it cannot hold them.

    Python's own class makes it; no method of *cls* runs.
    """
    (base, *_) = (each for each in cls.__mro__ if each in _ERRORS)
    check_arguments(base, args)
    exc: Exception = base.__new__(cls, *args)
    base.__init__(exc, *args)
    known = layout_now(cls)
    for field, value in fields.items():
        if hides(known, field):
            # As ``name`` of an AttributeError, which has none anyway; or it is computed again.
            if value is not None and field not in known.cached:
                return None
        else:
            known.fields.__get__(exc)[field] = value
    return exc
