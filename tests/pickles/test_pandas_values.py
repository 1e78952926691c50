"""pandas' indexes, extension arrays, types, moments and offsets come back as they were."""

from __future__ import annotations

import datetime
import decimal
import warnings
import zoneinfo

import numpy as np
import pytest

from tests.pickles.forging import reopened

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
relative = pytest.importorskip("dateutil.relativedelta")
tz = pytest.importorskip("dateutil.tz")
offsets = pd.offsets

PROTOCOLS = [2, 4, 5, None]
DAYS = pd.date_range("2026", periods=3)
BERLIN = pd.date_range("2026", periods=3, tz="Europe/Berlin")

INDEXES = {
    "range": pd.RangeIndex(2, 9, 3, name=("a", 1)),
    "integers": pd.Index([3, 1, 2]),
    "small": pd.Index([1, 2], dtype="i1"),
    "floats": pd.Index([1.5, np.nan], dtype="f4"),
    "booleans": pd.Index([True, False]),
    "complex": pd.Index([1 + 2j]),
    "text": pd.Index(["a", "b", None]),
    "objects": pd.Index([1, "a", None, (1, 2), pd.NA, pd.NaT], dtype=object),
    "hours": pd.date_range("2026", periods=4, freq="h", name="x"),
    "business days": pd.bdate_range("2026", periods=4),
    "month ends": pd.date_range("2026", periods=3, freq="ME", unit="ns"),
    "holidays": pd.date_range(
        "2026", periods=3, freq=offsets.CustomBusinessDay(holidays=["2026-01-05"])
    ),
    "zone": BERLIN,
    "utc": pd.date_range("2026", periods=3, tz="UTC"),
    "unordered": pd.DatetimeIndex(["2026", "2025", None]),
    "spans": pd.timedelta_range("1h", periods=3),
    "no spans": pd.TimedeltaIndex(["1D", None]),
    "months": pd.period_range("2026", periods=3, freq="M"),
    "quarters": pd.period_range("2026", periods=3, freq="Q-NOV", name="q"),
    "quarter hours": pd.PeriodIndex(["2026-01", None], freq="15min"),
    "intervals": pd.interval_range(0, 3),
    "open intervals": pd.IntervalIndex.from_tuples([(0.5, 1.5), np.nan], closed="both", name="n"),
    "days between": pd.interval_range(pd.Timestamp("2026", tz="UTC"), periods=3),
    "categories": pd.CategoricalIndex(["a", "b", "a", None]),
    "ordered": pd.CategoricalIndex([1, 2], categories=[2, 1, 3], ordered=True, name="c"),
    "levels": pd.MultiIndex.from_product([[1, 2], ["a", None]], names=["x", None]),
    "days and floats": pd.MultiIndex.from_arrays([DAYS, [1.5, np.nan, 0], list("uvw")]),
    "empty levels": pd.MultiIndex.from_arrays([[], []]),
    "sorted levels": pd.MultiIndex.from_tuples([(1, 2), (1, 3)]).sortlevel()[0],
    "unused levels": pd.MultiIndex.from_product([[1, 2], ["a", "b"]])[:1],
    "levels of intervals": pd.MultiIndex.from_product([pd.interval_range(0, 2), ["a"]]),
    "masked": pd.Index([1, None], dtype="Int64"),
    "arrow": pd.Index([1, None], dtype="int64[pyarrow]"),
    "empty": pd.Index([]),
}
ARROW = {
    "integers": pa.array([1, None]),
    "decimals": pa.array([decimal.Decimal("1.25"), None]),
    "dates": pa.array([datetime.date(2026, 1, 1)]),
    "lists": pa.array([[1, 2], None, []]),
    "structures": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "text": pa.array(["a", None]),
    "nulls": pa.nulls(3),
    "chunks": pa.chunked_array([["a"], ["b"]]),
}
SPARSE = pd.arrays.SparseArray
KINDS = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]
ARRAYS = {
    **{name: pd.array([1, None, 3], dtype=name) for name in [*KINDS, "Float32", "Float64"]},
    **{f"arrow {name}": pd.arrays.ArrowExtensionArray(part) for name, part in ARROW.items()},
    "boolean": pd.array([True, None], dtype="boolean"),
    "categories": pd.Categorical(["a", "b", None]),
    "ordered": pd.Categorical([3, 1], categories=[1, 2, 3], ordered=True),
    "no categories": pd.Categorical([]),
    "bins": pd.cut([1, 2, 3], 2),
    "many categories": pd.Categorical(range(300)),
    "intervals": pd.arrays.IntervalArray.from_breaks([0, 1, 2]),
    "no interval": pd.array([pd.Interval(0.0, 1.0), None]),
    "days between": pd.arrays.IntervalArray.from_breaks(BERLIN),
    "years": pd.array(pd.period_range("2026", periods=2, freq="Y")),
    "sparse": SPARSE([0, 0, 1.5]),
    "sparse integers": SPARSE([5, 5, 1], fill_value=5),
    "sparse booleans": SPARSE([True, False]),
    "sparse blocks": SPARSE([0, 1, 2, 0, 3], kind="block", fill_value=0),
    "sparse text": SPARSE(np.array(["a", "b"], object), fill_value="a"),
    "sparse days": SPARSE(np.array(["2026", "NaT"], "M8[ns]")),
    "no sparse": SPARSE([]),
    "text": pd.array(["a", None], dtype="str"),
    "arrow text": pd.array(["a", None], dtype=pd.StringDtype("pyarrow")),
    "python text": pd.array(["a", None], dtype=pd.StringDtype("python")),
    "numpy": pd.arrays.NumpyExtensionArray(np.arange(3)),
    "objects": pd.arrays.NumpyExtensionArray(np.array([1, "a"], object)),
    "days": pd.array(DAYS),
    "zone": pd.array(BERLIN),
    "spans": pd.array(pd.timedelta_range("1D", periods=2)),
    "empty": pd.array([], dtype="Int8"),
}


def same_index(got, expected):
    pd.testing.assert_index_equal(got, expected, exact=True)
    assert got.names == expected.names
    assert getattr(got, "freq", None) == getattr(expected, "freq", None)
    if isinstance(expected, pd.MultiIndex):
        for mine, theirs in zip(got.levels, expected.levels, strict=True):
            pd.testing.assert_index_equal(mine, theirs, exact=True)
        for mine, theirs in zip(got.codes, expected.codes, strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.tolist() == theirs.tolist()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", INDEXES)
def test_indexes(name, protocol):
    index = INDEXES[name]
    same_index(reopened(index, protocol), index)
    series = pd.Series(range(len(index)), index=index, name="z")
    got = reopened(series, protocol)
    pd.testing.assert_series_equal(got, series)
    same_index(got.index, index)
    frame = pd.DataFrame(np.zeros((2, len(index))), columns=index)
    pd.testing.assert_frame_equal(reopened(frame, protocol), frame)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ARRAYS)
def test_extension_arrays(name, protocol):
    array = ARRAYS[name]
    got = reopened(array, protocol)
    assert type(got) is type(array)
    pd.testing.assert_extension_array_equal(got, array, check_exact=True)
    if isinstance(array, SPARSE):
        assert got.sp_index.equals(array.sp_index)
    dtype = reopened(array.dtype, protocol)
    assert type(dtype) is type(array.dtype)
    assert dtype == array.dtype
    for held in (pd.Series(array, name="n"), pd.DataFrame({"a": array, "b": 1, "c": array})):
        back = reopened(held, protocol)
        (pd.testing.assert_series_equal if held.ndim == 1 else pd.testing.assert_frame_equal)(
            back, held
        )


def test_types_that_were_used_bring_what_they_noted():
    for dtype in (pd.Int64Dtype(), pd.BooleanDtype(), pd.ArrowDtype(pa.string())):
        assert dtype.kind
        assert dtype.index_class is pd.Index
        assert reopened(dtype, 5) == dtype


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_frames_keep_attributes_flags_and_blocks(protocol):
    frame = pd.DataFrame({"i": [1, 2], "f": [1.5, np.nan], "z": BERLIN[:2], "j": [3, 4]})
    frame = frame.set_flags(allows_duplicate_labels=False)
    frame.attrs = {"u": [1, {"a": None}], "t": pd.Timestamp("2026")}
    for made in (frame, frame[["z", "j", "f", "i"]], frame.copy()._consolidate(), frame["z"]):
        got = reopened(made, protocol)
        assert type(got) is type(made)
        assert got.equals(made)
        assert got.attrs == made.attrs
        assert got.flags.allows_duplicate_labels is made.flags.allows_duplicate_labels
        assert len(got._mgr.blocks) == len(made._mgr.blocks)


UNIQUE = [
    pd.MultiIndex.from_product([[1, 2], ["a", None]]),
    pd.MultiIndex.from_product([DAYS[:2], pd.interval_range(0, 2)]),
    pd.MultiIndex.from_product([[True, False], pd.array([1, 2], dtype="Int64")]),
    pd.PeriodIndex(["2026", "2027", "2028", "2029"], freq="Y"),
    pd.Index([1, 2, 3, None], dtype="Int64"),
    pd.Index([1 + 1j, 2, 3, 4]),
    pd.Index([datetime.date(2026, 1, 1), "a", 1, None], dtype=object),
    pd.CategoricalIndex([1, 2, 3, 4]),
]


@pytest.mark.parametrize("index", UNIQUE, ids=repr)
def test_labels_that_must_be_there_once(index):
    frame = pd.DataFrame({"a": range(4)}, index=index).set_flags(allows_duplicate_labels=False)
    got = reopened(frame, 5)
    pd.testing.assert_frame_equal(got, frame)
    assert not got.flags.allows_duplicate_labels


BLOCKS = [
    pd.DataFrame({"a": DAYS, "b": DAYS})._consolidate(),
    pd.DataFrame({"a": BERLIN, "b": BERLIN})._consolidate(),
    pd.DataFrame({"a": DAYS - DAYS[0], "b": DAYS - DAYS[1]})._consolidate(),
    pd.DataFrame(np.arange(20).reshape(5, 4)).iloc[::2, ::-1],
    pd.DataFrame(np.arange(6.0).reshape(2, 3)).T,
    pd.DataFrame(columns=["a", "b"]),
    pd.DataFrame(index=range(5)),
    pd.get_dummies(pd.Series(["a", "b"]), sparse=True),
    pd.DataFrame({"a": [1, 1, 2], "b": [1, 2, 3]}).groupby("a").agg(["sum", "mean"]),
]


@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_blocks_of_all_forms(at):
    for protocol in PROTOCOLS:
        pd.testing.assert_frame_equal(reopened(BLOCKS[at], protocol), BLOCKS[at])


def test_without_the_function_for_blocks_frames_are_made_by_columns(monkeypatch):
    if hasattr(pd.api, "internals"):
        monkeypatch.delattr(pd.api.internals, "create_dataframe_from_blocks")
    for frame in BLOCKS:
        pd.testing.assert_frame_equal(reopened(frame, 5), frame)


VALUES = [
    pd.Timestamp("2026-01-01 01:02:03.123456789"),
    pd.Timestamp("2026").as_unit("s"),
    pd.Timestamp("2026", tz="Europe/Paris"),
    pd.Timestamp("2026", tz=zoneinfo.ZoneInfo("UTC")),
    pd.Timestamp("2026-01-01T00:00+02:00"),
    pd.Timestamp("2026", tz=tz.UTC),
    pd.Timedelta(5, "ns"),
    pd.Timedelta("1D").as_unit("s"),
    pd.Period("2026-01", "M"),
    pd.Period("2026-01-01", "W-TUE"),
    pd.Period("2026-01-01", "3D"),
    pd.Interval(0, 1, "both"),
    pd.Interval(0.5, 1),
    pd.Interval(np.int64(1), np.int64(4), "neither"),
    pd.Interval(pd.Timestamp("2026"), pd.Timestamp("2027"), "left"),
    pd.Interval(pd.Timedelta("1D"), pd.Timedelta("2D")),
    pd.MultiIndex.from_product([[1], [2]], names=["a", "b"]).names,
    {pd.Timestamp("2026"), pd.Timedelta(1), pd.Period("2026"), pd.Interval(0, 1), pd.NaT},
    {pd.Timestamp("2026", tz="UTC"): 1, offsets.Day(2): 2, offsets.MonthEnd(): 3},
    relative.relativedelta(months=3, weekday=relative.FR(-1)),
    relative.MO,
]
NAMED = [getattr(offsets, name) for name in offsets.__all__ if name not in ("BaseOffset", "Tick")]
OFFSETS = [
    *(kind() for kind in NAMED),
    *(kind(3) for kind in NAMED if kind is not offsets.FY5253Quarter),
    offsets.DateOffset(n=2, years=1, hour=3, normalize=True),
    offsets.DateOffset(weekday=relative.MO(2)),
    offsets.DateOffset(weekday=0),
    offsets.DateOffset(nanoseconds=5),
    offsets.DateOffset(day=1, month=2, year=2026),
    offsets.CustomBusinessHour(
        *(2, False, "Mon Tue", ["2026-01-01"], None),
        *(["08:00", "10:00"], ["09:00", "11:00"]),
    ),
    offsets.BDay(offset=datetime.timedelta(hours=1)),
    offsets.Nano(1234567890123),
    offsets.Week(weekday=3),
    offsets.FY5253(startingMonth=8, weekday=4, variation="last"),
]


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize(
    "value", VALUES + OFFSETS, ids=lambda value: "set" if type(value) is set else repr(value)
)
def test_values(value, protocol):
    got = reopened(value, protocol)
    assert type(got) is type(value)
    assert got == value
    assert isinstance(value, set) or repr(got) == repr(value)
    assert getattr(got, "unit", None) == getattr(value, "unit", None)


def test_objects_of_a_column():
    values = [1, "a", None, pd.NA, pd.NaT, [1, [2]], {"a": 1}, (1,), b"x", pd.Timestamp("2026")]
    series = pd.Series([*values, pd.Series([1]), np.arange(3)], dtype=object)
    got = reopened(series, 5)
    assert got.iloc[:-2].tolist() == values
    pd.testing.assert_series_equal(got.iloc[-2], series.iloc[-2])


def test_sparse_arrays_without_the_function_for_them(monkeypatch):
    monkeypatch.delattr(SPARSE, "from_indices", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("sparse", "sparse blocks", "no sparse"):
            got = reopened(ARRAYS[name], 5)
            pd.testing.assert_extension_array_equal(got, ARRAYS[name])


def test_views_stay_read_only():
    array = pd.Series(1, index=DAYS).index.array
    got = reopened(array, 5)
    assert getattr(got, "_readonly", False) is getattr(array, "_readonly", False)
