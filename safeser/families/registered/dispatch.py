"""Register a class with a function that serializes it and one that deserializes it, as in Dask.

The one rule: a class is sent as the name under which both sides registered it, never as itself. A
peer's name finds what the host registered under it, or nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol, overload

from safeser.errors import ConfigError, PayloadError
from safeser.families.plain import Unencodable
from safeser.families.registered.hosted import (
    check_function,
    check_header,
    dump,
    load,
    takes_context,
)
from safeser.families.registry import Parts, Registry, Typed, is_name, registry
from safeser.families.tree import Node
from safeser.gate.values import Limits

Function = Callable[..., Any]


def name_of(cls: type) -> str:
    """Return the name under which *cls* travels."""
    return f"{cls.__module__}:{cls.__qualname__}"


class _Pair:
    """The two functions of one type, each registered once."""

    def __init__(self, name: str, cls: type | None) -> None:
        self.name = name
        self.cls = cls
        self.dumps: Function | None = None
        self.loads: Function | None = None
        self.dumps_context = False
        self.loads_context = False
        self.views = False

    def typed(self) -> Typed:
        classes = () if self.cls is None else (self.cls,)
        return Typed(self.name, classes, self.encode, check_header, self.decode, contextual=True)

    def set(self, half: str, function: Function, *, views: bool = False) -> None:
        if getattr(self, half) is not None and not (
            self.name.startswith("__main__:") or "<locals>" in self.name
        ):
            raise ConfigError(
                f"a function is registered for {self.name} already",
                rule="families.register",
                fix="A registered function cannot be replaced.",
            )
        setattr(self, f"{half}_context", takes_context(function))
        setattr(self, half, function)
        self.views = self.views or views

    def encode(self, x: Any, limits: Limits, context: dict[str, Any] | None) -> Parts:
        if self.dumps is None:
            raise Unencodable(x, "no function is registered for it with dask_serialize")
        header, frames = dump(
            self.dumps,
            x,
            limits,
            context=context,
            contextual=self.dumps_context,
            by=f"the function registered for {self.name}",
        )
        return Parts(header, frames)

    def decode(self, node: Node, values: list[Any], context: dict[str, Any] | None) -> Any:
        if self.loads is None:
            raise PayloadError(
                f"no function is registered for {self.name} with dask_deserialize",
                rule="families.type",
                where=node.where,
                fix="Register it on this side too.",
            )
        made = load(
            self.loads,
            node.meta,
            node.frames,
            context=context,
            contextual=self.loads_context,
            views=self.views,
        )
        # A parent relies on what its children are said to be.
        if self.cls is not None:
            fits = isinstance(made, self.cls)
        else:
            fits = name_of(type(made)) == self.name
        if not fits:
            node.refuse(
                "the function registered for it returned no instance of it", "families.build"
            )
        return made


class Foreign(Protocol):
    """Functions that were registered elsewhere, with distributed's own decorators."""

    def dumps(self, cls: type, /) -> Function | None:
        """Return the function registered for exactly *cls*."""

    def loads(self, name: str, /) -> Function | None:
        """Return the function registered for the class of that name; import nothing."""


class Functions:
    """Both halves of all registered types, and the lazy registrations of packages."""

    def __init__(self, types: Registry) -> None:
        self.types = types
        self._pairs: dict[str, _Pair] = {}
        self._lazy: dict[str, list[Function]] = {}
        self._foreign: Foreign | None = None
        self._lock = threading.RLock()

    def add(self, cls: type | str, half: str, function: Function, *, views: bool = False) -> None:
        """Register one half for *cls*, or for the class of that name."""
        check_function(function)
        name = cls if isinstance(cls, str) else name_of(cls)
        with self._lock:
            if not isinstance(cls, str):
                # Load safeser's own types of that package first, so that they take precedence.
                self.types.for_class(cls)
            if name.startswith("__main__:") or "<locals>" in name:
                cls = name
            pair = self._pairs.get(name)
            if pair is None:
                pair = _Pair(name, None if isinstance(cls, str) else cls)
                self.types.register(pair.typed())
                self._pairs[name] = pair
            elif pair.cls not in (None, cls) and not isinstance(cls, str):
                raise ConfigError(
                    f"another class called {name} is registered already",
                    rule="families.register",
                    fix="Types are told apart by their names; give one of them another.",
                )
            pair.set(half, function, views=views)

    def add_lazy(self, package: str, function: Function) -> None:
        """Keep a function that registers the types of *package* when its first object is met."""
        check_function(function)
        if not isinstance(package, str) or not package.isidentifier():
            raise ConfigError("register_lazy takes a top-level package", rule="families.register")
        with self._lock:
            waiting = self._lazy.setdefault(package, [])
            if function not in waiting:
                waiting.append(function)

    def honour(self, foreign: Foreign) -> None:
        """Use the registrations in *foreign* for writing, and for reading types in a policy."""
        with self._lock:
            if self._foreign is not None and self._foreign is not foreign:
                raise ConfigError("functions of another are honoured", rule="families.register")
            self._foreign = foreign

    def for_object(self, x: object, types: Collection[str] | None) -> Typed | None:
        """Return the serializer for *x* among the registered functions.

        :param types: of what was registered elsewhere, the names that may be used; None for all.
        """
        cls = type(x)
        name = name_of(cls)
        if self._wake(name):
            found = self.types.for_class(cls)
            if found is not None:
                return found
        pair = self._pairs.get(name)
        if pair is not None:
            return pair.typed() if pair.cls is None else None
        known = self._foreign is not None and (types is None or name in types)
        dumps = self._foreign.dumps(cls) if known and self._foreign is not None else None
        if dumps is None or not is_name(name):
            return None
        pair = _Pair(name, cls)
        pair.set("dumps", dumps)
        return pair.typed()

    def named(self, name: str, types: Iterable[str]) -> Typed | None:
        """Return the deserializer registered for type *name*, or None; import nothing.

        :param types: names of types that a policy lets be read by functions registered elsewhere.
        """
        if self.waits_for(name) and self._wake(name):
            pair = self._pairs.get(name)
            if pair is not None:
                return pair.typed()
        if self._foreign is None or name not in types:
            return None
        loads = self._foreign.loads(name)
        if loads is None:
            return None
        pair = _Pair(name, None)
        pair.set("loads", loads, views=True)  # as distributed hands it what a connection brought
        return pair.typed()

    def waits_for(self, name: str) -> bool:
        """Tell whether the package of *name* is imported, and its types are to be registered.

        One that another thread is still importing does not count: that thread may hold a lock that
        registering needs, and wait for ours.
        """
        package = name.partition(":")[0].partition(".")[0]
        if package not in self._lazy or package not in sys.modules:
            return False
        spec = getattr(sys.modules[package], "__spec__", None)
        return not getattr(spec, "_initializing", False)

    def writes_elsewhere(self, cls: type) -> bool:
        """Tell whether a foreign registration could write *cls*, if it were granted."""
        return self._foreign is not None and self._foreign.dumps(cls) is not None

    def reads_elsewhere(self, name: str) -> bool:
        """Tell whether a foreign registration could read *name*, if it were granted."""
        return self._foreign is not None and self._foreign.loads(name) is not None

    def _wake(self, name: str) -> bool:
        """Run the lazy registrations for the package of *name*; return False if there are none."""
        package = name.partition(":")[0].partition(".")[0]
        if package not in self._lazy:
            return False
        with self._lock:
            waiting = self._lazy.pop(package, [])
            try:
                for function in waiting:
                    function()
            # The host's own function may raise anything; it runs again when it is next needed.
            except Exception as error:
                self._lazy[package] = waiting
                raise ConfigError(
                    f"registering the types of {package} failed with {type(error).__name__}",
                    rule="families.register",
                    fix="The cause is chained to this error.",
                ) from error
        return bool(waiting)


class Dispatch:
    """One half of Dask's pair: ``register`` a class with a function, or use it as a decorator."""

    def __init__(self, half: str, known: Functions) -> None:
        self._half = half
        self._known = known

    @overload
    def register(
        self, cls: type | str | Sequence[type], func: Function, *, views: bool = False
    ) -> Function: ...

    @overload
    def register(
        self, cls: type | str | Sequence[type], func: None = None, *, views: bool = False
    ) -> Callable[[Function], Function]: ...

    def register(
        self,
        cls: type | str | Sequence[type],
        func: Function | None = None,
        *,
        views: bool = False,
    ) -> Function | Callable[[Function], Function]:
        """Register *func* for direct instances of *cls*; without *func*, a decorator.

        :param cls: a class, several, or the name of one as ``module:qualname``, which is then not
            imported.
        :param views: hand *func* frames of 64 KiB and more as memoryviews, which are not copied. It
            gets bytes otherwise. A function that takes objects apart gets no frames.
        :raises ConfigError: if a function is registered for it already.
        """

        def register(function: Function) -> Function:
            for one in cls if isinstance(cls, list | tuple) else (cls,):
                if not isinstance(one, type | str):
                    raise ConfigError(
                        "a class, or its name as module:qualname, is registered",
                        rule="families.register",
                    )
                self._known.add(one, self._half, function, views=views)
            return function

        return register if func is None else register(func)

    @overload
    def register_lazy(self, toplevel: str, func: Function) -> Function: ...

    @overload
    def register_lazy(self, toplevel: str, func: None = None) -> Callable[[Function], Function]: ...

    def register_lazy(
        self, toplevel: str, func: Function | None = None
    ) -> Function | Callable[[Function], Function]:
        """Have *func* register the types of package *toplevel* when one of them is first met.

        What a peer sends never imports the package: such types are read once it is imported.
        """

        def register(function: Function) -> Function:
            self._known.add_lazy(toplevel, function)
            return function

        return register if func is None else register(func)


#: The process's own functions.
functions = Functions(registry)

#: Takes objects apart: ``f(x) -> (header, frames)``, or ``f(x, context)``.
dask_serialize = Dispatch("dumps", functions)

#: Puts them together: ``f(header, frames) -> x``, or ``f(header, frames, context)``.
dask_deserialize = Dispatch("loads", functions)


def register_serialization(
    cls: type | str, serialize: Function, deserialize: Function, *, views: bool = False
) -> None:
    """Register both functions of *cls*.

    :param serialize: ``f(x) -> (header, frames)``: a dictionary of plain values, and buffers.
    :param deserialize: ``f(header, frames) -> x``.
    :param views: hand *deserialize* frames of 64 KiB and more as memoryviews, which are not copied.
        It gets bytes otherwise.
    """
    dask_serialize.register(cls, serialize)
    dask_deserialize.register(cls, deserialize, views=views)
