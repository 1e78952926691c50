"""pandas' objects whose headers and buffers lie, and those that no sender sends."""

from __future__ import annotations

import decimal
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.tests.extension.decimal import DecimalArray

from safeser.families import plain
from tests.samples.typed import hostile, lying, payload, put, ruled, sent, swapped, typed

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


def lie(value, path, to):
    return lying(value, *path, to=to)


HEADERS = {
    "families.header": [
        (STAMP, ("value",), -(1 << 63)), (STAMP, ("value",), 1.0), (STAMP, ("unit",), "D"),
        (STAMP, ("fold",), 2), (pd.Timedelta(1), ("unit",), None),
        (pd.Interval(0, 1), ("closed",), "all"), (REPEATS, ("values", 1), 5),
        (REPEATS, ("values", 3), ["a", 1]), (PERIODS, ("freq",), ["Hour", 1, False, []]),
        (FRAME, ("unique",), 1), (FRAME, ("attrs",), None), (FRAME, ("blocks",), {}),
        (FRAME, ("blocks", 0), ["numbers"]), (FRAME, ("blocks", 0, 0), []),
        (FRAME, ("blocks", 0, 0), "numbers"), (FRAME, ("blocks", 0, 0, 0), ["numbers"]),
        (FRAME, ("blocks", 0, 0, 0), "pickled"), (FRAME, ("blocks", 0, 0, 2), 4),
        (FRAME, ("blocks", 0, 0, 2), True), (FRAME, ("blocks", 0, 1), 1 << 41),
        (FRAME, ("blocks", 0, 1), None), (FRAME, ("index", 0), "RangeIndex"),
        (FRAME, ("index", 0), 5), (FRAME, ("index",), None), (FRAME, ("index", 1), 1.5),
        (FRAME, ("index", 1), "\ud800"), (FRAME, ("index", 1), "x" * 2000),
        (FRAME, ("index", 1), 1 << 80), (FRAME, ("index", 2), ["Hour", 1, False, []]),
        (RANGE, ("index", 2), True), (RANGE, ("index",), ["Index", None, None, ["objects", 0, []]]),
        (LEVELS, ("index", 1), [None]), (LEVELS, ("index", 4, 1), ["|i1", 0, 0]),
        (LEVELS, ("index", 2), "0"), (INTERVALS, ("array", 1), "none"),
        (CATEGORIES, ("array", 2), 1), (TEXT, ("array", 2), 1), (TEXT, ("array", 1), "string_view"),
        (TEXT, ("array", 3), None), (TEXT, ("array", 3, 0), [3, 1]),
        (TEXT, ("array", 3, 0), [-3, False]), (TEXT, ("array", 3, 0), [0, True]),
        (PYTHON, ("array", 3), "text"), (PYTHON, ("array", 3), [1]), (SPARSE, ("array", 2), 1),
        (SPARSE, ("array", 3), 1.0), (ZONED, ("array",), ["numbers", "<i8", 0]),
    ],
    "families.dtype": [
        (FRAME, ("blocks", 0, 0, 1), "|O"), (FRAME, ("blocks", 0, 0, 1), "O"),
        (FRAME, ("blocks", 0, 0, 1), "|V8"), (FRAME, ("blocks", 0, 0, 1), "<M8"),
        (FRAME, ("blocks", 0, 0, 1), "<M8[D]"), (FRAME, ("blocks", 0, 0, 1), ">M8[ns]"),
        (FRAME, ("blocks", 0, 0, 1), "<U2"), (FRAME, ("blocks", 0, 0, 1), 8),
        (FRAME, ("index", 3, 1), "<f2"),
        (pd.Series(np.ones(1, "g")), ("index",), ["Index", None, None, ["numbers", "<f16", 0]]),
        (NULLABLE, ("array", 1), "<c8"), (NULLABLE, ("array", 1), ">i8"),
        (NULLABLE, ("array", 1), "<M8[ns]"), (PERIODS, ("array", 1), "<u8"),
    ],
    "families.shape": [
        (FRAME, ("blocks", 0, 0, 1), "<i4"), (FRAME, ("blocks", 0, 2), 0),
        (FRAME, ("blocks", 0, 2), 3), (FRAME, ("blocks", 0, 2), 2.0), (FRAME, ("blocks", 0, 1), 1),
        (FRAME, ("blocks", 0, 1), -1), (FRAME, ("blocks", 0, 3), 2), (FRAME, ("blocks", 0, 3), 0),
        (FRAME, ("columns", 3), ["text", "large_string", True, ["a"]]),
        (MIXED, ("blocks", 1, 1), 1 - MIXED._mgr.blocks[1].mgr_locs.as_slice.start),
        (pd.Series([1]), ("index", 3), 2), (NULLABLE, ("array", 1), "<i4"),
        (NULLABLE, ("array", 1), "<f2"), (FRAME, ("blocks",), []),
        (FRAME, ("index",), ["range", None, 0, 2, 1]),
    ],
    "families.child-type": [
        (FRAME, ("index", 0), "DatetimeIndex"),
        (FRAME, ("index", 3), ["wrapped", ["numbers", "<i8", 0]]),
        (DATES, ("index", 3, 1), "<m8[us]"), (DATES, ("index", 3, 1), "<i8"),
        (INTERVALS, ("array", 2), ["numbers", "|b1", 0]), (INTERVALS, ("array", 2, 1), ">i8"),
        (SHORT, ("array", 3), ["a", 1]), (SHORT, ("array", 3), ["a"] * 65),
        (SHORT, ("array", 3), ["\ud800"]), (CATEGORIES, ("array", 3), "|u1"),
        (REPEATS, ("values", 2), "|i1"),
        (pd.Series([1]), ("values",), ["wrapped", ["numbers", "<i8", 0]]),
    ],
    "value.columns": [(FRAME, ("blocks", 0, 2), 1 << 40)],
    "value.index": [
        (LEVELS, ("index", 2), 3), (RANGE, ("index", 4), 0), (RANGE, ("index", 3), 1 << 62),
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
        (FRAME, ("attrs",), True), (FRAME, ("index", 1), []),
        (FRAME, ("blocks", 0, 0), ["objects", 0, None]), (pd.Series([1]), ("values",), ["arrow"]),
        (LEVELS, ("index", 3), []),
    ],
    "families.time-zone": [
        (ZONED, ("array", 3), None), (ZONED, ("array", 3), ["os", "system"]),
        (ZONED, ("array", 3), [99, 0, 0, None]), (ZONED, ("array", 3), "UTC"),
        (ZONED, ("array", 1), "<m8[us]"), (ZONED, ("array", 3), ["pytz", "../passwd"]),
    ],
    "value.time-zone": [
        (ZONED, ("array", 3), ["../../etc/passwd"]), (ZONED, ("array", 3), ["No/Where"]),
    ],
    "families.freq": [
        (DATES, ("index", 2), ["Hour", 1, 0, []]), (DATES, ("index", 2), ["Hour", 1.0, False, []]),
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
    "value.sparse": [(SPARSE, ("array", 3), 3)],
}  # fmt: skip


def change(value, position, frame):
    return swapped(
        value, position, frame if isinstance(frame, bytes) else np.asarray(frame).tobytes()
    )


BUFFERS = {
    "families.shape": [
        (GAPS, 0, b"\0" * 9), (GAPS, 0, b"\2" * 9), (FRAME, 1, b"\0" * 31), (FRAME, 1, b"\0" * 16),
        (FRAME, 1, b""), (NULLABLE, 1, b"\0"), (TEXT, 1, np.arange(3)), (TEXT, 0, b"\0\0"),
    ],
    "families.codes": [
        (GAPS, 0, b"\x04" + b"\0" * 8), (REPEATS, 0, b"\x03" * 300),
        (CATEGORIES, 1, b"\x02\x00\x00"), (CATEGORIES, 1, b"\xfe\x00\x00"),
        (LEVELS, 1, b"\x05\x00\x00\x00"),
    ],
    "families.offsets": [
        (TEXT, 1, [0, 3000, 3000, 3002]), (TEXT, 1, [1, 3000, 3000, 3001]),
        (TEXT, 1, [0, 3001, 3000, 3001]), (TEXT, 1, [0, -1, 3000, 3001]),
        (TEXT, 1, [0, 1 << 40, 3000, 3001]), (TEXT, 2, b"\xff" * 3001),
        # What stands behind a missing text is followed as well by some of Arrow's functions.
        (TEXT, 2, b"a" * 2999 + b"\xc3\xa9"),
    ],
    "value.sparse": [
        (SPARSE, 1, np.array([3, 1], "i4")), (SPARSE, 1, np.array([1, 4], "i4")),
        (SPARSE, 1, np.array([-1, 1], "i4")), (BLOCKS, 1, np.array([1, 2], "i4")),
        (BLOCKS, 2, np.array([2, 1 << 30], "i4")),
    ],
    "value.labels": [(CATEGORIES, 0, [7, 7])],
    "families.build": [
        (DATES, 0, [0, 3_600_000_000, 7_200_000_001]), (DATES, 0, [0, -(1 << 63), 7_200_000_000]),
        (DATES, 0, [(1 << 63) - 3_600_000_000, -(1 << 63), 3_600_000_000 - (1 << 63)]),
        (INTERVALS, 0, [5, 1]),
    ],
}  # fmt: skip


def dtype(kind, parts):
    return typed("pandas:dtype", *map(sent, parts), kind=kind)


DTYPES = {
    "families.header": [("ObjectDtype", []), (["Int64Dtype"], [])],
    "families.child-count": [("Int64Dtype", [1])],
    "value.dtype": [
        ("StringDtype", ["C", True]), ("CategoricalDtype", [[1, 2], False]),
        ("CategoricalDtype", [pd.MultiIndex.from_arrays([[1], [2]]), False]),
        ("CategoricalDtype", [None, 1]), ("DatetimeTZDtype", ["ns", None]),
        ("DatetimeTZDtype", ["D", ("UTC",)]), ("IntervalDtype", [np.dtype("O"), "left"]),
        ("IntervalDtype", [np.dtype("f8"), "up"]), ("SparseDtype", [np.dtype("U3"), "x"]),
        ("SparseDtype", [np.dtype("f8"), [1]]),
        ("ArrowDtype", [pa.run_end_encoded(pa.int32(), pa.int8())]), ("NumpyEADtype", ["f8"]),
    ],
    "families.build": [("StringDtype", ["python"]), ("ArrowDtype", [1])],
    "value.labels": [("CategoricalDtype", [pd.Index([1, 1]), False])],
    "value.time-zone": [("DatetimeTZDtype", ["ns", ("../UTC",)])],
    "families.time-zone": [("DatetimeTZDtype", [])],
    "value.period": [("PeriodDtype", ["D"]), ("PeriodDtype", [pd.offsets.Day(1000)])],
    "value.column": [("NumpyEADtype", [np.dtype("V8")])],
}  # fmt: skip


def block(*part):
    """Return the payload of a frame whose block of two columns is *part*."""
    return lying(FRAME, "blocks", 0, 0, to=list(part))


BLOCK_PARTS = {
    "families.header": [
        ["intervals", "left", ["numbers", "<i8", 0], ["numbers", "<i8", 0], None, None],
        ["text", "python", True, ["a", "b"]], ["objects", 1, ["a", "b"]],
        ["categories", ["range", None, 0, 9, 1], False, "<i8", 0], ["sparse", "<i8", 0, False, 2],
        ["arrow"],
    ],
    "families.frame-count": [["masked", "<i8", 0, 0]],
    "families.child-type": [["coded", 1, "|u1", ["a", "b"]], ["wrapped", ["numbers", "<i8", 0]]],
    "families.codes": [["marked", 1, ["a", "b"]]],
}  # fmt: skip


UNKNOWN = [pa.string_view(), pa.list_view(pa.int8()), pa.run_end_encoded(pa.int16(), pa.int8())]
COLLIDING = [n * ((1 << 61) - 1) for n in range(99)]
#: What cannot be the same on the other side, by the name of its column.
REFUSED = {
    "functions": [print, 1],
    "modules": [decimal, None],
    "own classes": [object(), 1],
    "deep inside": [{"a": [(object(),)]}, 1],
    "generators": [iter([1]), None],
    "numbers of records": [np.zeros(1, "O,i4")[0], 1],
    "types": [pd.DataFrame, pd.Index],
}


def refused():
    """Yield what no sender sends, with the place that its refusal names."""
    unsent = {
        "many days": pd.period_range("2020", periods=2, freq="1000D"),
        "many more": pd.PeriodIndex.from_ordinals([1, 2], freq=pd.offsets.Day(1001)),
        "swapped": pd.arrays.SparseArray(np.array([0, 1], np.dtype("i8").newbyteorder())),
        "others": DecimalArray([decimal.Decimal(1), decimal.Decimal(2)]),
        **{str(kind)[:9]: pd.arrays.ArrowExtensionArray(pa.nulls(2, kind)) for kind in UNKNOWN},
    }
    for name, values in REFUSED.items():
        unsent[name] = np.empty(2, object)
        for position, value in enumerate(values):
            unsent[name][position] = value
    for name, values in unsent.items():
        sent = pd.DataFrame({"first": [1, 2], name: values})
        for part in (sent, sent[name], sent.set_index("first")):
            yield part, f"column {name!r}"
        if name in REFUSED:
            yield sent.set_index(name), "index"
    for ends in (pd.array([1, 2], dtype="Int64"), np.array([1, 2], ">i8")):
        column = pd.arrays.IntervalArray.from_breaks(ends)
        if column._left.dtype == ends.dtype:
            yield pd.DataFrame({"x": column}), "(column 'x')"
    bad = pd.DataFrame({"ok": [1, 2], "bad": pd.Series([1, frozenset({object()})])})
    yield bad["bad"].rename(None), "(values)[1]"
    for waiting in (bad.groupby("ok"), bad["ok"].groupby([1, 2]), bad.rolling(2)):
        yield waiting, "group it on the receiver"
    for base, made in ((pd.DataFrame, ()), (pd.Series, ([1],))):
        yield type("Mine", (base,), {})(*made), "Mine"
    series = pd.Series([1], index=["a"])
    series.index = type("Mine", (pd.Index,), {})._simple_new(series.index._values, None)
    yield series, "not pandas' own"
    yield type("Mine", (pd.offsets.Hour,), {})(), "Mine"
    yield type("Mine", (pd.DateOffset,), {})(), "Mine"
    texts = pd.arrays.StringArray(np.array(["a", pd.NA], object))
    if texts.dtype.storage != "python":  # pandas 3 says so of what its own constructor makes
        yield texts, "convert it"
        yield pd.DataFrame({"x": texts}), "(column 'x')"
    own = type("Own", (pd.offsets.BusinessDay,), {})()
    yield pd.date_range("2020", periods=2, freq=own), "not pandas' own"
    yield pd.DataFrame({"a": pd.date_range("2020", periods=2)})._mgr.blocks[0].values, "block"
    yield pd.DateOffset(days=1.5), "span"
    yield pd.Period("2020", freq="1000D"), "multiple of up to 999"
    for labels in ([[1], None], [{}, None], COLLIDING):
        yield pd.Index(np.array([*labels, None], object)[:-1]), "label"


def beyond():
    """Yield payloads with more than they say, and with less."""
    for value in (FRAME, TEXT, RANGE, pd.Series([1])):
        header, frames = sent(value)
        yield header, [*frames, b""], "families.frame-count"
        more = {"sub-headers": [{"serializer": "msgpack"}], "frame-lengths": [1]}
        yield {**header, **more}, [*frames, b"\xc0"], "families.child-count"
        yield {**header, "sub-header": {}}, frames, "families.header"


def places():
    """Yield payloads whose blocks do not cover each column once."""
    numbers = [np.full(1, value) for value in (1, 0.5, 2, 0.5, 0.5, 3)]
    header, frames = sent(pd.DataFrame(dict(zip("abcdef", numbers, strict=True))))
    at = frames.index(np.array([0, 2, 5]).tobytes())
    for wrong in ([0, 2, 4], [0, 0, 5], [0, 2, 6], [0, 2, -1], [0, 2], [0, 2, 1 << 62]):
        yield header, [*frames[:at], np.array(wrong).tobytes(), *frames[at + 1 :]], "families.shape"
    header, frames = sent(pd.DataFrame({n: [n] for n in range(40)}).astype({0: "f8"}))
    for at, block in enumerate(header["sub-header"]["blocks"]):
        for change in (-1, 1, 90):
            path = ("sub-header", "blocks", at, 1)
            yield put(header, path, block[1] + change), frames, "families.shape"


def nested(kind):
    inner = ["numbers", "|i1", 0]
    for _ in range(50):
        labels = ["CategoricalIndex", None, None, inner]
        inner = ["categories", labels, False, "|i1", 0] if kind == "categories" else [kind, inner]
    return lying(CATEGORIES, "array", to=inner)[0], [b""] * 51


def columns(*widths):
    """Return the payload of a frame without rows, whose columns cost nothing to say."""
    meta = {"index": ["range", None, 0, 0, 1], "attrs": False, "unique": False}
    starts = [sum(widths[:at]) for at in range(len(widths))]
    blocks = [
        [["numbers", "<f8", 0], at, width, 1] for at, width in zip(starts, widths, strict=True)
    ]
    columns = ["range", None, 0, sum(widths), 1]
    frames = [b""] * len(widths)
    return typed("pandas:DataFrame", frames=frames, columns=columns, blocks=blocks, **meta)


def unique(value, place, frame):
    """Return the payload of *value* whose labels are to be there once, and are not."""
    header, frames = swapped(value, place, frame)
    return put(header, ("sub-header", "unique"), True), frames


def labels(*labels):
    """Return the payload of an index of objects that make no table, or a slow one."""
    return sent(pd.Index([b"a"] * len(labels), dtype=object))[0], [plain.encode(list(labels))]


def coded():
    """Return the payload of texts by their codes, which are no texts."""
    header, frames = sent(REPEATS)
    header["sub-header"]["values"][3] = None
    inner, more = sent([1, 2])
    return {**header, "sub-headers": [inner], "frame-lengths": [len(more)]}, frames + more


MULTI = ["multi", [None], None, [["range", None, 0, 9, 1]], [["|i1", 0]]]
NAMED = plain.encode([1, 2])
INTEGERS = pd.array([1, 2])
DOUBLES = pd.Series(np.ones(2, "g"))
DOUBLE = b"\0" * 8 + b"\xff\x3f" + b"\0" * 6 + sent(DOUBLES)[1][0][16:]


def unknown(kind):
    """Return the payload of a column that pandas, asked for JSON, frees though it owns none."""
    column = pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.nulls(2, kind)]))
    with mock.patch("safeser.types.pandas.is_known", return_value=True):
        return sent(pd.DataFrame({"x": column}))


MISPLACED = {
    "families.depth": [nested("categories"), nested("wrapped")],
    "families.child-type": [lying(LEVELS, "index", 3, 0, to=MULTI), coded()],
    "families.codes": [lying(CATEGORIES, "array", to=["categories", MULTI, False, "|i1", 0])],
    "value.columns": [columns(10**6 + 1), columns(10**6, 10**6), columns(*[1 << 16] * 3)],
    "value.labels": [unique(FRAME, 0, np.array([5, 5]).tobytes())],
    "families.key": [labels([1]), labels({})],
    "families.hash-flood": [labels(*COLLIDING)],
    "families.type": [typed("pandas:GroupBy")],
    "families.header": [lying(INTEGERS, "readonly", to=flag) for flag in (False, 1, None, [])],
    "value.elements": [swapped(DOUBLES, 0, DOUBLE)],
    "families.build": [
        swapped(pd.Series([1], name=(1, 2)), -1, NAMED),
        swapped(pd.Index([1], name=(1, 2)), -1, NAMED),
    ],
}

UNSENT = [*refused()]
HOSTILE = [
    *hostile(lie, HEADERS), *hostile(change, BUFFERS), *hostile(dtype, DTYPES),
    *hostile(block, {rule: list(map(tuple, parts)) for rule, parts in BLOCK_PARTS.items()}),
    *ruled(payload, [*beyond(), *places()]), *hostile(payload, MISPLACED),
    *hostile(unknown, {"value.dtype": UNKNOWN}),
]  # fmt: skip
