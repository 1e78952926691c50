"""Name the parts that keep a submission from being sent, in place of Dask's own errors.

The one rule: nothing is looked at until sending has failed, so that what can be sent costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from inspect import iscoroutine
from typing import Any

from dask.tokenize import TokenizationError

from safeser.errors import PayloadError
from safeser.sendable.culprits import culprits_among
from safeser.sendable.parts import Part, graph_of, its_function, tasks_of
from safeser.sendable.preflight import cannot_send
from safeser.tracebacks import awaited

__all__ = ["Blamed", "blaming", "graph_parts"]

#: Whether what distributed logs is about to be said better. Of one task of an event loop: others
#: that run while it waits are reported as ever.
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


class blaming:
    """Raises what keeps an object from being sent where Dask or safeser names no part of it.

    :param name: what to call the object in the error.
    :param roots: returns the parts of it to look at, once sending has failed.
    :raises SerializationError: with the path to each culprit.
    """

    __slots__ = ("_before", "_name", "_roots")

    def __init__(self, name: str, roots: Callable[[], Iterable[Part]]) -> None:
        self._name = name
        self._roots = roots

    def __enter__(self) -> None:
        self._before = _quiet.set(True)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if error is not None:
                blame(error, self._name, self._roots)
        finally:
            _quiet.reset(self._before)


def blame(error: BaseException, name: str, roots: Callable[[], Iterable[Part]]) -> None:
    """Raise what keeps an object from being sent, if *error* says no more than that it cannot be.

    :raises SerializationError: as :class:`blaming` does.
    """
    if not isinstance(error, _SAYS_LITTLE):
        return
    if isinstance(error, PayloadError) and error.rule not in _UNWRITABLE:
        return
    found = culprits_among(roots())
    if found:
        raise cannot_send(name, found) from None


_SAYS_LITTLE = (TypeError, RecursionError, TokenizationError, PayloadError)

#: Rules of errors that say no more than that something cannot be written.
_UNWRITABLE = frozenset({"pickle.unwritable", "families.cannot-serialize"})


def graph_parts(x: Any) -> Iterator[Part]:
    """Yield the tasks of a graph or collection, or *x* alone."""
    graph = graph_of(x)
    yield from [("", x)] if graph is None else tasks_of(graph)


class _Quiet(logging.Filter):
    """Drops what distributed logs of an object that it cannot pickle, while that is found out."""

    def filter(self, record: logging.LogRecord) -> bool:
        del record
        return not _quiet.get()


logging.getLogger("distributed.protocol.pickle").addFilter(_Quiet())


# --- calls of a client, besides submissions -------------------------------------------------------

_RUN, _PLUGIN, _SENT = "what was to be run", "the plugin", "the value"


class Blamed:
    """Mixin of :class:`safeser.Client`, before Dask's client."""

    asynchronous: bool

    def sync(self, func: Any, *args: Any, asynchronous: bool | None = None, **kwargs: Any) -> Any:
        """Call *func* as Dask does; queues, variables and data sets send their values by it."""
        roots = partial(_given, args, kwargs)
        try:
            result = super().sync(func, *args, asynchronous=asynchronous, **kwargs)  # type: ignore[misc]  # of Dask's client
        except PayloadError as error:
            blame(error, _SENT, roots)
            raise
        is_awaited = self.asynchronous if asynchronous is None else asynchronous
        if not (is_awaited and iscoroutine(result)):
            return result
        return awaited(_blamed(result, args, kwargs))

    async def _run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        with blaming(_RUN, partial(_called, function, args, kwargs)):
            return await super()._run(function, *args, **kwargs)  # type: ignore[misc]  # as above

    async def _run_on_scheduler(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        with blaming(_RUN, partial(_called, function, args, kwargs)):
            return await super()._run_on_scheduler(function, *args, **kwargs)  # type: ignore[misc]  # as above

    async def _register_scheduler_plugin(self, plugin: Any, *args: Any, **kwargs: Any) -> Any:
        with blaming(_PLUGIN, lambda: [("", plugin)]):
            return await super()._register_scheduler_plugin(plugin, *args, **kwargs)  # type: ignore[misc]  # as above

    async def _register_worker_plugin(self, plugin: Any, *args: Any, **kwargs: Any) -> Any:
        with blaming(_PLUGIN, lambda: [("", plugin)]):
            return await super()._register_worker_plugin(plugin, *args, **kwargs)  # type: ignore[misc]  # as above

    async def _register_nanny_plugin(self, plugin: Any, *args: Any, **kwargs: Any) -> Any:
        with blaming(_PLUGIN, lambda: [("", plugin)]):
            return await super()._register_nanny_plugin(plugin, *args, **kwargs)  # type: ignore[misc]  # as above


async def _blamed(result: Awaitable[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return await result
    except PayloadError as error:
        blame(error, _SENT, partial(_given, args, kwargs))
        raise


def _called(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the parts of a call that workers or the scheduler run."""
    yield its_function(function), function
    for place, value in enumerate(args, 1):
        yield f"argument {place}", value
    yield from _named(kwargs)


def _given(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the values that a method of the client was given."""
    for value in args:
        yield "", value
    yield from _named(kwargs)


def _named(kwargs: Mapping[str, Any]) -> Iterator[Part]:
    for name, value in kwargs.items():
        yield f"argument '{name}'", value
