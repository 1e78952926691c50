"""Canonical forms by name: classes, functions and modules of installed libraries.

The one rule: a name stands for an object only if an installed library holds that very object under
it; then the library's version stands for its code. Code of notebooks, scripts and modules of one's
own changes under the same name, so that its name alone would give yesterday's result. Nothing is
imported and no attribute is asked for: names are looked up in dictionaries.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any, cast

from safeser.tokens.encoding import ATOMS, Encoding, digest, pack, text

_REFERENCE = b"\x0a"
_STATIC = b"\x0c"
_PYTHON = "{}.{}".format(*sys.version_info)
_LIBRARY = tuple({sysconfig.get_path(each) + os.sep for each in ("stdlib", "platstdlib")})
_PACKAGES = tuple(f"{os.sep}{each}{os.sep}" for each in ("site-packages", "dist-packages"))
#: What is run, as distinct from what is imported.
_RUN = frozenset({"__main__", "__mp_main__"})

#: Modules of installed libraries, with their versions.
_installed: dict[str, tuple[ModuleType, str]] = {}

#: The dictionary of a module; one that is loaded when it is used would load for ``vars``.
space_of = cast(Any, ModuleType).__dict__["__dict__"].__get__

# What types say of themselves, whatever their metaclass says.
_module_of = type.__dict__["__module__"].__get__
plain_name = type.__dict__["__name__"].__get__
_qualname_of = type.__dict__["__qualname__"].__get__
_dict_of = type.__dict__["__dict__"].__get__
_flags_of = type.__dict__["__flags__"].__get__
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: set in all that a class statement makes


def installed(name: Any) -> str | None:
    """Return the version of the installed library that the module *name* is of, or None."""
    if type(name) is not str or name in _RUN:
        return None
    module: Any = sys.modules.get(name)
    known = _installed.get(name)
    if known is not None and known[0] is module:
        return known[1]
    if not issubclass(type(module), ModuleType):
        return None
    version = _version(name, space_of(module).get("__file__"))
    if version is not None:
        _installed[name] = module, version
    return version


def _version(name: str, file: Any) -> str | None:
    root = name.partition(".")[0]
    if type(file) is not str:
        # Built in or frozen; modules that a program made at run time have no file either.
        return _PYTHON if root in sys.stdlib_module_names else None
    if _is_in_package(file):
        version = space_of(sys.modules.get(root, sys)).get("__version__")
        return version if type(version) is str else ""
    return _PYTHON if file.startswith(_LIBRARY) else None


@lru_cache(maxsize=1024)
def _is_in_package(file: str) -> bool:
    return any(each in file for each in _PACKAGES)


def held(module: str, qualname: str) -> Any:
    """Return what *module* holds under *qualname*, or None, without asking any attribute."""
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        if issubclass(type(found), ModuleType):
            found = space_of(found).get(name)
        elif issubclass(type(found), type):
            found = _dict_of(found).get(name)
        else:
            return None
    return found.__func__ if type(found) in (staticmethod, classmethod) else found


def reference(value: Any, module: Any, qualname: Any) -> Encoding | None:
    """Return the encoding of *value* by name, or None where it counts by its content."""
    version = installed(module)
    if version is None or type(qualname) is not str or held(module, qualname) is not value:
        return None
    return _REFERENCE + pack((version, module, text(qualname)))


def reference_of(value: Any) -> Encoding | None:
    """Return the encoding of a class or function by name, or None."""
    if type(value) is FunctionType:
        # A user's function under a library's name is the user's: look where its globals are.
        library = library_of(value.__globals__)
        if library is None or library.space is not value.__globals__:
            return None
        return reference(value, value.__module__, value.__qualname__)
    module, qualname = class_name(value)
    encoding = reference(value, module, qualname)
    if encoding is None and not _flags_of(value) & _HEAP_TYPE and type(module) is str:
        # Made by C code once and never again, like NoneType: its name is enough.
        return _STATIC + pack((installed(module), module, text(qualname)))
    return encoding


def is_held(value: Any, module: Any, qualname: Any) -> bool:
    """Say whether workers import *value* from a module of one's own, rather than receive it."""
    if type(module) is not str or type(qualname) is not str or module in _RUN:
        return False
    return held(module, qualname) is value


@dataclass(frozen=True, slots=True)
class Library:
    """A module of an installed library, with its version."""

    version: str
    name: str
    space: dict[str, Any]

    def holds(self, name: str, value: Any) -> bool:
        """Say whether *value* is what the library itself has under *name*."""
        own = self.space.get(name)
        if own is value:
            return value is not None or name in self.space
        plain = type(own) is type(value) and id(type(value)) in ATOMS
        return plain and pack(own) == pack(value)


def library_of(namespace: dict[str, Any]) -> Library | None:
    """Return the installed library that *namespace* names as its own, or None."""
    name: Any = namespace.get("__name__")
    version = installed(name)
    return None if version is None else Library(version, name, space_of(sys.modules[name]))


def importable(namespace: dict[str, Any]) -> bool:
    """Say whether *namespace* is that of a module which workers import, rather than receive."""
    name = namespace.get("__name__")
    if type(name) is not str or name in _RUN:
        return False
    module = sys.modules.get(name)
    return issubclass(type(module), ModuleType) and space_of(module) is namespace


def class_name(value: type) -> tuple[Any, Any]:
    """Return module and qualified name of a class, as the class statement set them."""
    return _module_of(value), _qualname_of(value)


def module_reference(module: ModuleType) -> Encoding | None:
    """Return the encoding of a module of an installed library, or None."""
    name = space_of(module).get("__name__")
    version = installed(name)
    if version is None or sys.modules.get(str(name)) is not module:
        return None
    return digest((_REFERENCE, version, name))
