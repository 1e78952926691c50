"""The calls of a client, besides submissions, that name what keeps their arguments from being sent.

The one rule: what has another cause is raised as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial
from inspect import iscoroutine
from typing import Any

from safeser.dask.clients.unsendable import blame, blaming
from safeser.errors import PayloadError
from safeser.sendable.parts import Part, its_function
from safeser.tracebacks import awaited

__all__ = ["Blamed"]

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
