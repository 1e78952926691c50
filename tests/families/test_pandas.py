"""pandas: exact or refused with the column's name, and headers that lie."""

import contextlib
import copy
import decimal
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from families_attack import FAMILIES, GRANT, LIMITS, mutate_all, through
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import pandas as hpd
from pandas.testing import assert_frame_equal, assert_index_equal, assert_series_equal

from safeser import families
from safeser.errors import PayloadError
from safeser.families import plain
from safeser.values import Limits

EXACT = {"check_exact": True, "check_freq": True, "check_flags": True}


def same_frame(a, b):
    assert_frame_equal(a, b, check_index_type="exact", check_column_type="exact", **EXACT)
    assert a.attrs == b.attrs
    for name in ("index", "columns"):
        same_index(getattr(a, name), getattr(b, name))


def same_index(a, b):
    assert type(a) is type(b)
    assert_index_equal(a, b, exact=True, check_exact=True)
    assert getattr(a, "freq", None) == getattr(b, "freq", None)
    assert list(map(repr, a.names)) == list(map(repr, b.names))
    if isinstance(a, pd.RangeIndex):
        assert (a.start, a.stop, a.step) == (b.start, b.stop, b.step)
    if isinstance(a, pd.MultiIndex):
        assert a.sortorder == b.sortorder
        for one, other in zip(a.levels, b.levels, strict=True):
            assert_index_equal(one, other, exact=True)


COLUMNS = {
    "int": range(4),
    "float": np.array([0.5, np.nan, -0.0, np.inf]),
    "f4": np.ones(4, "f4"),
    "u1": np.arange(4, dtype="u1"),
    "flag": [True, False] * 2,
    "complex": np.ones(4) * 1j,
    "text": ["a", None, "", "\u00e9"],
    "python text": pd.array(["a", None, "c", "d"], dtype=pd.StringDtype("python")),
    "python nan": pd.array(["a", None, "c", "d"], dtype=pd.StringDtype("python", na_value=np.nan)),
    "arrow na": pd.array(["a", None, "c", "d"], dtype=pd.StringDtype("pyarrow")),
    "objects": [1, "x", None, (1, [2])],
    "decimals": [decimal.Decimal("1.10"), None, decimal.Decimal("2"), np.nan],
    "mixed na": pd.Series([pd.NA, pd.NaT, None, pd.Timestamp("2020")], dtype=object),
    "date": pd.to_datetime(["2020", None, "2021", "2022"]),
    "date s": pd.date_range("2020", periods=4, unit="s"),
    "zone": pd.date_range("2020-10-25", periods=4, freq="h", tz="Europe/Berlin"),
    "fixed zone": pd.date_range("2020", periods=4, tz="+03:00"),
    "duration": pd.to_timedelta([1, None, 2, 3], unit="s"),
    "category": pd.Categorical(["a", None, "b", "a"], categories=["b", "a", "z"], ordered=True),
    "int category": pd.Categorical([3, 1, 3, 1]),
    "Int64": pd.array([1, None, 3, 4], dtype="Int64"),
    "UInt8": pd.array([1, None, 3, 4], dtype="UInt8"),
    "Float32": pd.array([1, None, 3, 4], dtype="Float32"),
    "boolean": pd.array([True, None, False, True], dtype="boolean"),
    "period": pd.period_range("2020", periods=4, freq="M"),
    "interval": pd.interval_range(0, 4, closed="both"),
    "date interval": pd.interval_range(pd.Timestamp("2020"), periods=4),
    7: np.arange(4),
    (1, "a"): np.arange(4),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns(name):
    series = pd.Series(COLUMNS[name], name=name)
    assert_series_equal(through(series), series, check_exact=True, check_freq=True)
    frame = pd.DataFrame({"first": range(4), "x": COLUMNS[name]}, index=list("abcd"))
    for sent in (frame, frame.iloc[::2], frame.iloc[:0], frame[["x"]].iloc[1:]):
        back = through(sent)
        same_frame(back, sent)
        repr(back)


def whole():
    frame = pd.DataFrame(COLUMNS)
    frame.attrs["unit"] = {"m": (1, np.arange(2).tolist())}
    return frame


def test_frames():
    frame = whole()
    for sent in (
        frame,
        frame.set_index("int"),
        frame.set_index(["text", "zone"]),
        frame[["int"]].set_flags(allows_duplicate_labels=False),
        pd.concat([frame[["int"]], frame[["int", "text"]]], axis=1),
        frame[["float", "f4"]].T,
        pd.DataFrame(),
        pd.DataFrame(index=range(3)),
        pd.DataFrame(columns=["a"]),
        pd.DataFrame(np.arange(6).reshape(2, 3)),
        pd.DataFrame({"a": [1]}, index=pd.Index([5], name=("t", 1))),
    ):
        same_frame(through(sent), sent)
    series = pd.Series([1, 2], index=[5, 5], name=None)
    series.attrs["a"] = 1
    back = through(series)
    assert back.attrs == series.attrs
    unique = pd.Series([1]).set_flags(allows_duplicate_labels=False)
    assert not through(unique).flags.allows_duplicate_labels


INDEXES = [
    pd.RangeIndex(2, 12, 3, name="r"),
    pd.RangeIndex(0),
    pd.Index([1, 2], dtype="i2"),
    pd.Index([1.5]),
    pd.Index([True, False]),
    pd.Index(["a", "b"], name="n"),
    pd.Index(["a", 1, (2, 3)], dtype=object, tupleize_cols=False),
    pd.Index([1, None], dtype="Int64"),
    pd.date_range("2020", periods=5, freq="2h", tz="UTC"),
    pd.date_range("2020", periods=5, freq="W-MON"),
    pd.bdate_range("2020", periods=3),
    pd.DatetimeIndex(["2020", "NaT"]),
    pd.DatetimeIndex([]),
    pd.timedelta_range(0, periods=3, freq="h"),
    pd.period_range("2020", periods=3, freq="Q-DEC"),
    pd.interval_range(0, 3),
    pd.CategoricalIndex(list("aba"), ordered=True),
    pd.MultiIndex.from_product([[1, 2], list("ab")], names=["x", None]),
    pd.MultiIndex.from_arrays([pd.date_range("2020", periods=3), [1.5, np.nan, 2]]),
    pd.MultiIndex.from_tuples([(1, "a"), (1, "b")], sortorder=0),
]


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: type(index).__name__)
def test_indexes(index):
    same_index(through(index), index)
    frame = pd.DataFrame(np.zeros((len(index), 1)), index=index)
    same_frame(through(frame), frame)
    same_frame(through(frame.T), frame.T)


SCALARS = [
    pd.NA,
    pd.NaT,
    pd.Timestamp("2020-10-25 02:30:00.000000001", tz=None),
    pd.Timestamp(1603585800, unit="s", tz="UTC").tz_convert("Europe/Berlin"),
    pd.Timestamp(1603589400, unit="s", tz="UTC").tz_convert("Europe/Berlin"),
    pd.Timestamp("2020", tz="+03:00"),
    pd.Timedelta("1h"),
    pd.Timedelta(5, unit="ns"),
    pd.Period("2020-01", "M"),
    pd.Interval(1, 2.5, "both"),
    pd.Interval(pd.Timestamp("2020"), pd.Timestamp("2021")),
]


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_scalars(value):
    back = through([value])[0]
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    if isinstance(value, pd.Timestamp):
        assert (back.unit, back.fold, back._value) == (value.unit, value.fold, value._value)


dtypes = st.sampled_from(["i1", "u8", "f8", "f4", "?", "M8[ns]", "m8[ns]", "c16"])


@given(
    hpd.data_frames(
        [hpd.column("a", dtype=dtype) for dtype in ("i8",)]
        + [hpd.column("b", elements=st.text(st.characters(exclude_categories=["Cs"]))),
           hpd.column("c", elements=st.none() | st.integers() | st.text(), dtype=object),
           hpd.column("d", dtype="f8"), hpd.column("e", dtype="?")],
        index=hpd.range_indexes() | hpd.indexes(dtype="i8"),
    )
)  # fmt: skip
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=40)
def test_any_frame(frame):
    same_frame(through(frame), frame)


@given(dtypes.flatmap(lambda dtype: hpd.series(dtype=dtype)))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
def test_any_series(series):
    assert_series_equal(through(series), series, check_exact=True)


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))))
@settings(deadline=None, max_examples=40)
def test_any_text(texts):
    for storage in ("python", "pyarrow"):
        series = pd.Series(texts, dtype=pd.StringDtype(storage))
        for sent in (series, series[1:], pd.concat([series, series[1:]])):
            assert_series_equal(through(sent), sent)


def refused(value):
    with pytest.raises(PayloadError) as caught:
        families.serialize(value, FAMILIES)
    assert caught.value.rule == "families.cannot-serialize"
    return str(caught.value)


def test_frames_may_start_anywhere():
    frame = whole().set_index(["text", "zone"])
    header, frames = families.serialize(frame, FAMILIES)
    received = [memoryview(bytearray(b"x" + bytes(part)))[1:] for part in frames]
    back = families.deserialize(header, received, GRANT)
    same_frame(back, frame)
    back.sort_index()
    back["Int64"].sum()
    assert back["int"].to_numpy().flags.aligned


class Frame(pd.DataFrame):
    pass


def test_what_would_be_altered_is_refused_by_name():
    for values, word in (
        (pd.arrays.SparseArray([0, 1]), "SparseDtype"),
        (pd.array([1, 2], dtype="int64[pyarrow]"), "ArrowDtype"),
        (pd.Series([object(), 1]), "object"),
    ):
        message = refused(pd.DataFrame({"ok": [1, 2], "bad": values}))
        assert word in message
        assert "column 'bad'" in message
        assert "column 'bad'" in refused(pd.Series(values, name="bad"))
    holiday = pd.offsets.CustomBusinessDay(holidays=["2020-01-02"])
    assert "freq" in refused(pd.date_range("2020", periods=3, freq=holiday))
    assert "Frame" in refused(Frame())
    assert "bare array" in refused(pd.array(pd.date_range("2020", periods=3)))


def test_large_columns_are_not_copied():
    frame = pd.DataFrame({"a": np.arange(1e5), "b": pd.array(np.arange(10**5), dtype="Int64")})
    header, frames = families.serialize(frame, FAMILIES)
    sources = [frame["a"].to_numpy(), frame["b"].array._data]
    for source in sources:
        assert any(np.shares_memory(np.asarray(part), source) for part in frames if len(part) > 9)
    received = [bytearray(part) for part in frames]
    back = families.deserialize(header, received, GRANT)
    for built in (back["a"].to_numpy(), back["b"].array._data):
        assert any(
            np.shares_memory(built, np.frombuffer(part, "u1")) for part in received if len(part)
        )
    back.iloc[0, 0] = 7  # a frame over received bytes can be written to
    assert back["a"][0] == 7


def use(value):
    repr(value)
    copy.deepcopy(value)
    if isinstance(value, (pd.DataFrame, pd.Series)) and len(value) < 1000:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for act in (
                lambda x: x.sort_index(),
                lambda x: x.iloc[::-1].astype(str),
                lambda x: x == x,
                lambda x: x.isna(),
                lambda x: x.reset_index(),
                lambda x: x.describe(),
            ):
                with contextlib.suppress(
                    TypeError, ValueError, NotImplementedError, ArithmeticError, KeyError
                ):
                    act(value)


LIES = {
    "frame": (pd.DataFrame({"a": [1, 2], "b": ["x", None]}), 1),
    "nullable": (pd.Series(pd.array([True, None]), name="n"), 1),
    "categories": (pd.CategoricalIndex(["a", "b"]), 1),
    "text": (pd.Index(pd.array(["a", "b"], dtype=pd.StringDtype("python"))), 1),
    "zone": (pd.Series(pd.date_range("2020", periods=2, tz="UTC")), 2),
    "freq": (pd.date_range("2020", periods=3), 1),
    "period": (pd.period_range("2020", periods=2, freq="M"), 1),
    "interval": (pd.interval_range(0, 2), 2),
    "multi": (pd.MultiIndex.from_product([[1, 2], ["a"]]), 3),
    "range": (pd.RangeIndex(5), 1),
    **{repr(value): (value, 1) for value in SCALARS[:9:2]},
}


@pytest.mark.parametrize("name", LIES)
def test_headers_that_lie(name):
    value, every = LIES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mutate_all(value, use, every=every)


def arrow(offsets, data, missing):
    series = pd.Series(["ab", "c"], dtype=pd.StringDtype("pyarrow"))
    header, _ = families.serialize(series.array, FAMILIES)
    parts = [np.array(offsets), np.frombuffer(data, np.uint8), np.array(missing, bool)]
    sent = [families.serialize(part, FAMILIES) for part in parts]
    header["sub-headers"] = [one[0] for one in sent]
    return header, [one[1][0] for one in sent]


@pytest.mark.parametrize(
    ("offsets", "data", "missing", "rule"),
    [
        ([0, 2, 3], b"abc", [0, 0], None),
        ([0, 4, 3], b"abc", [0, 0], "families.offsets"),
        ([0, -1, 3], b"abc", [0, 0], "families.offsets"),
        ([0, 2, 9], b"abc", [0, 0], "families.offsets"),
        ([1, 2, 3], b"abc", [0, 0], "families.offsets"),
        ([0, 2], b"abc", [0, 0], "families.shape"),
        ([0, 1, 2], b"\xc3\xa9", [0, 0], "families.build"),
        ([0, 1, 2], b"\xff\xff", [0, 0], "families.build"),
        ([0.0, 2, 3], b"abc", [0, 0], "families.child-type"),
    ],
)
def test_text_that_points_elsewhere(offsets, data, missing, rule):
    header, frames = arrow(offsets, data, missing)
    if rule is None:
        assert families.deserialize(header, frames, GRANT).tolist() == ["ab", "c"]
        return
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT)
    assert caught.value.rule == rule


def change(value, *path, to):
    header, frames = families.serialize(value, FAMILIES)
    inner = header
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return header, frames


@pytest.mark.parametrize(
    ("header", "frames"),
    [
        change(pd.RangeIndex(5), "sub-header", "stop", to=1 << 40),
        change(pd.RangeIndex(5), "sub-header", "step", to=0),
        change(pd.date_range("2020", periods=3), "sub-header", "freq", to="h"),
        change(pd.date_range("2020", periods=3), "sub-header", "freq", to="999999999D"),
        change(pd.date_range("2020", periods=3), "sub-header", "freq", to="__import__('os')"),
        change(pd.Timestamp("2020"), "sub-header", "value", to=-(1 << 63)),
        change(pd.Timestamp("2020"), "sub-header", "fold", to=2),
        change(pd.Timestamp("2020"), "sub-header", "unit", to="D"),
        change(pd.Timestamp("2020"), "sub-header", "zone", to=["../../etc/passwd"]),
        change(pd.Period("2020", "M"), "sub-header", "freq", to=None),
        change(pd.Period("2020", "M"), "sub-header", "freq", to="zz"),
        change(pd.DataFrame({"a": [1]}), "sub-header", "unique", to=1),
    ],
)
def test_malformed(header, frames):
    with pytest.raises(PayloadError):
        families.deserialize(header, frames, GRANT, limits=LIMITS)


def test_codes_beyond_their_categories():
    for value in (pd.Categorical(["a"]), pd.MultiIndex.from_product([[1], [2]])):
        header, frames = families.serialize(value, FAMILIES)
        for position, frame in enumerate(frames):
            if bytes(frame) == b"\x00":
                frames[position] = b"\x05"
        with pytest.raises(PayloadError):
            families.deserialize(header, frames, GRANT)


def test_limits_reach_columns():
    header, frames = families.serialize(pd.DataFrame({"a": np.zeros(100)}), FAMILIES)
    with pytest.raises(PayloadError):
        families.check(header, frames, limits=Limits(max_array=799))


def test_pandas_is_imported_only_when_needed():
    # Loading a listed name imports pandas; checking one must not, nor an unlisted one, nor
    # importing safeser.families.
    script = """
import sys
from safeser import families
from safeser.errors import PayloadError
from safeser.values import Grant
for name in ("pandas:eval", "pandas:read_pickle", "os:system"):
    for act in (families.derive, families.check):
        try:
            act({"serializer": "dask", "type": name, "sub-header": {}}, [])
        except PayloadError as error:
            assert error.rule == "families.type"
families.serialize({"a": 1j}, ("dask", "msgpack"))
missing = {"serializer": "dask", "type": "pandas:NA", "sub-header": {}}
assert families.derive(missing, []) == "dask"
families.check(missing, [])
wrong = {**missing, "sub-header": {"a": 1}}
families.check(wrong, [])
assert "pandas" not in sys.modules and "pyarrow" not in sys.modules
families.deserialize(missing, [], Grant("data", ("dask",)))
assert "pandas" in sys.modules
for act in (lambda: families.check(wrong, []),
            lambda: families.deserialize(wrong, [], Grant("data", ("dask",)))):
    try:
        act()
    except PayloadError as error:
        assert error.rule == "families.header"
    else:
        raise AssertionError("a wrong header passed")
"""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=60)


def test_without_pandas_or_pyarrow(monkeypatch):
    sent = families.serialize(pd.Series(["a"], dtype=pd.StringDtype("pyarrow")), FAMILIES)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(*sent, GRANT)
    assert caught.value.rule == "families.not-installed"
    assert plain.decode(plain.encode(sent[0])) == sent[0]


def ranged(length):
    """Return header and frames of a RangeIndex of any length."""
    header, frames = families.serialize(pd.RangeIndex(3), FAMILIES)
    header["sub-header"]["stop"] = length
    return header, frames


def test_ends_of_intervals_are_no_ranges():
    # pandas writes them out: 300 bytes took three gigabytes.
    header, frames = families.serialize(pd.interval_range(0, 3).array, FAMILIES)
    (inner, more), start = ranged(1 << 24), header["frame-lengths"][0]
    header["sub-headers"] = [inner, header["sub-headers"][1]]
    header["frame-lengths"] = [len(more), header["frame-lengths"][1]]
    with pytest.raises(PayloadError) as refused:
        families.check(header, [*more, *frames[start:]])
    assert refused.value.rule == "families.range"


def test_levels_are_no_ranges_that_cost_more_than_they_say():
    header, frames = families.serialize(pd.MultiIndex.from_product([range(3)]), FAMILIES)
    position = next(
        at
        for at, inner in enumerate(header["sub-headers"])
        if inner.get("type") == "pandas:RangeIndex"
    )
    header["sub-headers"][position] = ranged(LIMITS.max_refs)[0]
    families.check(header, frames, limits=LIMITS)
    header["sub-headers"][position] = ranged(LIMITS.max_refs + 1)[0]
    with pytest.raises(PayloadError) as refused:
        families.check(header, frames, limits=LIMITS)
    assert refused.value.rule == "families.range"


def test_ranges_as_ends_and_long_levels_are_sent_as_values():
    ends = pd.RangeIndex(3), pd.RangeIndex(1, 4)
    array = pd.arrays.IntervalArray.from_arrays(*ends)
    back = through(array)
    assert back.equals(array)
    assert type(back.left) is pd.Index
    long = pd.MultiIndex([pd.RangeIndex(20)], [[0, 1]])
    header, _ = families.serialize(long, FAMILIES, limits=Limits(max_refs=15))
    assert "pandas:RangeIndex" not in [inner.get("type") for inner in header["sub-headers"]]
