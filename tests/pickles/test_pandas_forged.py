"""Forged pandas pickles: what compiled code would follow or trust is refused before it is made."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest

from safeser.errors import PayloadError, SafeserError
from safeser.pickles import loads
from tests.pickles.forging import PROFILE, Called, New, opened

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
relative = pytest.importorskip("dateutil.relativedelta")
base = pytest.importorskip("pandas.core.indexes.base")
arrays, sparse, offsets = pd.arrays, pytest.importorskip("pandas._libs.sparse"), pd.offsets

BACKED = pd.Categorical(["a"]).__reduce_ex__(5)[0]
INTERVALS = pd.arrays.IntervalArray.from_breaks([0, 1]).__reduce_ex__(5)[0]
MOMENTS, SPANS = (kind([]).__reduce__()[0] for kind in (pd.DatetimeIndex, pd.TimedeltaIndex))
BETWEEN = pd.interval_range(0, 1).__reduce__()[0]
UNPICKLED = pd.Timestamp("2026").__reduce__()[0]
SPAN = pd.Timedelta(1).__reduce__()[0]
INDEX = base._new_Index
AB, TWO = pd.CategoricalDtype(["a", "b"]), pd.RangeIndex(2)
DAYS = pd.date_range("2026", periods=4)


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


ARRAYS = {
    "code past the categories": backed(pd.Categorical, AB, codes(0, 2)),
    "code before the categories": backed(pd.Categorical, AB, codes(-2)),
    "codes of floats": backed(pd.Categorical, AB, codes(0, code="f8")),
    "codes of two dimensions": backed(pd.Categorical, AB, np.zeros((1, 1), "i1")),
    "foreign codes": backed(pd.Categorical, AB, codes(0, code=">i2")),
    "codes without an order": backed(
        pd.Categorical, pd.CategoricalDtype(["a", "b"], ordered=None), codes(0)
    ),
    "codes without categories": backed(pd.Categorical, np.dtype("i1"), codes(0)),
    "category twice": New(
        pd.CategoricalDtype, {"categories": pd.Index(["a", "a"]), "ordered": False}
    ),
    "no category": New(pd.CategoricalDtype, {"categories": pd.Index([1, None]), "ordered": False}),
    "categories of a list": New(pd.CategoricalDtype, {"categories": ["a"], "ordered": False}),
    "ordered by number": New(pd.CategoricalDtype, {"categories": TWO, "ordered": 1}),
    "half a type": New(pd.CategoricalDtype, {"categories": TWO}),
    "values and mask of two lengths": masked(arrays.IntegerArray, codes(1, 2), codes(1, code="?")),
    "mask of numbers": masked(arrays.IntegerArray, codes(1), codes(1)),
    "floats as integers": masked(arrays.IntegerArray, ones(1), codes(1, code="?")),
    "objects as floats": masked(arrays.FloatingArray, np.array([1], object), codes(1, code="?")),
    "long floats": masked(arrays.FloatingArray, np.ones(1, "g"), codes(1, code="?")),
    "texts of numbers": backed(
        *(arrays.StringArray, pd.StringDtype("python"), np.array(["a", 1], object))
    ),
    "texts of bytes": backed(arrays.StringArray, pd.StringDtype("python"), np.array([b"a"])),
    "days as moments": backed(
        *(arrays.DatetimeArray, np.dtype("M8[D]"), np.array(["2026"], "M8[D]"))
    ),
    "25 seconds": backed(
        *(arrays.DatetimeArray, np.dtype("M8[25s]"), np.array(["2026"], "M8[25s]"))
    ),
    "numbers as moments": backed(arrays.DatetimeArray, np.dtype("M8[ns]"), codes(1, code="i8")),
    "spans as moments": backed(
        *(arrays.DatetimeArray, np.dtype("M8[ns]"), np.array([1], "m8[ns]"))
    ),
    "moments of three dimensions": backed(
        *(arrays.DatetimeArray, np.dtype("M8[ns]"), np.zeros((1, 1, 1), "M8[ns]"))
    ),
    "zone of another unit": backed(
        *(arrays.DatetimeArray, pd.DatetimeTZDtype("s", "UTC"), np.zeros(1, "M8[ns]"))
    ),
    "frequency that does not fit": backed(
        arrays.DatetimeArray, DAYS.dtype, DAYS.to_numpy(), {"_freq": offsets.Hour()}
    ),
    "frequency of text": backed(arrays.DatetimeArray, DAYS.dtype, DAYS.to_numpy(), {"_freq": "5D"}),
    "further state": backed(arrays.DatetimeArray, DAYS.dtype, DAYS.to_numpy(), {"_x": 1}),
    "fourth part": backed(arrays.DatetimeArray, DAYS.dtype, DAYS.to_numpy(), {}, {}),
    "periods of floats": backed(arrays.PeriodArray, pd.PeriodDtype("D"), ones(1)),
    "periods of no frequency": backed(arrays.PeriodArray, np.dtype("i8"), codes(1, code="i8")),
    "wrapped as another type": backed(
        arrays.NumpyExtensionArray, arrays.NumpyExtensionArray(ones(1)).dtype, codes(1)
    ),
    "begun otherwise": Called(BACKED, pd.Categorical, "1", None, state=(AB, codes(0))),
    "begun with state": Called(BACKED, pd.Categorical, 82904607, (AB, codes(0))),
    "right before left": between(codes(3, code="i8"), codes(1, code="i8")),
    "bounds of two lengths": between(codes(1, 2, code="i8"), codes(3, code="i8")),
    "bounds of two types": between(codes(1, code="i8"), ones(1) + 1),
    "bounds of another type": between(ones(1), ones(1) + 1),
    "bounds of text": between(np.array(["a"]), np.array(["b"])),
    "types of intervals": New(pd.IntervalDtype, {"subtype": np.dtype("M8[7s]"), "closed": "left"}),
    "closed in the middle": New(pd.IntervalDtype, {"subtype": np.dtype("i8"), "closed": "middle"}),
    "sparse before the start": sparsely(Called(sparse.IntIndex, 3, whole(-1)), ones(1)),
    "sparse past the end": sparsely(Called(sparse.IntIndex, 3, whole(3)), ones(1)),
    "sparse unsorted": sparsely(Called(sparse.IntIndex, 3, whole(1, 0)), ones(2)),
    "sparse twice": sparsely(Called(sparse.IntIndex, 3, whole(1, 1)), ones(2)),
    "more positions": sparsely(Called(sparse.IntIndex, 3, whole(0, 1)), ones(1)),
    "negative sparse": sparsely(Called(sparse.IntIndex, -1, whole()), ones(0)),
    "endless sparse": sparsely(Called(sparse.IntIndex, 1 << 40, whole(0)), ones(1)),
    "large sparse": sparsely(Called(sparse.IntIndex, (1 << 30) - 1, whole(0)), ones(1)),
    "wide positions": sparsely(Called(sparse.IntIndex, 3, codes(0, code="i8")), ones(1)),
    "overlapping blocks": sparsely(Called(sparse.BlockIndex, 9, whole(0, 1), whole(2, 1)), ones(3)),
    "block past the end": sparsely(Called(sparse.BlockIndex, 3, whole(1), whole(9)), ones(9)),
    "block that overflows": sparsely(
        Called(sparse.BlockIndex, 9, whole(5), whole((1 << 31) - 1)), ones(1)
    ),
    "empty block": sparsely(Called(sparse.BlockIndex, 9, whole(5), whole(0)), ones(0)),
    "blocks of two lengths": sparsely(Called(sparse.BlockIndex, 9, whole(1), whole()), ones(1)),
    "sparse of another type": sparsely(
        Called(sparse.IntIndex, 3, whole(0)), ones(1), pd.SparseDtype("i8", 0)
    ),
    "filled with a list": New(pd.SparseDtype, {"_dtype": np.dtype("f8"), "_fill_value": [1]}),
    "filled with text": New(pd.SparseDtype, {"_dtype": np.dtype("f8"), "_fill_value": "x"}),
    "sparse structures": New(pd.SparseDtype, {"_dtype": np.dtype([("a", "i8")]), "_fill_value": 0}),
    "arrow of another type": New(
        arrays.ArrowExtensionArray,
        {"_pa_array": pa.array([1]), "_dtype": pd.ArrowDtype(pa.string())},
    ),
    "text of numbers": New(
        arrays.ArrowStringArray, {"_pa_array": pa.array([1]), "_dtype": pd.StringDtype("pyarrow")}
    ),
    "arrow of a list": New(
        arrays.ArrowExtensionArray, {"_pa_array": [1], "_dtype": pd.ArrowDtype(pa.int64())}
    ),
    "arrow of another name": New(
        arrays.ArrowExtensionArray,
        {
            "_pa_array": pa.array([[1]]),
            "_dtype": pd.ArrowDtype(pa.list_(pa.field("other", pa.int64()))),
        },
    ),
    "arrow type kept elsewhere": New(
        pd.ArrowDtype, {"_storage": "python", "pyarrow_dtype": pa.int64()}
    ),
    "arrow type that remembers wrongly": New(
        pd.ArrowDtype,
        {"_storage": "pyarrow", "pyarrow_dtype": pa.int64(), "_cache": {"kind": "f"}},
    ),
    "interval type that remembers wrongly": New(
        pd.IntervalDtype, {"subtype": None, "closed": "left", "_cache": {"_can_hold_na": False}}
    ),
    "arrow type of text": New(pd.ArrowDtype, {"_storage": "pyarrow", "pyarrow_dtype": "int64"}),
    "zone of text": New(pd.DatetimeTZDtype, {"unit": "ns", "tz": "../../etc/passwd"}),
    "no zone": New(pd.DatetimeTZDtype, {"unit": "ns", "tz": None}),
    "no unit": New(pd.DatetimeTZDtype, {"unit": "D", "tz": None}),
    "number type with state": New(pd.Int64Dtype, {"type": 1}),
    "storage": Called(pd.StringDtype, "other"),
    "missing": Called(pd.StringDtype, "python", 0.0),
    "missing text": Called(pd.StringDtype, "python", "nan"),
    "unknown subtype": New(pd.IntervalDtype, {"subtype": np.dtype("S3"), "closed": "left"}),
    "texts of two dimensions": backed(
        *(arrays.StringArray, pd.StringDtype("python"), np.array([["a"]], object))
    ),
}
FREQUENCIES = ["period[" + "9" * 100 + "D]", "period[(((a+)+)+)+$]", "period[D", "D", "period[]"]
FREQUENCIES += ["period[99999D]", "period[0D]", "period[-1D]", "period[1D1h]", "period[ZZ]"]

INDEXES = {
    "code past the level": levels([codes(0, 2)]),
    "code before the level": levels([codes(-2)]),
    "codes of two lengths": levels([codes(0), codes(0, 1)], [pd.Index(["a"])] * 2, ("a", "b")),
    "level without codes": levels([]),
    "level without name": levels([codes(0)], names=()),
    "level of a list": levels([codes(0)], [["a"]]),
    "label twice in a level": levels([codes(0)], [pd.Index(["a", "a"])]),
    "number twice in a level": levels([codes(0)], [pd.Index([1, 1])]),
    "level of levels": levels([codes(0)], [pd.MultiIndex.from_arrays([[1]])]),
    "name of a list": levels([codes(0)], names=([],)),
    "sorted by what is not": levels([codes(1, 0)], order=1),
    "order of text": levels([codes(0)], order="1"),
    "codes of floats": levels([ones(1)]),
    "frequency": Called(MOMENTS, pd.DatetimeIndex, {"data": DAYS.array, "freq": offsets.Hour()}),
    "frequency of text": Called(MOMENTS, pd.DatetimeIndex, {"data": DAYS.array, "freq": "D"}),
    "moments of numbers": Called(MOMENTS, pd.DatetimeIndex, {"data": codes(1, code="i8")}),
    "spans of moments": Called(
        SPANS, pd.TimedeltaIndex, {"data": DAYS.array, "freq": offsets.Hour()}
    ),
    "periods of moments": Called(INDEX, pd.PeriodIndex, {"data": DAYS.array}),
    "categories of numbers": Called(INDEX, pd.CategoricalIndex, {"data": codes(1)}),
    "intervals backwards": Called(
        BETWEEN, pd.IntervalIndex, {"left": TWO + 5, "right": TWO, "closed": "left"}
    ),
    "intervals of two types": Called(
        BETWEEN, pd.IntervalIndex, {"left": TWO, "right": DAYS[:2], "closed": "left"}
    ),
    "intervals of two widths": Called(
        *(BETWEEN, pd.IntervalIndex),
        {"left": TWO.astype("i8"), "right": pd.Index([9, 9], dtype="f8"), "closed": "left"},
    ),
    "unhashable label": Called(INDEX, pd.Index, {"data": np.array([1, [2]], object)}),
    "two dimensions": Called(INDEX, pd.Index, {"data": np.zeros((2, 2))}),
    "structures": Called(INDEX, pd.Index, {"data": np.zeros(2, [("a", "i4")])}),
    "odd times": Called(INDEX, pd.Index, {"data": np.zeros(2, "M8[25s]")}),
    "further field": Called(INDEX, pd.RangeIndex, {"start": 0, "stop": 1, "step": 1, "x": 1}),
    "endless": Called(INDEX, pd.RangeIndex, {"start": 0, "stop": 1 << 40, "step": 1}),
    "no step": Called(INDEX, pd.RangeIndex, {"start": 0, "stop": 1, "step": 0}),
    "intervals of a list": Called(BETWEEN, pd.IntervalIndex, {"data": [1], "closed": "left"}),
    "frozen text": Called(type(pd.MultiIndex.from_arrays([[1]]).names), "abc"),
}


@pytest.mark.parametrize("forged", ARRAYS.values(), ids=ARRAYS)
def test_forged_arrays_are_refused(forged):
    with pytest.raises(PayloadError):
        opened(forged)


@pytest.mark.parametrize("forged", INDEXES.values(), ids=INDEXES)
def test_forged_indexes_are_refused(forged):
    with pytest.raises(PayloadError):
        opened(forged)


@pytest.mark.parametrize("text", FREQUENCIES)
def test_frequencies_are_of_one_short_form(text):
    with pytest.raises(PayloadError):
        opened(Called(pd.PeriodDtype, text))


def test_the_recipes_make_what_they_say():
    assert opened(backed(pd.Categorical, AB, codes(0, 1, -1))).tolist()[:2] == ["a", "b"]
    assert opened(levels([codes(0, -1)])).nlevels == 1
    assert opened(masked(arrays.IntegerArray, codes(1), codes(1, code="?"))).isna().all()
    index = Called(sparse.BlockIndex, 9, whole(0, 4), whole(2, 1))
    assert len(opened(sparsely(index, ones(3)))) == 9
    assert opened(between(codes(1, code="i8"), codes(2, code="i8")))[0] == pd.Interval(1, 2)


VALUES = {
    "resolution": Called(UNPICKLED, 0, None, None, 3),
    "moment past the end": Called(UNPICKLED, 1 << 70, None, None, 10),
    "moment with a frequency": Called(UNPICKLED, 0, "D", None, 10),
    "zone of text": Called(UNPICKLED, 0, None, "UTC", 10),
    "span past the end": Called(SPAN, 1 << 70, 10),
    "period of text": Called(pd.Period, None, "D", 1),
    "period of a value": Called(pd.Period, "2026", offsets.Day(), 1),
    "period past the end": Called(pd.Period, None, offsets.Day(), 1 << 63),
    "period of weeks of business": Called(pd.Period, None, offsets.BusinessHour(), 1),
    "interval backwards": Called(pd.Interval, 2, 1, "left"),
    "interval of text": Called(pd.Interval, "a", "b", "left"),
    "interval past the end": Called(pd.Interval, 0, 1 << 2000, "left"),
    "open interval": Called(pd.Interval, 0, 1, "open"),
    "business days": Called(offsets.BDay, 1 << 40, False),
    "days past the end": Called(offsets.Nano, 1 << 64, False),
    "offset by float": Called(offsets.Day, 1.5, False),
    "normalized by number": Called(offsets.MonthEnd, 1, 1),
    "month 13": Called(offsets.YearEnd, 1, False, 13),
    "huge month": Called(offsets.YearEnd, 1, False, 1 << 40),
    "weekday": Called(offsets.Week, 1, False, 9),
    "long mask": Called(offsets.CDay, 1, False, "1" * 1000, [], None),
    "holidays in a list": Called(offsets.CDay, 1, False, "1111100", [1]),
    "many holidays": Called(offsets.CDay, 1, False, "1111100", (1,) * 100_001),
    "a set of starts": Called(offsets.BusinessHour, 1, False, {1}),
    "unknown field": Called(pd.DateOffset, state={"n": 1, "__class__": 1}),
    "many years": Called(pd.DateOffset, state={"years": 1 << 40}),
    "float years": Called(pd.DateOffset, state={"years": 1.5}),
    "offset by text": Called(pd.DateOffset, state={"n": "1"}),
    "weekday of seven": New(relative.weekday, (None, {"weekday": 7, "n": 1})),
    "weekday of more": New(relative.weekday, (None, {"weekday": 0, "n": 1, "x": 1})),
    "weekday of days": New(relative.relativedelta, {"weekday": "MO"}),
    "offset of a list": Called(pd.DateOffset, state=[1]),
}


@pytest.mark.parametrize("forged", VALUES.values(), ids=VALUES)
def test_forged_values_are_refused(forged):
    with pytest.raises(PayloadError):
        opened(forged)


BLOCK = pd.DataFrame([[1]])._mgr.blocks[0].__reduce__()[0]
MANAGER = type(pd.DataFrame([[1]])._mgr)
COLUMNS = np.zeros((2, 3))


def framed(*blocks, columns=2, rows=3):
    axes = [pd.RangeIndex(columns), pd.RangeIndex(rows)]
    forged = [Called(BLOCK, *block) for block in blocks]
    state = {"_mgr": Called(MANAGER, tuple(forged), axes), "_flags": None}
    return New(pd.DataFrame, state)


def test_columns_lie_anywhere_once():
    for places in (np.array([1, 0]), slice(1, None, -1), slice(0, 2)):
        assert opened(framed((COLUMNS, places, 2))).shape == (3, 2)
    rest = np.ones((4, 3)), np.arange(1, 5), 2
    assert opened(framed((COLUMNS, slice(0, 9, 5), 2), rest, columns=6)).shape == (3, 6)


@pytest.mark.parametrize(
    "blocks",
    [
        [(COLUMNS, np.array([0, 0]), 2)],
        [(COLUMNS, np.array([0, 2]), 2)],
        [(COLUMNS, np.array([0, -1]), 2)],
        [(COLUMNS, np.array([[0, 1]]), 2)],
        [(COLUMNS, np.array([0.0, 1.0]), 2)],
        [(COLUMNS, [0, 1], 2)],
        [(COLUMNS, slice(None, 2), 2)],
        [(COLUMNS, slice(0, None), 2)],
        [(COLUMNS, slice(0, 2), 1)],
        [(COLUMNS[0], slice(0, 1), 2)],
        [(arrays.NumpyExtensionArray(ones(3)), slice(0, 1), 2), (COLUMNS[:1], slice(1, 2), 2)],
        [(arrays.NumpyExtensionArray(COLUMNS), slice(0, 2), 2)],
        [(np.zeros((2, 3), "M8[25s]"), slice(0, 2), 2)],
        [(np.zeros((2, 3), "S3"), slice(0, 2), 2)],
        [("text", slice(0, 2), 2)],
        [],
    ],
)
def test_forged_blocks_are_refused(blocks):
    with pytest.raises(PayloadError):
        opened(framed(*blocks))


def test_times_in_one_dimension_are_a_block_too():
    days = backed(arrays.DatetimeArray, DAYS.dtype, DAYS.to_numpy()[:3])
    got = opened(framed((days, slice(0, 1), 2), (COLUMNS[:1], slice(1, 2), 2)))
    assert got[0].tolist() == DAYS[:3].tolist()
    assert got._mgr.is_consolidated()
    assert repr(got)


def test_nothing_is_built_twice(asm):
    ordered = asm.text("ordered"), b"N"
    nth = asm.text("weekday"), b"K\x00", asm.text("n"), b"K\x01"
    day = pd.DateOffset(days=1)
    for name, state in (
        ("pandas:DateOffset", pickle.dumps(day.__getstate__(), 3)[2:-1]),
        ("dateutil.relativedelta:relativedelta", pickle.dumps(vars(day._offset), 3)[2:-1]),
        ("pandas:CategoricalDtype", asm.dict(asm.text("categories"), b"N", *ordered)),
        ("dateutil._common:weekday", asm.tuple(b"N", asm.dict(*nth))),
    ):
        begun = asm.call(name) if "DateOffset" in name else asm.new(name)
        loads(asm.pickle(asm.build(begun, state)), profile=PROFILE)
        with pytest.raises(PayloadError):
            loads(asm.pickle(asm.build(asm.build(begun, state), state)), profile=PROFILE)


# -- what costs nothing to say -----------------------------------------------------------------


def colliding(count):
    """Return integers that pandas' table puts into one place, in no order."""
    low = np.arange(1, count + 1, dtype=np.int64) * 7919 % (1 << 31)
    high = (low ^ (low << 11)) & ((1 << 31) - 1)
    return np.random.default_rng(0).permutation((high << 33) | low)


def test_labels_that_collide_cost_no_quadratic_time():
    # A megabyte of them kept pandas busy for nine seconds: it must not even begin.
    labels = pd.Index(colliding(100_000))
    forged = New(pd.CategoricalDtype, {"categories": labels, "ordered": False})
    categories = opened(forged).categories
    assert len(categories) == 100_000
    assert categories.is_unique
    assert not categories._engine.is_mapping_populated


def test_a_range_of_labels_is_never_written_out():
    labels, state = pd.RangeIndex(5_000_000), {"ordered": False}
    data = pickle.dumps(New(pd.CategoricalDtype, {"categories": labels, **state}))
    tracemalloc.start()
    try:
        assert len(loads(data, profile=PROFILE).categories) == 5_000_000
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(PayloadError, match="more elements than allowed"):
        opened(New(pd.CategoricalDtype, {"categories": pd.RangeIndex(1 << 27), **state}))


@pytest.mark.parametrize(
    "labels",
    [
        [2, 1, 2],
        [np.nan, 1.0, np.nan],
        [1j, 2, 1j],
        [True, True],
        np.array(["2026", "2025", "2026"], "M8[s]"),
        np.array(["NaT", "NaT"], "M8[s]"),
    ],
    ids=str,
)
def test_numbers_that_must_be_there_once(labels):
    with pytest.raises(PayloadError):
        opened(levels([codes(0)], [pd.Index(labels)]))


def test_objects_that_collide_are_refused():
    labels = np.array([number * ((1 << 61) - 1) for number in range(1, 200)], object)
    with pytest.raises(PayloadError, match="share one hash"):
        opened(Called(INDEX, pd.Index, {"data": labels}))


@pytest.mark.unmeasured
def test_the_same_holidays_again_and_again_are_charged():
    days = tuple(np.arange("2026", "2126", dtype="M8[D]"))[:3000]
    calendar = Called(offsets.CDay, 1, False, "1111100", days)
    with pytest.raises(PayloadError, match="more elements than allowed"):
        opened([Called(offsets.CDay, 1, False, "1111100", days) for _ in range(50)])
    assert opened(calendar).n == 1


def test_the_same_labels_again_and_again_are_charged():
    labels = pd.Index(np.arange(100_000)[::-1].copy())
    with pytest.raises(PayloadError, match="more elements than allowed"):
        opened(levels([codes(0)] * 900, [labels] * 900, ["n"] * 900))


def test_what_was_checked_does_not_change_through_another_array():
    shared = np.array([0, 1], "i1")
    forged = [backed(pd.Categorical, AB, shared), levels([shared]), shared]
    buffers = []
    data = pickle.dumps(forged, 5, buffer_callback=buffers.append)
    memory = [bytearray(buffer.raw()) for buffer in buffers]
    categories, index, numbers = loads(data, buffers=memory, profile=PROFILE)
    numbers[:] = 100
    assert categories.tolist() == ["a", "b"]
    assert [*index] == [("a",), ("b",)]


def test_a_frequency_over_many_moments_is_charged():
    data = pd.array(np.zeros(1_000_000, "M8[ns]"))
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError, match="too many values"):
            opened(Called(MOMENTS, pd.DatetimeIndex, {"data": data, "freq": offsets.BDay()}))
    finally:
        tracemalloc.stop()


def test_flags_are_true(asm):
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    for flags in ({"allows_duplicate_labels": False}, {"other": True}, {}, [1]):
        state = {**frame.__getstate__(), "_flags": flags}
        with pytest.raises(PayloadError):
            opened(New(pd.DataFrame, state))
    state = {**frame.__getstate__(), "_metadata": ["_name"]}
    with pytest.raises(PayloadError):
        opened(New(pd.DataFrame, state))
    with pytest.raises(PayloadError):
        opened(New(pd.Series, frame.__getstate__()))


def test_the_forms_of_pandas_2():
    assert opened(New(pd.StringDtype, {"storage": "python"})) == pd.StringDtype("python")
    assert opened(Called(pd.StringDtype, "pyarrow_numpy")) == pd.StringDtype("pyarrow", np.nan)
    turned = backed(arrays.DatetimeArray, DAYS.to_numpy(), DAYS.dtype, {"_freq": DAYS.freq})
    assert opened(Called(MOMENTS, pd.DatetimeIndex, {"data": turned})).freq == DAYS.freq
    data = arrays.IntervalArray.from_breaks([0, 1])
    index = Called(BETWEEN, pd.IntervalIndex, {"data": data, "closed": "right"})
    assert opened(index).equals(pd.IntervalIndex(data))


def test_nothing_of_another_library_is_reached():
    for forged in (
        Called(pd.read_pickle, "x"),
        Called(pd.eval, "1"),
        Called(pd.DataFrame, {"a": [1]}),
        Called(pd.Index, [1]),
        Called(pa.memory_map, "x"),
        Called(pd.tseries.frequencies.to_offset, "D"),
    ):
        with pytest.raises(SafeserError):
            opened(forged)
