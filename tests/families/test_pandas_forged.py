"""Headers and buffers of pandas' objects that lie: refused by one rule before pandas sees them."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from families_attack import FAMILIES, GRANT, LIMITS, put
from pandas_same import same_frame, same_index

from safeser import families
from safeser.errors import PayloadError
from safeser.families import plain
from safeser.values import Limits

FRAME = pd.DataFrame({"a": [1, 2], "b": [3, 4]}, index=[5, 6])
MIXED = pd.DataFrame({"a": [1, 2], "t": [0.5, 1], "b": [3, 4]})
NULLABLE = pd.array([1, None])
DATES = pd.date_range("2020", periods=3, freq="h")
ZONED = pd.Series(pd.date_range("2020", periods=2, tz="UTC")).array
CATEGORIES = pd.Categorical([7, 9, 7])
LEVELS = pd.MultiIndex.from_product([[1, 2], [3, 4]])
INTERVALS = pd.arrays.IntervalArray.from_breaks([0, 1, 2])
TEXT = pd.array(["a" * 3000, None, "b"], dtype=pd.StringDtype("pyarrow"))
SHORT = pd.array(["a", None], dtype=pd.StringDtype("pyarrow"))
SHORT_LABELS = pd.Index(["a", "b"], dtype=pd.StringDtype("pyarrow"))
PYTHON = pd.array(["a" * 3000, None], dtype=pd.StringDtype("python"))
SPARSE = pd.arrays.SparseArray([0, 7, 0, 5])
BLOCKS = pd.arrays.SparseArray([0, 7, 7, 0, 5], kind="block")
RANGE = pd.RangeIndex(5)
STAMP = pd.Timestamp("2020", tz="UTC")
GAPS = pd.Series([1, pd.NA, None] * 3, dtype=object)
REPEATS = pd.Series(["a", "b", None] * 100, dtype=object)
PERIODS = pd.period_range("2020", periods=2, freq="M").array


def sent(value):
    header, frames = families.serialize(value, FAMILIES)
    return plain.decode(plain.encode(header)), [bytes(frame) for frame in frames]


def lying(value, *path, to):
    header, frames = sent(value)
    return put(header, ("sub-header", *path), to), frames


def swapped(value, position, frame):
    header, frames = sent(value)
    frames[position] = frame if isinstance(frame, bytes) else np.asarray(frame).tobytes()
    return header, frames


def refused(header, frames, *, limits=LIMITS):
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT, limits=limits)
    assert len(str(caught.value)) < 700
    return caught.value.rule


HEADERS = {
    "families.header": [
        (STAMP, ("value",), -(1 << 63)),
        (STAMP, ("value",), 1.0),
        (STAMP, ("unit",), "D"),
        (STAMP, ("fold",), 2),
        (pd.Timedelta(1), ("unit",), None),
        (pd.Interval(0, 1), ("closed",), "all"),
        (REPEATS, ("values", 1), 5),
        (REPEATS, ("values", 3), ["a", 1]),
        (PERIODS, ("freq",), ["Hour", 1, False, []]),
        (FRAME, ("unique",), 1),
        (FRAME, ("attrs",), None),
        (FRAME, ("blocks",), {}),
        (FRAME, ("blocks", 0), ["numbers"]),
        (FRAME, ("blocks", 0, 0), []),
        (FRAME, ("blocks", 0, 0), "numbers"),
        (FRAME, ("blocks", 0, 0, 0), ["numbers"]),
        (FRAME, ("blocks", 0, 0, 0), "pickled"),
        (FRAME, ("blocks", 0, 0, 2), 4),
        (FRAME, ("blocks", 0, 0, 2), True),
        (FRAME, ("blocks", 0, 1), 1 << 41),
        (FRAME, ("blocks", 0, 1), None),
        (FRAME, ("index", 0), "RangeIndex"),
        (FRAME, ("index", 0), 5),
        (FRAME, ("index",), None),
        (FRAME, ("index", 1), 1.5),
        (FRAME, ("index", 1), "\ud800"),
        (FRAME, ("index", 1), "x" * 2000),
        (FRAME, ("index", 1), 1 << 80),
        (FRAME, ("index", 2), ["Hour", 1, False, []]),
        (RANGE, ("index", 2), True),
        (RANGE, ("index",), ["Index", None, None, ["objects", 0, []]]),
        (LEVELS, ("index", 1), [None]),
        (LEVELS, ("index", 4, 1), ["|i1", 0, 0]),
        (LEVELS, ("index", 2), "0"),
        (INTERVALS, ("array", 1), "none"),
        (CATEGORIES, ("array", 2), 1),
        (TEXT, ("array", 2), 1),
        (TEXT, ("array", 1), "string_view"),
        (TEXT, ("array", 3), None),
        (TEXT, ("array", 3, 0), [3, 1]),
        (TEXT, ("array", 3, 0), [-3, False]),
        (TEXT, ("array", 3, 0), [0, True]),
        (PYTHON, ("array", 3), "text"),
        (PYTHON, ("array", 3), [1]),
        (SPARSE, ("array", 2), 1),
        (SPARSE, ("array", 3), 1.0),
        (ZONED, ("array",), ["numbers", "<i8", 0]),
    ],
    "families.dtype": [
        (FRAME, ("blocks", 0, 0, 1), "|O"),
        (FRAME, ("blocks", 0, 0, 1), "O"),
        (FRAME, ("blocks", 0, 0, 1), "|V8"),
        (FRAME, ("blocks", 0, 0, 1), "<M8"),
        (FRAME, ("blocks", 0, 0, 1), "<M8[D]"),
        (FRAME, ("blocks", 0, 0, 1), ">M8[ns]"),
        (FRAME, ("blocks", 0, 0, 1), "<U2"),
        (FRAME, ("blocks", 0, 0, 1), 8),
        (FRAME, ("index", 3, 1), "<f2"),
        (pd.Series(np.ones(1, "g")), ("index",), ["Index", None, None, ["numbers", "<f16", 0]]),
        (NULLABLE, ("array", 1), "<c8"),
        (NULLABLE, ("array", 1), ">i8"),
        (NULLABLE, ("array", 1), "<M8[ns]"),
        (PERIODS, ("array", 1), "<u8"),
    ],
    "families.shape": [
        (FRAME, ("blocks", 0, 0, 1), "<i4"),
        (FRAME, ("blocks", 0, 2), 0),
        (FRAME, ("blocks", 0, 2), 3),
        (FRAME, ("blocks", 0, 2), 2.0),
        (FRAME, ("blocks", 0, 1), 1),
        (FRAME, ("blocks", 0, 1), -1),
        (FRAME, ("blocks", 0, 3), 2),
        (FRAME, ("blocks", 0, 3), 0),
        (FRAME, ("columns", 3), ["text", "large_string", True, ["a"]]),
        (MIXED, ("blocks", 1, 1), 1 - MIXED._mgr.blocks[1].mgr_locs.as_slice.start),
        (pd.Series([1]), ("index", 3), 2),
        (NULLABLE, ("array", 1), "<i4"),
        (NULLABLE, ("array", 1), "<f2"),
        (FRAME, ("blocks",), []),
        (FRAME, ("index",), ["range", None, 0, 2, 1]),
    ],
    "families.child-type": [
        (FRAME, ("index", 0), "DatetimeIndex"),
        (FRAME, ("index", 3), ["wrapped", ["numbers", "<i8", 0]]),
        (DATES, ("index", 3, 1), "<m8[us]"),
        (DATES, ("index", 3, 1), "<i8"),
        (INTERVALS, ("array", 2), ["numbers", "|b1", 0]),
        (INTERVALS, ("array", 2, 1), ">i8"),
        (SHORT, ("array", 3), ["a", 1]),
        (SHORT, ("array", 3), ["a"] * 65),
        (SHORT, ("array", 3), ["\ud800"]),
        (CATEGORIES, ("array", 3), "|u1"),
        (REPEATS, ("values", 2), "|i1"),
        (pd.Series([1]), ("values",), ["wrapped", ["numbers", "<i8", 0]]),
    ],
    "value.columns": [(FRAME, ("blocks", 0, 2), 1 << 40)],
    "value.index": [
        (LEVELS, ("index", 2), 3),
        (RANGE, ("index", 4), 0),
        (RANGE, ("index", 3), 1 << 62),
        (RANGE, ("index", 3), 1 << 40),
    ],
    "families.codes": [
        (CATEGORIES, ("array", 1), ["range", None, 0, 1, 1]),
        (LEVELS, ("index", 3, 0), ["range", None, 0, 1, 1]),
    ],
    "families.frame-count": [
        (NULLABLE, ("array",), ["numbers", "<M8[ns]", 0]),
        (RANGE, ("index",), ["Index", None, None, ["numbers", "<i8", 0]]),
    ],
    "families.child-count": [
        (FRAME, ("attrs",), True),
        (FRAME, ("index", 1), []),
        (FRAME, ("blocks", 0, 0), ["objects", 0, None]),
        (pd.Series([1]), ("values",), ["arrow"]),
        (LEVELS, ("index", 3), []),
    ],
    "families.time-zone": [
        (ZONED, ("array", 3), None),
        (ZONED, ("array", 3), ["os", "system"]),
        (ZONED, ("array", 3), [99, 0, 0, None]),
        (ZONED, ("array", 3), "UTC"),
        (ZONED, ("array", 1), "<m8[us]"),
        (ZONED, ("array", 3), ["pytz", "../passwd"]),
    ],
    "value.time-zone": [
        (ZONED, ("array", 3), ["../../etc/passwd"]),
        (ZONED, ("array", 3), ["No/Where"]),
    ],
    "families.freq": [
        (DATES, ("index", 2), ["Hour", 1, 0, []]),
        (DATES, ("index", 2), ["Hour", 1.0, False, []]),
        (DATES, ("index", 2), ["BaseOffset", 1, False, []]),
        (DATES, ("index", 2), ["to_offset", 1, False, []]),
        (DATES, ("index", 2), [["Hour"], 1, False, []]),
        (DATES, ("index", 2), ["Hour", 1, False, [[1]]]),
        (DATES, ("index", 2), ["DateOffset", 1, False, []]),
        (PERIODS, ("array", 3), ["Holiday", 1, False, []]),
    ],
    "value.offset": [
        (DATES, ("index", 2), ["Hour", 1 << 70, False, []]),
        (DATES, ("index", 2), ["Hour", 1 << 60, False, []]),
        (DATES, ("index", 2), ["MonthEnd", 1 << 17, False, []]),
        (DATES, ("index", 2), ["DateOffset", 1 << 17, False, {"days": 1}]),
        (DATES, ("index", 2), ["DateOffset", 1, False, {"month": 1 << 40}]),
        (DATES, ("index", 2), ["DateOffset", 1, False, {"__class__": 1}]),
        (DATES, ("index", 2), ["DateOffset", 1, False, {"weekday": [9, 1]}]),
        (DATES, ("index", 2), ["DateOffset", 1, False, {"weekday": [1, 5000]}]),
    ],
    "value.period": [
        (PERIODS, ("array", 3), ["MonthEnd", 1000, False, []]),
        (PERIODS, ("array", 3), ["MonthEnd", 0, False, []]),
        (PERIODS, ("array", 3), ["MonthEnd", 1, True, []]),
        (PERIODS, ("array", 3), ["BusinessHour", 1, False, []]),
        (PERIODS, ("array", 3), ["DateOffset", 1, False, {"days": 1}]),
        (pd.Period("2020", "M"), ("freq",), ["MonthEnd", 1000, False, []]),
    ],
    "families.build": [
        (DATES.array, ("freq",), ["Hour", 2, False, []]),
        (DATES, ("index", 2), ["Hour", 2, False, []]),
        (DATES, ("index", 2), ["Minute", 60 * 24, False, []]),
        (DATES, ("index", 2), ["MonthEnd", 1, False, []]),
        (DATES, ("index", 2), ["Nano", 1, False, []]),
        (PERIODS, ("array", 3), ["Week", 1, False, [13]]),
        (DATES, ("index", 2), ["DateOffset", 1, False, {"weekday": [1.5, 1]}]),
        (pd.Period("2020", "M"), ("freq",), ["SemiMonthEnd", 1, False, [3]]),
    ],
    "value.sparse": [
        (SPARSE, ("array", 3), 3),
    ],
}


@pytest.mark.parametrize(
    ("rule", "lie"),
    [(rule, lie) for rule, lies in HEADERS.items() for lie in lies],
    ids=lambda part: part if isinstance(part, str) else repr(part[1:])[:70],
)
def test_headers_that_lie(rule, lie):
    value, path, to = lie
    header, frames = lying(value, *path, to=to)
    assert refused(header, frames) == rule


BUFFERS = {
    "families.shape": [
        (GAPS, 0, b"\0" * 9),
        (GAPS, 0, b"\2" * 9),
        (FRAME, 1, b"\0" * 31),
        (FRAME, 1, b"\0" * 16),
        (FRAME, 1, b""),
        (NULLABLE, 1, b"\0"),
        (TEXT, 1, np.arange(3)),
        (TEXT, 0, b"\0\0"),
    ],
    "families.codes": [
        (GAPS, 0, b"\x04" + b"\0" * 8),
        (REPEATS, 0, b"\x03" * 300),
        (CATEGORIES, 1, b"\x02\x00\x00"),
        (CATEGORIES, 1, b"\xfe\x00\x00"),
        (LEVELS, 1, b"\x05\x00\x00\x00"),
    ],
    "families.offsets": [
        (TEXT, 1, [0, 3000, 3000, 3002]),
        (TEXT, 1, [1, 3000, 3000, 3001]),
        (TEXT, 1, [0, 3001, 3000, 3001]),
        (TEXT, 1, [0, -1, 3000, 3001]),
        (TEXT, 1, [0, 1 << 40, 3000, 3001]),
        (TEXT, 2, b"\xff" * 3001),
        # What stands behind a missing text is followed as well by some of Arrow's functions.
        (TEXT, 2, b"a" * 2999 + b"\xc3\xa9"),
    ],
    "value.sparse": [
        (SPARSE, 1, np.array([3, 1], "i4")),
        (SPARSE, 1, np.array([1, 4], "i4")),
        (SPARSE, 1, np.array([-1, 1], "i4")),
        (BLOCKS, 1, np.array([1, 2], "i4")),
        (BLOCKS, 2, np.array([2, 1 << 30], "i4")),
    ],
    "value.labels": [(CATEGORIES, 0, [7, 7])],
    "families.build": [
        (DATES, 0, [0, 3_600_000_000, 7_200_000_001]),
        (DATES, 0, [0, -(1 << 63), 7_200_000_000]),
        (DATES, 0, [(1 << 63) - 3_600_000_000, -(1 << 63), 3_600_000_000 - (1 << 63)]),
        (INTERVALS, 0, [5, 1]),
    ],
}


@pytest.mark.parametrize(
    ("rule", "lie"),
    [(rule, lie) for rule, lies in BUFFERS.items() for lie in lies],
    ids=lambda part: part if isinstance(part, str) else repr(part[1:])[:70],
)
def test_buffers_that_lie(rule, lie):
    assert refused(*swapped(*lie)) == rule


def test_places_of_columns_cover_each_once():
    numbers = [np.full(1, value) for value in (1, 0.5, 2, 0.5, 0.5, 3)]
    frame = pd.DataFrame(dict(zip("abcdef", numbers, strict=True)))
    header, frames = sent(frame)
    wide = [block for block in header["sub-header"]["blocks"] if block[1] is None]
    assert len(wide) == 2
    at = next(n for n, part in enumerate(frames) if part == np.array([0, 2, 5]).tobytes())
    for places in ([0, 2, 4], [0, 0, 5], [0, 2, 6], [0, 2, -1], [0, 2], [0, 2, 1 << 62]):
        wrong = [*frames[:at], np.array(places).tobytes(), *frames[at + 1 :]]
        assert refused(header, wrong) == "families.shape"


def test_places_of_many_columns_cover_each_once():
    numbers = {n: np.full(1, [n, 0.5][n % 3 == 1]) for n in range(90)}
    frame = pd.DataFrame(numbers)[[*range(0, 90, 2), *range(1, 90, 2)]]
    frame = frame.copy()
    header, frames = sent(frame)
    same_frame(families.deserialize(header, frames, GRANT), frame)
    blocks = header["sub-header"]["blocks"]
    turned = pd.DataFrame({n: [n] for n in range(40)}).astype({0: "f8"})
    for value in (frame, turned):
        honest, more = sent(value)
        for at, block in enumerate(honest["sub-header"]["blocks"]):
            for change in (-1, 1, 90):
                if block[1] is not None:
                    path = ("sub-header", "blocks", at, 1)
                    assert refused(put(honest, path, block[1] + change), more) == "families.shape"
    assert blocks


def test_nothing_is_left_over():
    for value in (FRAME, TEXT, RANGE, pd.Series([1])):
        header, frames = sent(value)
        assert refused(header, [*frames, b""]) == "families.frame-count"
        extra = {**header, "sub-headers": [{"serializer": "msgpack"}], "frame-lengths": [1]}
        assert refused(extra, [*frames, b"\xc0"]) == "families.child-count"
        assert refused({**header, "sub-header": {}}, frames) == "families.header"


def test_descriptions_are_not_nested_without_end():
    inner = ["numbers", "|i1", 0]
    for _ in range(50):
        inner = ["categories", ["CategoricalIndex", None, None, inner], False, "|i1", 0]
    header, _ = lying(CATEGORIES, "array", to=inner)
    assert refused(header, [b""] * 51) == "families.depth"
    level = ["multi", [None], None, [["range", None, 0, 9, 1]], [["|i1", 0]]]
    assert refused(*lying(LEVELS, "index", 3, 0, to=level)) == "families.child-type"
    within = ["categories", level, False, "|i1", 0]
    assert refused(*lying(CATEGORIES, "array", to=within)) == "families.codes"


@pytest.mark.parametrize(
    "part",
    [
        ["periods", "<i8", 1, ["Hour", 1, False, []]],
        ["dates", "<M8[s]", 1, ["UTC"]],
        ["dates", "<M8[s]", 3, ["UTC"]],
        ["intervals", "left", ["numbers", "<i8", 0], ["numbers", "<i8", 0], None, None],
        ["masked", "<i8", 0, 0],
        ["text", "python", True, ["a", "b"]],
        ["objects", 1, ["a", "b"]],
        ["coded", 1, "|u1", ["a", "b"]],
        ["marked", 1, ["a", "b"]],
        ["categories", ["range", None, 0, 9, 1], False, "<i8", 0],
        ["sparse", "<i8", 0, False, 2],
        ["wrapped", ["numbers", "<i8", 0]],
        ["arrow"],
    ],
    ids=lambda part: part[0],
)
def test_blocks_of_two_columns(part):
    header, frames = sent(FRAME)
    at = next(n for n, frame in enumerate(frames) if len(frame) == 32)
    header["sub-header"]["blocks"][0][0] = part
    try:
        back = families.deserialize(header, frames, GRANT, limits=LIMITS)
    except PayloadError:
        assert part[0] not in ("periods", "dates")
    else:
        # Moments and periods are the arrays that pandas keeps in two dimensions.
        assert part[0] in ("periods", "dates")
        assert back.shape == FRAME.shape
        repr(back)
    assert len(frames[at]) == 32


def test_flags_of_any_byte_are_flags():
    for value, at in ((pd.Series([True, False]), 0), (NULLABLE, 1)):
        header, frames = swapped(value, at, b"\x02\x00")
        back = families.deserialize(header, frames, GRANT)
        held = back._values if at == 0 else back._mask
        assert held.view("u1").tolist() == [1, 0]


def test_long_doubles_are_numbers():
    series = pd.Series(np.ones(2, "g"))
    header, frames = swapped(
        series, 0, b"\0" * 8 + b"\xff\x3f" + b"\0" * 6 + frames_of(series)[16:]
    )
    with pytest.raises(PayloadError):
        families.deserialize(header, frames, GRANT)


def frames_of(value):
    return sent(value)[1][0]


def test_many_parts_beside_each_other():
    frame = pd.concat([pd.Series(pd.cut([1, 5], [0, 3, 6]), name=n) for n in range(40)], axis=1)
    same_frame(families.deserialize(*sent(frame), GRANT), frame)
    levels = pd.MultiIndex.from_arrays([["a", "b"]] * 40)
    same_index(families.deserialize(*sent(levels), GRANT), levels)
    inner = ["wrapped", ["numbers", "<i8", 0]]
    for _ in range(9):
        inner = ["wrapped", inner]
    assert refused(*lying(CATEGORIES, "array", to=inner)) == "families.depth"


def test_labels_that_must_be_there_once():
    header, frames = sent(pd.DataFrame({"a": [1, 2]}, index=[5, 6]))
    header["sub-header"]["unique"] = True
    families.deserialize(header, frames, GRANT)
    frames[0] = np.array([5, 5]).tobytes()
    assert refused(header, frames) == "value.labels"
    text, more = sent(pd.Series([1, 2], index=SHORT_LABELS))
    text["sub-header"]["unique"] = True
    text["sub-header"]["index"][3][3] = ["a", "a"]
    assert refused(text, more) == "families.build"


def test_names_must_be_hashable():
    for value in (pd.Series([1], name=(1, 2)), pd.Index([1], name=(1, 2))):
        header, frames = sent(value)
        (at,) = (n for n, part in enumerate(frames) if part == plain.encode((1, 2)))
        frames[at] = plain.encode([1, 2])
        assert refused(header, frames) == "families.build"


def test_columns_without_rows_are_counted():
    header, frames = sent(pd.DataFrame(np.zeros((0, 3))))
    for columns in (1 << 17, (1 << 17) + 1):
        header["sub-header"]["columns"][3] = header["sub-header"]["blocks"][0][2] = columns
        assert refused(header, frames) == "value.columns"
        limits = Limits(max_refs=200_000, max_array=1 << 24)
        if columns == 1 << 17:
            made = families.deserialize(header, frames, GRANT, limits=limits)
            assert made.shape == (0, columns)
        else:
            assert refused(header, frames, limits=limits) == "value.columns"


def test_a_freq_that_takes_long_to_check():
    index = pd.date_range("2020", periods=100, freq="ME")
    header, frames = sent(index)
    few = Limits(max_refs=1500)
    assert refused(header, frames, limits=few) == "value.freq"
    with pytest.raises(PayloadError, match="too many values"):
        families.serialize(index, FAMILIES, limits=few)
    days = pd.date_range("2020", periods=100, freq="D")
    assert families.deserialize(*sent(days), GRANT, limits=few).freq == days.freq


def test_freqs_are_charged_to_the_message():
    """Each index had a budget of its own."""
    year = {"weekday": 1, "startingMonth": 1, "variation": "nearest"}
    quarters = pd.offsets.FY5253Quarter(qtr_with_extra_week=1, **year)
    index, few = pd.date_range("2020", periods=100, freq=quarters), Limits(max_refs=200_000)
    header, frames = families.serialize([index] * 2, FAMILIES, limits=few)
    assert families.deserialize(header, frames, GRANT, limits=few)[1].freq == quarters
    header, frames = families.serialize([index] * 20, FAMILIES, limits=few)
    assert refused(header, frames, limits=few) == "families.max-refs"


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


def test_limits_reach_columns():
    header, frames = families.serialize(pd.DataFrame({"a": np.zeros(100)}), FAMILIES)
    with pytest.raises(PayloadError):
        families.check(header, frames, limits=Limits(max_array=799))


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


def test_codes_stand_for_texts_alone():
    within, frame = families.serialize([1, 2], FAMILIES)
    header, frames = sent(REPEATS)
    described = header["sub-header"]["values"]
    described[3] = None
    header |= {"sub-headers": [within], "frame-lengths": [len(frame)]}
    assert refused(header, frames + list(frame)) == "families.child-type"


COLLIDING = [n * ((1 << 61) - 1) for n in range(99)]


@pytest.mark.parametrize("labels", [[[1]], [{}], COLLIDING], ids=["list", "dict", "colliding"])
def test_labels_that_make_no_table_or_a_slow_one(labels):
    index = pd.Index(np.array([*labels, None], object)[:-1])
    with pytest.raises(PayloadError, match="label"):
        families.serialize(index, FAMILIES)
    header, _ = sent(pd.Index([b"a"] * len(index), dtype=object))
    rules = ("families.key", "families.hash-flood")
    assert refused(header, [plain.encode(index.tolist())]) in rules


def test_labels_may_repeat():
    index = pd.Index([1, "a", 1, None] * 100, dtype=object)
    pd.testing.assert_index_equal(families.deserialize(*sent(index), GRANT), index)
