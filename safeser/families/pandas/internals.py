"""Call the undocumented parts of pandas: blocks of a frame, arrays behind an index.

The one rule: callers have checked all arguments, and nothing is checked again below. No other
module of this family uses a name that pandas does not document.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

#: Untyped on purpose: pandas is an extra, and its stubs do not cover all that is used here.
pd: Any = importlib.import_module("pandas")
_managers: Any = importlib.import_module("pandas.core.internals.managers")
_blocks: Any = importlib.import_module("pandas.core.internals.blocks")
_placement: Any = importlib.import_module("pandas._libs.internals").BlockPlacement
_arrays: Any = importlib.import_module("pandas.core.arrays.string_arrow")
_texts: Any = importlib.import_module("pandas.core.arrays.string_")


#: Positions of a block's columns.
Places = range | np.ndarray[Any, Any]


def _classes(room: Any, *names: str) -> tuple[type, ...]:
    return tuple(getattr(room, name) for name in names if hasattr(room, name))


#: pandas 2 has a class of its own for text that misses values as NaN.
ARROW_TEXT = _classes(_arrays, "ArrowStringArray", "ArrowStringArrayNumpySemantics")
PYTHON_TEXT = _classes(_texts, "StringArray", "StringArrayNumpySemantics")

#: pandas 2.2 has a storage of its own for text that misses values as NaN.
NAMED_MISSING = "na_value" in inspect.signature(pd.StringDtype).parameters
_TYPED_TEXT = "dtype" in inspect.signature(pd.arrays.ArrowStringArray).parameters
#: Since pandas 3.1 an index keeps its freq; before, the array behind it did.
_FREQ_OF_INDEX = hasattr(pd.DatetimeIndex, "_freq")


def blocks_of(frame: Any) -> list[tuple[Any, slice | np.ndarray[Any, Any]]]:
    """Return each block's values, one row for a column, and the positions of its columns."""
    found = []
    for block in frame._mgr.blocks:
        places = block.mgr_locs
        spread = places.as_slice if places.is_slice_like else places.as_array
        found.append((block.values, spread))
    return found


def values_of(held: Any) -> Any:
    """Return the array of a series or index: NumPy's own, or an extension array."""
    return held._values


def texts_of(index: Any) -> list[Any]:
    """Return the labels of *index*, which are texts or objects, as a list."""
    content = getattr(index._values, "_pa_array", None)
    labels: list[Any] = index.tolist() if content is None else content.to_pylist()
    return labels


def frame_of(blocks: Sequence[tuple[Any, Places]], index: Any, columns: Any) -> Any:
    """Return the frame of *blocks*, whose shapes fit and whose places cover each column once."""
    made = tuple(_blocks.new_block_2d(values, _placed(places)) for values, places in blocks)
    # Their shapes were compared with the axes before: a check here would repeat that.
    manager = _managers.BlockManager(made, [columns, index], verify_integrity=False)
    return pd.DataFrame._from_mgr(manager, manager.axes)


def _placed(places: Places) -> Any:
    if not isinstance(places, range):
        return _placement(places)
    stop = places.stop if places.stop >= 0 else None
    return _placement(slice(places.start, stop, places.step))


def series_of(array: Any, index: Any, name: Any) -> Any:
    """Return the series of *array*, which is one that pandas keeps as it is."""
    manager = _managers.SingleBlockManager.from_array(array, index)
    series = pd.Series._from_mgr(manager, manager.axes)
    series._name = name
    return series


def index_of(kind: Any, array: Any, name: Any) -> Any:
    """Return the index of class *kind* over *array*, whose type is that of the class."""
    return kind._simple_new(array, name)


def range_of(numbers: range, name: Any) -> Any:
    """Return the RangeIndex of these numbers."""
    return pd.RangeIndex._simple_new(numbers, name)


def pin_freq(index: Any, freq: Any) -> Any:
    """Return *index* with *freq*, which its values were checked against."""
    (index if _FREQ_OF_INDEX else index._data)._freq = freq
    return index


def mark_unique(index: Any) -> Any:
    """Mark *index*, whose labels are unique, as unique in pandas' cache."""
    index._cache["is_unique"] = True
    return index


def dated(instants: np.ndarray[Any, Any], zone: Any = None) -> Any:
    """Return the array of *instants* or durations, shown in *zone* if there is one."""
    if instants.dtype.kind == "m":
        return pd.arrays.TimedeltaArray._simple_new(instants, dtype=instants.dtype)
    dtype = instants.dtype
    if zone is not None:
        dtype = _zoned(np.datetime_data(dtype)[0], zone)
    return pd.arrays.DatetimeArray._simple_new(instants, dtype=dtype)


@functools.lru_cache(maxsize=64)
def _zoned(unit: str, zone: Any) -> Any:
    return pd.DatetimeTZDtype(unit, zone)


def periods(ordinals: np.ndarray[Any, Any], freq: Any) -> Any:
    """Return the array of periods that *ordinals* count."""
    return pd.arrays.PeriodArray(ordinals, dtype=pd.PeriodDtype(freq))


def categorical(codes: np.ndarray[Any, Any], dtype: Any) -> Any:
    """Return the categories of *dtype* that *codes*, which were checked, stand for."""
    return pd.Categorical._simple_new(codes, dtype)


def text_of(content: Any, dtype: Any) -> Any:
    """Return the array of text over *content*: a chunked array of Arrow's, or Python's strings."""
    if dtype.storage == "python":
        return pd.array(content, dtype=dtype, copy=False)
    if _TYPED_TEXT:
        return pd.arrays.ArrowStringArray(content, dtype=dtype)
    made = ARROW_TEXT[dtype.na_value is not pd.NA](content)
    if made.dtype != dtype:
        raise ValueError
    return made
