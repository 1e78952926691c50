"""pandas objects that a stock cluster writes as typed values, and answers that are none."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import datetime as dt
import io
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
import zoneinfo
from types import SimpleNamespace

import cloudpickle
import dateutil.tz
import msgpack
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed.utils_comm import pack_data, unpack_remotedata

from safeser.dask.clients.gathering import Gathering
from safeser.dask.clients.stock_frames import _TYPES, put_together, taking_apart
from safeser.dask.stock.comm import Guard
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.families import plain
from safeser.policy import Policy
from safeser.values import Limits
from tests.dask.clients.test_gathering import Known
from tests.dask.stock.conftest import ADDRESS, Log

DAYS = pd.date_range("2026-01-01", periods=3, freq="D")
PLACES = pd.Categorical(["a", "b", "a"], ["b", "a"], ordered=True)

FRAMES = {
    "numbers": pd.DataFrame({t: np.array([0, 1, 2]).astype(t) for t in ("i1", "u8", "f4", "c16")}),
    "flags": pd.Series([True, False], name="flag"),
    "text": pd.DataFrame({"str": ["a", None, "ü"], "NA": pd.array(["a", None, ""], "string")}),
    "nullable": pd.DataFrame({t: pd.array([1, None], t) for t in ("Int8", "Float64", "boolean")}),
    "times": pd.DataFrame(
        {"day": DAYS, "zone": DAYS.tz_localize("Europe/Zurich"), "d": DAYS - DAYS[0]}
    ),
    "periods": pd.Series(pd.period_range("2026-01", periods=3, freq="M")),
    "intervals": pd.Series(pd.interval_range(0, 3)),
    "categories": pd.Series(PLACES, index=DAYS),
    "objects": pd.Series([1, "x", None, 2.5, float("inf"), (1, [2])], dtype=object, name=("a", 1)),
    "levels": pd.DataFrame(
        np.arange(8).reshape(4, 2),
        pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["k", "n"]),
        pd.MultiIndex.from_tuples([("x", 1), ("y", 2)]),
    ),
    "grouped": pd.DataFrame({"k": PLACES, "n": [1, 2, 3]}).groupby("k", observed=True).agg(["sum"]),
    "empty": pd.DataFrame({"a": []}),
    "no columns": pd.DataFrame(index=range(3)),
    "same names": pd.DataFrame([[1, 2.5]], columns=["a", "a"]),
    "blocks": pd.DataFrame({f"c{n}": [n, 2, 3] for n in range(5)}).assign(x=0.5, y="a", z=1),
    "every other row": pd.DataFrame({"a": [1, 2, 3], "b": ["ä", None, "c"]})[::2],
    "part of a text": pd.Series(["a", None, "ü"] * 9)[3:20],
    "text of Python": pd.Series(["a", None], dtype=pd.StringDtype("python")),
    "text that repeats": pd.Series(["a", "b", None] * 9, dtype=object),
    "no text": pd.Series([], dtype="str"),
    "empty texts": pd.Series(["", ""]),
    "missing objects": pd.Series([pd.NA, pd.NaT, None, DAYS[0], DAYS[1] - DAYS[0]], dtype=object),
    "other names": pd.Series([1, 2], index=pd.Index([1, 2], name=np.int64(1)), name="a\nb"),
    "wrapped": pd.Series(pd.arrays.NumpyExtensionArray(np.arange(3))),
    "sorted levels": pd.MultiIndex([["a", "b"]], [[0, 1]], sortorder=0, names=["k"]).to_frame(),
    "fixed zones": pd.DataFrame(
        {str(zone): DAYS.tz_localize(zone) for zone in (dt.UTC, dt.timezone(dt.timedelta(0, 60)))}
    ),
}
FREQS = ("D", "h", "B", "QS-FEB", "W-TUE", pd.DateOffset(months=1))


LIMITS = Limits()
#: A zone read from a file: it has no key by which another process finds it.
NAMELESS = zoneinfo.ZoneInfo.from_file(
    io.BytesIO(b"TZif" + bytes(35) + b"\1" + bytes(3) + b"\4" + bytes(6) + b"UTC\0")
)


class Rows(pd.RangeIndex):
    pass


class Table(pd.DataFrame):
    pass


def nested(levels):
    made = []
    for _ in range(levels):
        made = [made]
    return made


def same(one, other):
    kinds = {pd.DataFrame: pd.testing.assert_frame_equal, pd.Series: pd.testing.assert_series_equal}
    assert type(one) is type(other)
    kinds.get(type(one), pd.testing.assert_index_equal)(one, other)


@pytest.mark.parametrize("name", FRAMES)
def test_it_comes_back_as_it_was(name):
    arrays = taking_apart()(FRAMES[name])
    assert {(type(array), array.dtype, array.ndim) for array in arrays} == {
        (np.ndarray, np.dtype("u1"), 1)
    }
    same(put_together(arrays, LIMITS), FRAMES[name])


def through(value):
    return put_together(taking_apart()(value), LIMITS)


def test_indexes_and_their_freq():
    for index in (DAYS, pd.RangeIndex(2, 9, 3, name="r"), pd.CategoricalIndex(PLACES)):
        same(through(index), index)
    for freq in FREQS:
        index = pd.date_range("2026-01-01", periods=4, freq=freq)
        same(through(index), index)
        assert through(index).freq == index.freq


def test_what_frames_have_beside_their_columns():
    frame = pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=False)
    frame.attrs = {"from": [1, (2,)]}
    found = through(frame)
    assert found.attrs == frame.attrs
    assert not found.flags.allows_duplicate_labels


def test_values_around_frames():
    value = {"a": [np.int64(3), (FRAMES["flags"],)], 2: np.arange(2), (1,): (1.5, b"x"), "n": None}
    found = through(value)
    assert type(found["a"][0]) is np.int64
    same(found["a"][1][0], FRAMES["flags"])
    assert found[2].tolist() == [0, 1]
    assert (found[1,], found["n"]) == ((1.5, b"x"), None)


@pytest.mark.parametrize(
    "array",
    [
        *(np.asfortranarray(np.ones((2, 3), ">i4")), np.zeros((0, 3)), np.arange(6)[::2]),
        *(np.array(["a", "bc"]), np.array([b"a"]), np.zeros(2, "M8[D]"), np.array([True])),
    ],
)
def test_arrays(array):
    found = through(array)
    assert (found.dtype, found.tolist()) == (array.dtype, array.tolist())


@pytest.mark.parametrize(
    "value",
    [
        *(pd.Timestamp("2026-10-25 03:30", tz="Europe/Zurich"), pd.Timestamp(5), pd.NA, pd.NaT),
        *(pd.Timedelta(3, "h"), np.float32(0.5), np.str_("a"), np.datetime64(1, "s")),
        dt.timedelta(1, 2, 3),
    ],
)
def test_scalars(value):
    found = through(value)
    assert (type(found), repr(found)) == (type(value), repr(value))


@pytest.mark.parametrize(
    "value",
    [object(), pd.Series([object()]), pd.Series(pd.arrays.SparseArray([1])), {"a": {1}}, 1 << 70]
    + ["\ud800", np.zeros(2, "i4,f4"), np.zeros(2, object), np.zeros(1, "M8[25s]"), Rows(2)]
    + [pd.Series([1]).astype(pd.ArrowDtype(pa.int64())), Table({"a": [1]}), nested(1500)]
    + [pd.DatetimeIndex([], tz=zone) for zone in (dateutil.tz.tzlocal(), NAMELESS)],
    ids=lambda value: type(value).__name__,
)
def test_what_it_cannot_take_apart(value):
    assert taking_apart()(value) is None


def test_the_function_travels_by_value():
    # The cluster has no safeser; there, it is made of what the pickle holds.
    program = (
        "import sys; sys.modules['safeser'] = None\n"
        "import pickle, pandas; take = pickle.load(sys.stdin.buffer)\n"
        "print(len(take(pandas.DataFrame({'a': [1]}))))"
    )
    sent = cloudpickle.dumps(taking_apart())
    with pytest.raises(Exception):  # noqa: B017 - pickle raises different classes
        pickle.dumps(taking_apart())
    ended = subprocess.run(
        [sys.executable, "-c", program], input=sent, capture_output=True, check=True
    )
    assert ended.stdout.strip() == b"4"


def test_the_types_that_are_read_are_those_that_are_written():
    written = set()
    values = [
        *FRAMES.values(),
        DAYS,
        np.str_("a"),
        pd.date_range("2026-01-01", periods=2, freq="B"),
    ]
    pending = [msgpack.unpackb(bytes(taking_apart()(value)[0])) for value in values]
    while pending:
        header = pending.pop()
        pending += header.get("sub-headers", ())
        written |= {header["type"]} if header["serializer"] == "dask" else set()
    assert written | {"numpy:ndarray", "pandas:MultiIndex", "pandas:RangeIndex"} == _TYPES


def test_a_frame_is_written_as_few_arrays_as_it_has_kinds_of_numbers():
    frame = pd.DataFrame({at: np.ones(3, "if"[at % 2]) for at in range(500)})
    assert len(taking_apart()(frame)) < 10


# -- answers of a hostile cluster ------------------------------------------------------------------


def answer(header, *frames):
    packed = np.frombuffer(msgpack.packb(header), "u1")
    return [packed, *(np.ascontiguousarray(frame).reshape(-1).view("u1") for frame in frames)]


def typed(kind, /, **meta):
    return {"serializer": "dask", "type": kind, "sub-header": meta}


def rows(count):
    return ["range", None, 0, count, 1]


def series(values, index=None, name=None):
    about = {"index": index or rows(1), "attrs": False, "unique": False}
    return typed("pandas:Series", **about, name=name, values=values)


def table(index, columns, blocks):
    about = {"index": index, "attrs": False, "unique": False}
    return typed("pandas:DataFrame", **about, columns=columns, blocks=blocks)


def index(*described):
    names = {"range": "pandas:RangeIndex", "multi": "pandas:MultiIndex"}
    return typed(names.get(described[0], "pandas:Index"), index=list(described))


def levels(*described, codes=1):
    return index("multi", [None] * codes, None, list(described), [["<i4", 1]] * codes)


def holding(header, *inner):
    return {**header, "sub-headers": [each for each, _ in inner], "frame-lengths": [1] * len(inner)}


def packed(value):
    return {"serializer": "msgpack"}, np.frombuffer(plain.encode(value), "u1")


NUMBERS = ["numbers", "<i8", 1]
ONE = np.zeros(1, "i8")
FLOOD = [n * ((1 << 61) - 1) for n in range(1, 3000)]
LISTED = {"serializer": "collection", "type": "list"}
WALKED = pd.date_range("1700", periods=70_000, freq="B").to_numpy()
MEMORY = {"__array_interface__": {"data": (1 << 20, False), "shape": (4,), "typestr": "|u1"}}

HOSTILE = {
    "an array as two columns": (
        answer(table(rows(1), rows(2), [[NUMBERS, 0, 1, 1], [NUMBERS, 1, 1, 1]]), ONE),
        "families.frame-count",
    ),
    "an array that nothing describes": (answer(index(*rows(1)), ONE), "families.frame-count"),
    "a range beyond 64 bits": (answer(index(*rows(1 << 63))), "value.index"),
    "a range of rows": (answer(table(rows(1 << 60), rows(0), [])), "value.index"),
    "a range as a level": (answer(levels(rows(1 << 60)), ONE.view("i4")[:1]), "value.index"),
    "ranges as levels": (
        answer(levels(*[rows(1 << 26)] * 4, codes=4), *[np.zeros(1, "i4")] * 4),
        "value.index",
    ),
    "a range as categories": (
        answer(series(["categories", rows(1 << 60), False, "|i1", 1]), np.zeros(1, "i1")),
        "value.index",
    ),
    "2000 levels": (
        answer(levels(*[rows(1)] * 2000, codes=2000), *[np.zeros(1, "i4")] * 2000),
        "value.index",
    ),
    "levels in a level": (
        answer(levels(["multi", [None], None, [rows(1)], [["<i4", 1]]]), *[np.zeros(1, "i4")] * 2),
        "families.child-type",
    ),
    "codes beyond levels": (answer(levels(rows(1)), np.ones(1, "i4")), "families.codes"),
    "codes beyond categories": (
        answer(series(["categories", rows(2), False, "|i1", 1]), np.array([7], "i1")),
        "families.codes",
    ),
    "columns that share a place": (
        answer(table(rows(1), rows(2), [[NUMBERS, 0, 1, 1]] * 2), ONE, ONE),
        "families.shape",
    ),
    "too few rows": (answer(series(NUMBERS, rows(9)), ONE), "families.shape"),
    "two dimensions": (answer(series(NUMBERS, rows(2)), np.zeros((2, 2), "i8")), "families.shape"),
    "a mask that is too short": (
        answer(series(["masked", "<i8", 1, 1]), ONE, np.zeros(2, "?")),
        "families.shape",
    ),
    "text as numbers": (answer(series(["numbers", "<U1", 1]), np.array(["a"])), "families.dtype"),
    "objects as numbers": (answer(series(["numbers", "|O", 1]), ONE), "families.dtype"),
    "objects as an array": (
        answer(typed("numpy:ndarray", shape=[1], order="C", writeable=True, dtype="|O8"), ONE),
        "families.dtype",
    ),
    "moments of a unit": (answer(series(["numbers", "<M8[25s]", 1]), ONE), "families.dtype"),
    "periods of anything": (
        answer(
            index(
                "PeriodIndex", None, None, ["periods", *NUMBERS[1:], ["Day", 1 << 30, False, []]]
            ),
            ONE,
        ),
        "value.period",
    ),
    "a freq that is a text": (
        answer(index("DatetimeIndex", None, "D", ["numbers", "<M8[ns]", 1]), ONE),
        "families.header",
    ),
    "a freq of a class": (
        answer(index("DatetimeIndex", None, ["os", 1, False, []], ["numbers", "<M8[ns]", 1]), ONE),
        "families.freq",
    ),
    "a freq to walk": (
        answer(
            index(
                "DatetimeIndex",
                None,
                ["QuarterEnd", 1, False, [3]],
                ["numbers", f"<M8[{np.datetime_data(WALKED.dtype)[0]}]", 1],
            ),
            WALKED,
        ),
        "value.freq",
    ),
    "a freq that does not fit": (
        answer(
            index("DatetimeIndex", None, ["Hour", 1, False, []], ["numbers", "<M8[ns]", 1]),
            np.arange(3),
        ),
        "families.build",
    ),
    "an interval closed elsewhere": (
        answer(series(["intervals", "top", NUMBERS, NUMBERS, None, None]), ONE, ONE),
        "families.header",
    ),
    "intervals of text": (
        answer(series(["intervals", "left", *[["text", "string", False, ["a"]]] * 2, None, None])),
        "families.child-type",
    ),
    "texts that overlap": (
        answer(
            series(["text", "string", False, [[2, False]]], rows(2)),
            np.array([0, 9, 2], "i4"),
            np.zeros(2, "u1"),
        ),
        "families.offsets",
    ),
    "texts that wrap around": (
        answer(
            series(["text", "large_string", False, [[2, False]]], rows(2)),
            np.array([0, (1 << 63) - 1, 0], "i8"),
            b"",
        ),
        "families.offsets",
    ),
    "text that is none": (
        answer(
            series(["text", "string", False, [[1, False]]]),
            np.array([0, 1], "i4"),
            np.array([255], "u1"),
        ),
        "families.offsets",
    ),
    "a label that is an address": (
        answer(
            holding(index("Index", None, None, ["objects", 1, None]), packed([*MEMORY])),
            packed([*MEMORY])[1],
        ),
        "value.label",
    ),
    "labels that collide": (
        answer(
            holding(index("Index", None, None, ["objects", 1, None]), packed(FLOOD)),
            packed(FLOOD)[1],
        ),
        "families.hash-flood",
    ),
    "keys that collide": (
        answer(holding(LISTED, packed(dict.fromkeys(FLOOD))), packed(dict.fromkeys(FLOOD))[1]),
        "families.hash-flood",
    ),
    "a name that is a list": (
        answer(holding(series(NUMBERS, name=[]), packed([1])), ONE, packed([1])[1]),
        "families.build",
    ),
    "lists inside lists": (
        answer(packed(0)[0], np.frombuffer(b"\x91" * 150 + b"\x90", "u1")),
        "families.depth",
    ),
    "a header of lists": (
        [np.frombuffer(b"\x91" * 150 + b"\x90", "u1")],
        "families.depth",
    ),
    "an integer of a megabyte": (
        answer(
            packed(0)[0], np.frombuffer(b"\xc9\x00\x10\x00\x00\x04" + b"\x7f" * (1 << 20), "u1")
        ),
        "families.integer",
    ),
    "a count that is a lie": (
        answer(packed(0)[0], np.frombuffer(b"\xdd\xff\xff\xff\xff", "u1")),
        "families.count",
    ),
    "a key twice": (
        answer(packed(0)[0], np.frombuffer(b"\x82\xa1a\x01\xa1a\x02", "u1")),
        "families.duplicate-key",
    ),
    "more behind the header": ([np.frombuffer(b"\x80\x80", "u1")], "families.trailing"),
    "a pickle": (answer({"serializer": "pickle", "writeable": []}, ONE), "stock.type"),
    "an error": (answer({"serializer": "error"}, ONE), "stock.type"),
    "a path": (answer(typed("pathlib:PosixPath", value=b"\xa1/")), "stock.type"),
    "a class of sklearn": (answer(typed("sklearn:estimator")), "stock.type"),
    "a class of nobody": (answer(typed("os:system")), "stock.type"),
    "a type that is compressed": (
        answer({**series(NUMBERS), "compression": ["zlib"]}, ONE),
        "families.header",
    ),
    "nothing": ([], "stock.apart"),
    "no list": ("a text", "stock.apart"),
    "a tuple": (tuple(answer(series(NUMBERS), ONE)), "stock.apart"),
    "a header that is no array": ([{"serializer": "msgpack"}], "stock.apart"),
    "a header of numbers": ([np.array([1, 2])], "stock.apart"),
    "a header that is a list": ([np.frombuffer(b"\x90", "u1")], "stock.apart"),
    "a frame of one byte": (
        [
            *answer(series(["numbers", "|u1", 1], rows(1 << 20))),
            np.broadcast_to(ONE[:1].view("u1")[:1], (1 << 20,)),
        ],
        "stock.apart",
    ),
    "a frame of objects": ([*answer(series(NUMBERS)), np.array([b"x"], object)], "stock.apart"),
    "a frame of a subclass": (
        [*answer(series(NUMBERS)), np.zeros((1, 8), "u1").view(np.matrix)],
        "stock.apart",
    ),
    **{
        f"a zone called {name}": (
            answer(index("DatetimeIndex", None, None, ["dates", "<M8[ns]", 1, zone]), ONE),
            rule,
        )
        for name, zone, rule in (
            ("a path", ["../../../etc/passwd"], "value.time-zone"),
            ("a file of dateutil's", ["dateutil//etc/passwd"], "value.time-zone"),
            ("this machine's", ["tzlocal()"], "value.time-zone"),
            ("a file of pytz's", ["pytz", "../../etc/passwd"], "families.time-zone"),
            ("nothing", None, "families.time-zone"),
        )
    },
}


@pytest.fixture
def opened(monkeypatch):
    """Return the files that this thread opens meanwhile; others may watch files of their own."""
    files, here = [], threading.get_ident()

    def noting(found):
        def noted(path, *args, **options):
            if threading.get_ident() == here:
                files.append(path)
            return found(path, *args, **options)

        return noted

    for module, name in ((builtins, "open"), (io, "open"), (io, "open_code"), (os, "open")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    return files


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_answer_is_refused_before_it_costs_more_than_its_bytes(case, opened):
    arrays, rule = HOSTILE[case]
    size = sum(getattr(array, "nbytes", 0) for array in arrays)
    with pytest.raises(PayloadError):  # what is loaded once is loaded
        put_together(arrays, LIMITS)
    opened.clear()
    loaded = set(sys.modules)
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError) as caught:
            put_together(arrays, LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.rule == rule
    assert peak < 8 * size + (8 << 20)  # what a header describes is objects of Python's
    assert set(sys.modules) == loaded
    assert opened == []


def test_flags_are_read_as_flags():
    found = put_together(
        answer(series(["masked", "<i8", 1, 1], rows(3)), np.arange(3), np.array([0, 2, 255], "u1")),
        LIMITS,
    )
    assert found.isna().sum() == 2


def test_every_byte_of_an_answer_is_a_value_or_a_refusal():
    arrays = [array.copy() for array in taking_apart()(FRAMES["levels"])]
    for array in arrays:
        for at in range(len(array)):
            kept = array[at]
            for other in (0, 255, kept ^ 1, kept ^ 128):
                array[at] = other
                with contextlib.suppress(SafeserError):
                    repr(put_together(arrays, LIMITS))
            array[at] = kept
    same(put_together(arrays, LIMITS), FRAMES["levels"])


ODD = (
    None,
    True,
    -1,
    1 << 62,
    (1 << 64) - 1,
    float("nan"),
    "",
    "x",
    b"\xc0",
    [],
    [[]],
    {},
    {"a": 1},
)


def replaced(value):
    """Yield copies of *value*, each with something else in the place of one part of it."""
    yield from ODD
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {other: held for other, held in value.items() if other != key}
            yield from ({**value, key: made} for made in replaced(inner))
    if isinstance(value, list):
        yield [*value, *value[-1:]]
        for at, inner in enumerate(value):
            yield [*value[:at], *value[at + 1 :]]
            yield from ([*value[:at], made, *value[at + 1 :]] for made in replaced(inner))


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", FRAMES)
def test_whatever_a_header_says_is_a_value_or_a_refusal(name):
    head, *frames = taking_apart()(FRAMES[name])
    for header in replaced(msgpack.unpackb(bytes(head))):
        with contextlib.suppress(SafeserError):
            found = put_together(answer(header, *frames), LIMITS)
            assert len(repr(found)) < 20_000


def test_the_bounds_are_those_of_the_policy():
    few = Limits(max_array=1000)
    with pytest.raises(PayloadError) as caught:
        put_together(taking_apart()(pd.RangeIndex(999)), few)
    assert caught.value.rule == "value.index"
    assert "max_array" in caught.value.fix


# -- what a client makes of it ---------------------------------------------------------------------

UNSENT = PayloadError("only as a pickle", rule="stock.unsent")


class Dask:
    """As Dask's client gathers, where *held* is what the cluster has, by key."""

    def __init__(self, held, answers):
        self.held, self.answers, self.submitted = held, answers, []

    def submit(self, take, future, key):
        self.submitted.append(future.key)
        self.held[key] = self.answers.get(future.key)
        return Known(key)

    async def _gather(self, futures, errors, direct, local_worker):
        unpacked, wanted = unpack_remotedata(futures, byte_keys=True)
        for one in wanted:
            if isinstance(self.held[one.key], Exception):
                raise self.held[one.key]
        return pack_data(unpacked, {one.key: self.held[one.key] for one in wanted})


class Client(Gathering, Dask):
    scheduler = SimpleNamespace(address=ADDRESS)

    def __init__(self, held, answers):
        super().__init__(held, answers)
        self.log = Log()
        policy = Policy.load("stock-cluster")
        self._guard = Guard("tcp", "client", policy, self.log, ("dask", "msgpack"))


def gathered(client, futures, errors="raise"):
    return asyncio.run(client._gather(futures, errors))


def test_what_is_refused_is_raised_or_left_out():
    held = {"a": UNSENT, "b": UNSENT, "c": 3}
    answers = {"a": taking_apart()(FRAMES["flags"]), "b": HOSTILE["a range of rows"][0]}
    keys = [Known(key) for key in "abc"]
    with pytest.raises(PayloadError) as caught:
        gathered(Client(dict(held), answers), keys)
    assert caught.value.rule == "value.index"
    client = Client(dict(held), answers)
    found = gathered(client, keys, "skip")
    assert client.log.rules == ["value.index"]
    [event] = client.log.events
    assert (event["authenticated"], event["sender"], event["address"]) == (
        False,
        "unknown",
        ADDRESS,
    )
    same(found[0], FRAMES["flags"])
    assert found[1:] == [3]


class OneMore(Client):
    """A client of a cluster that takes apart one more value each time that it is asked."""

    def submit(self, take, future, key):
        self.answers = {self.submitted.count(future.key): taking_apart()(1)}
        return super().submit(take, future, key)


def test_the_cluster_is_asked_once_however_little_it_takes_apart():
    client = OneMore(dict.fromkeys(range(50), UNSENT), {})
    with pytest.raises(PayloadError) as caught:
        gathered(client, [Known(key) for key in range(50)])
    assert caught.value is UNSENT
    assert len(client.submitted) == 50


def test_what_cannot_be_taken_apart_is_unsent():
    client = Client({"a": UNSENT}, {"a": None})
    with pytest.raises(PayloadError) as caught:
        gathered(client, [Known("a")])
    assert caught.value is UNSENT


def test_a_pickle_in_reply_is_no_value():
    client = Client({"a": UNSENT}, {"a": PolicyDenied("a pickle", rule="floor.unknown")})
    with pytest.raises(PayloadError) as caught:
        gathered(client, [Known("a")])
    assert caught.value is UNSENT


def test_a_client_on_safeser_submits_nothing_on_the_word_of_a_peer():
    client = Client({"a": UNSENT}, {"a": taking_apart()(1)})
    client._guard = None
    with pytest.raises(PayloadError):
        gathered(client, [Known("a")])
    assert client.submitted == []
