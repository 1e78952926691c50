"""Values of every type that restricted pickle and typed values both spell, extremes included.

The one rule: a value is made as its library makes it. What a library refuses to make is no value.
"""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import fractions
import functools
import ipaddress
import pathlib
import random
import re
import time
import types
import uuid
import zoneinfo

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse as sp
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.types.arrow_strategies import ARROW, ARROW_TYPES
from tests.types.making import made

__all__ = ["columns", "dtypes", "indexes", "opened", "values"]


def powers(most):
    """Return numbers around the powers of two up to *most* bits, on both sides of zero."""
    near = st.tuples(st.integers(0, most), st.integers(-2, 2), st.booleans())
    return near.map(lambda n: ((1 << n[0]) + n[1]) * (-1 if n[2] else 1))


NUMBERS = st.integers(-3, 12) | powers(80)
COUNTS = st.sampled_from([0, 1, 2, 3, 10, 100, 255, 256, 257, 1000, 1001, 2047, 2048, 2049])
LENGTHS = COUNTS | st.sampled_from([4096, 4300, 4301, 9999, 10_000, 10_001, 16_384, 16_385, 33_000])
TEXTS = st.text(max_size=6) | st.sampled_from(["", "\0", "\ud800", "x" * 300, "é", "None", "class"])
OFFSETS = st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23))
KEYS = ["UTC", "Europe/Paris", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "EST5EDT"]
ZONES = (
    st.none()
    | st.sampled_from(KEYS).map(zoneinfo.ZoneInfo)
    | made(lambda draw: dt.timezone(draw(OFFSETS)))
    | made(lambda draw: dt.timezone(draw(OFFSETS), "n" * draw(COUNTS)))
)

# -- the standard library ------------------------------------------------------------------------


def _decimal(draw):
    digits = draw(st.sampled_from(["1", "9", "-1", "0", "sNaN1", "NaN1"])) + "1" * draw(LENGTHS)
    if "N" in digits:
        return decimal.Decimal(digits)
    point = draw(st.sampled_from(["", ".", ".0"]))
    exponent = draw(st.sampled_from([0, 1, 300, 6144, 6145, 10_000, 65_530, 65_536, 65_537, 10**6]))
    return decimal.Decimal(f"{digits}{point}E{draw(st.sampled_from([1, -1])) * exponent}")


def _fraction(draw):
    bits = st.integers(0, 66) | st.sampled_from([16_000, 17_200, 20_000, 65_535, 65_536, 65_537])
    return fractions.Fraction((1 << draw(bits)) - draw(NUMBERS), (1 << draw(bits)) + 1)


def _path(draw):
    part = "a" * draw(LENGTHS) + draw(st.sampled_from(["", "\0", "\udcff", ".", ":"]))
    kind = draw(st.sampled_from([pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.Path]))
    return kind(*[part[:20]] * draw(COUNTS), part, draw(st.sampled_from(["", "..", "/", "c:"])))


def _address(draw):
    scope = draw(st.sampled_from(["", "%eth0", "%" + "e" * 52, "%" + "e" * 80]))
    number = draw(st.integers(0, 2**128 - 1)) >> draw(st.sampled_from([0, 64, 120]))
    text = f"{ipaddress.IPv6Address(number)}{scope}"
    kinds = (ipaddress.ip_address, ipaddress.ip_interface, ipaddress.ip_network)
    return draw(st.sampled_from(kinds))(
        draw(st.sampled_from([text, f"{text}/128", "10.0.0.0/8", "1.2.3.4"]))
    )


def _pattern(draw):
    text = draw(st.sampled_from(["a", "[a-z]", "[\0-\xff]", "(a|b)", "\\d", "é", "\\N{BULLET}"]))
    text *= draw(st.sampled_from([1, 2, 20, 31, 32, 33, 200, 1000, 1001]))
    flags = draw(st.sampled_from([0, re.I, re.X | re.S, re.A]))
    return re.compile(text.encode() if draw(st.booleans()) and text.isascii() else text, flags)


def _struct_time(draw):
    parts = [draw(st.integers(-1, 60) | powers(40))] + [1] * 8
    zone = draw(st.none() | COUNTS.map(lambda n: "z" * n))
    return time.struct_time(parts, {"tm_zone": zone, "tm_gmtoff": draw(st.none() | powers(40))})


def _array(draw):
    code = draw(st.sampled_from("bBhHiIlLqQfdu"))
    return array.array(code, "ab\ud800" if code == "u" else [0, 1, 100][: draw(st.integers(0, 3))])


def _uuid(draw):
    number = draw(st.integers(0, 2**128 - 1))
    return uuid.UUID(int=number, is_safe=draw(st.sampled_from(list(uuid.SafeUUID))))


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
    st.sampled_from([4095, 4096, 5000]).map(bytes),
    st.sampled_from([..., NotImplemented]),
    made(_decimal),
    made(_fraction),
    made(lambda draw: range(draw(NUMBERS | powers(1030)), draw(NUMBERS), draw(NUMBERS))),
    made(_path),
    made(_address),
    made(_pattern),
    made(_struct_time),
    made(_array),
    made(_uuid),
    st.dates(),
    st.datetimes(timezones=ZONES),
    st.times(timezones=ZONES),
    st.timedeltas(),
    ZONES,
    st.integers(0, 5).map(random.Random),
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


def _wrapped(draw):
    """Return a record with a field beyond its end; NumPy would read there, so no array has it."""
    inner = draw(DTYPES)
    place = (1 << 31) - draw(st.sampled_from([1, 4, 8, inner.itemsize]))
    return np.dtype({"names": ["a"], "formats": [inner], "offsets": [place], "itemsize": 8})


def _wide(draw):
    count = draw(st.sampled_from([1, 4096, 4097, 5000, 10_000, 10_001]))
    return np.dtype([(f"f{n}", "i1") for n in range(count)])


def _nested(draw):
    dtype = draw(SCALAR_DTYPES)
    shape = draw(st.sampled_from([(), (), (1,), (2,)]))
    for _ in range(draw(st.sampled_from([1, 2, 8, 9, 15, 16, 17, 20]))):
        dtype = np.dtype([("a", dtype, shape)])
    return dtype


def _noted(draw):
    notes = st.dictionaries(st.sampled_from(["a", "b"]), PLAIN | st.lists(PLAIN, max_size=2))
    return np.dtype(draw(DTYPES), metadata=draw(notes))


SCALAR_DTYPES = st.one_of(
    hnp.scalar_dtypes(),
    st.sampled_from(["g", "G", ">g", "V0", "S0", "U0", "V5", ">U2", "M8", "M8[25us]", "m8[W]"]),
).map(np.dtype)
DTYPES = st.deferred(
    lambda: st.one_of(
        SCALAR_DTYPES,
        SCALAR_DTYPES,
        made(_record).filter(lambda dtype: dtype is not None),
        made(
            lambda draw: np.dtype((draw(DTYPES), draw(st.sampled_from([(1,), (2, 3), (1,) * 33]))))
        ).filter(lambda dtype: dtype is not None),
    )
)
ODD_DTYPES = st.one_of(
    DTYPES,
    made(_wrapped),
    made(_wide),
    made(_nested),
    made(_noted),
    made(lambda draw: np.dtypes.StringDType(coerce=draw(st.booleans()))),
    st.sampled_from([f"S{n}" for n in (0, 1 << 20, (1 << 30) - 1, 1 << 30, (1 << 30) + 1)]).map(
        np.dtype
    ),
    st.just(np.dtype(object)),
    st.just(np.dtype([("a", object)])),
)
SHAPES = st.one_of(
    st.sampled_from([(), (0,), (1,), (2,), (3,), (2, 3), (3, 0), (0, 3), (2, 1, 2)]),
    st.sampled_from(
        [(0, 1 << 20), (0, 1 << 27), (0, 1 << 40), (1,) * 64, (1,) * 40, (5, 0, 1 << 31)]
    ),
)


def _array_of(draw):
    dtype, shape = (
        draw(DTYPES | made(_nested).filter(lambda dtype: dtype is not None)),
        draw(SHAPES),
    )
    array = np.zeros(shape, dtype)
    if array.nbytes and draw(st.integers(0, 2)) == 0:
        array = _filled(array, draw)
    turn = draw(st.sampled_from(["", "", "T", "F", "step", "back", "read-only", "broadcast"]))
    return _turned(array, turn)


def _filled(array, draw):
    raw = bytearray(array.tobytes())
    for _ in range(draw(st.integers(1, 3))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.sampled_from([1, 2, 0x40, 0x7F, 0xFF]))
    return np.frombuffer(raw, array.dtype).reshape(array.shape)


def _turned(array, turn):
    if turn == "T":
        return array.T
    if turn == "F":
        return np.asfortranarray(array)
    if turn in ("step", "back"):
        return array[:: 2 if turn == "step" else -1] if array.ndim else array
    if turn == "read-only":
        array.flags.writeable = False
    return np.broadcast_to(array, (2, *array.shape)) if turn == "broadcast" else array


def _kind_of(draw):
    array = draw(made(_array_of).filter(lambda array: array is not None))
    kind = draw(st.sampled_from(["scalar", "masked", "matrix", "recarray", "chararray"]))
    if kind == "scalar":
        return array.reshape(-1)[0] if array.size else None
    if kind == "masked":
        fill = draw(st.sampled_from([None, None, 1, "x"]))
        return np.ma.array(array, mask=draw(st.booleans()), fill_value=fill)
    if kind == "matrix":
        return array.view(np.matrix) if array.ndim == 2 else None
    return array.view({"recarray": np.recarray, "chararray": np.char.chararray}[kind])


def _objects(draw):
    items = draw(st.lists(STANDARD, max_size=4))
    array = np.empty(len(items), object)
    for at, item in enumerate(items):
        array[at] = item
    return array.reshape(draw(st.sampled_from([-1, (len(items), 1), (1, len(items))])))


def _seed(draw):
    words = draw(st.lists(st.integers(0, 1 << 40), max_size=3))
    number = 1 << draw(st.sampled_from([3, 64, 8000, 8200, 10_000]))
    kind = draw(st.integers(0, 4))
    entropy = (number, words, tuple(words), np.uint64(5), [np.uint64(5)])[kind]
    key = tuple(draw(st.lists(NUMBERS, max_size=2)))
    return np.random.SeedSequence(
        entropy, spawn_key=key, pool_size=draw(st.sampled_from([4, 8, 64, 65]))
    )


def _generator(draw):
    kinds = (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64)
    bits = draw(st.sampled_from(kinds))(draw(made(_seed)))
    return draw(
        st.sampled_from([lambda b: b, np.random.Generator, np.random.RandomState]),
    )(bits)


def _polynomial(draw):
    numbers = draw(st.lists(st.integers(0, 3) | st.floats() | st.complex_numbers(), min_size=1))
    name = draw(st.sampled_from(["x", "zz", "z" * 64, "z" * 65]))
    if draw(st.booleans()):
        return np.poly1d(numbers, variable=name)
    kinds = (np.polynomial.Polynomial, np.polynomial.Chebyshev, np.polynomial.HermiteE)
    return draw(st.sampled_from(kinds))(numbers, symbol=name)


NUMPY = st.one_of(
    ODD_DTYPES,
    made(_array_of),
    made(_array_of),
    made(_kind_of),
    made(_objects),
    made(_seed),
    made(_generator),
    made(_polynomial),
    st.sampled_from([np.str_("a\0"), np.bytes_(b"a\0"), np.str_(""), np.ma.masked]),
    st.just(np.array(["a"], np.dtypes.StringDType())),
)

# -- pandas --------------------------------------------------------------------------------------

UNITS = st.sampled_from(["s", "ms", "us", "ns"])
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)


def _moment(draw):
    number, unit = draw(INT64 | st.integers(0, 10**9)), draw(UNITS)
    if draw(st.booleans()):
        return pd.Timedelta(np.timedelta64(number, unit))
    stamp = pd.Timestamp(np.datetime64(number, unit))
    zone = draw(ZONES)
    return stamp if zone is None else stamp.tz_localize("UTC").tz_convert(zone)


def _offset(draw):
    kinds = ["Day", "Hour", "Nano", "MonthEnd", "BDay", "Week", "YearEnd", "QuarterEnd", "CDay"]
    kinds += ["BusinessHour", "SemiMonthEnd", "FY5253", "Easter", "LastWeekOfMonth", "WeekOfMonth"]
    kind = getattr(pd.offsets, draw(st.sampled_from(kinds)))
    count = draw(
        st.sampled_from([0, 1, 2, -3, 999, 1000, 65_535, 65_536, 1 << 31, 1 << 40, 1 << 62])
    )
    more = {}
    if kind is pd.offsets.CDay:
        days = np.datetime64("2000", "D") + np.arange(draw(st.sampled_from([0, 1, 2000])))
        more = {"holidays": list(days)}
    if kind is pd.offsets.Week and draw(st.booleans()):
        more = {"weekday": draw(st.integers(0, 6))}
    return kind(count, normalize=draw(st.booleans()), **more) if more else kind(count)


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
    if draw(st.integers(0, 9)) == 0:
        freq = pd.offsets.Day(draw(st.sampled_from([1000, 5000])))
    if draw(st.booleans()):
        return pd.PeriodDtype(freq)
    numbers = draw(st.integers(-(10**5), 10**5) | INT64)
    period = pd.Period(ordinal=numbers, freq=freq)
    return draw(st.sampled_from([period, pd.PeriodIndex([period])]))


def _interval(draw):
    ends = st.integers() | st.floats(allow_nan=False) | powers(1030) | made(_moment)
    left = draw(ends)
    right = draw(st.sampled_from([left]) | ends)
    return pd.Interval(left, right, draw(st.sampled_from(["left", "right", "both", "neither"])))


def _range_index(draw):
    ends = st.integers(-5, 5) | st.sampled_from([1 << 26, 1 << 27, (1 << 27) + 1, 1 << 61, 1 << 62])
    return pd.RangeIndex(draw(ends), draw(ends), draw(st.sampled_from([1, 2, -1, 1 << 40])))


@functools.cache
def indexes():
    return [
        pd.Index([1, 2]),
        pd.Index(["a", None]),
        pd.Index([1.5, np.nan]),
        pd.Index([1, "a", (2, 3), None], dtype=object),
        pd.Index(np.array([[1], 2, None], object)),
        pd.date_range("2026", periods=3, tz="Europe/Paris"),
        pd.date_range("2026", periods=3, freq="ME"),
        pd.bdate_range("1800", periods=20_000),
        pd.timedelta_range("1h", periods=2),
        pd.period_range("2026", periods=2, freq="M"),
        pd.interval_range(0, 3),
        pd.CategoricalIndex(["a", "b", "a"]),
        pd.MultiIndex.from_product([[1, 2], ["a", None]], names=["x", ("y", 1)]),
        pd.MultiIndex.from_arrays([[1]] * 1000),
        pd.MultiIndex.from_arrays([[1]] * 1001),
        pd.MultiIndex([pd.RangeIndex(2 * 10**6)], [[0, 1]]),
        pd.Index(np.array([1], ">i4")),
        pd.Index(pd.array([1, None])),
        pd.Index(pd.array([1, None], "int64[pyarrow]")),
    ]


def _sparse_column(length):
    places = pd._libs.sparse.IntIndex(length, np.array([5], "i4"))
    return pd.arrays.SparseArray(np.array([1.0]), places)


@functools.cache
def columns():
    return [
        *map(_sparse_column, [8, 1 << 20, 1 << 27, (1 << 27) + 1]),
        pd.array([1, None]),
        pd.array([True, None]),
        pd.array([0.5, None], "Float32"),
        pd.array(["a", None], "string"),
        pd.array(["a", None], "string[python]"),
        pd.array(["2026"], "datetime64[ns, UTC]"),
        pd.array(["1h"], "m8[s]"),
        pd.Categorical(["a", "b", None], ordered=True),
        pd.Categorical([(1, 2), "a"]),
        pd.Categorical.from_codes([0, 1], pd.RangeIndex(2 * 10**6)),
        pd.arrays.IntervalArray.from_breaks([0, 1, 2]),
        pd.arrays.SparseArray([0, 0, 1]),
        pd.arrays.SparseArray([0, 0, 1], kind="block"),
        pd.arrays.SparseArray(["a", None], dtype=pd.SparseDtype(object, None)),
        pd.arrays.SparseArray(np.array([1, 0], ">i4")),
        pd.arrays.NumpyExtensionArray(np.arange(3)),
        pd.arrays.NumpyExtensionArray(np.array(["a"])),
        pd.arrays.NumpyExtensionArray(np.arange(3, dtype=">i4")),
        pd.arrays.NumpyExtensionArray(np.eye(2)),
        pd.arrays.BooleanArray(np.frombuffer(b"\2\0", "?"), np.array([False, True])),
        pd.arrays.ArrowExtensionArray(pa.array([[1], None])),
        pd.arrays.ArrowExtensionArray(pa.array(["a"]).dictionary_encode()),
    ]


@functools.cache
def dtypes():
    return [
        *(pd.Int8Dtype(), pd.BooleanDtype(), pd.Float64Dtype(), pd.StringDtype("python")),
        *(pd.StringDtype("pyarrow", np.nan), pd.CategoricalDtype(), pd.IntervalDtype()),
        *(pd.CategoricalDtype(["a", "b"], True), pd.CategoricalDtype(["a"], None)),
        *(pd.DatetimeTZDtype("s", "UTC"), pd.IntervalDtype("f8"), pd.IntervalDtype("f2", "left")),
        *(pd.SparseDtype("f8"), pd.SparseDtype(object, "a"), pd.SparseDtype("M8[ns]")),
        *(pd.SparseDtype("i8", 7), pd.arrays.NumpyExtensionArray(np.arange(1)).dtype),
    ]


def _one_of(items):
    """Return what draws one of *items*, by its place: to print large ones takes long."""
    return made(lambda draw: items()[draw(st.integers(0, len(items()) - 1))])


def _frame(draw):
    rows = draw(st.sampled_from([0, 0, 1, 2]))
    columns = draw(st.sampled_from([0, 1, 300, 1000, 100_000, 1 << 17, (1 << 17) + 1]))
    dtype = draw(st.sampled_from(["f8", "i1", "?", "M8[ns]", ">i4", "f2", "g", "c8", "U3", "S2"]))
    if rows * columns > 10_000 or (columns > 1000 and dtype not in ("f8", "i1", "?", "M8[ns]")):
        columns = 5
    frame = pd.DataFrame(np.zeros((rows, columns), dtype))
    if draw(st.booleans()) and columns < 2000:
        frame.columns = [draw(LABELS)] + [str(n) for n in range(columns - 1)]
    return frame


LABELS = PLAIN | st.tuples(PLAIN, PLAIN) | made(_moment) | st.sampled_from([pd.NA, pd.Int8Dtype()])


def _series(draw):
    numbers = made(lambda draw: np.zeros(2, draw(SCALAR_DTYPES)))
    held = draw(_one_of(columns) | _one_of(indexes) | numbers)
    if len(held) > 10_000:
        return None
    made_one = pd.Series(held, name=draw(LABELS))
    if draw(st.booleans()):
        made_one.attrs = {"unit": draw(STANDARD)}
    return made_one.to_frame() if draw(st.booleans()) else made_one


PANDAS = st.one_of(
    *map(made, (_moment, _offset, _date_offset, _period, _interval, _range_index, _frame, _series)),
    *map(_one_of, (indexes, columns, dtypes)),
    made(lambda draw: pd.ArrowDtype(draw(ARROW_TYPES))),
    st.sampled_from([pd.NaT, pd.NA]),
)

# -- SciPy ---------------------------------------------------------------------------------------


def _sparse(draw):
    form = draw(st.sampled_from(["csr", "csc", "coo", "bsr", "dia", "dok", "lil"]))
    dtype = draw(st.sampled_from(["f8", "i1", "?", "c8", "g", "u8"]))
    shape = draw(st.sampled_from([(1, 1), (3, 3), (2, 5), (1, 1 << 31), (1, 1 << 33)]))
    if shape[1] > 5:
        form = "coo"  # the others take memory for each column
    make = draw(st.sampled_from([sp.eye, sp.eye_array]))
    matrix = make(*shape, format=form, dtype=dtype)
    if draw(st.integers(0, 3)) == 0:
        matrix.maxprint = draw(st.sampled_from([0, 3, -1, 1 << 70]))
    return matrix


# -- containers ----------------------------------------------------------------------------------


def _hashable(value):
    """Tell whether *value* may be a key in both spellings; see ``TYPED`` in only_one."""
    if isinstance(value, tuple | frozenset):
        return all(map(_hashable, value))
    if isinstance(value, pd.ArrowDtype) or type(value).__module__.startswith("pyarrow"):
        return False
    try:
        return bool(hash(value) != object.__hash__(value)) or value is None or value is ...
    except TypeError:
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
        pairs.map(collections.OrderedDict),
        pairs.map(collections.Counter),
        pairs.map(collections.UserDict),
        st.lists(inner, max_size=3).map(collections.UserList),
        made(lambda draw: collections.deque(draw(st.lists(inner, max_size=3)), draw(NUMBERS))),
        made(lambda draw: collections.defaultdict(draw(FACTORIES), draw(pairs))),
        st.lists(pairs, max_size=2).map(_chained),
        st.dictionaries(TEXTS, inner, max_size=3).map(lambda held: types.SimpleNamespace(**held)),
        made(lambda draw: slice(draw(inner), draw(inner), draw(inner))),
    )


FACTORIES = st.sampled_from(
    [None, bool, bytes, dict, float, frozenset, int, list, set, str, tuple, complex]
)


def _chained(maps):
    made_one = collections.ChainMap()
    made_one.maps = maps
    return made_one


LEAVES = st.one_of(STANDARD, NUMPY, PANDAS, ARROW, made(_sparse))


def values():
    """Return a strategy of values of all types, alone and in containers."""
    return LEAVES | containers(LEAVES) | containers(containers(STANDARD | NUMPY))
