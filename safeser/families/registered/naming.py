"""The names under which classes of one's own travel, and the refusal of those that cannot have one.

The one rule: a name means one class on every side, so scripts, functions and the names of others
give none.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from safeser.errors import ConfigError, PayloadError
from safeser.families.registry import registry
from safeser.pickles.names import shown

__all__ = ["refuse_class", "wire_name"]

#: Modules whose classes are others on each side, though they have one name.
_MAIN = ("__main__", "__mp_main__", "builtins")


def wire_name(cls: type, name: str | None) -> str:
    """Return the name by which *cls* travels, or refuse one that means another class elsewhere."""
    if name is None:
        if cls.__module__ in _MAIN or "<" in cls.__qualname__:
            refuse_class(
                cls,
                "cannot be named: it is in a script, in a function, or built in",
                fix="Move it to a module that both sides import, or give it a name:"
                ' name="mylib:Class".',
            )
        name = f"{cls.__module__}:{cls.__qualname__}"
    if not isinstance(name, str):
        raise ConfigError("the name of a class is text", rule="families.register")
    package = name.partition(":")[0].partition(".")[0]
    if package in sys.stdlib_module_names or package == "safeser":
        refuse_class(cls, "has a name in the standard library, or in safeser")
    if registry.remakes(name, cls):
        return name
    try:
        registry.listed(name)
    except PayloadError:
        return name
    refuse_class(
        cls,
        f"is registered already, or another class is as {shown(name)}",
        fix="Register each class once; give another one a name= of its own.",
    )


def refuse_class(cls: type, problem: str, *, fix: str = "") -> NoReturn:
    """Raise the :class:`ConfigError` that names *cls*, which its author tried to register."""
    of = f"{cls.__module__}:{cls.__qualname__}"[:128]
    raise ConfigError(f"{of} {problem}", rule="families.register", fix=fix)
