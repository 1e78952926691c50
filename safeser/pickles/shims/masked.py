"""What tasks call in place of functions that are given arrays with a mask.

The one rule: nothing that is returned holds memory behind a mask that nobody has written, and
nothing is masked but arrays and numbers. Of anything else NumPy takes ``_data`` and ``_mask``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from safeser.pickles.shims.lookups import by_name
from safeser.pickles.shims.whole import refuse

__all__ = ["MASKED"]

_PLAIN = (np.ndarray, np.generic, np.dtype, bool, int, float, complex, str, bytes, type(None))
#: By place, of those that take weights by place.
_WEIGHTS_AT = 5


def _weighed(original: str) -> Callable[..., Any]:
    """Return *original*, which takes weights, for whatever has no mask if there are any.

    With weights NumPy makes room for an array like the first one, and of quantiles that it says to
    be masked it writes nothing else.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("weights") is not None or len(args) > _WEIGHTS_AT:
            for value in (*args, *kwargs.values()):
                if isinstance(value, np.ma.MaskedArray):
                    raise refuse("a weighted quantile of", value)
        return by_name(original)(*args, **kwargs)

    return call


def _unveiled(original: str) -> Callable[..., Any]:
    """Return *original*, which masks or takes off masks, for arrays and plain values."""

    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            parts = value if type(value) is tuple else (value,)  # axes
            if not all(isinstance(part, _PLAIN) for part in parts):
                raise refuse("a mask of", value)
        given = {name: _apart(value) for name, value in kwargs.items()}
        return by_name(original)(*map(_apart, args), **given)

    return call


def _apart(value: Any) -> Any:
    """Return *value* with a filling of its own: copies share it, and NumPy sets theirs in place."""
    if not isinstance(value, np.ma.MaskedArray) or value is np.ma.masked:
        return value
    made = value.view(value.dtype)
    made.fill_value = value.fill_value
    return made


def _unmasked(original: str) -> Callable[..., Any]:
    """Return *original*, which computes how much values change, for what has no mask.

    It makes room for an array like the values, and what it says to be masked it does not write.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, np.ma.MaskedArray):
                raise refuse("the gradient of", value)
        return by_name(original)(*args, **kwargs)

    return call


#: By the name of what each stands in place of: its own name, and itself.
MASKED: Mapping[str, tuple[str, Callable[..., Any]]] = {
    original: (own, guard(original))
    for guard, names in (
        (
            _unmasked,
            {
                "dask.array.routines:_gradient_kernel": "sloped_blocks",
                "numpy:gradient": "sloped",
            },
        ),
        (
            _weighed,
            {
                "dask.array.reductions:_custom_nanquantile": "block_quantile",
                **{
                    f"numpy:{name}": name
                    for name in ("nanpercentile", "nanquantile", "percentile", "quantile")
                },
            },
        ),
        (
            _unveiled,
            {
                "dask.array.ma:_chunk_count": "masked_counted",
                "dask.array.ma:_masked_array": "masked_made",
                "dask.array.ma:_set_fill_value": "masked_filling",
                "numpy.ma.core:fix_invalid": "masked_fixed",
                "numpy.ma.core:getdata": "data_behind",
                "numpy.ma.core:getmaskarray": "mask_before",
                "numpy.ma.core:where": "masked_chosen",
                **{
                    f"numpy.ma.core:masked_{name}": f"masked_{name}"
                    for name in (
                        *("equal", "greater", "greater_equal", "inside", "invalid", "less"),
                        *("less_equal", "not_equal", "outside", "values", "where"),
                    )
                },
            },
        ),
    )
    for original, own in names.items()
}
