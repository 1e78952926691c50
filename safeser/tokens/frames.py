"""Canonical forms of pandas' frames, series, indexes and extension arrays.

The one rule: columns decide, each by itself. How pandas lays several into one block does not, and
neither does what it remembers of an index.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pandas as pd
from pandas.core.arrays.masked import BaseMaskedArray

from safeser.tokens.graph import Form
from safeser.tokens.kinds import describe_as, register
from safeser.tokens.reduction import describe_reduced

__all__: list[str] = []


def _marks(labelled: Any) -> Any:
    """Return the attributes, and that labels may not repeat if that is so."""
    if labelled.flags.allows_duplicate_labels:
        return labelled.attrs
    return (labelled.attrs, "allows no duplicate labels")


def _describe_frame(frame: Any) -> Form:
    columns = list(frame._mgr.column_arrays)
    values = [frame.columns, frame.index, _marks(frame), columns]
    return Form(b"DataFrame", values, steps=("columns", "index", "attrs", "values"))


def _describe_series(series: Any) -> Form:
    values = [series.name, series.index, _marks(series), series._values]
    return Form(b"Series", values, steps=("name", "index", "attrs", "values"))


def _describe_index(index: Any) -> Form:
    values = [type(index), index.name, index._values]
    return Form(b"Index", values, steps=("class", "name", "values"))


def _describe_dates_index(index: Any) -> Form:
    # Since pandas 3.1 the index has the frequency, and not its array.
    values = [type(index), index.name, index.freq, index._values]
    return Form(b"Index of dates", values, steps=("class", "name", "frequency", "values"))


def _describe_levels(index: Any) -> Form:
    levels = [index.get_level_values(at)._values for at in range(index.nlevels)]
    return Form(b"MultiIndex", [list(index.names), levels], steps=("names", "levels"))


def _describe_dates(array: Any) -> Form:
    return Form(b"dates", [type(array), array.dtype, array.asi8, getattr(array, "freq", None)])


def _describe_masked(array: Any) -> Form:
    """What lies under the mask is whatever was there."""
    mask = array._mask
    data = array._data
    if mask.any():
        data = np.where(mask, data.dtype.type(0), data)
    return Form(b"masked", [type(array), data, mask], steps=("class", "values", "mask"))


def _describe_arrow(array: Any) -> Form:
    return Form(b"arrow", [type(array), array.dtype, array._pa_array])


def _describe_text_dtype(dtype: Any) -> Form:
    return Form(b"StringDtype", [dtype.storage, dtype.na_value])


def _describe_dtype(dtype: Any) -> Form:
    # Its attributes hold caches as well.
    return Form(b"pandas dtype", [type(dtype), *(getattr(dtype, each) for each in dtype._metadata)])


register(_describe_frame, pd.DataFrame)
register(_describe_series, pd.Series)
register(_describe_index, pd.Index, pd.CategoricalIndex, pd.IntervalIndex)
register(_describe_index, pd.PeriodIndex)
register(_describe_dates_index, pd.DatetimeIndex, pd.TimedeltaIndex)
register(describe_as(b"RangeIndex", "name", "start", "stop", "step"), pd.RangeIndex)
register(_describe_levels, pd.MultiIndex)
register(describe_as(b"Categorical", "codes", "categories", "ordered"), pd.Categorical)
register(_describe_dates, pd.arrays.DatetimeArray, pd.arrays.TimedeltaArray, pd.arrays.PeriodArray)
register(describe_as(b"IntervalArray", "left", "right", "closed"), pd.arrays.IntervalArray)
register(_describe_masked, BaseMaskedArray, subclasses=True)
register(_describe_arrow, pd.arrays.ArrowExtensionArray, subclasses=True)
register(_describe_dtype, pd.api.extensions.ExtensionDtype, subclasses=True)
register(_describe_text_dtype, pd.StringDtype)
register(describe_reduced, cast(type, type(pd.NaT)))
