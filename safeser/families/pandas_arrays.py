"""pandas extension arrays of family ``dask``: what stands in a column or behind an index.

The one rule: an extension array is built from checked NumPy arrays through pandas' public
constructors, and what they built must have the dtype that the header described.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.families.arrays import Owned, aligned, array_child
from safeser.families.pandas_scalars import (
    UNITS,
    build_zone,
    check_freq,
    check_zone,
    describe_freq,
    describe_zone,
    offset,
)
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.values import Limits

__all__ = ["check_codes", "check_unranged", "column", "register", "unranged"]

#: Untyped on purpose: pandas is an extra, and its stubs know less than what is used here.
pd: Any = importlib.import_module("pandas")

RANGED = "families.range"
_SIGNED = {np.dtype(code) for code in ("i1", "i2", "i4", "i8")}


def column(array: Any, *, where: str) -> Any:
    """Return what is sent for a column: its NumPy array if it has one, else *array* itself."""
    if type(array) is pd.arrays.NumpyExtensionArray or isinstance(array.dtype, np.dtype):
        return Owned(np.asarray(array))
    if type(array) not in _ENCODERS:
        error = Unencodable(array, f"a column of {type(array.dtype).__name__} is not kept exactly")
        error.path.append(where)
        raise error
    return array


def _require(right: object) -> None:
    """Raise what receiving turns into a refusal that names the type."""
    if not right:
        raise ValueError


def check_codes(node: Node, position: int) -> None:
    """Refuse *node* unless child *position* is an array of codes."""
    codes = array_child(node, position, ndim=1)
    if codes.dtype not in _SIGNED:
        node.refuse("its codes are not native signed integers", "families.child-type")


def _check_index(node: Node, position: int) -> None:
    if node.children[position].yields not in ("pandas:Index", "pandas:RangeIndex"):
        node.refuse(f"its part {position} is not an index", "families.child-type")


def unranged(index: Any, *, most: int) -> Any:
    """Return *index*, or one of its values where it is a range of more than *most*.

    pandas writes a range out where it compares or counts its values, and a range costs its sender
    nothing: 300 bytes of intervals between two of them took a gigabyte for each of three arrays.
    """
    ranged = isinstance(index, pd.RangeIndex) and len(index) > most
    return pd.Index(index.to_numpy(), name=index.name) if ranged else index


def check_unranged(node: Node, position: int, *, most: int) -> None:
    """Refuse *node* if child *position* is a range that :func:`unranged` would write out."""
    child = node.children[position]
    if child.type == "pandas:RangeIndex":
        bounds = range(*(child.meta[part] for part in ("start", "stop", "step")))
        if len(bounds) > most:
            node.refuse(f"its part {position} is a range that it would write out", RANGED)


# Dates with a zone: the instants in UTC, and the zone in which they are shown.


def _encode_dates(x: Any, limits: Limits) -> Parts:
    if isinstance(x.dtype, np.dtype):
        raise Unencodable(x, "a bare array of dates is not kept; send a series or NumPy array")
    meta = {"kind": "dates", "unit": x.unit, "zone": describe_zone(x.tz)}
    instants = pd.DatetimeIndex(x).tz_convert("UTC").tz_localize(None)
    return Parts(meta, (), [("", Owned(np.asarray(instants)))])


def _check_dates(node: Node) -> None:
    _, unit, zone = node.expect("kind", "unit", "zone", children=1)
    if type(unit) is not str or unit not in UNITS:
        node.refuse("its unit is unknown", "families.header")
    check_zone(node, zone)
    if zone is None:
        node.refuse("it has no time zone", "families.time-zone")
    if array_child(node, 0, ndim=1).dtype != np.dtype(f"M8[{unit}]"):
        node.refuse("its instants have another dtype", "families.child-type")


def _decode_dates(node: Node, values: list[Any]) -> Any:
    zone = build_zone(node.meta["zone"])
    return pd.DatetimeIndex(values[0]).tz_localize("UTC").tz_convert(zone).array


# Periods: ordinals and a freq.


def _encode_periods(x: Any, limits: Limits) -> Parts:
    meta = {"kind": "periods", "freq": describe_freq(x.freq)}
    return Parts(meta, (), [("", Owned(x.asi8))])


def _check_periods(node: Node) -> None:
    _, freq = node.expect("kind", "freq", children=1)
    check_freq(node, freq)
    if freq is None:
        node.refuse("it has no freq", "families.header")
    if array_child(node, 0, ndim=1).dtype != np.dtype(np.int64):
        node.refuse("its ordinals have another dtype", "families.child-type")


def _decode_periods(node: Node, values: list[Any]) -> Any:
    freq = offset(node.meta["freq"])
    return pd.PeriodIndex.from_ordinals(values[0], freq=freq).array


# Intervals: two indexes of ends.


def _encode_intervals(x: Any, limits: Limits) -> Parts:
    meta = {"kind": "intervals", "closed": x.closed}
    ends = (unranged(x.left, most=0), unranged(x.right, most=0))
    return Parts(meta, (), list(zip((".left", ".right"), ends, strict=True)))


def _check_intervals(node: Node) -> None:
    _, closed = node.expect("kind", "closed", children=2)
    if closed not in ("left", "right", "both", "neither"):
        node.refuse("it is closed on no side that pandas knows", "families.header")
    for position in range(2):
        _check_index(node, position)
        check_unranged(node, position, most=0)


def _decode_intervals(node: Node, values: list[Any]) -> Any:
    left, right = values
    built = pd.arrays.IntervalArray.from_arrays(left, right, closed=node.meta["closed"])
    _require(built.left.dtype == left.dtype and built.right.dtype == right.dtype)
    return built


# Categories: codes into an index of distinct values.


def _encode_categories(x: Any, limits: Limits) -> Parts:
    meta = {"kind": "categories", "ordered": bool(x.ordered)}
    return Parts(meta, (), [(".codes", Owned(x.codes)), (".categories", x.categories)])


def _check_categories(node: Node) -> None:
    _, ordered = node.expect("kind", "ordered", children=2)
    if type(ordered) is not bool:
        node.refuse("its flag is not a flag", "families.header")
    check_codes(node, 0)
    _check_index(node, 1)


def _decode_categories(node: Node, values: list[Any]) -> Any:
    codes, categories = values
    # from_codes refuses codes outside of the categories, and categories that repeat or are null.
    return pd.Categorical.from_codes(codes, categories, ordered=node.meta["ordered"])


# Nullable numbers and flags: data and a mask.


def _encode_masked(x: Any, limits: Limits) -> Parts:
    return Parts({"kind": "masked"}, (), [(".data", Owned(x._data)), (".mask", Owned(x._mask))])


def _check_masked(node: Node) -> None:
    node.expect("kind", children=2)
    data = array_child(node, 0, kinds="biuf", ndim=1)
    mask = array_child(node, 1, kinds="b", ndim=1)
    if mask.shape != data.shape:
        node.refuse("its mask has another length than its data", "families.shape")
    if not data.dtype.isnative or data.dtype.itemsize > 8 or data.dtype == np.float16:
        node.refuse("its data has a dtype that pandas has no nullable kind of", "families.dtype")


def _decode_masked(node: Node, values: list[Any]) -> Any:
    data, mask = values
    if data.dtype.kind == "b":
        return pd.arrays.BooleanArray(data, mask)
    if data.dtype.kind == "f":
        return pd.arrays.FloatingArray(data, mask)
    return pd.arrays.IntegerArray(data, mask)


# Text: as Python strings, or as Arrow's offsets and bytes.


def _encode_text(x: Any, limits: Limits) -> Parts:
    dtype = x.dtype
    meta = {"kind": "text", "storage": dtype.storage, "nan": dtype.na_value is not pd.NA}
    if dtype.storage == "python":
        missing = x.isna()
        texts = [None if gone else text for text, gone in zip(x, missing, strict=True)]
        return Parts(meta, (), [("", texts)])
    offsets, data, missing = _arrow_parts(x)
    parts = [(".offsets", Owned(offsets)), (".bytes", Owned(data)), (".missing", Owned(missing))]
    return Parts(meta, (), parts)


def _arrow_parts(x: Any) -> tuple[Any, Any, Any]:
    import pyarrow as pa  # noqa: PLC0415 - an extra

    chunks = x._pa_array.cast(pa.large_string()).chunks
    whole = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_string())
    missing = whole.is_null().to_numpy(zero_copy_only=False)
    _, offsets, data = whole.buffers()
    if offsets is None or not len(whole):
        return np.zeros(1, np.int64), np.empty(0, np.uint8), missing
    ends = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return ends - ends[0], text[ends[0] : ends[-1]], missing


def _check_text(node: Node) -> None:
    _, storage, nan = node.expect("kind", "storage", "nan", children=None)
    if storage not in ("python", "pyarrow") or type(nan) is not bool:
        node.refuse("its storage or flag is unknown", "families.header")
    if storage == "python":
        _check_strings(node)
    else:
        _check_arrow(node)


def _check_strings(node: Node) -> None:
    if len(node.children) != 1 or type(node.children[0].value) is not list:
        node.refuse("it does not hold one plain list", "families.child-type")
    if not set(map(type, node.children[0].value)) <= {str, type(None)}:
        node.refuse("it holds something else than text", "families.child-type")


def _check_arrow(node: Node) -> None:
    if len(node.children) != 3:
        node.refuse("it does not hold offsets, bytes and flags", "families.child-count")
    offsets, data, missing = (array_child(node, position, ndim=1) for position in range(3))
    if (offsets.dtype, data.dtype, missing.dtype) != (np.int64, np.uint8, np.bool_):
        node.refuse("its parts have wrong dtypes", "families.child-type")
    if len(offsets) != len(missing) + 1:
        node.refuse("it has another number of offsets than of texts", "families.shape")
    # Arrow follows offsets without looking: each must lie between its neighbours.
    if offsets[0] != 0 or offsets[-1] != len(data) or bool((np.diff(offsets) < 0).any()):
        node.refuse("its offsets do not lie within its bytes", "families.offsets")


def _decode_text(node: Node, values: list[Any]) -> Any:
    missing = np.nan if node.meta["nan"] else pd.NA
    dtype = pd.StringDtype(node.meta["storage"], na_value=missing)
    if node.meta["storage"] == "python":
        return pd.array([missing if text is None else text for text in values[0]], dtype=dtype)
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise PayloadError(
            "text kept by Arrow needs pyarrow, which is not installed here",
            rule="families.not-installed",
            where=node.where,
            fix="Install pyarrow, or have the sender convert the column to python storage.",
        ) from None
    offsets, data, gone = values
    valid = np.packbits(~gone, bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    whole = pa.Array.from_buffers(pa.large_string(), len(gone), buffers)
    whole.validate(full=True)  # that each text is UTF-8
    return dtype.__from_arrow__(pa.chunked_array([whole]))


_CHECKS = {
    "dates": (_check_dates, _decode_dates),
    "periods": (_check_periods, _decode_periods),
    "intervals": (_check_intervals, _decode_intervals),
    "categories": (_check_categories, _decode_categories),
    "masked": (_check_masked, _decode_masked),
    "text": (_check_text, _decode_text),
}


def _encode(x: Any, limits: Limits) -> Parts:
    parts: Parts = _ENCODERS[type(x)](x, limits)
    return parts


_ENCODERS: dict[type, Any] = {
    pd.arrays.DatetimeArray: _encode_dates,
    pd.arrays.PeriodArray: _encode_periods,
    pd.arrays.IntervalArray: _encode_intervals,
    pd.Categorical: _encode_categories,
    pd.arrays.IntegerArray: _encode_masked,
    pd.arrays.FloatingArray: _encode_masked,
    pd.arrays.BooleanArray: _encode_masked,
    pd.arrays.StringArray: _encode_text,
    pd.arrays.ArrowStringArray: _encode_text,
}


def _check(node: Node, limits: Limits) -> None:
    kind = node.meta.get("kind")
    if not isinstance(kind, str) or kind not in _CHECKS:
        node.refuse("its kind is not listed", "families.header")
    _CHECKS[kind][0](node)


def _decode(node: Node, values: list[Any]) -> Any:
    return _CHECKS[node.meta["kind"]][1](node, [aligned(value) for value in values])


def register() -> None:
    """List pandas' extension arrays; called once, by safeser.families.frames."""
    registry.register(Typed("pandas:array", tuple(_ENCODERS), _encode, _check, _decode))
