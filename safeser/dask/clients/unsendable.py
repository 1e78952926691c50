"""Name the parts that keep a submission from being sent, in place of Dask's own errors.

The one rule: nothing is looked at until sending has failed, so that what can be sent costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dask.tokenize import TokenizationError

from safeser.errors import PayloadError
from safeser.sendable.culprits import culprits_among
from safeser.sendable.parts import Part, graph_of, tasks_of
from safeser.sendable.preflight import cannot_send

__all__ = ["blaming", "graph_parts"]

#: Whether what distributed logs is about to be said better. Of one task of an event loop: others
#: that run while it waits are reported as ever.
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def blaming(name: str, roots: Callable[[], Iterable[Part]]) -> Iterator[None]:
    """Raise what keeps an object from being sent where Dask or safeser says only that it cannot be.

    :param name: what to call the object in the error.
    :param roots: returns the parts of it to look at, once sending has failed.
    :raises SerializationError: with the path to each culprit.
    """
    before = _quiet.set(True)
    try:
        yield
    except (TypeError, RecursionError, TokenizationError, PayloadError) as error:
        if isinstance(error, PayloadError) and error.rule not in _UNWRITABLE:
            raise
        found = culprits_among(roots())
        if not found:
            raise
        raise cannot_send(name, found) from None
    finally:
        _quiet.reset(before)


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
