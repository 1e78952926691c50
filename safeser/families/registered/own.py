"""Register serialization families beyond the built-in ones, by the host or by an entry point.

The one rule: a family is registered once, never replaced, and cannot take a built-in name. A name
from a peer never makes safeser search, read or import anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from safeser.errors import ConfigError
from safeser.families.registered.hosted import check_function, takes_context
from safeser.gate.values import FAMILIES, check_family

#: Entry points of installed distributions: the name is the family's, the object has its functions.
GROUP = "safeser.families"

_BUILT_IN = frozenset(FAMILIES)

#: Words that mean something else in headers and policies.
_RESERVED = frozenset({*FAMILIES, "collection", "cuda", "none", "any", "all", "unknown"})

Dumps = Callable[..., Any]
Loads = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class OwnFamily:
    """One registered family; either function may be missing where it goes one way only."""

    name: str
    dumps: Dumps | None
    loads: Loads | None
    views: bool = False
    dumps_context: bool = field(init=False)
    loads_context: bool = field(init=False)

    def __post_init__(self) -> None:
        check_family(self.name)
        if self.name in _RESERVED:
            raise ConfigError(
                f"a family cannot be called {self.name}: the name has a meaning already",
                rule="families.register",
                fix="Give yours a name of its own.",
            )
        check_function(self.dumps)
        check_function(self.loads)
        if self.dumps is None and self.loads is None:
            raise ConfigError(
                f"family {self.name} can neither dump nor load", rule="families.register"
            )
        object.__setattr__(self, "dumps_context", takes_context(self.dumps))
        object.__setattr__(self, "loads_context", takes_context(self.loads))


def _installed() -> list[EntryPoint]:
    return list(entry_points(group=GROUP))


class OwnFamilies:
    """The families of this process beyond those built in.

    :param installed: lists the entry points that installed distributions declare.
    """

    def __init__(self, installed: Callable[[], list[EntryPoint]] = _installed) -> None:
        self._families: dict[str, OwnFamily] = {}
        self._installed = installed
        self._declared: dict[str, list[EntryPoint]] | None = None
        self._lock = threading.RLock()

    def register(self, family: OwnFamily) -> None:
        """Add *family* to the table, or raise ConfigError if its name is registered already."""
        with self._lock:
            if family.name in self._families or family.name in self._entry_points():
                raise ConfigError(
                    f"family {family.name} is registered already",
                    rule="families.register",
                    fix="A family cannot be replaced; give yours a name of its own.",
                )
            self._families[family.name] = family

    def known(self, name: str) -> bool:
        """Tell whether the family *name* was registered or looked for; read no file.

        Names from a peer are looked up here. A family that this process did not look for is not
        granted either, so whether it is installed makes no difference.
        """
        return name in self._families or name in (self._declared or ())

    def look_for(self, names: Iterable[str]) -> None:
        """Read the entry points of installed distributions, if *names* need it.

        :param names: those that a policy, a grant or a caller holds.
        """
        if self._declared is None and not _BUILT_IN.issuperset(names):
            self._entry_points()

    def find(self, name: str) -> OwnFamily | None:
        """Return the family *name*, importing what its entry point names; None if there is none.

        Only for names that a grant, a policy or a caller holds, never for one that a peer wrote.

        :raises ConfigError: if its distributions are two, or do not offer what a family is.
        """
        found = self._families.get(name)
        if found is not None:
            return found
        with self._lock:
            declared = self._entry_points().get(name)
            if declared is None:
                return None
            if len(declared) > 1:
                raise ConfigError(
                    f"two installed distributions declare family {name}",
                    rule="families.register",
                    fix="Uninstall one of them.",
                )
            family = _family_of(declared[0])
            self._families[name] = family
            return family

    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        """Return the declared entry points by name, without invalid names."""
        if self._declared is None:
            with self._lock:
                declared: dict[str, list[EntryPoint]] = {}
                for point in self._installed():
                    if point.name not in _RESERVED:
                        declared.setdefault(point.name, []).append(point)
                self._declared = declared
        return self._declared


def before_typed(families: tuple[str, ...]) -> list[str]:
    """Return the families of one's own that stand before ``dask`` in *families*."""
    ahead = families[: families.index("dask")] if "dask" in families else ()
    return [family for family in ahead if family not in FAMILIES]


def _family_of(point: EntryPoint) -> OwnFamily:
    try:
        offered = point.load()
    # Whatever an installed distribution raises when it is imported; it is the host's own.
    except Exception as error:
        raise ConfigError(
            f"the entry point of family {point.name} fails with {type(error).__name__}",
            rule="families.register",
            fix="The cause is chained to this error.",
        ) from error
    if isinstance(offered, tuple) and len(offered) == 2:
        return OwnFamily(point.name, *offered)
    halves = getattr(offered, "dumps", None), getattr(offered, "loads", None)
    return OwnFamily(point.name, *halves, views=getattr(offered, "views", False) is True)


#: The process's own families.
own_families = OwnFamilies()


def register_serialization_family(
    name: str, dumps: Dumps | None, loads: Loads | None, *, views: bool = False
) -> None:
    """Register a serialization family of one's own, once.

    :param name: what contexts and callers list; not that of a built-in family.
    :param dumps: ``f(x) -> (header, frames)``, or ``f(x, context)``: a dictionary of plain values,
        and buffers. It raises NotImplementedError for what it does not carry.
    :param loads: ``f(header, frames) -> x``, or ``f(header, frames, context)``. It is called for
        what a peer wrote, where that family is granted or asked for.
    :param views: hand *loads* frames of 64 KiB and more as memoryviews, which are not copied. It
        gets bytes otherwise.
    :raises ConfigError: if there is such a family already.
    """
    own_families.register(OwnFamily(name, dumps, loads, views))
