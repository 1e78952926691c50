"""Name the parts that keep a submission from being sent, in place of Dask's own errors.

The one rule: nothing is looked at until sending has failed, so that what can be sent costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from dask.tokenize import TokenizationError

from safeser.errors import PayloadError
from safeser.sendable.culprits import culprits_among
from safeser.sendable.parts import Part, graph_of, tasks_of
from safeser.sendable.preflight import cannot_send

__all__ = ["blame", "blaming", "graph_parts"]

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
