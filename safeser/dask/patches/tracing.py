"""Rows of the list of patches for :func:`safeser.trace_serialization`.

The one rule: what is pickled is what Dask pickles, by Dask's own functions; a trace is told of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from safeser.dask.patches.patch import ANY, Patch
from safeser.trace.probe import Done, is_traced, size_of, watch

__all__ = ["ROWS"]


def _dumps(stock: Callable[..., bytes]) -> Callable[..., bytes]:
    def dumps(x: Any, **kwargs: Any) -> bytes:
        if not is_traced():
            return stock(x, **kwargs)
        write = partial(stock, x, **kwargs)
        return watch("serialize", write, lambda written: Done(x, "cloudpickle", len(written)))

    return dumps


def _loads(stock: Callable[..., Any]) -> Callable[..., Any]:
    def loads(x: Any, *, buffers: Any = ()) -> Any:
        if not is_traced():
            return stock(x, buffers=buffers)
        size = size_of((x, *buffers))
        load = partial(stock, x, buffers=buffers)
        return watch("deserialize", load, lambda made: Done(made, "cloudpickle", size))

    return loads


ROWS = tuple(
    Patch(
        target=f"distributed.protocol.pickle:{name}",
        reason="Graphs that Dask pickles and opens itself are in no trace of serialization.",
        process=ANY,
        needed=False,
        replace=replace,
    )
    for name, replace in (("dumps", _dumps), ("loads", _loads))
)
