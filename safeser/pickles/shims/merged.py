"""What tasks call in place of functions that add to what they are given, or to what those give.

The one rule: what is added to is nobody else's. Where Dask writes ``arg += offset`` or
``out[k] += v``, an array that other tasks hold would be written into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np

from safeser.pickles.shims.lookups import by_name
from safeser.pickles.shims.whole import refuse

__all__ = ["MERGED"]

_ARG_CHUNK = "dask.array.reductions:arg_chunk"
_COARSEN = "dask.array.chunk:coarsen"
_MERGE_FREQUENCIES = "dask.bag.core:merge_frequencies"
_MERGE_WITH = "toolz.dicttoolz:merge_with"


def _extremes_found(func: Any, argfunc: Any, x: Any, axis: Any, offset_info: Any, /) -> Any:
    """Return where a block has its extremes, added to copies of what *argfunc* says."""

    @wraps(argfunc, updated=())
    def copied(*args: Any, **kwargs: Any) -> Any:
        return np.array(argfunc(*args, **kwargs), subok=True)

    return by_name(_ARG_CHUNK)(func, copied, x, axis, offset_info)


def _coarsened(reduction: Any, x: Any, axes: Any, trim_excess: bool = False, **kwargs: Any) -> Any:
    """Reduce pieces of a block; Dask adds those that are missing to *axes*."""
    return by_name(_COARSEN)(reduction, x, dict(axes), trim_excess, **kwargs)


def _frequencies_merged(seqs: Any, /) -> Any:
    """Add up counts, which are numbers and nothing else."""
    counts = list(seqs)
    for part in counts:
        if not isinstance(part, dict):
            raise refuse("a sum of", part)
        for count in part.values():
            if type(count) is not int:
                raise refuse("a sum of", count)
    return by_name(_MERGE_FREQUENCIES)(counts)


def _mappings_merged(func: Any, /, *mappings: Any) -> Any:
    """Merge mappings into a new one; toolz would take any ``factory`` to ask for one."""
    return by_name(_MERGE_WITH)(func, *mappings)


#: By the name of what each stands in place of: its own name, and itself.
MERGED: Mapping[str, tuple[str, Callable[..., Any]]] = {
    _ARG_CHUNK: ("extremes_found", _extremes_found),
    _COARSEN: ("coarsened", _coarsened),
    _MERGE_FREQUENCIES: ("frequencies_merged", _frequencies_merged),
    _MERGE_WITH: ("mappings_merged", _mappings_merged),
}
