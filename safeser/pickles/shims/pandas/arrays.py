"""Reviewed functions for pandas' extension types and extension arrays.

The one rule: codes, masks, positions and bounds are checked in memory that no other object can
write to, and the array that the public constructor makes must have exactly the sent dtype.
"""

from __future__ import annotations

import datetime
import decimal
import importlib
import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.pickles.nodes import GlobalRef
from safeser.pickles.shims.pandas.times import pd, walked, zone
from safeser.pickles.shims.site import Draft, Site, bad, begun, check_layout, plain
from safeser.types import pandas as bounds
from safeser.types import refused
from safeser.types.numpy import writable

__all__ = ["SHIMS", "draft_of", "fields_of", "owned", "unique"]

_SPARSE: Any = importlib.import_module("pandas._libs.sparse")
_NDARRAY: Any = importlib.import_module("pandas._libs.arrays")
_BETWEEN: Any = importlib.import_module("pandas._libs.interval")
_UNPICKLE = {
    "pandas._libs.arrays:__pyx_unpickle_NDArrayBacked": _NDARRAY.NDArrayBacked,
    "pandas._libs.interval:__pyx_unpickle_IntervalMixin": _BETWEEN.IntervalMixin,
}
_MASKED = {"IntegerArray": "iu", "FloatingArray": "f", "BooleanArray": "b"}
_TIME = re.compile(r"[<=][mM]8\[(?:s|ms|us|ns)\]\Z")
_INDEXES = {"DatetimeArray": pd.DatetimeIndex, "TimedeltaArray": pd.TimedeltaIndex}
# What pandas makes of the elements of its arrays.
_LABELS = (
    *(pd.Timestamp, pd.Timedelta, pd.Period, pd.Interval, type(pd.NA), type(pd.NaT)),
    *(datetime.date, datetime.time, decimal.Decimal),
    *(np.dtype(code).type for code in "?bhilBHILfd"),
)
_TYPED = "dtype" in inspect.signature(pd.arrays.ArrowStringArray).parameters
_LABELS_EACH, _TEXTS_EACH = 2, 2
# What arrays and types are asked before anything else. pandas works out the rest again.
_REMEMBERED = frozenset(
    (
        *("dtype", "numpy_dtype", "kind", "itemsize", "unit", "_creso", "_can_hold_na"),
        *("is_signed_integer", "is_unsigned_integer"),
    )
)
_INT32 = 1 << 31


# -- what is shared ----------------------------------------------------------------------------


def draft_of(draft: Any) -> str:
    """Return the name that *draft* was begun under; what is no draft was built before."""
    return begun(draft).kind.rpartition(":")[2]


def fields_of(state: Any, *names: str, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the state's fields, which are *names*, *optional* or what pandas notes itself."""
    fields = dict(plain(state, dict))
    if not set(names) <= fields.keys() <= {*names, *optional, "_readonly", "_cache"}:
        raise bad("state", "a state has other fields than it must have")
    return fields


def owned(site: Site, values: Any, kinds: str) -> np.ndarray[Any, Any]:
    """Return one dimension of numbers of *kinds*, copied: the sender may hand the memory twice."""
    numbers: np.ndarray[Any, Any] = plain(values, np.ndarray)
    if numbers.ndim != 1 or numbers.dtype.kind not in kinds or not numbers.dtype.isnative:
        raise bad("arguments", "an array of pandas' holds something else")
    return numbers.copy()


def unique(site: Site, index: Any) -> Any:
    """Return *index* marked as unique after checking that no label occurs twice.

    pandas would put the labels into a table whose hashes a sender can make collide, which takes
    seconds for a megabyte of integers.
    """
    dtype = index.dtype
    site.hashable.update(_LABELS)
    # The same index may be named again and again.
    site.charge(len(index) >> _LABELS_EACH)
    if isinstance(index, pd.RangeIndex):
        # As numbers it would take memory that no byte stands for.
        once = True
    elif isinstance(dtype, np.dtype) and dtype.kind in "biufcmM":
        once = _apart(index.to_numpy())
    elif isinstance(dtype, pd.DatetimeTZDtype | pd.PeriodDtype):
        once = _apart(index.asi8)
    else:
        # One by one, and text is not charged for being a key.
        site.charge(len(index) << _TEXTS_EACH)
        # As several levels, one index would take its time in one call.
        known = index._cache.get("is_unique") is True
        once = known or len(site.frozen(index)) == len(index)
    if not once:
        raise refused("labels", "a label that must be there once is there twice")
    index._cache["is_unique"] = True
    return index


def _apart(numbers: np.ndarray[Any, Any]) -> bool:
    """Tell whether no two of *numbers* are the same. By order: NumPy's own way hashes, too."""
    if numbers.dtype.kind in "mM":
        numbers = numbers.view(np.int64)
    ordered = numbers if (numbers[1:] > numbers[:-1]).all() else np.sort(numbers)
    missing = int((numbers != numbers).sum())  # noqa: PLR0124 - only NaN is unlike itself
    return missing < 2 and bool((ordered[1:] != ordered[:-1]).all())


def _same(made: Any, dtype: Any) -> Any:
    if type(made.dtype) is not type(dtype) or made.dtype != dtype:
        raise bad("dtype", "a pandas array differs from its declared dtype")
    return made


def _kept(made: Any, fields: dict[str, Any]) -> Any:
    """Return *made*, a view that may not be written to where the sender's was one.

    False is what its class says anyway. It is noted where the sender's notes it, so that two who
    submit the same frame submit the same, whichever way theirs is read.
    """
    if "_readonly" in fields:
        made._readonly = plain(fields["_readonly"], bool)
    if "_dtype" in fields:
        _same(made, fields["_dtype"])
    return _remembered(made, fields)


def _remembered(made: Any, fields: dict[str, Any]) -> Any:
    """Return *made* after comparing the cached properties in its state with its own."""
    for name, value in plain(fields.get("_cache", {}), dict).items():
        if plain(name, str) in _REMEMBERED:
            known = getattr(made, name)
            if type(value) is not type(known) or value != known:
                raise bad("state", "a cached property of a pandas object is wrong")
    return made


def _draft(_: Site, name: str, *args: Any) -> Draft:
    if args:
        raise bad("arguments", f"{name} takes no arguments here")
    return Draft(name)


# -- types -------------------------------------------------------------------------------------


def _plain_dtype(_: Site, name: str) -> Any:
    return getattr(pd, name.rpartition(":")[2])()


def _plain_dtype_state(_: Site, made: Any, state: Any) -> Any:
    return _remembered(made, fields_of(state))


def _string_dtype(_: Site, __: str, storage: Any = None, missing: Any = pd.NA) -> Any:
    if storage == "pyarrow_numpy":
        # What pandas 2 called Arrow's text with NaN for what is missing.
        storage, missing = "pyarrow", math.nan
    return bounds.string_dtype(storage, missing)


def _string_dtype_state(site: Site, made: Any, state: Any) -> Any:
    # How pandas 2 writes it; pandas 3 gives the parts to the constructor.
    fields = fields_of(state, "storage", optional=("_na_value",))
    missing = fields.get("_na_value", pd.NA)
    return _remembered(_string_dtype(site, draft_of(made), fields["storage"], missing), fields)


def _new_string_dtype(site: Site, name: str, *args: Any) -> Any:
    return _string_dtype(site, name, *args) if args else Draft(name)


def _categorical_dtype(site: Site, draft: Any, state: Any) -> Any:
    draft_of(draft)
    fields = fields_of(state, "categories", "ordered")
    categories = fields["categories"]
    if isinstance(categories, pd.Index):
        categories = unique(site, categories)
    return _remembered(bounds.categorical_dtype(categories, fields["ordered"]), fields)


def _typed(make: Callable[..., Any], *names: str) -> Callable[[Site, Any, Any], Any]:
    """Return what sets the state of a type that *make* makes of the fields *names*."""

    def set_state(_: Site, draft: Any, state: Any) -> Any:
        draft_of(draft)
        fields = fields_of(state, *names)
        return _remembered(make(*(fields[name] for name in names)), fields)

    return set_state


def _period_dtype(_: Site, __: str, name: Any) -> Any:
    if not plain(name, str).startswith("period[") or not name.endswith("]"):
        raise bad("arguments", "that is not the frequency of a period")
    return bounds.period_dtype(name[7:-1])


def _arrow_dtype(_: Site, draft: Any, state: Any) -> Any:
    draft_of(draft)
    fields = fields_of(state, "pyarrow_dtype", optional=("_storage", "storage"))
    if any(fields.get(name, "pyarrow") != "pyarrow" for name in ("_storage", "storage")):
        raise bad("state", "an Arrow type is kept elsewhere than in Arrow")
    return _remembered(bounds.arrow_dtype(fields["pyarrow_dtype"]), fields)


# -- arrays over one NumPy array ---------------------------------------------------------------


def _backed(_: Site, name: str, kind: Any, checksum: Any, state: Any) -> Draft:
    if type(kind) is not GlobalRef or state is not None:
        raise bad("arguments", "an array is begun in another way than pandas does")
    check_layout(_UNPICKLE[name], checksum)
    return Draft(kind.name)


def _backed_state(site: Site, draft: Any, state: Any) -> Any:
    kind = draft_of(draft)
    dtype, values, *rest = plain(state, tuple)
    if isinstance(dtype, np.ndarray):
        # pandas 2 wrote them in the other order.
        dtype, values = values, dtype
    more = fields_of(rest[0], optional=("_freq", "_dtype")) if rest else {}
    if len(rest) > 1:
        raise bad("state", "an array of pandas' has further state")
    made = _BACKED[kind](site, dtype, plain(values, np.ndarray))
    if more.get("_freq") is not None and kind in _INDEXES:
        made = _INDEXES[kind](made, freq=walked(site, more["_freq"], len(made))).array
        # Since pandas 3 an index keeps it; an index of this array takes it from here.
        made._freq = more["_freq"]
    return _kept(made, more)


def _categorical(site: Site, dtype: Any, codes: Any) -> Any:
    if plain(dtype, pd.CategoricalDtype).ordered is None:
        # pandas replaces an order of None whenever it makes a dtype; that would alter it here.
        raise bad("dtype", "a Categorical does not say whether it is ordered")
    return pd.Categorical.from_codes(owned(site, codes, "i"), dtype=dtype)


def _times(_: Site, dtype: Any, values: Any) -> Any:
    """Return datetimes or timedeltas: of two dimensions where they are a block of a frame."""
    if not _TIME.match(values.dtype.str) or values.ndim not in (1, 2):
        raise bad("arguments", "a datetime array holds something else")
    made = pd.array(values.reshape(-1), copy=False)
    if isinstance(dtype, pd.DatetimeTZDtype):
        made = made.tz_localize("UTC").tz_convert(dtype.tz)
    return _same(made if values.ndim == 1 else made.reshape(values.shape), dtype)


def _periods(_: Site, dtype: Any, values: Any) -> Any:
    if values.dtype != np.int64 or values.ndim not in (1, 2):
        raise bad("arguments", "a period array holds something else")
    made = pd.arrays.PeriodArray(values.reshape(-1), dtype=plain(dtype, pd.PeriodDtype))
    return made if values.ndim == 1 else made.reshape(values.shape)


def _strings(site: Site, dtype: Any, values: Any) -> Any:
    if values.dtype != object or values.ndim != 1:
        raise bad("arguments", "an array of strings holds something else")
    for item in values:
        if type(item) is not str and item is not None and item is not pd.NA and item == item:  # noqa: PLR0124 - as above
            raise bad("arguments", "an array of strings holds something else")
    return _same(pd.array(values, dtype=plain(dtype, pd.StringDtype)), dtype)


def _wrapped(_: Site, dtype: Any, values: Any) -> Any:
    bounds.check_wrapped(values)
    return _same(pd.arrays.NumpyExtensionArray(values), dtype)


_BACKED: dict[str, Callable[[Site, Any, Any], Any]] = {
    "Categorical": _categorical,
    "DatetimeArray": _times,
    "NumpyExtensionArray": _wrapped,
    "PeriodArray": _periods,
    "StringArray": _strings,
    "TimedeltaArray": _times,
}


# -- arrays of several parts -------------------------------------------------------------------


def _masked(site: Site, draft: Any, state: Any) -> Any:
    kind = draft_of(draft)
    fields = fields_of(state, "_data", "_mask", optional=("_dtype",))
    values, mask = owned(site, fields["_data"], _MASKED[kind]), owned(site, fields["_mask"], "b")
    made = getattr(pd.arrays, kind)(values, mask)
    # pandas derives its dtype from NumPy's only on access.
    if made.dtype.numpy_dtype != values.dtype:
        raise bad("dtype", "a pandas array differs from its declared dtype")
    return _kept(made, fields)


def _interval_array(site: Site, draft: Any, state: Any) -> Any:
    draft_of(draft)
    (state,) = plain(state, tuple)
    fields = fields_of(state, "_left", "_right", "_dtype")
    dtype = plain(fields["_dtype"], pd.IntervalDtype)
    left, right = (_bounds(site, fields[side]) for side in ("_left", "_right"))
    if type(left) is not type(right) or left.dtype != right.dtype:
        raise bad("arguments", "the bounds of intervals are of two types")
    made = pd.arrays.IntervalArray.from_arrays(left, right, dtype.closed)
    return _kept(_same(made, dtype), fields)


def _bounds(site: Site, values: Any) -> Any:
    if isinstance(values, pd.arrays.DatetimeArray | pd.arrays.TimedeltaArray):
        return values.copy()
    return owned(site, values, "iufmM")


def _sparse_index(site: Site, name: str, length: Any, *parts: Any) -> Any:
    """Return the positions of a sparse array: sorted, apart, and inside."""
    kind = getattr(_SPARSE, name.rpartition(":")[2])
    if not 0 <= plain(length, int) < _INT32:
        raise bad("shape", "a sparse array has an impossible size")
    bounds.check_sparse_length(length, 1, site.limits)  # its elements are not known yet
    numbers = [owned(site, part, "i") for part in parts]
    if any(part.dtype != np.int32 for part in numbers):
        raise bad("arguments", "the positions of a sparse array are 32 bit integers")
    starts = numbers[0].astype(np.int64)
    (sizes,) = numbers[1:] or (np.ones_like(starts),)
    # In 64 bits: pandas adds them in 32.
    ends = starts + sizes
    sound = len(starts) == len(sizes) and (sizes > 0).all() and (starts >= 0).all()
    if not sound or (ends[:-1] > starts[1:]).any() or (ends > length).any():
        raise refused("sparse", "the positions of a sparse array are not sorted or not inside")
    return kind(length, *numbers)


def _sparse(site: Site, draft: Any, state: Any) -> Any:
    draft_of(draft)
    fields = fields_of(state, "_sparse_index", "_sparse_values", "_dtype")
    places = plain(fields["_sparse_index"], _SPARSE.IntIndex, _SPARSE.BlockIndex)
    values, dtype = writable(plain(fields["_sparse_values"], np.ndarray)), fields["_dtype"]
    bounds.check_sparse_values(values, places.length, site.limits)
    if len(values) != places.npoints:
        raise bad("shape", "a sparse array has not as many values as positions")
    if values.dtype != plain(dtype, pd.SparseDtype).subtype:
        raise bad("dtype", "a pandas array differs from its declared dtype")
    return _kept(_same(_spread(values, places, dtype.fill_value), dtype), fields)


def _spread(values: Any, places: Any, fill: Any) -> Any:
    from_indices = getattr(pd.arrays.SparseArray, "from_indices", None)
    if from_indices is None:
        # pandas 2 and 3.0
        return pd.arrays.SparseArray(values, places, fill)
    kind = "integer" if isinstance(places, _SPARSE.IntIndex) else "block"
    indexes = places.to_int_index().indices
    return from_indices(values, indexes, places.length, fill, kind, values.dtype)


def _arrow_array(_: Site, draft: Any, state: Any) -> Any:
    kind = draft_of(draft)
    fields = fields_of(state, "_pa_array", "_dtype")
    content, dtype = fields["_pa_array"], fields["_dtype"]
    if kind.startswith("ArrowString"):
        if str(content.type) not in ("string", "large_string"):
            raise bad("arrow", "an array of strings holds something else")
        # pandas 2 knows one missing value only, and so no type.
        typed = {"dtype": plain(dtype, pd.StringDtype)} if _TYPED else {}
        return _kept(_same(pd.arrays.ArrowStringArray(content, **typed), dtype), fields)
    told = plain(dtype, pd.ArrowDtype).pyarrow_dtype
    # To Arrow, lists whose elements have different names are of one type.
    if not told.equals(content.type, check_metadata=True) or str(told) != str(content.type):
        raise bad("dtype", "a pandas array differs from its declared dtype")
    return _kept(_same(pd.arrays.ArrowExtensionArray(content), dtype), fields)


SHIMS: dict[str, Callable[..., Any]] = {
    "arrow_array": _arrow_array,
    "arrow_dtype": _arrow_dtype,
    "backed": _backed,
    "backed_state": _backed_state,
    "categorical_dtype": _categorical_dtype,
    "draft": _draft,
    "interval_array": _interval_array,
    "interval_dtype": _typed(bounds.interval_dtype, "subtype", "closed"),
    "masked": _masked,
    "numpy_dtype": _typed(bounds.numpy_dtype, "_dtype"),
    "period_dtype": _period_dtype,
    "plain_dtype": _plain_dtype,
    "plain_dtype_state": _plain_dtype_state,
    "sparse": _sparse,
    "sparse_dtype": _typed(bounds.sparse_dtype, "_dtype", "_fill_value"),
    "sparse_index": _sparse_index,
    "string_dtype": _new_string_dtype,
    "string_dtype_state": _string_dtype_state,
    "zoned_dtype": _typed(lambda unit, tz: bounds.zoned_dtype(unit, zone(tz)), "unit", "tz"),
}
