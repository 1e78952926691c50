"""pandas frames, series and indexes of family ``dask``, column by column.

The one rule: exact or refused, never altered: what pandas would infer, convert or drop on the way
is said in the header and checked against what pandas built.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from safeser.families import pandas_arrays
from safeser.families.arrays import aligned
from safeser.families.pandas_arrays import column
from safeser.families.pandas_scalars import check_freq, describe_freq, offset
from safeser.families.plain import label
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.values import Limits

__all__ = ["register"]

#: Untyped on purpose: pandas is an extra, and its stubs know less than what is used here.
pd: Any = importlib.import_module("pandas")

_INDEXES = ("pandas:Index", "pandas:RangeIndex", "pandas:MultiIndex")
_ARRAYS = ("pandas:array", "numpy:ndarray")


def _expect_types(node: Node, position: int, types: tuple[str, ...]) -> None:
    if node.children[position].yields not in types:
        node.refuse(f"its part {position} is of a wrong type", "families.child-type")


def _encode_frame(x: Any, limits: Limits) -> Parts:
    children: list[tuple[str, object]] = [
        (".index", x.index),
        (".columns", x.columns),
        (".attrs", x.attrs),
    ]
    for position, name in enumerate(x.columns):
        where = f" (column {label(name)})"
        children.append((where, column(x.iloc[:, position].array, where=where)))
    return Parts({"unique": not x.flags.allows_duplicate_labels}, (), children)


def _check_frame(node: Node, limits: Limits) -> None:
    (unique,) = node.expect("unique", children=None)
    if type(unique) is not bool or len(node.children) < 3:
        node.refuse("its flag or parts are wrong", "families.header")
    _expect_types(node, 0, _INDEXES)
    _expect_types(node, 1, _INDEXES)
    _expect_types(node, 2, ("builtins:dict",))
    for position in range(3, len(node.children)):
        _expect_types(node, position, _ARRAYS)


def _decode_frame(node: Node, values: list[Any]) -> Any:
    index, columns, attrs, *arrays = map(aligned, values)
    _same(len(columns) == len(arrays))
    _same(all(array.ndim == 1 and len(array) == len(index) for array in arrays))
    # Positions stand in for the labels, which may repeat; without a copy each keeps its buffer.
    frame = pd.DataFrame(
        {n: _as_series(array, index) for n, array in enumerate(arrays)}, index=index, copy=False
    )
    frame.columns = columns
    frame.attrs = attrs
    if node.meta["unique"]:
        frame.flags.allows_duplicate_labels = False
    return frame


def _as_series(array: Any, index: Any) -> Any:
    return pd.Series(array, index=index, dtype=array.dtype, copy=False)


def _same(right: bool) -> None:
    """Raise what receiving turns into a refusal if pandas read something else than was said."""
    if not right:
        raise ValueError


def _encode_series(x: Any, limits: Limits) -> Parts:
    where = f" (column {label(x.name)})"
    children = [
        (".index", x.index),
        (".name", x.name),
        (".attrs", x.attrs),
        (where, column(x.array, where=where)),
    ]
    return Parts({"unique": not x.flags.allows_duplicate_labels}, (), children)


def _check_series(node: Node, limits: Limits) -> None:
    (unique,) = node.expect("unique", children=4)
    if type(unique) is not bool:
        node.refuse("its flag is not a flag", "families.header")
    _expect_types(node, 0, _INDEXES)
    _expect_types(node, 2, ("builtins:dict",))
    _expect_types(node, 3, _ARRAYS)


def _decode_series(node: Node, values: list[Any]) -> Any:
    index, name, attrs, array = map(aligned, values)
    _same(array.ndim == 1 and len(array) == len(index))
    series = _as_series(array, index)
    series.name = name
    series.attrs = attrs
    if node.meta["unique"]:
        series.flags.allows_duplicate_labels = False
    return series


def _encode_range(x: Any, limits: Limits) -> Parts:
    return Parts({"start": x.start, "stop": x.stop, "step": x.step}, (), [(".name", x.name)])


def _check_range(node: Node, limits: Limits) -> None:
    numbers = node.expect("start", "stop", "step", children=1)
    if not all(type(number) is int and abs(number) < 1 << 62 for number in numbers):
        node.refuse("its bounds are not integers in range", "families.header")
    if numbers[2] == 0:
        node.refuse("its step is zero", "families.header")
    # A range costs nothing to say; whoever uses its values takes eight bytes for each.
    if len(range(*numbers)) * 8 > limits.max_array:
        node.refuse("it is larger than max_array", "families.too-large")


def _decode_range(node: Node, values: list[Any]) -> Any:
    meta = node.meta
    return pd.RangeIndex(meta["start"], meta["stop"], meta["step"], name=values[0])


def _encode_index(x: Any, limits: Limits) -> Parts:
    freq = (
        getattr(x, "freq", None) if isinstance(x, (pd.DatetimeIndex, pd.TimedeltaIndex)) else None
    )
    meta = {"kind": type(x).__name__, "freq": describe_freq(freq)}
    return Parts(meta, (), [(".name", x.name), (".values", column(x.array, where=".values"))])


_KINDS = (
    "Index",
    "CategoricalIndex",
    "DatetimeIndex",
    "IntervalIndex",
    "PeriodIndex",
    "TimedeltaIndex",
)


def _check_index(node: Node, limits: Limits) -> None:
    kind, freq = node.expect("kind", "freq", children=2)
    if kind not in _KINDS:
        node.refuse("its kind is not listed", "families.header")
    check_freq(node, freq)
    if freq is not None and kind not in ("DatetimeIndex", "TimedeltaIndex"):
        node.refuse("its kind has no freq", "families.header")
    _expect_types(node, 1, _ARRAYS)


def _decode_index(node: Node, values: list[Any]) -> Any:
    name, array = values[0], aligned(values[1])
    _same(array.ndim == 1)
    index = pd.Index(array, dtype=array.dtype, name=name, copy=False, tupleize_cols=False)
    _same(type(index).__name__ == node.meta["kind"] and index.dtype == array.dtype)
    if node.meta["freq"] is not None:
        index.freq = offset(node.meta["freq"])  # pandas compares it with the values
    return index


def _encode_multi(x: Any, limits: Limits) -> Parts:
    sortorder = None if x.sortorder is None else int(x.sortorder)
    children: list[tuple[str, object]] = [(".names", list(x.names))]
    for n, level in enumerate(x.levels):
        plain = pandas_arrays.unranged(level.rename(None), most=limits.max_refs)
        children.append((f".levels[{n}]", plain))
    children += [(f".codes[{n}]", np.asarray(codes)) for n, codes in enumerate(x.codes)]
    return Parts({"sortorder": sortorder}, (), children)


def _check_multi(node: Node, limits: Limits) -> None:
    (sortorder,) = node.expect("sortorder", children=None)
    if sortorder is not None and type(sortorder) is not int:
        node.refuse("its sortorder is not a number", "families.header")
    levels, odd = divmod(len(node.children) - 1, 2)
    if odd or levels < 1:
        node.refuse("it has another number of levels than of codes", "families.child-count")
    _expect_types(node, 0, ("builtins:list",))
    for position in range(levels):
        _expect_types(node, 1 + position, ("pandas:Index", "pandas:RangeIndex"))
        pandas_arrays.check_unranged(node, 1 + position, most=limits.max_refs)
        pandas_arrays.check_codes(node, 1 + levels + position)


def _decode_multi(node: Node, values: list[Any]) -> Any:
    names, *parts = map(aligned, values)
    half = len(parts) // 2
    return pd.MultiIndex(
        parts[:half],
        parts[half:],
        names=names,
        sortorder=node.meta["sortorder"],
        verify_integrity=True,
    )


def register() -> None:
    """List pandas' containers; called once, by safeser.families.frames."""
    pandas_arrays.register()
    indexes = tuple(getattr(pd, kind) for kind in _KINDS)
    for typed in (
        Typed("pandas:DataFrame", (pd.DataFrame,), _encode_frame, _check_frame, _decode_frame),
        Typed("pandas:Series", (pd.Series,), _encode_series, _check_series, _decode_series),
        Typed("pandas:RangeIndex", (pd.RangeIndex,), _encode_range, _check_range, _decode_range),
        Typed("pandas:MultiIndex", (pd.MultiIndex,), _encode_multi, _check_multi, _decode_multi),
        Typed("pandas:Index", indexes, _encode_index, _check_index, _decode_index),
    ):
        registry.register(typed)
