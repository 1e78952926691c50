"""One row of the list of patches: which part of Dask is replaced, why, and by what.

The one rule: a row replaces a name of a module or a class, once for the whole process, and only
where the source that it takes for granted has a fingerprint that was reviewed.

Most rows delegate: they name a function, or a part of Dask's servers with one of its methods, which
is called in place of Dask's function, and is given that function as its first argument. The
function or method calls Dask's own before, afterwards, with other arguments or not at all.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from importlib import import_module
from inspect import Parameter
from types import MethodType
from typing import Any

from distributed.comm import Comm

from safeser.dask.servers import Part, part_of

_ABSENT = object()

_Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One name of Dask that safeser replaces.

    :param target: ``module:Class.method``, ``module:name``, or ``module:name[key]`` for one item of
        a dictionary.
    :param reason: what goes wrong without it, and where that was reported.
    :param needed: whether a guarantee of SECURITY.md rests on it. Where the source is unknown, a
        needed row refuses to start, and any other is left out.
    :param by: the function that is called in place of Dask's, with Dask's own before the arguments;
        of a method, that is bound, and the object follows. Or a part of Dask's servers with its
        method, which gets no object: a server that is not registered
        (:mod:`safeser.dask.servers`) calls Dask's own. A method whose first argument is ``comm``
        gets the connection by which a peer asks, and None where the server calls itself.
    :param via: the attributes that lead from the object to its server.
    :param value: in place of *by*, an object that is put there as it is.
    :param replace: in place of both, what takes what Dask has there, None if it has nothing, and
        returns what replaces it.
    :param source: functions and methods of Dask that the replacement takes for granted, whose text
        is the row's fingerprint; default: the target itself.
    :param when_imported: replaced only where its module was imported before; a module that is
        imported later makes it by what other rows have replaced by then.
    :param when: replaced only where this holds: a setting asks for it.
    """

    target: str
    reason: str
    by: _Function | tuple[type[Part], _Function] | None = None
    via: tuple[str, ...] = ()
    value: Any = None
    replace: Callable[[Any], Any] | None = None
    needed: bool = True
    source: tuple[str, ...] = ()
    when_imported: bool = False
    when: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        if ":" not in self.target:
            raise ValueError(f"{self.target} is not module:name")
        if [self.by, self.value, self.replace].count(None) != 2:
            raise ValueError(f"{self.target} is replaced by nothing, or twice")

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

    def replacement(self, stock: Any) -> Any:
        """Return what replaces *stock*, which Dask has there."""
        if self.replace is not None:
            return self.replace(stock)
        if self.value is not None:
            return self.value
        if isinstance(self.by, tuple):
            return _by_part(*self.by, self.via, stock)
        assert self.by is not None
        return _by_function(self.by, stock, is_method="." in self.target.partition(":")[2])


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
    replacement = patch.replacement(stock)
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


def _by_function(by: _Function, stock: Any, *, is_method: bool) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return by(stock.__get__(self, type(self)), self, *args, **kwargs)

    def function(*args: Any, **kwargs: Any) -> Any:
        return by(stock, *args, **kwargs)

    return _called_as(stock, method if is_method else function)


def _by_part(kind: type[Part], method: _Function, via: tuple[str, ...], stock: Any) -> Any:
    # Of the method, the part and Dask's own come before what Dask looks for.
    asks_for_comm = _expects_comm(method, at=2)
    takes_comm = asks_for_comm and not _expects_comm(stock, at=1)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        own, server = stock.__get__(self, type(self)), self
        for name in via:
            server = getattr(server, name, None)
        part = part_of(server, kind)
        if not takes_comm:
            return own(*args, **kwargs) if part is None else method(part, own, *args, **kwargs)
        comm, args = (args[0], args[1:]) if args and isinstance(args[0], Comm) else (None, args)
        return own(*args, **kwargs) if part is None else method(part, own, comm, *args, **kwargs)

    return _called_as(stock, call, takes_comm=takes_comm)


def _expects_comm(function: _Function, *, at: int) -> bool:
    return [*inspect.signature(function).parameters][at : at + 1] == ["comm"]


def _called_as(stock: Any, call: _Function, *, takes_comm: bool = False) -> Any:
    """Return *call* as Dask calls *stock*: awaited, and with the parameters that handlers have."""

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    made: Any = awaited if inspect.iscoroutinefunction(stock) else call
    if inspect.isfunction(stock):
        parameters = [*inspect.signature(stock).parameters.values()]
        if takes_comm:  # which Dask passes to a handler whose first parameter is called so
            parameters.insert(1, Parameter("comm", Parameter.POSITIONAL_OR_KEYWORD))
        made.__signature__ = inspect.Signature(parameters)
    return made
