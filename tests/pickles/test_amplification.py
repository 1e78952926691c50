"""One value in the memo and many calls of nine bytes over it: each copy that they make is charged.

Each attack took gigabytes of memory while only arguments were charged.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import zoneinfo

import numpy as np
import pandas as pd
import pytest

from safeser.pickles import DATA_PROFILES, loads
from safeser.values import Limits
from tests.pickles.refusing import refused
from tests.samples.repeated import templates

#: Bytes of the pickles; half of one is the value.
SIZE = 300_000
COUNT = SIZE // 16


_INDEX = "pandas.core.indexes.base:_new_Index"
_BACKED = "pandas._libs.arrays:__pyx_unpickle_NDArrayBacked"


def numbers(kind):
    return (np.arange(COUNT) ** 2).astype(kind)


def wide():
    return pd.DataFrame(np.zeros((1, 25_000), "i1"), columns=pd.RangeIndex(25_000))


AMPLIFIED = {
    "PeriodIndex": (_INDEX, lambda: pd.PeriodIndex.from_ordinals(numbers(int), freq="h")),
    "DataFrame": ("pandas:DataFrame", wide),
    "Index of int": (_INDEX, lambda: pd.Index(numbers(int))),
    "Index of float": (_INDEX, lambda: pd.Index(numbers(float))),
    "Index of Int64": (_INDEX, lambda: pd.Index(pd.array(numbers(int), dtype="Int64"))),
    "DatetimeIndex": ("pandas.core.indexes.datetimes:_new_DatetimeIndex",
        lambda: pd.DatetimeIndex(numbers("M8[s]"))),
    "TimedeltaIndex": ("pandas.core.indexes.timedeltas:_new_TimedeltaIndex",
        lambda: pd.TimedeltaIndex(numbers("m8[s]"))),
    "DatetimeArray of a zone": (_BACKED,
        lambda: pd.DatetimeIndex(numbers("M8[s]")).tz_localize("UTC").array),
}  # fmt: skip


def attack(name, value):
    """Return a pickle of two calls of *name* as in *value*, and one of as many as fit."""
    found = {each.name: each for each in templates(pickle.dumps(value, 5), "")}
    return found[name].repeated(2), found[name].filling(SIZE)


@pytest.mark.unmeasured
@pytest.mark.parametrize("case", AMPLIFIED)
def test_attack_copies_of_one_value_are_charged(case):
    name, make = AMPLIFIED[case]
    twice, many = attack(name, make())
    assert len(loads(twice, profile=DATA_PROFILES)) == 2
    refused("pickle.max-bytes", loads, many, profile=DATA_PROFILES)


def keyed(value, refs=490, dicts=400):
    """Return a pickle of many dicts whose one key is a tuple that names *value* again and again."""
    data = pickle.dumps(value, 4)
    memo = sum(code.name == "MEMOIZE" for code, _, _ in pickletools.genops(data))
    get, get_key = (b"j" + index.to_bytes(4, "little") for index in (memo, memo + 1))
    padding = b"B" + SIZE.to_bytes(4, "little") + bytes(SIZE) + b"0"  # brings more to spend
    named = data[:-1] + b"\x940" + padding + b"(" + get * refs + b"t\x940"
    return named + b"](" + (b"}" + get_key + b"K\x01s") * dicts + b"e."


LONDON = "Europe/London"
AUTUMN = pd.Timestamp("2021-10-31 01:30", tz="UTC").tz_convert(LONDON)
SLOW_KEYS = {
    "a second of two": AUTUMN.replace(fold=1),
    "an interval": pd.Interval(AUTUMN, AUTUMN + pd.Timedelta(1, "h")),
    "a pattern": re.compile("a" * 1000),
}


@pytest.mark.unmeasured
@pytest.mark.parametrize("case", SLOW_KEYS)
def test_attack_keys_that_are_slow_to_hash_are_charged(case):
    value = SLOW_KEYS[case]
    [found] = loads(keyed(value, refs=2, dicts=1), profile=DATA_PROFILES)
    assert found == {(value, value): 1}
    refused(
        "pickle.max-refs",
        loads,
        keyed(value),
        profile=DATA_PROFILES,
        limits=Limits(max_sharing=1000),
    )


@pytest.mark.unmeasured
def test_attack_zones_that_are_not_cached_are_charged():
    zone = zoneinfo.ZoneInfo.no_cache("America/New_York")
    assert loads(pickle.dumps(zone), profile=DATA_PROFILES).key == zone.key
    _, many = attack("zoneinfo:ZoneInfo._unpickle", zone)
    refused("pickle.max-refs", loads, many, profile=DATA_PROFILES)
