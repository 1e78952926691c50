"""pandas: what comes back exactly, and what is refused with the column's name."""

import datetime as dt
import decimal
import gc
import os
import subprocess
import sys
import types

import numpy as np
import pandas as pd
import pytest
from families_attack import FAMILIES, GRANT, through
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import pandas as hpd
from pandas.testing import assert_series_equal
from pandas_same import same, same_frame, same_index, same_series

from safeser import families
from safeser.errors import PayloadError, SerializationError
from safeser.families.pandas import offsets as pandas_offsets
from safeser.families.plain import Unencodable
from tests.draws import draws

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
@draws(25)
def test_any_frame(frame):
    same_frame(through(frame), frame)


@given(dtypes.flatmap(lambda dtype: hpd.series(dtype=dtype)))
@draws(30)
def test_any_series(series):
    assert_series_equal(through(series), series, check_exact=True)


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))))
@draws(25)
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
    swapped = pd.DataFrame({"ok": [1, 2], "bad": pd.Series([object(), 1])})
    for sent in (swapped, swapped["bad"], pd.concat([swapped, swapped])):
        assert "column 'bad'" in refused(sent)
        assert "object" in refused(sent)
    odd = pd.DataFrame({"ok": [1, 2], "bad": pd.Series([1, frozenset({object()})])})
    assert "column 'bad'" in refused(odd)
    assert "at (values)[1]" in refused(odd["bad"].rename(None))
    assert "Frame" in refused(Frame())
    assert "Series" in refused(type("Mine", (pd.Series,), {})([1]))
    for waiting in (swapped.groupby("ok"), swapped["ok"].groupby([1, 2]), swapped.rolling(2)):
        assert "group it on the receiver" in refused(waiting)
    named = {"serializer": "dask", "type": "pandas:GroupBy", "sub-header": {}}
    with pytest.raises(PayloadError, match="deferred"):
        families.deserialize(named, [], GRANT)
    mine = type("Mine", (pd.offsets.Hour,), {})()
    assert "not pandas' own" in refused(mine) or "Mine" in refused(mine)


OFFSETS = [
    pd.offsets.Hour(3),
    pd.offsets.Week(weekday=2),
    pd.offsets.BusinessHour(start="08:00", end="12:00"),
    pd.offsets.CustomBusinessDay(holidays=["2020-01-02", "2020-05-01"], weekmask="Mon Tue"),
    pd.offsets.FY5253Quarter(weekday=4, variation="last", startingMonth=1, qtr_with_extra_week=1),
    pd.offsets.Easter(-2),
    pd.offsets.BusinessDay(2, offset=pd.Timedelta("1h").to_pytimedelta()),
    pd.DateOffset(),
    pd.DateOffset(2, normalize=True),
    pd.DateOffset(months=1, days=-2, hour=3),
]


@pytest.mark.parametrize("offset", OFFSETS, ids=repr)
def test_offsets(offset):
    back = through(offset)
    assert type(back) is type(offset)
    assert back == offset
    assert back + pd.Timestamp("2020-01-01") == offset + pd.Timestamp("2020-01-01")


def test_arrays_of_others_are_refused_by_name():
    decimals = pytest.importorskip("pandas.tests.extension.decimal")
    array = decimals.DecimalArray([decimal.Decimal(1), decimal.Decimal(2)])
    assert "column 'bad'" in refused(pd.DataFrame({"ok": [1, 2], "bad": array}))
    assert "DecimalDtype" in refused(pd.Series(array, name="bad"))
    assert "block" in refused(
        pd.DataFrame({"a": pd.date_range("2020", periods=2)})._mgr.blocks[0].values
    )


def test_offsets_that_cannot_be_rebuilt():
    assert "span" in refused(pd.DateOffset(days=1.5))
    mine = type("Mine", (pd.DateOffset,), {})()
    assert "Mine" in refused(mine)
    index = pd.date_range("2020", periods=2, freq=type("Own", (pd.offsets.BusinessDay,), {})())
    assert "not pandas' own" in refused(index)


class Zone(dt.tzinfo):
    """Stands in for pytz's, which pandas 2 makes of a name."""

    __module__ = "pytz.tzfile"

    def __init__(self, zone):
        self.zone = zone


def test_zones_of_pytz(monkeypatch):
    pytz = types.ModuleType("pytz")
    pytz.all_timezones_set = {"Europe/Berlin"}
    pytz.timezone = Zone
    header = families.serialize(pd.Timestamp("2020", tz="UTC"), FAMILIES)[0]
    header["sub-header"]["zone"] = ["pytz", "Europe/Berlin"]
    monkeypatch.setitem(sys.modules, "pytz", None)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, [], GRANT)
    assert caught.value.rule == "families.time-zone"
    monkeypatch.setitem(sys.modules, "pytz", pytz)
    assert pandas_offsets.describe_zone(Zone("Europe/Berlin")) == ["pytz", "Europe/Berlin"]
    assert pandas_offsets.build_zone(["pytz", "Europe/Berlin"]).zone == "Europe/Berlin"
    with pytest.raises(PayloadError):
        pandas_offsets.build_zone(["pytz", "../../etc/passwd"])
    with pytest.raises(Unencodable):
        pandas_offsets.describe_zone(Zone(None))


def test_texts_that_repeat_travel_once():
    texts = np.array(["one", "two", None, "two \0"] * 100, object)
    frame = pd.DataFrame({"a": texts, "b": texts[::-1]}, dtype=object)
    _, frames = families.serialize(frame, FAMILIES)
    assert sum(len(bytes(part)) for part in frames) < 2000
    same_frame(through(frame), frame)
    mixed = pd.Series([*texts, 1.0], dtype=object)
    for series in (frame["a"], mixed, frame["a"].iloc[:0], pd.Series(["x"] * 9000, dtype=object)):
        same_series(through(series), series)
    apart = pd.Series([f"{n}" for n in range(9000)], dtype=object)
    same_series(through(apart), apart)


def test_indexes_of_ones_own_are_refused():
    class Mine(pd.Index):
        pass

    series = pd.Series([1], index=pd.Index(["a"]))
    series.index = Mine._simple_new(series.index._values, None)
    if type(series.index) is Mine:
        assert "not pandas' own" in refused(series)


def test_bare_arrays_keep_no_freq():
    array = pd.array(pd.date_range("2020", periods=3))
    same(through(array), array)


def memory(value):
    """Yield the arrays that hold what *value* holds."""
    for block in value._mgr.blocks:
        held = block.values
        if hasattr(held, "_pa_array"):
            for chunk in held._pa_array.chunks:
                yield from (np.frombuffer(part, "u1") for part in chunk.buffers() if part)
            continue
        for part in ("_ndarray", "_data", "_mask", "sp_values", "_left"):
            if isinstance(getattr(held, part, None), np.ndarray):
                yield getattr(held, part)
        if isinstance(held, np.ndarray):
            yield held


LARGE = {
    "numbers": pd.DataFrame(np.ones((10_000, 3))),
    "turned": pd.DataFrame(np.ones((10_000, 3))).T.copy().T,
    "two kinds": pd.DataFrame({"a": np.arange(10_000), "b": np.ones(10_000), "c": 1}),
    "dates": pd.DataFrame({"a": pd.date_range("2020", periods=10_000, unit="s")}),
    "zoned": pd.DataFrame({"a": pd.date_range("2020", periods=10_000, tz="UTC")}),
    "nullable": pd.DataFrame({"a": pd.array(np.arange(10_000), dtype="Int64")}),
    "categories": pd.DataFrame({"a": pd.Categorical(["a", "b"] * 5_000)}),
    "periods": pd.DataFrame({"a": pd.period_range("2020", periods=10_000, freq="h")}),
    "text": pd.DataFrame({"a": pd.array(["some text"] * 10_000, dtype=pd.StringDtype("pyarrow"))}),
    "sparse": pd.DataFrame({"a": pd.arrays.SparseArray(np.arange(10_000.0))}),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_blocks_are_not_copied(name):
    frame = LARGE[name]
    header, frames = families.serialize(frame, FAMILIES)
    shown = [np.frombuffer(part, "u1") for part in frames]
    for held in memory(frame):
        assert held.nbytes < 9000 or any(np.shares_memory(held, part) for part in shown)
    received = [bytearray(part) for part in frames]
    back = families.deserialize(header, received, GRANT)
    shown = [np.frombuffer(part, "u1") for part in received]
    for held in memory(back):
        assert held.nbytes < 9000 or any(np.shares_memory(held, part) for part in shown)
    same_frame(back, frame)


def test_frames_over_received_bytes_can_be_written_to():
    header, frames = families.serialize(LARGE["two kinds"], FAMILIES)
    for received in ([bytes(part) for part in frames], [bytearray(part) for part in frames]):
        back = families.deserialize(header, received, GRANT)
        back.iloc[0, 0] = 7
        assert back["a"][0] == 7


def test_checking_keeps_no_frames_in_memory():
    # What is to be built waits in the node: a cycle would keep frames until somebody collects it.
    for name, frame in LARGE.items():
        header, frames = families.serialize(
            frame.set_flags(allows_duplicate_labels=False), FAMILIES
        )
        received = [bytearray(part) for part in frames]
        before = [sys.getrefcount(part) for part in received]
        gc.disable()
        try:
            families.check(header, received)
            assert [sys.getrefcount(part) for part in received] == before, name
            families.deserialize(header, received, GRANT)
            assert [sys.getrefcount(part) for part in received] == before, name
        finally:
            gc.enable()


def test_columns_that_share_memory_come_back_apart():
    held = np.arange(6.0)
    frame = pd.concat([pd.Series(held, copy=False), pd.Series(held, copy=False)], axis=1)
    back = through(frame, frozen=False)
    back.iloc[0, 0] = 9
    assert back.iloc[0, 1] == 0


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


def test_without_pyarrow(monkeypatch):
    for texts in (["a"], ["a" * 2000]):
        sent = families.serialize(pd.Series(texts, dtype=pd.StringDtype("pyarrow")), FAMILIES)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(PayloadError) as caught:
            families.deserialize(*sent, GRANT)
        assert caught.value.rule == "families.not-installed"
        monkeypatch.undo()


def test_without_pandas():
    script = """
import sys
sys.modules["pandas"] = None
from safeser import families
from safeser.errors import PayloadError
from safeser.values import Grant
try:
    families.deserialize({"serializer": "dask", "type": "pandas:NA", "sub-header": {}}, [],
                         Grant("data", ("dask",)))
except PayloadError as error:
    assert error.rule == "families.not-installed", error
    assert "pandas" in str(error)
else:
    raise AssertionError
"""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=60)


def test_what_is_refused_in_a_series_without_a_name_has_a_place():
    with pytest.raises(SerializationError) as caught:
        families.serialize([pd.Series([1, object()], dtype=object)], FAMILIES)
    assert caught.value.where == "[0] (values)[1]"
