"""pandas: any frame, series and text; what is not copied, imported or left over."""

import datetime as dt
import gc
import os
import subprocess
import sys
import types
import zoneinfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from safeser import families
from safeser.errors import PayloadError, SerializationError
from safeser.families import plain
from safeser.families.pandas import offsets as pandas_offsets
from safeser.families.pandas import parts
from safeser.families.plain import Unencodable
from tests.samples.same import same
from tests.samples.typed import FAMILIES, GRANT, sent, shifted, through, unsent


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


def test_indexes_of_ones_own_are_unsent():
    class Mine(pd.Index):
        pass

    series = pd.Series([1], index=pd.Index(["a"]))
    series.index = Mine._simple_new(series.index._values, None)
    if type(series.index) is Mine:
        assert "not pandas' own" in unsent(series)


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
    same(back, frame)


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


@pytest.mark.slow
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


def test_frames_may_start_anywhere():
    frame = pd.DataFrame({"a": pd.array([1, None]), "b": [1, 2], "c": ["x", None]}).set_index("c")
    header, frames = families.serialize(frame, FAMILIES)
    back = families.deserialize(header, shifted(frames), GRANT)
    same(back, frame)
    back.sort_index()
    assert back["b"].to_numpy().flags.aligned


def test_texts_that_repeat_travel_once():
    texts = np.array(["one", "two", None, "two \0"] * 100, object)
    frame = pd.DataFrame({"a": texts, "b": texts[::-1]}, dtype=object)
    assert sum(map(len, sent(frame)[1])) < 2000


def test_text_where_arrows_class_takes_no_dtype(monkeypatch):
    # As pandas 2 has it: one class for each way to miss a value.
    from safeser.families.pandas import internals

    monkeypatch.setattr(internals, "_TYPED_TEXT", False)
    monkeypatch.setattr(internals, "ARROW_TEXT", (pd.arrays.ArrowStringArray,) * 2)
    content = pa.chunked_array([["x", None]])
    made = internals.text_of(content, pd.StringDtype("pyarrow", na_value=pd.NA))
    assert made.dtype == pd.StringDtype("pyarrow", na_value=pd.NA)
    assert made.tolist() == ["x", pd.NA]
    with pytest.raises(ValueError, match=r"^$"):
        internals.text_of(content, pd.StringDtype("pyarrow", na_value=float("nan")))


def test_texts_of_python_under_a_dtype_of_arrow():
    """pandas 3 makes them with its public constructor; they came back with another dtype."""
    texts = pd.arrays.StringArray(np.array(["a", pd.NA], object))
    if texts.dtype.storage == "python":
        assert through(texts).dtype == texts.dtype
        return
    assert "(column 'x')" in unsent(pd.DataFrame({"x": texts}))
    assert "convert it" in unsent(texts)


def test_columns_named_by_dates_that_no_datetime_can_hold():
    """Naming the column for an error that nobody raised was an error of its own."""
    if pd.__version__ < "3":
        pytest.skip("this version has names for them")
    far = pd.DatetimeIndex(np.array([10**14], "M8[s]")).tz_localize("UTC")
    columns = far.tz_convert(zoneinfo.ZoneInfo("Europe/Berlin"))
    frame = pd.DataFrame({0: pd.Categorical(["text"])})
    frame.columns = columns
    assert through(frame).columns.dtype == columns.dtype
    frame = pd.DataFrame({0: pd.Categorical([object()])})
    frame.columns = columns
    assert "(column 0)" in unsent(frame)


def test_many_parts_do_not_each_count_all_frames(monkeypatch):
    """A megabyte of sparse columns without rows took ten minutes."""
    count = 50
    sparse = ["sparse", ["numbers", "<f8", 0], False, 0]
    blocks = [[sparse, at, 1, 1] for at in range(count)]
    index = ["Index", None, None, ["numbers", "<f8", 0]]
    blocks += [[["categories", index, False, "|i1", 0], at, 1, 1] for at in range(count, 2 * count)]
    header = in_frame(
        blocks,
        2 * count,
        **{"sub-headers": [{"serializer": "msgpack"}] * count, "frame-lengths": [1] * count},
    )
    frames = [b""] * 4 * count + [plain.encode(0.0)] * count
    counted = []
    site = parts.site
    monkeypatch.setattr(parts, "site", lambda *args: counted.append(args) or site(*args))
    assert families.deserialize(header, frames, GRANT).shape == (0, 2 * count)
    assert len(counted) == 1


def test_intervals_that_receivers_refuse_are_refused_where_the_column_has_a_name():
    for dtype in ("Int64", ">i8"):
        ends = pd.array([1, 2], dtype=dtype) if dtype == "Int64" else np.array([1, 2], dtype)
        column = pd.arrays.IntervalArray.from_breaks(ends)
        if column._left.dtype == dtype:
            assert "(column 'x')" in unsent(pd.DataFrame({"x": column}))
    for sound in (pd.interval_range(0, 3), pd.interval_range(pd.Timestamp("2020"), periods=2)):
        assert through(sound).equals(sound)


def in_frame(blocks, columns, **more):
    meta = {
        "index": ["range", None, 0, 0, 1],
        "attrs": False,
        "unique": False,
        "columns": ["range", None, 0, columns, 1],
        "blocks": blocks,
    }
    return {"serializer": "dask", "type": "pandas:DataFrame", "sub-header": meta, **more}
