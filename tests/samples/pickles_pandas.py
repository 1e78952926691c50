"""pandas' objects in pickles: what compiled code would follow, by the rule that refuses it.

The one rule: a row differs from what its helper makes by default in what its name says. A state
that says a thing twice says it in the same way, or CPython would read something else.
"""

from __future__ import annotations

import datetime
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import xarray as xr
from dateutil import relativedelta as relative
from pandas._libs import sparse
from pandas.core.indexes import base
from pandas.core.internals import managers

from tests.pickles.forging import Called, New
from tests.samples.opcodes import build, call, name, new, pairs, raw

arrays, offsets = pd.arrays, pd.offsets
BACKED = pd.Categorical(["a"]).__reduce_ex__(5)[0]
INTERVALS = pd.arrays.IntervalArray.from_breaks([0, 1]).__reduce_ex__(5)[0]
MOMENTS = pd.DatetimeIndex([]).__reduce__()[0]
BETWEEN = pd.interval_range(0, 1).__reduce__()[0]
UNPICKLED = pd.Timestamp("2026").__reduce__()[0]
SPAN = pd.Timedelta(1).__reduce__()[0]
INDEX = base._new_Index
BLOCK = pd.DataFrame([[1]])._mgr.blocks[0].__reduce__()[0]
MANAGER = managers.BlockManager
AB, TWO = pd.CategoricalDtype(["a", "b"]), pd.RangeIndex(2)
DAYS = pd.date_range("2026", periods=4)
SPANNED = pd.DateOffset(days=1).__getstate__()
HOLIDAYS = tuple(np.arange("2026", "2126", dtype="M8[D]"))[:3000]
COLUMNS, PAIR = np.zeros((2, 3)), np.arange(2)
NARROW = pd.Series([1])


def backed(kind, *state):
    return Called(BACKED, kind, 82904607, None, state=state)


def codes(*numbers, code="i1"):
    return np.array(numbers, code)


def levels(codes_, levels_=None, names=("n",), order=None):
    fields = {"levels": levels_ or [pd.Index(["a", "b"])], "codes": codes_}
    return Called(INDEX, pd.MultiIndex, {**fields, "sortorder": order, "names": [*names]})


def masked(kind, values, mask):
    return New(kind, {"_data": values, "_mask": mask})


def sparsely(index, values, dtype=None):
    dtype = dtype or pd.SparseDtype(values.dtype, 0)
    state = {"_sparse_index": index, "_sparse_values": values, "_dtype": dtype}
    return New(arrays.SparseArray, state)


def whole(*numbers):
    return np.array(numbers, "i4")


def between(left, right, dtype=None):
    dtype = dtype or pd.IntervalDtype("int64", "right")
    state = {"_left": left, "_right": right, "_dtype": dtype}
    return Called(INTERVALS, arrays.IntervalArray, 238750788, None, state=(state,))


def ones(count):
    return np.ones(count, "f8")


def framed(*blocks, columns=2, rows=3):
    axes = [pd.RangeIndex(columns), pd.RangeIndex(rows)]
    forged = [Called(BLOCK, *block) for block in blocks]
    return New(pd.DataFrame, {"_mgr": Called(MANAGER, tuple(forged), axes), "_flags": None})


def frame_of_places(places):
    """700 bytes took seven gigabytes: one view for each of the columns of a block without rows."""
    forged = Called(BLOCK, np.empty((1 << 24, 0), "i1"), places, 2)
    return Called(MANAGER, (forged,), [pd.Index([0]), pd.RangeIndex(0)])


def plain(thing):
    """Return the opcodes of *thing* as pickle writes it."""
    return pickle.dumps(thing, 3)[2:-1]


def stated(value, **fields):
    """Return *value* with other fields in its state."""
    return New(type(value), value.__getstate__() | fields)


def parts(*items):
    """The parts of one partition of a shuffle by tasks."""
    return new("dask.dataframe.backends:ShuffleGroupResult") + pairs(*items)[1:]


def overlapping(*items):
    """A partition with rows of its neighbours, as rolling windows pass it on."""
    items = tuple(each if type(each) in (int, bytes, type(None)) else plain(each) for each in items)
    return new("dask.dataframe.rolling:CombinedOutput", items)


def date_offset(without="", /, **change):
    state = SPANNED | change
    state.pop(without, None)
    return Called(pd.DateOffset, state=state)


def held(content=PAIR, index=TWO, **inner):
    blocks = [{"values": content, "mgr_locs": slice(0, len(content), 1), **inner}]
    return [index], [content], [index], {"0.14.1": {"axes": [index], "blocks": blocks}}


def series(*state):
    manager = New(managers.SingleBlockManager, state)
    return New(pd.Series, pd.Series([1]).__getstate__() | {"_mgr": manager})


def blocked(**fields):
    """Return a series whose manager says *fields* of its blocks."""
    return series(*held()[:3], {"0.14.1": {"axes": [TWO], **fields}})


def with_layout(value, checksum):
    """Return an array that is said to have another layout in C than it has."""
    made, (kind, *_), state = value.__reduce__()
    return Called(made, kind, checksum, None, state=state)


def moments(more):
    made, (kind, known, _), state = pd.date_range("2026", periods=2).array.__reduce__()
    return Called(made, kind, known, None, state=(*state[:2], more))


def integers(**more):
    state = {"_data": np.array([1, 2]), "_mask": np.array([False, True])}
    return New(arrays.IntegerArray, state | more)


def text(ends, content=b"abc", *, kind="large_string", size=2, children=()):
    ends = np.array(ends).tobytes()
    buffers = [call("pyarrow.lib:py_buffer", raw(part)) for part in (ends, content)]
    parts = call("pyarrow.lib:type_for_alias", kind), size, 0, 0, [None, *buffers]
    children = [*children] if children is not None else None
    array = call("pyarrow.lib:_restore_array", (*parts, children, None))
    dtype = call("pandas:StringDtype", "pyarrow", name("pandas:NA"))
    return build(new("pandas.arrays:ArrowStringArray"), {"_pa_array": array, "_dtype": dtype})


def block(values, start, stop, ndim=2, step=1):
    where = call("builtins:slice", start, stop, step)
    return call("pandas._libs.internals:_unpickle_block", values, where, ndim)


def numbers(*shape):
    dtype = build(call("numpy:dtype", "f8", False, True), (3, "<", None, None, None, -1, -1, 0))
    content = raw(bytes(8 * int(np.prod(shape))))
    return call("numpy._core.numeric:_frombuffer", content, dtype, shape, "C")


def index(size, **more):
    fields = {"name": None, "start": 0, "stop": size, "step": 1, **more}
    return call("pandas.core.indexes.base:_new_Index", name("pandas:RangeIndex"), fields)


def frame(*blocks, columns=2, rows=3, **more):
    axes = [index(columns), index(rows)]
    manager = call("pandas.core.internals.managers:BlockManager", blocks, axes)
    return build(new("pandas:DataFrame"), {"_mgr": manager, **more})


# fmt: off
#: What cftime writes beside year, month and day.
CLOCK = {
    **{"hour": 0, "minute": 0, "second": 0, "microsecond": 0, "dayofwk": -1, "dayofyr": -1},
    **{"calendar": "noleap", "has_year_zero": True},
}


def moment(*date, kind="DatetimeNoLeap", **clock):
    named = name(f"cftime._cftime:{kind}")
    return call("cftime._cftime:_create_datetime", named, date or (2001, 2, 28), CLOCK | clock)


HOSTILE = {
    "pickle.global": {"a moment of a clock": moment(kind="DatetimeTAI")},
    "pickle.build-twice": {
        "a type that is built twice": build(build(new("pandas:CategoricalDtype"),
            {"categories": None, "ordered": None}), {"categories": None, "ordered": None}),
    },
    "pickle.memo": {
        "a difference that is built twice": build(build(new("dateutil.relativedelta:relativedelta"),
            plain(vars(SPANNED["_offset"]))), plain(vars(SPANNED["_offset"]))),
    },
    "pickle.arguments": {
        "parts from another dict": new("dask.dataframe.backends:ShuffleGroupResult", {}),
        "offset of a list": Called(pd.DateOffset, state=[1]),
        "span past the end": Called(SPAN, 1 << 70, 10),
        "moment past the end": Called(UNPICKLED, 1 << 70, None, None, 10),
        "frozen text": Called(type(pd.MultiIndex.from_arrays([[1]]).names), "abc"),
        "intervals of a list": Called(BETWEEN, pd.IntervalIndex, {"data": [1], "closed": "left"}),
        "categories of numbers": Called(INDEX, pd.CategoricalIndex, {"data": codes(1)}),
        "periods of moments": Called(INDEX, pd.PeriodIndex, {"data": DAYS.array}),
        "frequency of text (2)": Called(MOMENTS, pd.DatetimeIndex, {"data": DAYS.array,
            "freq": "D"}),
        "codes of floats (2)": levels([ones(1)]),
        "bounds of text": between(np.array(["a"]), np.array(["b"])),
        "periods of no frequency": backed(arrays.PeriodArray, np.dtype("i8"), codes(1, code="i8")),
        "codes without categories": backed(pd.Categorical, np.dtype("i1"), codes(0)),
        "a day that its calendar has not": moment(2001, 2, 29),
        "a moment without a day": moment(2001, 2),
        "a moment of another calendar than its class": moment(calendar="julian"),
        "a moment of no calendar": moment(kind="datetime", calendar="x" * 99),
        "a moment with one more field": moment(tzinfo=None),
        "a moment with text": moment(hour="1"),
        "a day of another week": moment(dayofwk=9),
        "a year beyond C": moment(1 << 40, 1, 1),
        "an index of numbers as one of moments": Called(
            INDEX, xr.CFTimeIndex, {"data": np.arange(3), "name": None}),
        "code past the categories": backed(pd.Categorical, AB, codes(0, 2)),
        "code before the categories": backed(pd.Categorical, AB, codes(-2)),
        "codes of floats": backed(pd.Categorical, AB, codes(0, code="f8")),
        "codes of two dimensions": backed(pd.Categorical, AB, np.zeros((1, 1), "i1")),
        # Below protocol 5, NumPy swaps them when it writes.
        "foreign codes": pickle.dumps(backed(pd.Categorical, AB, codes(0, code=">i2")), 5),
        "no category": New(pd.CategoricalDtype, {"categories": pd.Index([1, None]),
            "ordered": False}),
        "values and mask of two lengths": masked(arrays.IntegerArray, codes(1, 2), codes(1,
            code="?")),
        "mask of numbers": masked(arrays.IntegerArray, codes(1), codes(1)),
        "texts of numbers": backed(*(arrays.StringArray, pd.StringDtype("python"), np.array(["a",
            1], object))),
        "texts of bytes": backed(arrays.StringArray, pd.StringDtype("python"), np.array([b"a"])),
        "days as moments": backed(*(arrays.DatetimeArray, np.dtype("M8[D]"), np.array(["2026"],
            "M8[D]"))),
        "frequency that does not fit": backed(arrays.DatetimeArray, DAYS.dtype, DAYS.to_numpy(),
            {"_freq": offsets.Hour()}),
        "frequency of text": backed(arrays.DatetimeArray, DAYS.dtype, DAYS.to_numpy(),
            {"_freq": "5D"}),
        "periods of floats": backed(arrays.PeriodArray, pd.PeriodDtype("D"), ones(1)),
        "begun with state": Called(BACKED, pd.Categorical, 82904607, (AB, codes(0))),
        "right before left": between(codes(3, code="i8"), codes(1, code="i8")),
        "bounds of two lengths": between(codes(1, 2, code="i8"), codes(3, code="i8")),
        "bounds of two types": between(codes(1, code="i8"), ones(1) + 1),
        "wide positions": sparsely(Called(sparse.IntIndex, 3, codes(0, code="i8")), ones(1)),
        "arrow of a list": New(arrays.ArrowExtensionArray, {"_pa_array": [1],
            "_dtype": pd.ArrowDtype(pa.int64())}),
        "code past the level": levels([codes(0, 2)]),
        "code before the level": levels([codes(-2)]),
        "codes of two lengths": levels([codes(0), codes(0, 1)], [pd.Index(["a"])] * 2, ("a", "b")),
        "level of levels": levels([codes(0)], [pd.MultiIndex.from_arrays([[1]])]),
        "order of text": levels([codes(0)], order="1"),
        "frequency": Called(MOMENTS, pd.DatetimeIndex, {"data": DAYS.array,
            "freq": offsets.Hour()}),
        "moments of numbers": Called(MOMENTS, pd.DatetimeIndex, {"data": codes(1, code="i8")}),
        "intervals backwards": Called(BETWEEN, pd.IntervalIndex, {"left": TWO + 5, "right": TWO,
            "closed": "left"}),
        "intervals of two types": Called(BETWEEN, pd.IntervalIndex, {"left": TWO, "right": DAYS[:2],
            "closed": "left"}),
        "intervals of two widths": Called(*(BETWEEN, pd.IntervalIndex), {"left": TWO.astype("i8"),
            "right": pd.Index([9, 9], dtype="f8"), "closed": "left"}),
        "resolution": Called(UNPICKLED, 0, None, None, 3),
        "moment with a frequency": Called(UNPICKLED, 0, "D", None, 10),
        "period of a value": Called(pd.Period, "2026", offsets.Day(), 1),
        "period past the end": Called(pd.Period, None, offsets.Day(), 1 << 63),
        "interval backwards": Called(pd.Interval, 2, 1, "left"),
        "open interval": Called(pd.Interval, 0, 1, "open"),
        "offset by float": Called(offsets.Day, 1.5, False),
        "weekday": Called(offsets.Week, 1, False, 9),
        "unknown field": Called(pd.DateOffset, state={"n": 1, "__class__": 1}),
        "CPython's reader would be told that an argument is missing": call(
            "pandas._libs.tslibs.timedeltas:_timedelta_unpickle", 5),
    },
    "pickle.arrow": {
        "text of numbers": New(arrays.ArrowStringArray, {"_pa_array": pa.array([1]),
            "_dtype": pd.StringDtype("pyarrow")}),
    },
    "pickle.collisions": {
        "objects that share one hash": Called(INDEX, pd.Index,
            {"data": np.array([n * ((1 << 61) - 1) for n in range(1, 200)], object)}),
    },
    "pickle.dtype": {
        "bounds of another type": between(ones(1), ones(1) + 1),
        "wrapped as another type": backed(arrays.NumpyExtensionArray,
            arrays.NumpyExtensionArray(ones(1)).dtype, codes(1)),
        "codes without an order": backed(pd.Categorical, pd.CategoricalDtype(["a", "b"],
            ordered=None), codes(0)),
        "spans as moments": backed(*(arrays.DatetimeArray, np.dtype("M8[ns]"), np.array([1],
            "m8[ns]"))),
        "sparse of another type": sparsely(Called(sparse.IntIndex, 3, whole(0)), ones(1),
            pd.SparseDtype("i8", 0)),
        "arrow of another name": New(arrays.ArrowExtensionArray, {"_pa_array": pa.array([[1]]),
            "_dtype": pd.ArrowDtype(pa.list_(pa.field("other", pa.int64())))}),
    },
    "pickle.max-memory": {
        "the same holidays again and again": [Called(offsets.CDay, 1, False, "1111100", HOLIDAYS)
            for _ in range(50)],
        "many holidays": Called(offsets.CDay, 1, False, "1111100", (1,) * 100_001),
        "the same labels again and again": levels([codes(0)] * 900,
            [pd.Index(np.arange(100_000)[::-1].copy())] * 900, ["n"] * 900),
        "more labels in a range than anybody holds": New(pd.CategoricalDtype,
            {"categories": pd.RangeIndex(1 << 27), "ordered": False}),
    },
    "pickle.shape": {
        "columns without rows": frame_of_places(slice(0, 1 << 24, 1)),
        "columns past those there are": frame_of_places(slice(0, 1, 1)),
        "more positions": sparsely(Called(sparse.IntIndex, 3, whole(0, 1)), ones(1)),
        "negative sparse": sparsely(Called(sparse.IntIndex, -1, whole()), ones(0)),
        "endless sparse": sparsely(Called(sparse.IntIndex, 1 << 40, whole(0)), ones(1)),
        "level without codes": levels([]),
        "level without name": levels([codes(0)], names=()),
        "two dimensions": Called(INDEX, pd.Index, {"data": np.zeros((2, 2))}),
    },
    "pickle.state": {
        "number type with state": New(pd.Int64Dtype, {"type": 1}),
        "arrow type that remembers wrongly": New(pd.ArrowDtype, {"_storage": "pyarrow",
            "pyarrow_dtype": pa.int64(), "_cache": {"kind": "f"}}),
        "half a type": New(pd.CategoricalDtype, {"categories": TWO}),
        "further state": backed(arrays.DatetimeArray, DAYS.dtype, DAYS.to_numpy(), {"_x": 1}),
        "fourth part": backed(arrays.DatetimeArray, DAYS.dtype, DAYS.to_numpy(), {}, {}),
        "arrow type kept elsewhere": New(pd.ArrowDtype, {"_storage": "python",
            "pyarrow_dtype": pa.int64()}),
        "further field": Called(INDEX, pd.RangeIndex, {"start": 0, "stop": 1, "step": 1, "x": 1}),
        "weekday of more": New(relative.weekday, (None, {"weekday": 0, "n": 1, "x": 1})),
    },
    "pickle.time-zone": {
        "zone of text": New(pd.DatetimeTZDtype, {"unit": "ns", "tz": "../../etc/passwd"}),
    },
    "pickle.unhashable": {
        "name of a list": levels([codes(0)], names=([],)),
        "unhashable label": Called(INDEX, pd.Index, {"data": np.array([1, [2]], object)}),
    },
    "value.column": {
        "structures": Called(INDEX, pd.Index, {"data": np.zeros(2, [("a", "i4")])}),
    },
    "value.dtype": {
        "missing": Called(pd.StringDtype, "python", 0.0),
        "sparse structures": New(pd.SparseDtype, {"_dtype": np.dtype([("a", "i8")]),
            "_fill_value": 0}),
        "filled with a list": New(pd.SparseDtype, {"_dtype": np.dtype("f8"), "_fill_value": [1]}),
        "types of intervals": New(pd.IntervalDtype, {"subtype": np.dtype("M8[7s]"),
            "closed": "left"}),
        "ordered by number": New(pd.CategoricalDtype, {"categories": TWO, "ordered": 1}),
        "categories of a list": New(pd.CategoricalDtype, {"categories": ["a"], "ordered": False}),
        "closed in the middle": New(pd.IntervalDtype, {"subtype": np.dtype("i8"),
            "closed": "middle"}),
        "no zone": New(pd.DatetimeTZDtype, {"unit": "ns", "tz": None}),
        "storage": Called(pd.StringDtype, "other"),
    },
    "value.freq": {
        "a frequency over many moments": Called(MOMENTS, pd.DatetimeIndex,
            {"data": pd.array(np.zeros(1_000_000, "M8[ns]")), "freq": offsets.BDay()}),
    },
    "value.index": {
        "level of a list": levels([codes(0)], [["a"]]),
        "no step": Called(INDEX, pd.RangeIndex, {"start": 0, "stop": 1, "step": 0}),
    },
    "value.interval": {
        "interval of text": Called(pd.Interval, "a", "b", "left"),
    },
    "value.labels": {
        "category twice": New(pd.CategoricalDtype, {"categories": pd.Index(["a", "a"]),
            "ordered": False}),
    },
    "value.offset": {
        "weekday of days": New(relative.relativedelta, {"weekday": "MO"}),
        "long mask": Called(offsets.CDay, 1, False, "1" * 1000, [], None),
        "huge month": Called(offsets.YearEnd, 1, False, 1 << 40),
        "business days": Called(offsets.BDay, 1 << 40, False),
        "holidays in a list": Called(offsets.CDay, 1, False, "1111100", [1]),
        "a set of starts": Called(offsets.BusinessHour, 1, False, {1}),
        "weekday of seven": New(relative.weekday, (None, {"weekday": 7, "n": 1})),
    },
    "value.period": {
        "period of text": Called(pd.Period, None, "D", 1),
    },
    "value.sparse": {
        "sparse before the start": sparsely(Called(sparse.IntIndex, 3, whole(-1)), ones(1)),
        "sparse past the end": sparsely(Called(sparse.IntIndex, 3, whole(3)), ones(1)),
        "sparse twice": sparsely(Called(sparse.IntIndex, 3, whole(1, 1)), ones(2)),
        "overlapping blocks": sparsely(Called(sparse.BlockIndex, 9, whole(0, 1), whole(2, 1)),
            ones(3)),
        "block past the end": sparsely(Called(sparse.BlockIndex, 3, whole(1), whole(9)), ones(9)),
        "block that overflows": sparsely(Called(sparse.BlockIndex, 9, whole(5),
            whole((1 << 31) - 1)), ones(1)),
        "empty block": sparsely(Called(sparse.BlockIndex, 9, whole(5), whole(0)), ones(0)),
        "blocks of two lengths": sparsely(Called(sparse.BlockIndex, 9, whole(1), whole()), ones(1)),
    },
}

#: Of these, the arguments say what is wrong.
UNNAMED = {
    "pickle.arguments": [
        overlapping(1, 2, None), overlapping(NARROW, 2), overlapping(NARROW, 2, None, 3),
        overlapping(NARROW, 2, b"\x88"),
        new("dask.dataframe.rolling:CombinedOutput", [1]),
        text([0, 1, 1 << 40], b"abc"), text([0, -8, 1], b"abc"), text([2, 1, 0], b"abc"),
        text([0, 1], b"abc"), text([0, 1, 3], b"\xff\xff\xff"),
        text([0, 1, 3], b"abc", children=None), frame(block([], 0, 1), columns=1), frame(None),
        frame(block(numbers(2, 3), 0, 2), attrs=[]), build(new("pandas:DataFrame"), {"_mgr": None}),
        build(new("pandas:Series"), {"_mgr": []}),
        build(new("pandas.arrays:ArrowStringArray"), {"_pa_array": None,
            "_dtype": call("pandas:StringDtype", "pyarrow")}),
        call("pandas._libs.arrays:__pyx_unpickle_NDArrayBacked", None, None, None),
        build(call("pandas._libs.arrays:__pyx_unpickle_NDArrayBacked",
            name("pandas.arrays:DatetimeArray"), None, None), (None, numbers(1), {})),
        call("pandas._libs.tslibs.nattype:_nat_unpickle", 1), Called(pd.PeriodDtype, "period[ZZ]"),
        Called(pd.PeriodDtype, "D"),
        framed((COLUMNS, [0, 1], 2)), framed(("text", slice(0, 2), 2)), date_offset(n=2.0),
        date_offset(_cache=[1]), date_offset("n"), date_offset("normalize"),
        series(*held(mgr_locs=slice(0, 2, None))), series(*held(mgr_locs=slice(False, 2, 1))),
        series(*held(mgr_locs=np.arange(2))), blocked(blocks=[]), with_layout(DAYS.array, True),
        with_layout(pd.interval_range(0, 2).array, True), moments({"_readonly": 1}),
        moments({"_cache": []}), integers(_readonly=None),
        stated(pd.DataFrame([[1, 2]]), _flags={}), stated(pd.DataFrame([[1, 2]]), _flags=[1]),
    ],
    "pickle.arrow": [text([0, 1, 3], b"abc", kind="large_binary")],
    "pickle.dtype": [
        moments({"_dtype": np.dtype("M8[s]")}), moments({"_dtype": ("M8", "us")}),
        integers(_dtype=pd.Int8Dtype()),
    ],
    "pickle.global": [
        Called(pd.read_pickle, "x"), Called(pd.eval, "1"), Called(pd.DataFrame, {"a": [1]}),
        Called(pd.Index, [1]), Called(pa.memory_map, "x"),
        Called(pd.tseries.frequencies.to_offset, "D"),
        build(parts(0, 1), {"keys": 1}), call("dask.dataframe.backends:ShuffleGroupResult", {}),
        build(overlapping(NARROW, 2, None), {"a": 1}),
        call("dask.dataframe.rolling:CombinedOutput", ()),
    ],
    "pickle.shape": [
        frame(block(numbers(1, 3), 0, 1)), frame(block(numbers(2, 3), 1, 3)),
        frame(block(numbers(2, 3), 0, 1 << 40)), frame(*[block(numbers(2, 3), 0, 2)] * 2),
        frame(block(numbers(2, 4), 0, 2)), frame(block(numbers(2, 3, 1), 0, 2)),
        frame(block(numbers(2, 3), -2, 0)),
        call("pandas.core.internals.managers:BlockManager", (), [None, None]),
        framed((COLUMNS, np.array([0, 0]), 2)), framed((COLUMNS, np.array([0, 2]), 2)),
        framed((COLUMNS, np.array([0, -1]), 2)), framed((COLUMNS, np.array([0.0, 1.0]), 2)),
        framed((COLUMNS, slice(0, None), 2)), framed((COLUMNS, slice(0, 2), 1)),
        framed((COLUMNS[0], slice(0, 1), 2)),
        framed((arrays.NumpyExtensionArray(ones(3)), slice(0, 1), 2), (COLUMNS[:1], slice(1, 2),
            2)),
        framed(), series(*held(mgr_locs=slice(0, 1, 1))),
    ],
    "pickle.state": [
        frame(block(numbers(2, 3), 0, 2), _flags={"x": None}),
        build(new("pandas.core.internals.managers:SingleBlockManager"), ([index(2)], [numbers(3)],
            [], {})),
        index(3, data=[]), date_offset(days=2), date_offset(_use_relativedelta=1),
        date_offset(_offset=datetime.timedelta(1)), date_offset("_offset"),
        series(*held(values=PAIR + 1)), series(*held(more=1)), series(*held()[:3], {}), blocked(),
        blocked(blocks=[{"values": PAIR}]), series(*held()[:3], {**held()[3], "0.14.2": {}}),
        series([pd.RangeIndex(1, 3)], *held()[1:]), series([TWO], [PAIR + 1], *held()[2:]),
        series([TWO], [PAIR], [pd.RangeIndex(3)], held()[3]), moments({"_cache": {"unit": "s"}}),
        moments({"_freq": None, "other": 1}), integers(_cache={"dtype": pd.Int8Dtype()}),
        New(pd.Int64Dtype, {"_cache": {"itemsize": 4}}), stated(pd.Series([1], name="a"), name="b"),
        stated(pd.DataFrame({"a": [1]}), _name="b"), stated(pd.Series([1]), _typ=None),
        stated(pd.Series([1]), sum=None), stated(pd.DataFrame({"a": [1]}), other=None),
        stated(pd.DataFrame([[1, 2]]), _flags={"other": True}),
        stated(pd.DataFrame([[1, 2]]), _metadata=["_name"]),
        New(pd.Series, pd.DataFrame([[1, 2]]).__getstate__()),
    ],
    "pickle.time-zone": [call("pandas._libs.tslibs.timestamps:_unpickle_timestamp", 0, None, 5)],
    "pickle.unfinished": [
        new("pandas:DataFrame"), overlapping(new("pandas:DataFrame"), 2, None),
        overlapping(NARROW, new("pandas:DataFrame"), None),
    ],
    "pickle.unhashable": [index(3, name=[]), parts([], 1)],
    "pickle.version": [
        *(with_layout(made, checksum) for made in (DAYS.array, pd.interval_range(0, 2).array)
            for checksum in (0, -1, 82904607 + 128, 1 << 40, 1 << 80)),
    ],
    "value.arrow": [
        text([0, 1, 3], b"abc", size=1 << 62),
    ],
    "value.column": [
        framed((arrays.NumpyExtensionArray(COLUMNS), slice(0, 2), 2)),
        framed((np.zeros((2, 3), "M8[25s]"), slice(0, 2), 2)),
    ],
    "value.index": [frame(columns=1 << 40), index(1 << 62)],
    "value.labels": [
        levels([codes(0)], [pd.Index([2, 1, 2])]),
        levels([codes(0)], [pd.Index([np.nan, 1.0, np.nan])]),
        levels([codes(0)], [pd.Index(np.array(["NaT", "NaT"], "M8[s]"))]),
        stated(pd.DataFrame([[1, 2]], columns=["a", "a"]),
            _flags={"allows_duplicate_labels": False}),
    ],
    "value.offset": [date_offset(days=True), date_offset(dys=1)],
    "value.period": [
        Called(pd.PeriodDtype,
            "period[" + "9" * 100 + "D]"), Called(pd.PeriodDtype, "period[(((a+)+)+)+$]"),
        Called(pd.PeriodDtype, "period[99999D]"), Called(pd.PeriodDtype, "period[0D]"),
        Called(pd.PeriodDtype, "period[1D1h]"),
    ],
}

#: What the helpers make by default, and older forms.
ACCEPTED = [
    backed(pd.Categorical, AB, codes(0, 1, -1)), levels([codes(0, -1)]), series(*held()),
    masked(arrays.IntegerArray, codes(1), codes(1, code="?")), date_offset(), integers(),
    sparsely(Called(sparse.BlockIndex, 9, whole(0, 4), whole(2, 1)), ones(3)), moments({}),
    between(codes(1, code="i8"), codes(2, code="i8")),
    text([0, 1, 3]), index(3),
    integers(_cache={"dtype": pd.Int64Dtype()}), New(pd.Int64Dtype, {"_cache": {"itemsize": 8}}),
    stated(pd.Series([1], name="a")), stated(pd.DataFrame({"a": [1]})),
    parts(0, "a frame", 1, None),
    *(overlapping(made, 2, None) for made in (pd.DataFrame({"a": [1]}), pd.Series([1], name="a"))),
]

#: What the installed library cannot read any more, or what cannot be compared.
OLDER = [
    with_layout(DAYS.array, 82904607),
    framed((COLUMNS, np.array([1, 0]), 2)), framed((COLUMNS, slice(1, None, -1), 2)),
    framed((COLUMNS, slice(0, 2), 2)), frame(block(numbers(2, 3), 0, 2)),
    framed((COLUMNS, slice(0, 9, 5), 2), (np.ones((4, 3)), np.arange(1, 5), 2), columns=6),
    New(pd.StringDtype, {"storage": "python"}), Called(pd.StringDtype, "pyarrow_numpy"),
    # Times in one dimension are a block too.
    framed((backed(arrays.DatetimeArray, DAYS.dtype, DAYS.to_numpy()[:3]), slice(0, 1), 2),
        (COLUMNS[:1], slice(1, 2), 2)),
    # pandas 2 wrote these so.
    Called(MOMENTS, pd.DatetimeIndex, {"data": backed(arrays.DatetimeArray, DAYS.to_numpy(),
        DAYS.dtype, {"_freq": DAYS.freq})}),
    Called(BETWEEN, pd.IntervalIndex, {"data": arrays.IntervalArray.from_breaks([0, 1]),
        "closed": "right"}),
]
# fmt: on
