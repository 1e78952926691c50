"""Rows of the list of patches for how Dask makes tokens, registers classes and pickles graphs.

The one rule: tokens, registrations and pickles are Dask's own, unless ``safeser.tokenizer`` names
safeser's tokenizer; an object is pickled once for each call that submits it, and
:func:`safeser.trace_serialization` is told of what Dask pickles and opens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from safeser.dask.clients.call_pickles import replace_normalizer
from safeser.dask.clients.decorated import reporting
from safeser.dask.clients.tokenizer import replace_tokenizer
from safeser.dask.patches.patch import ANY, Patch
from safeser.dask.settings import uses_own_tokenizer
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


_patch = partial(Patch, process=ANY, needed=False)

ROWS = (
    _patch(
        target="dask.tokenize:_tokenize",
        reason="Dask's tokens of 16 of 32 objects differ between hash seeds, and ten of those pass"
        " ensure_deterministic.",
        replace=replace_tokenizer,
        source=("dask.tokenize:_tokenize", "dask.tokenize:tokenize"),
        when=uses_own_tokenizer,
    ),
    _patch(
        target="dask.tokenize:_normalize_pickle",
        reason="Dask pickles and unpickles each argument twice for each token, and map makes two"
        " tokens of each.",
        replace=replace_normalizer,
    ),
    _patch(
        target="dask.utils:Dispatch.register",
        reason="distributed takes functions that no policy lets safeser call, and headers that"
        " pickle the class; without a word to the one who registers them, objects of the class"
        " travel by another family.",
        replace=reporting,
    ),
    *(
        _patch(
            target=f"distributed.protocol.pickle:{name}",
            reason="Graphs that Dask pickles and opens itself are in no trace of serialization.",
            replace=replace,
        )
        for name, replace in (("dumps", _dumps), ("loads", _loads))
    ),
)
