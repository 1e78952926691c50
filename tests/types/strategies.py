"""Values of every type that restricted pickle and typed values both spell, extremes included.

The one rule: a value is made as its library makes it. What a library refuses to make is no value.
Single values on both sides of each bound stand in ``test_one_bound``; here are those that are
found by drawing: numbers, texts, records, memory in any order, offsets, and types in types.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import functools
import re
import types
import warnings
import zoneinfo

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.samples.values import collect

__all__ = ["SPELT_TWICE", "honest", "opened", "values"]

#: The files of ``tests.samples.values`` whose types both spellings know.
SPELT_TWICE = ("arrays", "arrow", "estimators", "frames", "sparse", "stdlib", "table")


def made(build):
    """Return a strategy of what *build* makes; where it raises, of nothing in its place."""

    @st.composite
    def strategy(draw):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return build(draw)
        except (LookupError, ValueError, TypeError, ArithmeticError, NotImplementedError, re.error):
            return None
        except (SystemError, pa.ArrowException):  # SystemError: NumPy, of text beyond Unicode
            return None

    return strategy()


@functools.cache
def honest():
    """Return small examples of all types; draw them by place, since to print some takes long."""
    return list(collect(SPELT_TWICE)[0].values())


def powers(most):
    """Return numbers around the powers of two up to *most* bits, on both sides of zero."""
    near = st.tuples(st.integers(0, most), st.integers(-2, 2), st.booleans())
    return near.map(lambda n: ((1 << n[0]) + n[1]) * (-1 if n[2] else 1))


NUMBERS = st.integers(-3, 12) | powers(80)
LENGTHS = st.sampled_from([0, 1, 2, 3, 100, 255, 256, 257, 4300, 4301, 16_384, 16_385, 33_000])
TEXTS = st.text(max_size=6) | st.sampled_from(["", "\0", "\ud800", "x" * 300, "é", "None", "class"])
KEYS = ["UTC", "Europe/Paris", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "EST5EDT"]
OFFSETS = st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23))
ZONES = (
    st.none()
    | st.sampled_from(KEYS).map(zoneinfo.ZoneInfo)
    | made(lambda draw: dt.timezone(draw(OFFSETS), "n" * draw(LENGTHS)))
)

# -- the standard library ------------------------------------------------------------------------


def _decimal(draw):
    digits = draw(st.sampled_from(["1", "9", "-1", "0", "sNaN1", "NaN1"])) + "1" * draw(LENGTHS)
    if "N" in digits:
        return decimal.Decimal(digits)
    point = draw(st.sampled_from(["", ".", ".0"]))
    exponent = draw(st.sampled_from([0, 1, 300, 6144, 6145, 10_000, 65_530, 65_536, 65_537, 10**6]))
    return decimal.Decimal(f"{digits}{point}E{draw(st.sampled_from([1, -1])) * exponent}")


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | powers(70)
    | st.sampled_from([5000, 8 * 65_535 - 1, 8 * 65_537]).map(lambda bits: 1 << bits)
    | st.floats()
    | TEXTS
    | st.binary(max_size=9)
)
STANDARD = st.one_of(
    PLAIN,
    st.complex_numbers(),
    st.binary(max_size=9).map(bytearray),
    made(_decimal),
    made(lambda draw: range(draw(NUMBERS | powers(1030)), draw(NUMBERS), draw(NUMBERS))),
    *(st.dates(), st.datetimes(timezones=ZONES), st.times(timezones=ZONES), st.timedeltas(), ZONES),
)

# -- NumPy ---------------------------------------------------------------------------------------


def _record(draw):
    """Return a record with fields that overlap, leave gaps and have titles."""
    inner = draw(st.lists(DTYPES, min_size=0, max_size=4))
    places, at = [], 0
    for dtype in inner:
        near = draw(st.sampled_from([0, 0, 0, 1, 8, -1]))
        places.append(max(0, at + near))
        at = places[-1] + dtype.itemsize
    size = at + draw(st.sampled_from([0, 0, 0, 3, 8]))
    form = {"names": [f"f{n}" for n in range(len(inner))], "formats": inner}
    form |= {"offsets": places, "itemsize": size}
    if draw(st.integers(0, 4)) == 0:
        form["titles"] = [f"t{n}" for n in range(len(inner))]
    return np.dtype(form)


def _sub_array(draw):
    return np.dtype((draw(DTYPES), draw(st.sampled_from([(1,), (2, 3), (1,) * 33]))))


def some(build):
    """Return a strategy of what *build* makes where it does not refuse."""
    return made(build).filter(lambda value: value is not None)


SCALAR_DTYPES = st.one_of(
    hnp.scalar_dtypes(),
    st.sampled_from(["g", "G", ">g", "V0", "S0", "U0", "V5", ">U2", "M8", "M8[25us]", "m8[W]"]),
).map(np.dtype)
DTYPES = st.deferred(
    lambda: st.one_of(SCALAR_DTYPES, SCALAR_DTYPES, some(_record), some(_sub_array))
)
SHAPES = st.sampled_from(
    [(), (0,), (1,), (2,), (3,), (2, 3), (3, 0), (0, 3), (2, 1, 2), (0, 1 << 20), (0, 1 << 27),
     (0, 1 << 40), (1,) * 64, (1,) * 40, (5, 0, 1 << 31)]
)  # fmt: skip


def _array(draw):
    array = np.zeros(draw(SHAPES), draw(DTYPES))
    if array.nbytes and draw(st.integers(0, 2)) == 0:
        raw = bytearray(array.tobytes())
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(raw) - 1))
            raw[at] = draw(st.sampled_from([1, 2, 0x40, 0x7F, 0xFF]))
        array = np.frombuffer(raw, array.dtype).reshape(array.shape)
    return _turned(array, draw(st.sampled_from(["", "T", "F", "step", "back", "fixed", "seen"])))


def _turned(array, turn):
    if turn == "T":
        return array.T
    if turn == "F":
        return np.asfortranarray(array)
    if turn in ("step", "back"):
        return array[:: 2 if turn == "step" else -1] if array.ndim else array
    if turn == "fixed":
        array.flags.writeable = False
    return np.broadcast_to(array, (2, *array.shape)) if turn == "seen" else array


def _kind_of(draw):
    array = draw(some(_array))
    kind = draw(st.sampled_from(["scalar", "masked", "matrix", "recarray", "chararray"]))
    if kind == "scalar":
        scalar = array.reshape(-1)[0]
        repr(scalar)  # which some moments without a unit have not
        return scalar
    if kind == "masked":
        fill = draw(st.sampled_from([None, None, 1, "x"]))
        return np.ma.array(array, mask=draw(st.booleans()), fill_value=fill)
    if kind == "matrix":
        return array.view(np.matrix) if array.ndim == 2 else None
    return array.view({"recarray": np.recarray, "chararray": np.char.chararray}[kind])


NUMPY = st.one_of(DTYPES, *map(made, (_array, _array, _kind_of)))

# -- pandas --------------------------------------------------------------------------------------

INT64 = st.integers(-(2**63) + 1, 2**63 - 1)


def _moment(draw):
    number = draw(INT64 | st.integers(0, 10**9))
    unit = draw(st.sampled_from(["s", "ms", "us", "ns"]))
    if draw(st.booleans()):
        return pd.Timedelta(np.timedelta64(number, unit))
    stamp = pd.Timestamp(np.datetime64(number, unit))
    zone = draw(ZONES)
    return stamp if zone is None else stamp.tz_localize("UTC").tz_convert(zone)


def _offset(draw):
    kinds = ["Day", "Hour", "Nano", "MonthEnd", "BDay", "Week", "YearEnd", "QuarterEnd", "CDay"]
    kinds += ["BusinessHour", "SemiMonthEnd", "FY5253", "Easter", "LastWeekOfMonth", "WeekOfMonth"]
    counts = [0, 1, 2, -3, 999, 1000, 65_535, 65_536, 1 << 31, 1 << 40, 1 << 62]
    return getattr(pd.offsets, draw(st.sampled_from(kinds)))(draw(st.sampled_from(counts)))


def opened(count):
    """Return *count* openings of one day."""
    step = 24 * 60 // count
    starts = [at * step for at in range(count)]
    clock = "{:02d}:{:02d}".format
    return {
        "start": [clock(*divmod(at, 60)) for at in starts],
        "end": [clock(*divmod(at + step - 1, 60)) for at in starts],
    }


def _date_offset(draw):
    names = st.sampled_from(["days", "months", "hour", "nanoseconds", "weekday", "year", "weeks"])
    spans = draw(st.dictionaries(names, st.integers(0, 6) | powers(33), max_size=3))
    return pd.DateOffset(draw(st.sampled_from([0, 1, -2, 65_535, 65_536, 70_000])), **spans)


def _period(draw):
    freq = draw(st.sampled_from(["D", "M", "Q-NOV", "W-TUE", "h", "ns", "B", "Y", "5D", "999D"]))
    period = pd.Period(ordinal=draw(st.integers(-(10**5), 10**5) | INT64), freq=freq)
    return draw(st.sampled_from([pd.PeriodDtype(freq), period, pd.PeriodIndex([period])]))


def _interval(draw):
    ends = st.integers() | st.floats(allow_nan=False) | powers(1030) | made(_moment)
    left = draw(ends)
    right = draw(st.sampled_from([left]) | ends)
    return pd.Interval(left, right, draw(st.sampled_from(["left", "right", "both", "neither"])))


PANDAS = map(made, (_moment, _offset, _date_offset, _period, _interval))

# -- Arrow ---------------------------------------------------------------------------------------

FLAT_TYPES = [pa.null(), pa.bool_(), pa.int8(), pa.float64(), pa.string(), pa.large_binary()]
FLAT_TYPES += [pa.string_view(), pa.binary(3), pa.binary(0), pa.decimal128(5, 2), pa.date64()]
FLAT_TYPES += [pa.timestamp("us", "Europe/Paris"), pa.duration("s"), pa.month_day_nano_interval()]
FLAT_TYPES += [pa.uuid(), pa.bool8(), pa.json_(), pa.opaque(pa.int8(), "a", "b"), pa.struct([])]
FLAT_TYPES += [pa.dictionary(pa.int8(), pa.string()), pa.struct([(f"f{n}", "i1") for n in "abc"])]
WRAPS = [
    *(pa.list_, pa.large_list, pa.list_view, lambda inner: pa.list_(inner, 2)),
    lambda inner: pa.list_(inner, 1 << 25),
    lambda inner: pa.map_(pa.string(), inner),
    lambda inner: pa.map_(inner, pa.int8()),
    lambda inner: pa.struct([pa.field("x", inner, metadata={"a": "b"})]),
    lambda inner: pa.dense_union([pa.field("a", inner)]),
    lambda inner: pa.dictionary(pa.int8(), inner),
    lambda inner: pa.run_end_encoded(pa.int32(), inner),
]


def _type(draw):
    kind = draw(st.sampled_from(FLAT_TYPES))
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 3, 14, 15, 16, 40]))):
        kind = draw(st.sampled_from(WRAPS))(kind)
    return kind


# -- containers ----------------------------------------------------------------------------------


def _hashable(value):
    """Tell whether *value* may be a key in both spellings; see ``TYPED`` in only_one."""
    if isinstance(value, tuple | frozenset):
        return all(map(_hashable, value))
    if isinstance(value, types.BuiltinFunctionType | pd.ArrowDtype) or type(
        value
    ).__module__.startswith("pyarrow"):
        return False
    try:
        return bool(hash(value) != object.__hash__(value)) or value is None or value is ...
    except (TypeError, ValueError):
        return False


def containers(inner):
    keys = inner.filter(_hashable)
    pairs = st.dictionaries(keys, inner, max_size=3)
    return st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.lists(inner, min_size=4, max_size=6).map(lambda items: [items[0]] * 5),
        st.sets(keys, max_size=3),
        st.sets(keys, max_size=3).map(frozenset),
        pairs,
        *map(pairs.map, (collections.OrderedDict, collections.Counter, collections.UserDict)),
        st.lists(inner, max_size=3).map(collections.UserList),
        made(lambda draw: collections.deque(draw(st.lists(inner, max_size=3)), draw(NUMBERS))),
        made(lambda draw: collections.defaultdict(draw(FACTORIES), draw(pairs))),
        st.dictionaries(TEXTS, inner, max_size=3).map(lambda held: types.SimpleNamespace(**held)),
        made(lambda draw: slice(draw(inner), draw(inner), draw(inner))),
    )


FACTORIES = st.sampled_from(
    [None, bool, bytes, dict, float, frozenset, int, list, set, str, tuple, complex]
)
LEAVES = st.one_of(
    *(STANDARD, NUMPY, *PANDAS, some(_type)),
    made(lambda draw: honest()[draw(st.integers(0, len(honest()) - 1))]),
)


def values():
    """Return a strategy of values of all types, alone and in containers."""
    return LEAVES | containers(LEAVES) | containers(containers(STANDARD | NUMPY))
