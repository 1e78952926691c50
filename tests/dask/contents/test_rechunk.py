"""Pieces of an array that another worker forged so that joining them leaves or takes memory."""

from __future__ import annotations

import types

import numpy as np
import pytest
from distributed.shuffle import _rechunk

from safeser.dask.patches import shuffle
from safeser.errors import PayloadError
from tests.dask.patched import original, patched

TARGET = "distributed.shuffle._rechunk:convert_chunk"
STOCK = original(TARGET)


@pytest.fixture(autouse=True)
def _whole():
    with patched(TARGET):
        yield


def refused(*shards):
    with pytest.raises(PayloadError) as caught:
        _rechunk.convert_chunk([list(shards)])
    assert caught.value.rule == "shuffle.pieces"


def grid(rows, columns):
    return [
        ((i, j), np.full((height, width), 10.0 * i + j))
        for i, height in enumerate(rows)
        for j, width in enumerate(columns)
    ]


@pytest.mark.parametrize(
    "pieces",
    [
        grid((2, 3), (1, 4, 2)),
        grid((1,), (0, 3)),
        [((1,), np.arange(3)), ((0,), np.arange(2))],
        [((0,), np.arange(9)), ((np.int64(0),), np.arange(2))],  # the latest one counts
        [((0,), np.ma.masked_array([1, 2], [True, False])), ((1,), np.arange(3))],
    ],
)
def test_whole_arrays_are_joined_as_by_dask(pieces):
    made, expected = _rechunk.convert_chunk([pieces[:1], pieces[1:]]), STOCK([pieces])
    assert type(made) is type(expected)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(np.ma.filled(made, -1), np.ma.filled(expected, -1))


#: Two in the place of one, in a row with another one: three pieces for four places.
LISTED = [((0, 0), [np.ones((1, 1, 1)), np.ones((1, 1, 1))]), ((1, 0), np.ones((50, 1, 1)))]


def test_no_part_is_left_unwritten(monkeypatch):
    empty = np.empty
    with monkeypatch.context() as used:
        used.setattr(
            np, "empty", lambda shape, dtype: np.full(shape, 77 if dtype != "O" else None, dtype)
        )
        made = STOCK([LISTED])
    assert np.count_nonzero(made == 77) == 50, "the control did not run"
    assert np.empty is empty

    refused(*LISTED)


def test_no_array_becomes_larger_than_its_pieces():
    row, column = ((0, 0), np.ones((1, 1000))), ((1, 0), np.ones((1000, 1)))
    assert STOCK([[row, column]]).size == 1_001_000
    refused(row, column)


@pytest.fixture
def small(monkeypatch):
    """A process whose policy lets no array have more than 10,000 bytes."""
    monkeypatch.setattr(shuffle, "most_bytes", lambda: 10_000)


WIDE = [((0, 0), np.full((1, 1), b"x" * 500)), ((0, 1), np.ones((1, 1000), "?"))]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", [np.asarray, np.ma.masked_array])
def test_few_wide_elements_do_not_widen_all_others(kind):
    wide = [(place, kind(piece)) for place, piece in WIDE]
    assert STOCK([wide]).nbytes == 500_500, "the control did not run"
    with pytest.raises(PayloadError) as caught:
        _rechunk.convert_chunk([wide])
    assert caught.value.rule == "shuffle.size"
    few = [((0, 0), wide[0][1]), ((0, 1), kind(np.ones((1, 10), "?")))]
    assert _rechunk.convert_chunk([few]).nbytes == 5500


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "pieces",
    [
        [((0,), np.arange(9000)), ((1,), np.arange(9000))],
        [((0,), np.arange(9000, dtype="f4")), ((1,), np.arange(9, dtype="f8"))],
        [((0,), np.arange(9, dtype="f8")), ((1,), np.full(1, "x"))],
        [((0,), np.full(10, "abcde")), ((1,), np.full(200, "ab"))],
        [((0,), np.zeros(9, [("a", "i4")])), ((1,), np.zeros(3, "M8[s]"))],
    ],
)
def test_pieces_of_other_types_pass(pieces):
    refusal = None
    try:
        _rechunk.convert_chunk([pieces])
    except (TypeError, ValueError) as error:  # NumPy's word for what it does not make of others
        refusal = error
    assert not isinstance(refusal, PayloadError)


ONE = np.ones(1)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [((1,), ONE)],
        [((0,), ONE), ((2,), ONE)],
        [((1,), ONE), ((-1,), ONE)],
        [((0,), ONE), ((0, 1), ONE)],
        [((), np.array(1.0))],
        [((0, 0), ONE)],
        [((0,), 1.0)],
        [((0,), np.float64(1))],
        [((0,), types.SimpleNamespace(shape=(1,), dtype="f8"))],
        [((0.0,), ONE)],
        [((False,), ONE)],
        [(0, ONE)],
        [("0", ONE)],
        [((0,), ONE, ONE)],
        [iter(((0,), ONE))],
        [{(0,): ONE, 1: ONE}],
    ],
)
def test_what_is_no_grid_of_arrays_is_refused(pieces):
    refused(*pieces)


def test_what_is_not_joined_is_recorded(doors, monkeypatch):
    channel = doors.channel("worker", "demo")
    monkeypatch.setattr(shuffle, "open_channels", lambda: (channel,))
    refused(*LISTED)
    (record,) = channel.audit.events
    told = [record[name] for name in ("sender", "recipient", "operation", "rule", "where")]
    assert told == ["unknown", "worker", "shuffle_receive", "shuffle.pieces", "data"]
