"""Everything that people do with a value they received, to see whether it holds.

The one rule: a use may raise, since a mutated value may be an odd one; it may not crash, hang, or
show that memory is wrong.
"""

from __future__ import annotations

import copy
import functools
import io
import itertools
import operator
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["BROKEN", "uses"]

#: What no use of a sound value raises: the interpreter's own invariants, or memory without bound.
BROKEN = (SystemError, MemoryError, AssertionError)

_BOUND = 200


def uses(value: Any) -> Iterator[Callable[[], object]]:
    """Yield each use of *value* and of what it holds, one level down."""
    yield from _any(value)
    if not type(value).__module__.startswith("polars"):  # it panics at what it has not written yet
        yield from _computed(value)
    for name in _METHODS:
        if hasattr(type(value), name):
            yield lambda name=name: getattr(value, name)()  # type: ignore[misc]
    for name in _READ:
        yield lambda name=name: repr(getattr(value, name))  # type: ignore[misc]
    for package, more in _OF_PACKAGES.items():
        if type(value).__module__.partition(".")[0] == package and package in sys.modules:
            yield from more(value)
    if isinstance(value, Mapping) and callable(value.values):  # Arrow's scalars are different
        inner: Iterable[Any] = list(value.values())[:8]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = list(value)[:8]
    else:
        return
    for item in inner:
        for package, more in _OF_PACKAGES.items():
            if type(item).__module__.partition(".")[0] == package:
                yield from more(item)


def _any(value: Any) -> Iterator[Callable[[], object]]:
    yield lambda: repr(value)
    yield lambda: str(value)
    yield lambda: value == value
    yield lambda: hash(value)
    yield lambda: len(value)
    yield lambda: bool(value)
    yield lambda: [repr(item) for item in itertools.islice(iter(value), _BOUND)]
    yield lambda: copy.copy(value)
    yield lambda: copy.deepcopy(value) == value
    yield lambda: hash(copy.copy(value))
    yield lambda: pickle.dumps(value)
    yield lambda: pickle.loads(pickle.dumps(value)) == value
    yield lambda: dir(value)
    yield lambda: sys.getsizeof(value)
    yield lambda: f"{value}"
    yield lambda: value.match("ab" if isinstance(value.pattern, str) else b"ab")
    yield lambda: (value.random(), value.gauss(0, 1), value.getrandbits(99))
    yield lambda: list(map(repr, vars(value).values()))


def _computed(value: Any) -> Iterator[Callable[[], object]]:
    """Yield arithmetic, order, indexing and iteration, of which each type has some."""

    def some() -> list[Any]:
        return list(itertools.islice(iter(value), _BOUND))

    for compute in _OF_TWO:
        yield lambda compute=compute: compute(value, value)  # type: ignore[misc]
    if not _holds_objects(value):
        yield lambda: value * value
    if not isinstance(value, (list, tuple, str, bytes, bytearray)):
        yield lambda: value * 3
        yield lambda: 2 * value
    yield lambda: value + 1
    yield lambda: -value
    yield lambda: abs(value)
    yield lambda: int(value)
    yield lambda: float(value)
    yield lambda: round(value, 2)
    yield lambda: sum(some())
    yield lambda: sorted(some())
    yield lambda: max(some())
    yield lambda: repr([value[0], value[-1]])
    yield lambda: repr(value[1:3])
    yield lambda: repr(value[()])
    yield lambda: repr(value[::-1])
    if hasattr(type(value), "__contains__"):
        yield lambda: some()[0] in value
    yield lambda: value.index(some()[-1])
    yield lambda: list(itertools.islice(reversed(value), _BOUND))
    yield lambda: repr([copy.copy(item) for item in some()[:3]])


def _holds_objects(value: Any) -> bool:
    """Tell whether *value* holds objects of NumPy's or pandas': a text times a number is memory."""
    return "object" in str(getattr(value, "dtypes", getattr(value, "dtype", "")))


_OF_TWO: tuple[Callable[[Any, Any], Any], ...] = (
    *(operator.add, operator.sub, operator.truediv, operator.floordiv, operator.mod),
    *(operator.lt, operator.ne, operator.and_, operator.or_, divmod),
)

#: What is called without arguments, where a type has it.
_METHODS = (
    *("isoformat", "utcoffset", "dst", "tzname", "timestamp", "timetuple", "total_seconds"),
    *("ctime", "as_integer_ratio", "normalize", "to_integral_value", "adjusted", "sqrt"),
    *("limit_denominator", "bit_length", "conjugate", "hex", "as_posix", "is_absolute"),
    *("most_common", "total", "copy", "elements", "random", "getstate", "tolist", "tobytes"),
    *("split", "upper", "title", "mean", "std", "min", "max", "sum", "cumsum", "ptp", "any", "all"),
    *("sort", "argsort", "squeeze", "ravel", "flatten", "nonzero", "transpose", "conj", "filled"),
    *("compressed", "trim", "deriv", "integ", "roots", "linspace", "random_raw", "standard_normal"),
    *("rand", "spawn", "to_pydatetime", "to_numpy", "to_period", "to_timestamp", "day_name"),
    *("as_unit", "asm8", "unique", "dropna", "isna", "hasnans", "to_dense", "to_frame", "to_list"),
    *("to_flat_index", "remove_unused_categories", "codes", "describe", "memory_usage"),
    *("is_overlapping", "cumcount", "is_null", "drop_null", "sort_indices", "value_counts"),
    *("to_batches", "max_chunksize", "dictionary_decode", "run_end_decode", "find_physical_length"),
    *("to_pandas_dtype", "to_string", "__arrow_c_schema__", "__array__", "__length_hint__"),
    *("empty", "toarray", "tocsr", "tocoo"),
)

#: What is read, where a value has it.
_READ = (
    *("parts", "parent", "name", "suffix", "stem", "exploded", "is_private", "packed", "hex"),
    *("urn", "num_addresses", "broadcast_address", "pattern", "groups", "groupindex", "numerator"),
    *("real", "days", "hour", "year", "dayofyear", "quarter", "days_in_month", "freqstr", "nanos"),
    *("rule_code", "start_time", "end_time", "mid", "length", "left", "right", "closed", "ordinal"),
    *("base", "flat", "T", "flags", "strides", "dtype", "descr", "fields", "subdtype"),
    *("isalignedstruct", "metadata", "mask", "recordmask", "data", "coef", "domain", "state"),
    *("bit_generator", "seed_seq", "entropy", "categories", "codes", "levels", "names", "values"),
    *("array", "is_unique", "inferred_freq", "density", "fill_value", "sp_values", "type"),
    *("index_dtype", "construct_array_type", "subtype", "chunks", "field", "num_fields"),
    *("bit_width", "offsets", "indices", "dictionary", "run_ends", "nnz", "shape", "size", "ndim"),
    *("columns", "axes", "style", "tz", "unit", "value", "nbytes"),
)


def _numpy(value: Any) -> Iterator[Callable[[], object]]:
    import numpy as np

    if isinstance(value, np.dtype):
        yield from _dtype(value)
        return
    yield lambda: value.tolist()
    yield lambda: value.tobytes()
    yield lambda: value.astype("U")
    yield lambda: value.astype(object)
    yield lambda: value.astype("f8")
    yield lambda: value.astype("?").sum()
    for name in ("sum", "max", "argmax", "argsort", "all", "ravel", "nonzero", "item", "round"):
        yield lambda name=name: getattr(value, name)()
    if not isinstance(value, np.str_):  # of its own, NumPy makes no text
        yield lambda: value.byteswap()
    if isinstance(value, np.void):
        for fields in _fields(value.dtype):
            yield lambda fields=fields: repr(
                [_part(value, fields), copy.copy(_part(value, fields))]
            )
            yield lambda fields=fields: _part(value, fields) + _part(value, fields)
            yield lambda fields=fields: _part(value, fields) == _part(value, fields)
            yield lambda fields=fields: _set(value, fields)
        yield lambda: [repr(value[at]) for at in range(-1, min(len(value), _BOUND))]
    if not isinstance(value, np.ndarray):
        yield lambda: value.integers(0, 200, 5, dtype=np.uint8).tolist()
        yield lambda: value.randint(0, 10, 5).tolist()
        yield lambda: value.permutation(5).tolist()
        yield lambda: value.generate_state(5).tolist()
        yield lambda: value(0.5)
        yield lambda: np.asarray(value).tolist()
        return
    yield from _dtype(value.dtype)
    yield lambda: np.array2string(value.astype(value.dtype.newbyteorder()))
    yield lambda: np.save(io.BytesIO(), value)
    yield lambda: np.where(value, value, value)
    yield lambda: np.searchsorted(value.reshape(-1), value.reshape(-1)[:2])
    yield lambda: [item.copy() for item in value.flat[:5]]
    yield lambda: np.array_equal(value, value.copy())
    yield lambda: np.copyto(np.empty_like(value), value)
    yield lambda: np.char.upper(value)
    yield lambda: np.partition(value.reshape(-1), 0)
    yield lambda: np.add.reduce(value, axis=None)
    yield lambda: np.ones(value.shape, "?") & value
    yield lambda: value[np.ones(value.shape, "?")]
    yield lambda: np.lexsort((value, value))
    yield lambda: value.astype("i1").tolist()
    yield lambda: np.sort(value, axis=None)
    yield lambda: value.copy(order="F")
    yield lambda: value.T.reshape(-1)
    yield lambda: value.take([0, -1])
    yield lambda: value[::-1][:5]
    yield lambda: value + value
    yield lambda: np.unique(value)
    yield lambda: np.concatenate([value, value])
    yield lambda: np.count_nonzero(value)
    yield lambda: value[value != value]
    yield lambda: value.view("u1")
    yield lambda: np.array_str(value.reshape(-1)[:3])
    yield lambda: memoryview(value).tobytes()
    if value.dtype == bool:
        yield lambda: value[value]
    for fields in _fields(value.dtype):
        yield from _field(lambda fields=fields: _part(value, fields))  # type: ignore[misc]
    for name in (value.dtype.names or ())[:8]:
        yield lambda name=name: repr(value[[name]]) + repr(value[[name]].copy() == value[[name]])
        yield lambda name=name: repr(getattr(value.view(np.recarray), name))
        yield lambda name=name: repr(np.sort(value, order=name))
    if value.flags.writeable and value.size:
        yield lambda: value.__setitem__(..., value.reshape(-1)[0])


def _fields(dtype: Any) -> list[list[str]]:
    """Return the names that lead to each field of *dtype*, nested ones too, at most 64."""
    found: list[list[str]] = []
    pending = [([], dtype)]
    while pending and len(found) < 64:
        above, part = pending.pop(0)
        for name in (part.base.names or ())[:64]:
            found.append([*above, name])
            pending.append((found[-1], part.base.fields[name][0]))
    return found[:64]


def _part(value: Any, fields: Iterable[str]) -> Any:
    return functools.reduce(operator.getitem, fields, value)


def _set(value: Any, fields: list[str]) -> None:
    *above, last = fields
    _part(value, above)[last] = copy.copy(_part(value, fields))


def _field(get: Callable[[], Any]) -> Iterator[Callable[[], object]]:
    """Yield uses of the array that *get* returns, which shares memory with a record."""
    yield lambda: get().tolist()
    yield lambda: repr(get()) + repr(get().copy())
    yield lambda: repr([get()[0], get()[-1], get()[..., -1:]])
    yield lambda: get().astype("U").sum()
    yield lambda: get() == get().copy()
    yield lambda: get() + get()
    yield lambda: get() * 2 - get()
    yield lambda: get().sum()
    yield lambda: get().byteswap().tobytes()
    yield lambda: get().__setitem__(..., get().copy())


def _dtype(dtype: Any) -> Iterator[Callable[[], object]]:
    import numpy as np

    yield lambda: repr(np.zeros(2, dtype))
    yield lambda: repr(np.zeros((), dtype)[()])
    yield lambda: np.zeros(2, dtype).tolist()
    yield lambda: np.ones(2, dtype).copy() == np.ones(2, dtype)
    yield lambda: np.zeros(2, dtype.newbyteorder()).astype(dtype)
    yield lambda: np.result_type(dtype, dtype)
    yield lambda: [np.zeros(2, dtype)[field].tolist() for field in dtype.names]


def _pandas(value: Any) -> Iterator[Callable[[], object]]:
    import pandas as pd

    moment = pd.Timestamp("2026-01-31 10:00")
    for name in (
        *("to_json", "to_csv", "rank", "transpose", "describe", "sort_index", "sort_values"),
        *("reset_index", "to_numpy", "to_dict", "unique", "duplicated", "value_counts", "argsort"),
        *("factorize", "stack", "to_records", "convert_dtypes", "interpolate", "cumsum"),
        *("remove_unused_levels", "pivot_table", "isoformat"),
    ):
        yield lambda name=name: getattr(value, name)()
    for accessor in ("str", "dt", "cat", "sparse", "list", "struct"):
        yield lambda accessor=accessor: repr(getattr(value, accessor))
    yield lambda: moment + value
    yield lambda: moment - value
    yield lambda: value.is_on_offset(moment)
    yield lambda: value.rollforward(moment)
    yield lambda: pd.date_range(moment, periods=3, freq=value)
    yield lambda: value.floor("h")
    yield lambda: value.tz_convert("UTC")
    yield lambda: value.strftime("%Y %x")
    yield lambda: value.asfreq("D")
    yield lambda: 0 in value
    yield lambda: value.overlaps(value)
    yield lambda: value.get_loc(value[0])
    yield lambda: value.difference(value[:1])
    yield lambda: value.join(value, how="outer")
    yield lambda: value.isin(value[:2])
    yield lambda: value.searchsorted(value[0])
    yield lambda: value.droplevel(0)
    yield lambda: value.str.upper()
    yield lambda: value.dt.year
    yield lambda: value.cat.codes
    yield lambda: value.sparse.density
    yield lambda: value.map(repr)
    yield lambda: pd.array([None], dtype=value)
    yield lambda: pd.Series([None, None], dtype=value).unique()
    yield lambda: pd.Series(value).sort_values()
    yield lambda: pd.Index(value).get_indexer(value)
    yield lambda: pd.DataFrame({"a": value, "b": value}).drop_duplicates()
    yield lambda: value.describe(include="all")
    yield lambda: value.info(buf=None, memory_usage="deep", verbose=False)
    yield lambda: value.memory_usage(deep=True)
    yield lambda: value.reindex(value.index[::-1])
    yield lambda: value.reindex([0, 1, "a"])
    yield lambda: value.head(2)
    yield lambda: value.isna().sum()
    yield lambda: value.fillna(0)
    yield lambda: value.astype(object)
    yield lambda: value.astype(str)
    yield lambda: value.groupby(level=0).count()
    yield lambda: sys.modules["pandas"].concat([value, value])
    yield lambda: value.append(value)
    yield lambda: value.take([0, -1])
    yield lambda: [repr(value[name].iloc[:3]) for name in value.columns[:64]]
    yield lambda: repr(value.iloc[:, [0, -1]] + value.iloc[:, [-1, 0]].to_numpy())
    yield lambda: value.iloc[[0, -1]]
    yield lambda: value.loc[value.index[0]]
    yield lambda: value.get_indexer(value[:3])
    yield lambda: value.is_monotonic_increasing
    yield lambda: value.union(value)
    yield lambda: value.to_frame().T
    yield lambda: value.select_dtypes("number").sum()
    yield lambda: value.shift(1)
    yield lambda: value.merge(value, left_index=True, right_index=True)
    yield lambda: value.groupby(list(value.columns)).size()
    yield lambda: value.sort_values(list(value.columns))
    yield lambda: value.get_indexer_non_unique(value)
    yield lambda: value.delete(0).insert(0, value[-1])
    yield lambda: value.slice_indexer(value[0], value[-1])
    yield lambda: value.rolling(2).sum()
    yield lambda: value.resample("D").sum()
    yield lambda: value._from_sequence(list(value), dtype=value.dtype)
    if isinstance(value, pd.DataFrame) and value.size:
        yield lambda: value.iloc.__setitem__((0, 0), value.iloc[-1, 0])
    yield lambda: value + value
    yield lambda: value.dtypes
    yield lambda: value.equals(value.copy())


def _pyarrow(value: Any) -> Iterator[Callable[[], object]]:
    import pyarrow as pa
    from pyarrow import compute

    yield lambda: pa.nulls(2, value).to_pylist()
    yield lambda: pa.array([None], value)
    yield lambda: pa.schema([("a", value)]).empty_table()
    yield lambda: pa.concat_arrays([value, value])
    yield lambda: pa.concat_tables([value, value]).to_pylist()
    yield lambda: pa.Table.from_arrays([value], names=["a"]).to_pandas()
    yield lambda: [repr(value.field(at)) for at in range(value.type.num_fields)]
    yield lambda: [value.column(at).to_pylist() for at in range(value.num_columns)]
    yield lambda: value.fill_null(0)
    if "struct<>" not in str(
        getattr(value, "schema", "")
    ):  # Arrow crashes on those; see families.md
        yield lambda: value.sort_by("a")
    for name in (
        *("to_pydict", "as_py", "to_pandas", "combine_chunks", "unique", "dictionary_encode"),
        *("flatten", "drop_null", "sort", "get_total_buffer_size", "__reduce__", "to_batches"),
    ):
        yield lambda name=name: getattr(value, name)()
    yield lambda: pa.ipc.new_stream(pa.BufferOutputStream(), value.schema).write(value)
    yield lambda: value.validate(full=True)
    yield lambda: value.to_pylist()[:_BOUND]
    yield lambda: value.slice(1)
    yield lambda: value.take([0])
    yield lambda: value.filter([True] * len(value))
    yield lambda: value.to_numpy(zero_copy_only=False)
    yield lambda: value.cast("string")
    yield lambda: value.nbytes
    for function in (compute.list_flatten, compute.run_end_decode):
        yield lambda function=function: function(value)
    yield lambda: compute.is_in(value, value)
    yield lambda: compute.if_else(compute.is_valid(value), value, value)
    yield lambda: pa.repeat(value, 3).to_pylist()
    yield lambda: value.group_by(value.column_names[0]).aggregate([([], "count_all")])
    yield lambda: value.equals(value)
    yield lambda: value.schema.to_string()


def _scipy(value: Any) -> Iterator[Callable[[], object]]:
    for name in ("toarray", "sum", "nonzero", "diagonal", "max"):
        yield lambda name=name: getattr(value, name)()
    yield lambda: value @ value.T
    yield lambda: value.T @ value
    yield lambda: value.tocsr().sum_duplicates()
    yield lambda: value.tocsc().sort_indices()
    yield lambda: value.tocoo().todok()
    yield lambda: value + value
    yield lambda: value[0]
    yield lambda: value.copy().eliminate_zeros()


_OF_PACKAGES: dict[str, Callable[[Any], Iterator[Callable[[], object]]]] = {
    "numpy": _numpy,
    "pandas": _pandas,
    "pyarrow": _pyarrow,
    "scipy": _scipy,
}
