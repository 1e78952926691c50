"""One row of the list of patches: which part of Dask is replaced, why, and by what.

The one rule: a row replaces a name of a module or a class, once for the whole process, and only
where the source that it takes for granted has a fingerprint that was reviewed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, update_wrapper
from importlib import import_module
from types import MethodType
from typing import Any

from distributed.comm import Comm

from safeser.dask.servers import Part, part_of

#: In the place of roles: every process that loads the comm backend.
ANY = ("any",)

_ROLES = frozenset({"scheduler", "worker", "nanny", "client", *ANY})

_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One name of Dask that safeser replaces.

    :param target: ``module:Class.method``, ``module:name``, or ``module:name[key]`` for one item of
        a dictionary.
    :param reason: what goes wrong without it, and where that was reported.
    :param process: the roles that need it: scheduler, worker, nanny, client, or :data:`ANY`.
    :param needed: whether a guarantee of SECURITY.md rests on it. Where the source is unknown, a
        needed row refuses to start, and any other is left out.
    :param replace: takes what Dask has there, None if it has nothing, and returns what replaces it.
    :param source: functions and methods of Dask that the replacement takes for granted, whose text
        is the row's fingerprint; default: the target itself.
    :param when_imported: replaced only where its module was imported before; a module that is
        imported later makes it by what other rows have replaced by then.
    :param when: replaced only where this holds: a setting asks for it.
    """

    target: str
    reason: str
    process: tuple[str, ...]
    replace: Callable[[Any], Any]
    needed: bool = True
    source: tuple[str, ...] = ()
    when_imported: bool = False
    when: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        if not self.process or not _ROLES.issuperset(self.process):
            raise ValueError(f"{self.target}: no such roles: {self.process}")
        if ":" not in self.target:
            raise ValueError(f"{self.target} is not module:name")

    @property
    def sources(self) -> tuple[str, ...]:
        """What the fingerprint is made of."""
        return self.source or (self.target,)

    @property
    def waits(self) -> bool:
        """Whether there is nothing to replace: no such module, or no setting asks for it."""
        if self.when is not None and not self.when():
            return True
        return self.when_imported and self.target.partition(":")[0] not in sys.modules


def _holder(target: str) -> tuple[Any, str, bool]:
    """Return the object that holds *target*, its name, and whether it is an item of a dictionary.

    :raises LookupError: if the installed Dask has no such module or class.
    """
    module, _, path = target.partition(":")
    path, bracket, key = path.partition("[")
    *parents, name = path.split(".")
    try:
        found: Any = import_module(module)
        for parent in parents:
            found = vars(found)[parent]
        if bracket:
            found = vars(found)[name]
    except (ImportError, KeyError) as error:
        raise LookupError(target) from error
    return found, key.rstrip("]") if bracket else name, bool(bracket)


def stock_of(target: str) -> Any:
    """Return the present object at *target*; None for an item that a dictionary does not have.

    :raises LookupError: if the installed Dask has no such name.
    """
    holder, name, is_item = _holder(target)
    if is_item:
        return holder.get(name)
    found = vars(holder).get(name, _ABSENT)
    if found is _ABSENT:
        raise LookupError(target)
    return found


#: What Dask had at each target that was replaced.
_replaced: dict[str, Any] = {}

#: By each method that was replaced, what replaces it.
_replacements: dict[Any, Any] = {}


def is_applied(patch: Patch) -> bool:
    """Tell whether *patch* was applied in this process."""
    return patch.target in _replaced


def apply(patch: Patch) -> None:
    """Replace what *patch* names."""
    holder, name, is_item = _holder(patch.target)
    stock = _replaced[patch.target] = stock_of(patch.target)
    replacement = patch.replace(stock)
    if inspect.isfunction(replacement) and inspect.isfunction(stock):
        # What is logged and pickled by name is called as Dask calls it. No __wrapped__: Dask looks
        # at a handler's parameters.
        update_wrapper(replacement, stock, updated=())
        del replacement.__wrapped__  # type: ignore[attr-defined]  # as update_wrapper sets it
    if is_item:
        holder[name] = replacement
        return
    setattr(holder, name, replacement)
    if callable(stock) and isinstance(holder, type):
        _replacements[stock] = replacement


def rebind(server: Any) -> None:
    """Have *server* handle messages by replacements, where it was made before they were there.

    Dask's schedulers and workers list bound methods as handlers when they are made, and ask for the
    first comm, for which the backend is loaded, only afterwards.
    """
    for handlers in (getattr(server, "handlers", None), getattr(server, "stream_handlers", None)):
        if isinstance(handlers, Mapping):
            for name, handler in list(handlers.items()):
                replacement = _replacements.get(getattr(handler, "__func__", None))
                if replacement is not None:
                    handlers[name] = MethodType(replacement, handler.__self__)  # type: ignore[index]  # a dict of Dask's


def taken_over(kind: type[Part], method: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return what replaces a method of Dask's servers by *method* of their part of that *kind*.

    :param method: is called with the part, Dask's own method, and what the server was called with.
        A server that is not registered (:mod:`safeser.dask.servers`) calls Dask's own.
    """

    def replace(stock: Callable[..., Any]) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            part = part_of(self, kind)
            if part is None:
                return stock(self, *args, **kwargs)
            return method(part, partial(stock, self), *args, **kwargs)

        async def awaited(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await call(self, *args, **kwargs)

        made: Any = awaited if inspect.iscoroutinefunction(stock) else call
        made.__signature__ = inspect.signature(stock)  # Dask looks at a handler's parameters
        return made

    return replace


def without_comm(comm: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the positional arguments of a call whose first one may be a connection, or absent."""
    return args if comm is None or isinstance(comm, Comm) else (comm, *args)
