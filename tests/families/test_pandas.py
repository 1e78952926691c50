"""pandas: any frame, series and text; what is not copied, imported or left over."""

import datetime as dt
import sys
import types
import zoneinfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from safeser import families
from safeser.errors import PayloadError
from safeser.families import plain
from safeser.families.pandas import offsets as pandas_offsets
from safeser.families.pandas import parts
from safeser.families.plain import Unencodable
from tests.samples.typed import FAMILIES, GRANT, sent, through, unsent


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


def test_columns_that_share_memory_come_back_apart():
    held = np.arange(6.0)
    frame = pd.concat([pd.Series(held, copy=False), pd.Series(held, copy=False)], axis=1)
    back = through(frame, frozen=False)
    back.iloc[0, 0] = 9
    assert back.iloc[0, 1] == 0


def test_without_pyarrow(monkeypatch):
    for texts in (["a"], ["a" * 2000]):
        sent = families.serialize(pd.Series(texts, dtype=pd.StringDtype("pyarrow")), FAMILIES)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(PayloadError) as caught:
            families.deserialize(*sent, GRANT)
        assert caught.value.rule == "families.not-installed"
        monkeypatch.undo()


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


def in_frame(blocks, columns, **more):
    meta = {
        "index": ["range", None, 0, 0, 1],
        "attrs": False,
        "unique": False,
        "columns": ["range", None, 0, columns, 1],
        "blocks": blocks,
    }
    return {"serializer": "dask", "type": "pandas:DataFrame", "sub-header": meta, **more}
