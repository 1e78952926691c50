"""What bounds the memory and time of objects of pandas that say much in few bytes."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from safeser import families
from safeser.errors import PayloadError
from safeser.gate.values import Limits
from tests.samples.hostile.frames import FRAME, GAPS, NULLABLE, REPEATS, SHORT_LABELS
from tests.samples.typed import FAMILIES, GRANT, LIMITS, lying, refused, sent, swapped


def test_labels_that_must_be_there_once():
    header, frames = sent(FRAME)
    header["sub-header"]["unique"] = True
    families.deserialize(header, frames, GRANT)
    text, more = sent(pd.Series([1, 2], index=SHORT_LABELS))
    text["sub-header"]["unique"] = True
    text["sub-header"]["index"][3][3] = ["a", "a"]
    assert refused(text, more) == "families.build"


def test_columns_without_rows_are_counted():
    header, frames = sent(pd.DataFrame(np.zeros((0, 3))))
    for columns in (1 << 17, (1 << 17) + 1):
        header["sub-header"]["columns"][3] = header["sub-header"]["blocks"][0][2] = columns
        assert refused(header, frames) == "value.columns"
        limits = Limits(max_memory=200_000 << 7, max_array=1 << 24)
        if columns == 1 << 17:
            made = families.deserialize(header, frames, GRANT, limits=limits)
            assert made.shape == (0, columns)
        else:
            assert refused(header, frames, limits=limits) == "value.columns"


def test_a_freq_that_takes_long_to_check():
    index = pd.date_range("2020", periods=100, freq="ME")
    header, frames = sent(index)
    few = Limits(max_memory=1500 << 7)
    assert refused(header, frames, limits=few) == "value.freq"
    with pytest.raises(PayloadError, match="too many values"):
        families.serialize(index, FAMILIES, limits=few)
    days = pd.date_range("2020", periods=100, freq="D")
    assert families.deserialize(*sent(days), GRANT, limits=few).freq == days.freq


def test_freqs_are_charged_to_the_message():
    """Each index had a budget of its own."""
    year = {"weekday": 1, "startingMonth": 1, "variation": "nearest"}
    quarters = pd.offsets.FY5253Quarter(qtr_with_extra_week=1, **year)
    index, few = pd.date_range("2020", periods=100, freq=quarters), Limits(max_memory=200_000 << 7)
    header, frames = families.serialize([index] * 2, FAMILIES, limits=few)
    assert families.deserialize(header, frames, GRANT, limits=few)[1].freq == quarters
    header, frames = families.serialize([index] * 20, FAMILIES, limits=few)
    assert refused(header, frames, limits=few) == "families.max-memory"


def test_levels_are_no_ranges_that_cost_more_than_they_say():
    header, frames = sent(pd.MultiIndex([pd.RangeIndex(3)], [[0, 1]]))
    level = header["sub-header"]["index"][3][0]
    level[3] = 100
    families.deserialize(header, frames, GRANT, limits=Limits(max_array=800))
    assert refused(header, frames, limits=Limits(max_array=799)) == "value.index"
    several = pd.MultiIndex([pd.RangeIndex(20)] * 3, [[0, 1]] * 3)
    families.serialize(several, FAMILIES, limits=Limits(max_array=480))
    with pytest.raises(PayloadError, match="larger than max_array"):
        families.serialize(several, FAMILIES, limits=Limits(max_array=479))
    with pytest.raises(PayloadError, match="more than 1000"):
        families.serialize(pd.MultiIndex.from_arrays([[1]] * 1001), FAMILIES)


@pytest.mark.parametrize("value", [GAPS, REPEATS], ids=["marked", "coded"])
def test_a_column_of_objects_takes_eight_bytes_for_each(value):
    # Its labels take one byte each: a range counts as eight, too.
    header, frames = sent(value.set_axis(np.zeros(len(value), "i1")))
    number = max(8 * len(value) - 1, *(len(frame) for frame in frames))
    limits = dataclasses.replace(LIMITS, max_array=number)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT, limits=limits)
    assert caught.value.rule == "families.too-large"
    assert "max_array" in str(caught.value)
    limits = dataclasses.replace(LIMITS, max_array=number + 1)
    assert len(families.deserialize(header, frames, GRANT, limits=limits)) == len(value)


def test_limits_reach_columns():
    header, frames = families.serialize(pd.DataFrame({"a": np.zeros(100)}), FAMILIES)
    with pytest.raises(PayloadError):
        families.check(header, frames, limits=Limits(max_array=799))


def test_flags_of_any_byte_are_flags():
    for value, at in ((pd.Series([True, False]), 0), (NULLABLE, 1)):
        header, frames = swapped(value, at, b"\x02\x00")
        back = families.deserialize(header, frames, GRANT)
        held = back._values if at == 0 else back._mask
        assert held.view("u1").tolist() == [1, 0]


@pytest.mark.parametrize(
    "part",
    [
        ["periods", "<i8", 1, ["Hour", 1, False, []]],
        ["dates", "<M8[s]", 1, ["UTC"]],
        ["dates", "<M8[s]", 3, ["UTC"]],
    ],
    ids=lambda part: part[0],
)
def test_moments_and_periods_are_the_arrays_of_two_dimensions(part):
    header, frames = lying(FRAME, "blocks", 0, 0, to=part)
    back = families.deserialize(header, frames, GRANT)
    assert back.shape == FRAME.shape
    repr(back)
