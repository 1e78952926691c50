"""pandas objects that a stock cluster writes as typed values, and answers that are none."""

from __future__ import annotations

import array
import asyncio
import datetime as dt
import io
import pickle
import subprocess
import sys
import zoneinfo
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import dateutil.tz
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from distributed.utils_comm import pack_data, unpack_remotedata

from safeser.dask.clients.gathering import Gathering
from safeser.dask.clients.stock_frames import rebuild_value, write_value, writer_source
from safeser.dask.stock.comm import Guard
from safeser.errors import PayloadError, PolicyDenied
from safeser.policy import Policy
from tests.conftest import Witness
from tests.dask.clients.test_gathering import Known
from tests.dask.stock.conftest import ADDRESS
from tests.dask.stock.frames import DAYS, FRAMES, LIMITS, PLACES, same
from tests.dask.stock.test_hostile_frames import HOSTILE
from tests.refusal import refusal

FREQS = ("D", "h", "B", "QS-FEB", "W-TUE", pd.DateOffset(months=1))


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


def written(value):
    """Return what the function makes of *value* where safeser is there already."""
    return write_value()(value, b"")


@pytest.mark.parametrize("name", FRAMES)
def test_it_comes_back_as_it_was(name):
    arrays = written(FRAMES[name])
    assert {(type(array), array.dtype, array.ndim) for array in arrays} == {
        (np.ndarray, np.dtype("u1"), 1)
    }
    same(rebuild_value(arrays, LIMITS), FRAMES[name])


def through(value):
    return rebuild_value(written(value), LIMITS)


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
    value |= {"set": {1}, "large": 1 << 70, "sparse": pd.Series(pd.arrays.SparseArray([0, 1]))}
    found = through(value)
    assert type(found["a"][0]) is np.int64
    same(found["a"][1][0], FRAMES["flags"])
    assert found[2].tolist() == [0, 1]
    assert (found[1,], found["n"]) == ((1.5, b"x"), None)
    assert (found["set"], found["large"]) == ({1}, 1 << 70)
    same(found["sparse"], value["sparse"])


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


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize(
    "value",
    [
        *(np.ma.masked_array([1, 2, 3], [0, 1, 0], fill_value=7), np.ma.masked),
        *(np.matrix([[1, 2]]), array.array("d", [1.5]), memoryview(b"ab"), bytearray(b"x")),
        *(np.zeros(3, [("a", "i4"), ("b", "f8")]), np.array([1, "a"], object)),
        np.zeros(2, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_stock_dask_writes_in_forms_of_its_own(value):
    found = through(value)
    assert (
        (type(found), found.tolist()) == (type(value), value.tolist())
        if hasattr(value, "tolist")
        else found == value
    )
    assert getattr(found, "dtype", None) == getattr(value, "dtype", None)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("cls", [sp.csr_matrix, sp.csr_array])
def test_sparse_matrices_and_arrays(cls, layout):
    value = cls(np.eye(4) * [1, 2, 0, 3]).asformat(layout)
    found = through(value)
    assert type(found) is type(value)
    np.testing.assert_array_equal(found.toarray(), value.toarray())


@pytest.mark.parametrize(
    "value",
    [object(), pd.Series([object()]), Rows(2), Table({"a": [1]}), nested(1500), print]
    + [pd.DatetimeIndex([], tz=zone) for zone in (dateutil.tz.tzlocal(), NAMELESS)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_written(value):
    assert written(value) is None


@pytest.mark.parametrize(
    "value",
    [1j, Path("/"), pd.Series([1]).astype(pd.ArrowDtype(pa.int64()))],
    ids=lambda value: type(value).__name__,
)
def test_what_is_written_and_not_read(value):
    with refusal(PayloadError, "stock.type"):
        through(value)


#: A process that has no safeser, as those of a stock cluster.
ELSEWHERE = """
import os, pickle, sys
sys.path[:] = [
    each for each in sys.path if not os.path.exists(os.path.join(each, "safeser/__init__.py"))
]
write, source, values = pickle.load(sys.stdin.buffer)
before = list(sys.path)
written = {name: write(value, source) for name, value in values.items()}
assert sys.path == before
assert "distributed" not in sys.modules
[file] = sys.modules["safeser"]._sources
assert os.path.exists(file.name)
pickle.dump((written, file.name), sys.stdout.buffer)
"""


def test_a_cluster_without_safeser_writes_what_this_one_reads(tmp_path):
    sent = cloudpickle.dumps((write_value(), writer_source(), FRAMES))
    with pytest.raises(Exception):  # noqa: B017 - pickle raises different classes
        pickle.dumps(write_value())
    ended = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=sent,
        capture_output=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    answers, file = pickle.loads(ended.stdout)
    for name, arrays in answers.items():
        same(rebuild_value(arrays, LIMITS), FRAMES[name])
    assert not Path(file).exists()


# -- what a client makes of it ---------------------------------------------------------------------

UNSENT = PayloadError("only as a pickle", rule="stock.unsent")
UNKNOWN = PayloadError("of a type that is not read", rule="stock.type")


class Dask:
    """As Dask's client gathers, where *held* is what the cluster has, by key."""

    def __init__(self, held, answers):
        self.held, self.answers, self.submitted = held, answers, []

    async def _scatter(self, source):
        assert source == writer_source()
        return Known("source")

    def submit(self, write, future, source, key):
        assert source.key == "source"
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
        self.log = Witness()
        policy = Policy.load("stock-cluster")
        self._guard = Guard("tcp", "client", policy, self.log, ("dask", "msgpack"))


def gathered(client, futures, errors="raise"):
    return asyncio.run(client._gather(futures, errors))


def test_what_is_refused_is_raised_or_left_out():
    held = {"a": UNSENT, "b": UNKNOWN, "c": 3}
    answers = {"a": written(FRAMES["flags"]), "b": HOSTILE["a range of rows"][0]}
    keys = [Known(key) for key in "abc"]
    with refusal(PayloadError, "value.index"):
        gathered(Client(dict(held), answers), keys)
    client = Client(dict(held), answers)
    found = gathered(client, keys, "skip")
    assert client.log.rules == ["value.index"]
    [event] = client.log.events
    assert event["sender"] == "unknown"
    assert event["session"].fields["authenticated"] is False
    assert event["session"].fields["address"] == ADDRESS
    same(found[0], FRAMES["flags"])
    assert found[1:] == [3]


class OneMore(Client):
    """A client of a cluster that takes apart one more value each time that it is asked."""

    def submit(self, write, future, source, key):
        self.answers = {self.submitted.count(future.key): written(1)}
        return super().submit(write, future, source, key)


def test_the_cluster_is_asked_once_however_little_it_takes_apart():
    client = OneMore(dict.fromkeys(range(50), UNSENT), {})
    with pytest.raises(PayloadError) as caught:
        gathered(client, [Known(key) for key in range(50)])
    assert caught.value is UNSENT
    assert len(client.submitted) == 50


@pytest.mark.parametrize("answer", [None, PolicyDenied("a pickle", rule="floor.unknown")])
def test_what_cannot_be_taken_apart_and_a_pickle_in_reply_are_unsent(answer):
    client = Client({"a": UNSENT}, {"a": answer})
    with pytest.raises(PayloadError) as caught:
        gathered(client, [Known("a")])
    assert caught.value is UNSENT


def test_a_client_on_safeser_submits_nothing_on_the_word_of_a_peer():
    client = Client({"a": UNSENT}, {"a": written(1)})
    client._guard = None
    with pytest.raises(PayloadError):
        gathered(client, [Known("a")])
    assert client.submitted == []
