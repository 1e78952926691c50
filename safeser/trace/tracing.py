"""``trace_serialization``: a context manager and a decorator."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from safeser.errors import ConfigError
from safeser.trace import probe
from safeser.trace.records import Count, Group, Trace

__all__ = ["Remote", "Tracing", "trace_serialization"]

P = ParamSpec("P")
R = TypeVar("R")


class Remote(Protocol):
    """The counts of a cluster's other processes during one trace."""

    async def begin(self) -> None:
        """Have them count."""

    async def end(self) -> tuple[Mapping[Group, Count], Mapping[str, str]]:
        """Return what they counted since, and which gave no counts, and why."""


class Tracing:
    """One use of :func:`trace_serialization`: ``with``, ``async with``, or a decorator."""

    def __init__(self, client: Any, *, scheduler: bool, workers: bool) -> None:
        self._client = client
        self._scheduler, self._workers = scheduler, workers
        self._remote: Remote | None = None
        self._trace: Trace | None = None

    def __enter__(self) -> Trace:
        if self._client is not None:
            if getattr(self._client, "asynchronous", False):
                raise ConfigError(
                    "an asynchronous client cannot be traced by 'with'",
                    rule="trace.asynchronous",
                    fix="Write 'async with safeser.trace_serialization(client=client):'.",
                )
            self._client.sync(self._begin_remote)
        return self._begin()

    def __exit__(self, *_: object) -> None:
        trace = self._end()
        if self._remote is not None:
            self._client.sync(self._end_remote, trace)

    async def __aenter__(self) -> Trace:
        if self._client is not None:
            await self._begin_remote()
        return self._begin()

    async def __aexit__(self, *_: object) -> None:
        trace = self._end()
        if self._remote is not None:
            await self._end_remote(trace)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return *function* traced: each call ends with the table on standard error.

        The result has the last call's trace as its attribute ``trace``.
        """
        if inspect.iscoroutinefunction(function):
            return cast("Callable[P, R]", self._of_coroutine(function))

        @functools.wraps(function)
        def traced(*args: P.args, **kwargs: P.kwargs) -> R:
            tracing = self._again()
            try:
                with tracing:
                    return function(*args, **kwargs)
            finally:
                tracing._show(traced, function)

        return traced

    def _of_coroutine(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @functools.wraps(function)
        async def traced(*args: P.args, **kwargs: P.kwargs) -> R:
            tracing = self._again()
            try:
                async with tracing:
                    return await function(*args, **kwargs)
            finally:
                tracing._show(traced, function)

        return traced

    def _again(self) -> Tracing:
        return Tracing(self._client, scheduler=self._scheduler, workers=self._workers)

    def _show(self, traced: Any, function: Callable[..., Any]) -> None:
        if self._trace is not None:
            traced.trace = self._trace
            sys.stderr.write(f"{function.__qualname__}:\n{self._trace}\n")

    def _begin(self) -> Trace:
        if self._trace is not None:
            raise ConfigError(
                "this trace is active already, or has ended",
                rule="trace.used",
                fix="Call safeser.trace_serialization() for each 'with'.",
            )
        self._trace = Trace()
        probe.add(self._trace)
        return self._trace

    def _end(self) -> Trace:
        assert self._trace is not None
        probe.remove(self._trace)
        self._trace.end()
        return self._trace

    async def _begin_remote(self) -> None:
        self._remote = self._client.serialization_counts(self._scheduler, self._workers)
        await self._remote.begin()

    async def _end_remote(self, trace: Trace) -> None:
        assert self._remote is not None
        counts, missing = await self._remote.end()
        trace.add_counts(counts)
        trace.missing.update(missing)


def trace_serialization(
    *, client: Any = None, scheduler: bool = False, workers: bool = False
) -> Tracing:
    """Record each serialization and deserialization of this process while it is active.

    ``with trace_serialization() as trace:`` gives a trace: ``print(trace)`` is a table,
    ``trace.records`` has one record for each object, ``trace.counts`` the numbers by process,
    action and family. As a decorator it prints the table to standard error after each call.

    Names, sizes and times are kept; the objects are not.

    :param client: a :class:`safeser.Client`, with which other processes are counted too.
    :param scheduler: count on the client's scheduler: all that it serializes meanwhile, of any
        client.
    :param workers: the same on its workers.
    :raises ConfigError: if other processes are to be counted and *client* cannot ask them.
    """
    if client is None and (scheduler or workers):
        raise ConfigError(
            "scheduler= and workers= are those of a client",
            rule="trace.client",
            fix="Pass client= too.",
        )
    if client is not None and not hasattr(client, "serialization_counts"):
        raise ConfigError(
            f"client= is a {type(client).__name__}, and only a safeser.Client can ask for counts",
            rule="trace.client",
            fix="Make the client by safeser.Client(...).",
        )
    wanted = client if scheduler or workers else None
    return Tracing(wanted, scheduler=scheduler, workers=workers)
