"""Values of the standard library: any of them, zones that are looked up late, and buffers."""

import array
import collections
import datetime as dt
import os
import re
import statistics
import sys
import types
import zoneinfo

import pandas as pd
import pytest

from safeser import families
from safeser.errors import PayloadError, PolicyDenied
from safeser.families import plain
from safeser.gate.values import Grant
from safeser.types import stdlib
from tests.samples.typed import FAMILIES, GRANT, through, unsent


def described(name, value):
    return {"serializer": "dask", "type": name, "sub-header": {"value": plain.encode(value)}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("datetime:datetime", (2020, 1, 1, 0, 0, 0, 0, 0)),
        ("datetime:time", (1, 2, 3, 4, 0)),
        ("zoneinfo:ZoneInfo", None),
    ],
)
def test_a_zone_is_looked_up_only_when_it_is_loaded(name, value, monkeypatch):
    looked = []
    monkeypatch.setattr(stdlib, "_zone_keys", lambda: looked.append(1) or frozenset({"UTC"}))
    made = {}
    for key in ("UTC", "Mars/Olympus"):
        made[key] = described(name, (key,) if value is None else (*value, (key,)))
        families.check(made[key], [])
    assert not looked
    families.deserialize(made["UTC"], [], GRANT)
    assert looked
    with pytest.raises(PayloadError) as caught:
        families.deserialize(made["Mars/Olympus"], [], GRANT)
    assert caught.value.rule == "value.time-zone"


def typed(name, **meta):
    return {"serializer": "dask", "type": name, "sub-header": meta}


def test_arrays_of_another_byte_order():
    sent = array.array("H", [1, 2])
    sent.byteswap()
    other = "big" if sys.byteorder == "little" else "little"
    header = typed("array:array", code="H", itemsize=2, order=other)
    assert families.deserialize(header, [sent.tobytes()], GRANT) == array.array("H", [1, 2])
    if array.array("u").itemsize != 4:
        return
    header = typed("array:array", code="w", itemsize=4, order="little")
    if sys.version_info >= (3, 13):
        assert families.deserialize(header, [b"ab"], GRANT).tounicode() == "ab"
    else:
        with pytest.raises(PayloadError, match="no such type code"):
            families.check(header, [b"ab"])


def test_containers_of_what_only_a_pickle_carries():
    wide = Grant("wide", (*FAMILIES, "pickle"))
    inner = statistics.NormalDist(1, 2)
    for value in (
        collections.OrderedDict(a=inner),
        collections.deque([inner], 3),
        collections.defaultdict(list, {1: inner}),
        collections.Counter(a=inner),
        types.SimpleNamespace(a=inner),
        collections.ChainMap({"a": inner}),
    ):
        header, frames = families.serialize(value, wide.families)
        assert header["serializer"] == "dask"
        back = families.deserialize(header, frames, wide)
        assert (type(back), back) == (type(value), value)
        with pytest.raises(PolicyDenied):
            families.deserialize(header, frames, GRANT)
    header, frames = families.serialize(collections.deque([inner]), wide.families)
    other = families.serialize(inner, wide.families)[1]
    with pytest.raises(PayloadError) as caught:  # a pickle of no list
        families.deserialize(header, other, wide)
    assert caught.value.rule == "families.build"


VIEW = {"format": "h", "shape": [2, 2], "writeable": True}


def test_a_view_that_may_be_written_to_changes_nobody_elses_bytes():
    frame = bytes(8)
    back = families.deserialize(typed("builtins:memoryview", **VIEW), [frame], GRANT)
    back[0, 0] = 5
    assert frame == bytes(8)
    frame = bytearray(8)
    read_only = typed("builtins:memoryview", **{**VIEW, "writeable": False})
    assert families.deserialize(read_only, [frame], GRANT).readonly


def test_a_strided_view_arrives_as_its_bytes():
    assert through(memoryview(b"abcdefgh")[::2]).tobytes() == b"aceg"


def test_compiling_is_charged_to_the_message():
    # One takes 2 ms: ten thousand of them are a message of ten megabytes.
    long = [re.compile("a" * 990 + str(number)) for number in range(40)]
    header, frames = families.serialize(long, FAMILIES)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT)
    assert caught.value.rule == "families.max-memory"
    short = [re.compile(f"a{number}") for number in range(40)]
    assert through(short) == short


def test_a_zone_that_was_read_from_a_file_is_none_of_the_database():
    installed = [path for path in zoneinfo.TZPATH if os.path.exists(f"{path}/Asia/Tokyo")]
    if not installed:
        pytest.skip("there is no zone database")
    with open(f"{installed[0]}/Asia/Tokyo", "rb") as file:
        zone = zoneinfo.ZoneInfo.from_file(file, key="Europe/Berlin")
    stamps = pd.DatetimeIndex(["2020"], tz=zone)
    for value in (zone, [dt.datetime(2020, 1, 1, tzinfo=zone)] * 5, stamps, stamps[0]):
        assert "installed zoneinfo.ZoneInfo" in unsent(value)
    for sound in (zoneinfo.ZoneInfo("Asia/Tokyo"), zoneinfo.ZoneInfo.no_cache("Asia/Tokyo")):
        assert through(sound).key == "Asia/Tokyo"
