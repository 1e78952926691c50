"""Derive the names under which classes of the host program are sent, and refuse ambiguous ones.

The one rule: a name means one class on every side, so classes of scripts, classes inside functions
and classes under another's name get none.
"""

from __future__ import annotations

from typing import NoReturn

from safeser.allowed import refusal
from safeser.errors import ConfigError, PayloadError
from safeser.families.registry import is_name, registry
from safeser.pickles.names import shown

__all__ = ["refuse_class", "wire_name"]

#: Modules whose classes have no name that another process understands.
_NAMELESS = ("__mp_main__", "builtins")


def wire_name(cls: type, name: str | None) -> str:
    """Return the name by which *cls* travels, or refuse one that means another class elsewhere."""
    if name is None:
        name = f"{cls.__module__}:{cls.__qualname__}"
        if cls.__module__ in _NAMELESS or not is_name(name):
            refuse_class(
                cls,
                "has no name that another process understands",
                fix="Move it to a module that both sides import, or give it a name:"
                ' name="mylib:Class".',
            )
    if not isinstance(name, str):
        raise ConfigError("the name of a class is text", rule="families.register")
    # The name on the wire changes nothing about what the class is.
    for each in (name, f"{cls.__module__}:{cls.__qualname__}"):
        why = refusal(each, "class")
        if why:
            refuse_class(
                cls,
                f"cannot be registered as {shown(each)}: {why}",
                fix="Register a class of your own that holds what is needed.",
            )
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
