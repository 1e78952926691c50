"""One value in the memo and many calls of nine bytes over it: each copy that they make is charged.

Each attack took gigabytes of memory while only arguments were charged.
"""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

from safeser.errors import PayloadError
from safeser.pickles import DATA_PROFILES, loads
from tests.sweep.attack import templates

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
    "DatetimeIndex": (
        "pandas.core.indexes.datetimes:_new_DatetimeIndex",
        lambda: pd.DatetimeIndex(numbers("M8[s]")),
    ),
    "TimedeltaIndex": (
        "pandas.core.indexes.timedeltas:_new_TimedeltaIndex",
        lambda: pd.TimedeltaIndex(numbers("m8[s]")),
    ),
    "DatetimeArray of a zone": (
        _BACKED,
        lambda: pd.DatetimeIndex(numbers("M8[s]")).tz_localize("UTC").array,
    ),
}


def attack(name, value):
    """Return a pickle of two calls of *name* as in *value*, and one of as many as fit."""
    found = {each.name: each for each in templates(pickle.dumps(value, 5), "")}
    return found[name].repeated(2), found[name].filling(SIZE)


@pytest.mark.parametrize("case", AMPLIFIED)
def test_attack_copies_of_one_value_are_charged(case):
    name, make = AMPLIFIED[case]
    twice, many = attack(name, make())
    assert len(loads(twice, profile=DATA_PROFILES)) == 2
    with pytest.raises(PayloadError) as refusal:
        loads(many, profile=DATA_PROFILES)
    assert refusal.value.rule == "pickle.max-bytes"
