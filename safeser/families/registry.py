"""List the types that family ``dask`` can carry, by names that safeser or the host registers.

The one rule: an unlisted name is refused before anything is imported, and a listed name cannot be
replaced.
"""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, NoReturn

from safeser.errors import ConfigError, PayloadError, SafeserError
from safeser.families.plain import Unencodable

#: ``<locals>`` stands in the qualified names of classes that functions define.
_NAME = re.compile(
    r"[A-Za-z_][\w.]{0,63}:(?:[A-Za-z_]|<locals>)(?:[\w.]|<locals>){0,63}\Z", re.ASCII
)

#: What is installed under another name than it is imported by.
_PROJECTS = {"sklearn": "scikit-learn"}


def is_name(name: str) -> bool:
    """Tell whether a type can travel as *name*."""
    return _NAME.match(name) is not None


@dataclass(frozen=True, slots=True)
class Parts:
    """The encoded parts of an object.

    :param meta: description of the object itself, plain msgpack values under names.
    :param frames: buffers that it hands over without copying them.
    :param children: objects inside it, each with the label that errors show, as ``"['x']"``.
    """

    meta: dict[str, Any]
    frames: Sequence[Any] = ()
    children: Sequence[tuple[str, object]] = ()


@dataclass(frozen=True, slots=True)
class Typed:
    """The functions that send, check and build objects of exactly one listed type.

    :param name: ``module:qualname`` as it travels; written here, never taken from a peer.
    :param classes: classes whose direct instances it encodes; subclasses only if *subclasses*.
    :param encode: object to :class:`Parts`; raises Unencodable for what would be altered.
    :param check: refuses a node that does not describe such an object; builds nothing.
    :param decode: checked node and its children's values to the object.
    :param contextual: *encode* and *decode* are handed the communication context as well.
    :param budgeted: *check* and *decode* are handed the budget of the message as well.
    :param takes: whether an instance travels so; the others are as those of an unlisted class.
    :param own: its class is the program's own and not registered: no code of it runs.
    :param keeps: *decode* keeps its children as they are: it hashes, compares and calls none.
    """

    name: str
    classes: tuple[type, ...]
    encode: Callable[..., Parts]
    check: Callable[..., None]
    decode: Callable[..., Any]
    subclasses: bool = False
    contextual: bool = False
    budgeted: bool = False
    takes: Callable[[Any], bool] | None = None
    own: bool = False
    keeps: bool = False

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise ConfigError(
                "a registered type must be named as module:qualname",
                rule="families.register",
                fix='Write it as in "mylib.models:Human": ASCII, up to 64 characters on each side.',
            )


def singleton(name: str, value: object) -> Typed:
    """Return the serializer of *value*, the only object of its class."""

    def check(node: Any, limits: object) -> None:
        node.expect()

    cls = type(value)
    return Typed(name, (cls,), lambda x, limits: Parts({}), check, lambda node, _: value)


def never_sent(
    name: str, classes: tuple[type, ...], why: str, said: str, *, rule: str = "families.type"
) -> Typed:
    """Return the type of objects that are not sent, so that either side says what to do.

    :param why: what the sender of one is told.
    :param said: what the receiver of one says.
    """

    def encode(x: object, limits: object) -> NoReturn:
        raise Unencodable(x, why)

    def refuse(node: Any, _: object) -> None:
        node.refuse(said, rule)

    return Typed(name, classes, encode, refuse, refuse)


def required(right: object) -> None:
    """Raise ValueError, which receiving turns into a refusal that names the type."""
    if not right:
        raise ValueError


def loading(*modules: str) -> Callable[[], None]:
    """Return a function that imports *modules* of this package, and lets each list its types."""

    def load() -> None:
        for module in [importlib.import_module(f"safeser.families.{each}") for each in modules]:
            module.register()

    return load


@dataclass(slots=True)
class _Lazy:
    """A function that registers the serializers of one package on first use."""

    package: str
    names: frozenset[str]
    load: Callable[[], None]
    loading: bool = False
    done: bool = False


def is_remade(old: type, new: type) -> bool:
    """Tell whether *new* is *old*, or *old* defined once more: by its name in the same module."""
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)


def registering(name: str) -> str:
    """Return the line of Python that registers the class *name*."""
    module, _, qualname = name.partition(":")
    cls = qualname.rpartition("<locals>.")[2]
    imported = "" if module == "__main__" else f"from {module} import {cls.partition('.')[0]}; "
    return f"{imported}safeser.register_class({cls})"


def _elsewhere(name: str) -> str:
    """Return what makes a class that can be imported known to processes that others started."""
    if name.startswith("__main__:"):
        return ""
    return (
        ". On Dask's workers a preload does so, or the policy names it where it grants family"
        f' pickle: pickle: {{allow: {{"{name}": class}}}}'
    )


def _taken(what: str) -> ConfigError:
    return ConfigError(
        f"{what} is registered already",
        rule="families.register",
        fix="A registered type cannot be replaced; give yours a name of its own.",
    )


@dataclass(slots=True)
class Registry:
    """Listed types of this process, by name for reading and by class for writing."""

    #: The serializers that are registered already, by name; only this class changes it.
    ready: dict[str, Typed] = field(default_factory=dict)
    _by_class: dict[type, Typed] = field(default_factory=dict)
    _advice: dict[type, tuple[str, str]] = field(default_factory=dict)
    _lazy: dict[str, list[_Lazy]] = field(default_factory=dict)
    _lazy_names: dict[str, _Lazy] = field(default_factory=dict)
    _remade: set[str] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    #: Returns the serializer for direct instances of an unlisted class, or None. Writing needs no
    #: list: the reader decides by its own what it builds.
    for_writing: Callable[[type], Typed | None] = lambda cls: None
    #: Returns the serializer of a class of the program's own that is not listed, by its name, or
    #: None; raises PayloadError if it is one that arrives only where it is registered.
    own: Callable[[str, str], Typed | None] = lambda name, where: None
    _bases: dict[type, Callable[[type], Typed | None]] = field(default_factory=dict)
    _below: dict[str, Typed] = field(default_factory=dict)

    def register(self, typed: Typed, *, remade: bool = False) -> None:
        """List *typed*, or raise ConfigError if its name or class is listed already.

        :param remade: whether the program makes the class anew when it runs the same code again, as
            reloading a module does. The new one then takes the old one's place.
        """
        with self._lock:
            if remade:
                self._make_way(typed)
            lazy = self._lazy_names.get(typed.name)
            kept = lazy is not None and not lazy.loading
            if kept or typed.name in self.ready or self._by_class.keys() & set(typed.classes):
                raise _taken(f"{typed.name} or its class")
            self.ready[typed.name] = typed
            for cls in typed.classes:
                self._by_class[cls] = typed
            if remade:
                self._remade.add(typed.name)

    def register_below(self, base: type, plan: Callable[[type], Typed | None]) -> None:
        """Let classes that derive from *base* count as listed.

        :param plan: returns the serializer of one, or None for a class that does not count.
        """
        self._bases[base] = plan

    def _derived(self, cls: type) -> Typed | None:
        """Return the serializer of *cls* by what is registered of its bases."""
        name = f"{cls.__module__}:{cls.__qualname__}"
        typed = self._below.get(name)
        if typed is None or typed.classes[0] is not cls:
            plans = [plan for base, plan in self._bases.items() if base in cls.__mro__[1:]]
            typed = plans[0](cls) if plans else None
        if typed is not None:
            self._below[name] = typed
        return typed

    def derived(self, name: str) -> Typed | None:
        """Return the serializer of the class *name* if it derives from a registered base, or None.

        Nothing is imported. It is looked for each time: a cell that runs again makes another class.
        """
        ahead, seen, latest = [*self._bases], set[type](), None
        for base in ahead:  # which grows
            subclasses: list[type] = type.__subclasses__(base)
            below = [cls for cls in subclasses if cls not in seen]
            seen.update(below)
            ahead += below
            for cls in below:
                if f"{cls.__module__}:{cls.__qualname__}" == name:
                    latest = cls
        return None if latest is None else self._derived(latest)

    def remakes(self, name: str, cls: type) -> bool:
        """Tell whether *cls* is what is listed as *name*, maybe made anew by its module."""
        if name not in self._remade:
            return False
        return any(is_remade(before, cls) for before in self.ready[name].classes)

    def _make_way(self, typed: Typed) -> None:
        """Remove the earlier version of *typed*'s class, from before its module ran again."""
        if all(self.remakes(typed.name, cls) for cls in typed.classes):
            for before in self.ready.pop(typed.name).classes:
                del self._by_class[before]

    def register_lazy(self, package: str, names: Sequence[str], load: Callable[[], None]) -> None:
        """List *names*, whose serializers *load* registers when one is first needed.

        :param package: package or module whose classes they are; imported by *load* alone.
        """
        lazy = _Lazy(package, frozenset(names), load)
        with self._lock:
            twice = lazy.names & (self.ready.keys() | self._lazy_names.keys())
            if twice:
                raise _taken(min(twice))
            self._lazy_names |= dict.fromkeys(lazy.names, lazy)
            self._lazy.setdefault(package, []).append(lazy)

    def for_object(self, value: object) -> Typed | None:
        """Return the serializer for direct instances of *value*'s class, or None."""
        found = self.for_class(type(value))
        return None if found and found.takes and not found.takes(value) else found

    def for_class(self, cls: type) -> Typed | None:
        """Return the serializer for direct instances of *cls*, or None."""
        found = self._by_class.get(cls)
        if found is None:
            self._load_for(cls)
            found = self._by_class.get(cls)
        if found is None:
            for base in cls.__mro__[1:]:
                candidate = self._by_class.get(base)
                if candidate is not None and candidate.subclasses:
                    return candidate
            found = self._derived(cls) if self._bases else None
        return found

    def is_own(self, name: str) -> bool:
        """Tell whether a class of the program was registered as *name*, by the class alone."""
        return name in self._remade or name in self._below

    def advise(self, cls: type, reason: str, fix: str = "") -> None:
        """Set what senders of objects of *cls* or of a class derived from it are told.

        Such objects stay without a serializer: families that are asked next may still take them.

        :param fix: what to do in place of what helps other objects.
        """
        with self._lock:
            self._advice[cls] = reason, fix

    def advice_for(self, cls: type) -> tuple[str, str]:
        """Return why objects of *cls* have no serializer, and what to do; empty if nothing says."""
        for base in cls.__mro__:
            self._load_for(base)
            if base in self._advice:
                return self._advice[base]
        return "", ""

    def knows(self, name: str) -> bool:
        return name in self.ready or name in self._lazy_names

    def names(self) -> frozenset[str]:
        """Return all names that are listed; imports nothing."""
        return frozenset(self.ready.keys() | self._lazy_names.keys())

    def has_package(self, package: str) -> bool:
        """Tell whether types of *package* are listed, loaded or not."""
        return package in self._lazy

    def listed(self, name: str, *, where: str = "") -> Typed | None:
        """Return the serializer listed as *name*, or None if its package is not imported yet.

        Imports nothing: the name's author is not decided yet, or not recorded.

        :raises PayloadError: if nothing is listed under that name.
        """
        found = self.ready.get(name)
        if found is None and name not in self._lazy_names:
            self.refuse(name, where=where)
        return found

    def refuse(self, name: str, *, where: str) -> NoReturn:
        """Raise the :class:`PayloadError` for a name under which nothing is listed."""
        raise PayloadError(
            f"no type {name} is registered here",
            rule="families.type",
            where=where,
            fix=f"If it is a class of your own, register it in this process: {registering(name)}"
            f"{_elsewhere(name)}",
        )

    def named(self, name: str, *, where: str = "", beside: Iterable[str] = ()) -> Typed:
        """Return the serializer listed as *name*, importing its package if it is needed for that.

        :param beside: names of all types in the payload, so that a refusal tells what they need.
        :raises PayloadError: if nothing is listed under that name, before anything is imported.
        """
        found = self.listed(name, where=where)
        if found is not None:
            return found
        lazy = self._lazy_names[name]  # or listed() had refused the name
        if not self._load(lazy) or name not in self.ready:
            needed = lazy.package.partition(".")[0]
            missing = self._missing(beside) - {needed}
            packages = [_PROJECTS.get(each, each) for each in (needed, *sorted(missing))]
            are = "is" if len(packages) == 1 else "are"
            raise PayloadError(
                f"values of type {name} need {' and '.join(packages)}, which {are} not installed"
                " here",
                rule="families.not-installed",
                where=where,
                fix=f"Install {' and '.join(packages)}, or have the sender convert the value.",
            )
        return self.ready[name]

    def _missing(self, names: Iterable[str]) -> set[str]:
        """Return the packages of listed *names* that are not installed here; imports nothing."""
        packages = {
            self._lazy_names[name].package.partition(".")[0]
            for name in names
            if name in self._lazy_names
        }
        return {
            package
            for package in packages
            if sys.modules.get(package) is None and find_spec(package) is None
        }

    def _load_for(self, cls: type) -> None:
        """Load what is listed under the module of *cls*, and under each package that holds it."""
        parts = str(getattr(cls, "__module__", "")).split(".")
        for end in range(1, len(parts) + 1):
            for lazy in self._lazy.get(".".join(parts[:end]), ()):
                self._load(lazy)

    def _load(self, lazy: _Lazy) -> bool:
        """Run *lazy* once; False if its package cannot be imported.

        :raises ConfigError: if it fails in another way, as libraries built for others do.
        """
        if lazy.done:
            return True
        with self._lock:
            # What it registers may ask for objects of the same package meanwhile.
            if lazy.done or lazy.loading:
                return True
            lazy.loading = True
            try:
                lazy.load()
            except ImportError:
                return False
            except SafeserError:
                raise
            # A library that does not fit the others here may raise anything when it is imported.
            except Exception as error:
                raise ConfigError(
                    f"importing {lazy.package} failed with {type(error).__name__}",
                    rule="families.not-installed",
                    fix="The cause is chained to this error; repair what is installed.",
                ) from error
            finally:
                lazy.loading = False
            lazy.done = True
            return True


#: The process's own registry: safeser's types are in it as soon as safeser.families is imported.
registry = Registry()
