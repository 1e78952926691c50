"""States of pandas' objects that say a thing twice, or in a way of their own: they agree exactly.

CPython takes such a state as it is; a reader that takes one half of it, and makes the other itself,
would read something else.
"""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from safeser.errors import PayloadError
from safeser.pickles import loads
from tests.pickles.forging import Called, New, opened

pd = pytest.importorskip("pandas")
managers = pytest.importorskip("pandas.core.internals.managers")

BACKED = pd.Categorical(["a"]).__reduce_ex__(5)[0]
INTERVALS = pd.arrays.IntervalArray.from_breaks([0, 1]).__reduce_ex__(5)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"days": 2},
        {"days": None},
        {"days": True},
        {"dys": 1},
        {"hour": 3},
        {"n": 2.0},
        {"_use_relativedelta": 1},
        {"_offset": datetime.timedelta(1)},
        {"_cache": [1]},
        {"months": None},
    ],
)
def test_a_date_offset_is_what_its_span_says(change):
    """Known bypass of exactness: pandas adds the sent span, whatever the names beside it say."""
    state = pd.DateOffset(days=1).__getstate__()
    assert opened(Called(pd.DateOffset, state=dict(state))) == pd.DateOffset(days=1)
    with pytest.raises(PayloadError):
        opened(Called(pd.DateOffset, state=state | change))
    # Without days, it is one day all the same.
    for name in state.keys() - {"days"}:
        with pytest.raises(PayloadError):
            opened(Called(pd.DateOffset, state={k: v for k, v in state.items() if k != name}))


def held(content, index, **inner):
    blocks = [{"values": content, "mgr_locs": slice(0, len(content), 1), **inner}]
    return [index], [content], [index], {"0.14.1": {"axes": [index], "blocks": blocks}}


def series(state):
    manager = New(managers.SingleBlockManager, state)
    return New(pd.Series, pd.Series([1]).__getstate__() | {"_mgr": manager})


VALUES, INDEX = np.arange(2), pd.RangeIndex(2)


def test_a_series_is_held_the_way_pandas_does():
    assert opened(series(held(VALUES, INDEX))).equals(pd.Series(VALUES))


@pytest.mark.parametrize(
    "state",
    [
        held(VALUES, INDEX, mgr_locs=slice(0, 1, 1)),
        held(VALUES, INDEX, mgr_locs=slice(0, 2, None)),
        held(VALUES, INDEX, mgr_locs=slice(False, 2, 1)),
        held(VALUES, INDEX, mgr_locs=np.arange(2)),
        held(VALUES, INDEX, values=VALUES + 1),
        held(VALUES, INDEX, more=1),
        (*held(VALUES, INDEX)[:3], {}),
        (*held(VALUES, INDEX)[:3], {"0.14.1": {"axes": [INDEX]}}),
        (*held(VALUES, INDEX)[:3], {"0.14.1": {"axes": [INDEX], "blocks": []}}),
        (*held(VALUES, INDEX)[:3], {"0.14.1": {"axes": [INDEX], "blocks": [{"values": VALUES}]}}),
        (*held(VALUES, INDEX)[:3], {**held(VALUES, INDEX)[3], "0.14.2": {}}),
        ([pd.RangeIndex(1, 3)], *held(VALUES, INDEX)[1:]),
        ([INDEX], [VALUES + 1], *held(VALUES, INDEX)[2:]),
        ([INDEX], [VALUES], [pd.RangeIndex(3)], held(VALUES, INDEX)[3]),
    ],
)
def test_a_series_that_is_held_in_two_ways_is_refused(state):
    with pytest.raises(PayloadError):
        opened(series(state))


@pytest.mark.parametrize("checksum", [0, -1, 82904607 + 128, 1 << 40, 1 << 80, True])
@pytest.mark.parametrize("made", [BACKED, INTERVALS])
def test_a_layout_that_pandas_does_not_know_is_refused(made, checksum):
    """C fails with PickleError; what it says of the layout is part of what it reads."""
    moments, between = pd.date_range("2026", periods=2).array, pd.interval_range(0, 2).array
    honest = (moments if made is BACKED else between).__reduce__()
    kind, known, _ = honest[1]
    assert len(opened(Called(made, kind, known, None, state=honest[2]))) == 2
    with pytest.raises(PayloadError):
        opened(Called(made, kind, checksum, None, state=honest[2]))


@pytest.mark.parametrize(
    "more",
    [
        {"_dtype": np.dtype("M8[s]")},
        {"_dtype": ("M8", "us")},
        {"_readonly": 1},
        {"_cache": {"unit": "s"}},
        {"_cache": {"unit": None}},
        {"_cache": []},
        {"_freq": None, "other": 1},
        {1: 2},
    ],
)
def test_what_is_said_beside_an_array_agrees_with_it(more):
    honest = pd.date_range("2026", periods=2).array.__reduce__()
    kind, known, _ = honest[1]
    assert opened(Called(BACKED, kind, known, None, state=honest[2])) is not None
    with pytest.raises(PayloadError):
        opened(Called(BACKED, kind, known, None, state=(*honest[2][:2], more)))


@pytest.mark.parametrize(
    "more",
    [
        {"_cache": {"dtype": pd.Int8Dtype()}},
        {"_cache": {"dtype": "Int64"}},
        {"_dtype": pd.Int8Dtype()},
        {"_readonly": None},
    ],
)
def test_what_an_array_remembers_is_true(more):
    state = {"_data": np.array([1, 2]), "_mask": np.array([False, True])}
    array = pd.arrays.IntegerArray
    assert opened(New(array, state | {"_cache": {"dtype": pd.Int64Dtype()}})).dtype == "Int64"
    with pytest.raises(PayloadError):
        opened(New(array, state | more))


def test_what_a_type_remembers_is_true():
    assert opened(New(pd.Int64Dtype, {"_cache": {"itemsize": 8}})) == pd.Int64Dtype()
    with pytest.raises(PayloadError):
        opened(New(pd.Int64Dtype, {"_cache": {"itemsize": 4}}))


def test_a_timedelta_says_its_unit(asm):
    # CPython's reader would be told that an argument is missing.
    data = asm.pickle(asm.call("pandas._libs.tslibs.timedeltas:_timedelta_unpickle", b"K\x05"))
    with pytest.raises(PayloadError) as caught:
        loads(data, profile=("data", "numpy", "pandas"))
    assert caught.value.rule == "pickle.arguments"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (pd.Series([1], name="a"), {"name": "b"}),
        (pd.Series([1], name="a"), {"name": "a"}),
        (pd.Series([1], name="a"), {"name": []}),
        (pd.DataFrame({"a": [1]}), {"_name": "b"}),
        (pd.DataFrame({"a": [1]}), {"name": "b"}),
    ],
)
def test_a_name_is_said_once(kind, names):
    """Known bypass of exactness: one of two names was taken, and that of a frame dropped."""
    state = kind.__getstate__()
    assert opened(New(type(kind), dict(state))).equals(kind)
    with pytest.raises(PayloadError):
        opened(New(type(kind), state | names))
    if isinstance(kind, pd.Series):
        older = {field: value for field, value in state.items() if field != "_name"}
        assert opened(New(pd.Series, older | {"name": "b"})).name == "b"
        assert opened(New(pd.Series, older)).name is None


@pytest.mark.parametrize("kind", [pd.Series([1]), pd.DataFrame({"a": [1]})])
@pytest.mark.parametrize("more", [{"other": None}, {b"other": None}, {"_typ": None}, {"sum": None}])
def test_a_frame_has_no_other_fields(kind, more):
    """Known bypass of exactness: fields that no frame has were dropped if they were None."""
    with pytest.raises(PayloadError):
        opened(New(type(kind), kind.__getstate__() | more))
