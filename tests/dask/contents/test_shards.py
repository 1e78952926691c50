"""What one worker sends another in a shuffle: forged tables, and parts that it may not write."""

from __future__ import annotations

import asyncio
import contextlib
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import dask.dataframe  # noqa: F401 - registers how Arrow's tables become frames
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed.shuffle._arrow import serialize_table
from distributed.shuffle._core import ShuffleRun
from distributed.shuffle._limiter import ResourceLimiter
from distributed.shuffle._rechunk import ArrayRechunkRun
from distributed.shuffle._shuffle import DataFrameShuffleRun
from hypothesis import given
from hypothesis import strategies as st
from tornado.ioloop import IOLoop

from safeser import families
from safeser.dask.contents.shards import check_shards
from safeser.dask.worker import direct_requests
from safeser.errors import PayloadError
from safeser.gate.values import Limits
from tests.dask.patched import original, patched
from tests.refusal import refusal

LIMITS = Limits()
#: More than any shards here are.
PLENTY = 1 << 20

OFFSETS = np.array([0, 1, 2, 3, 4], "i4").tobytes()


def stream(table):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


HONEST = stream(pa.table({"s": ["a", "b", "c", "d"], "_partitions": [0, 1, 0, 1]}))
#: Offsets far outside: distributed 2026.8.0 sorts and splits such a table, and the process is gone.
CRASH = HONEST.replace(OFFSETS, np.array([0, 1, 2, 1 << 30, (1 << 31) - 1], "i4").tobytes())


def refused(shards):
    with pytest.raises(PayloadError) as caught:
        check_shards(shards, LIMITS, given=PLENTY, where="data")
    assert caught.value.where.startswith("data")
    return caught.value.rule


@pytest.mark.parametrize(
    "form", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, "u1"), pa.py_buffer]
)
def test_a_table_whose_offsets_lie_is_refused(form):
    assert CRASH != HONEST
    assert refused([(0, HONEST), (1, form(CRASH))]) == "shuffle.table"


@pytest.mark.parametrize(
    "shards",
    [
        None,
        CRASH,
        {0: CRASH},
        [{0: 1, CRASH: 2}],
        np.array([(0, CRASH)], dtype=object),
        [(0, HONEST, CRASH)],
        [[0, "text"]],
    ],
)
def test_what_is_no_shard_is_refused(shards):
    assert refused(shards) in ("shuffle.shard", "shuffle.table")


@given(st.binary() | st.tuples(st.integers(0, len(HONEST) - 1), st.binary(max_size=16)))
def test_any_bytes_are_a_sound_table_or_refused(change):
    data = change
    if isinstance(change, tuple):
        at, new = change
        data = HONEST[:at] + new + HONEST[at + len(new) :]
    with contextlib.suppress(PayloadError):
        check_shards([(0, data)], LIMITS, given=PLENTY, where="data")


def compressed():
    sink = io.BytesIO()
    zeros = pa.table({"_partitions": np.zeros(1 << 22)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, zeros.schema, options=options) as writer:
        writer.write_table(zeros)
    return sink.getvalue()


def test_what_takes_far_more_than_its_bytes_is_refused():
    few = compressed()
    assert len(few) < 1 << 15
    for data in (few, stream(pa.table({"_partitions": pa.nulls(1 << 30)})), few[:100], b""):
        assert refused([(0, data)]) == "shuffle.table"


#: Of each of them, a megabyte of text is written out.
TEXTS = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, "i1"), pa.array(["x" * 1000]))
INSIDE = pa.ListArray.from_arrays([0, 1000], TEXTS)


def named(column):
    return stream(pa.table({"v": column, "_partitions": [0] * len(column)}))


@pytest.mark.parametrize("shard", [named(TEXTS), named(INSIDE)], ids=["column", "list"])
def test_categories_stand_for_no_more_than_an_array_may_be(shard):
    assert len(shard) < 20_000
    sink = io.BytesIO()
    table = pa.table({"v": TEXTS, "_partitions": [0] * 1000})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for _ in range(3):  # all batches of a shard count
            writer.write_table(table)
    many = Limits(max_array=2_000_000)
    few = Limits(max_array=999_999)
    check_shards([(0, shard), (1, shard)], many, given=PLENTY, where="data")
    shards_of = ([(0, shard)], few), ([(at, shard) for at in range(3)], many)
    for shards, limits in (*shards_of, ([(0, sink.getvalue())], many)):
        with refusal(PayloadError, "shuffle.table") as caught:
            check_shards(shards, limits, given=PLENTY, where="data")
        assert "limits.max_array" in str(caught.value)


MANY = np.broadcast_to(np.float64(1), (1 << 27,))


@pytest.mark.parametrize(
    "shards",
    [
        [(number, HONEST) for number in range(9)],
        [(number, pa.py_buffer(HONEST)) for number in range(9)],
        [((0, 0), [((0, 0), ((0, 0), MANY))])],
        [((0, number), [((0, 0), ((0, 0), np.zeros(99)))]) for number in range(9)],
        [((0, 0), [((0, 0), ((0, 0), np.zeros(99))) for _ in range(9)])],
    ],
    ids=["bytes", "buffer", "strides", "shards", "arrays"],
)
def test_shards_are_no_more_than_arrived(shards):
    with refusal(PayloadError, "shuffle.size"):
        check_shards(shards, LIMITS, given=3 * len(HONEST), where="data")
    check_shards(shards, LIMITS, given=1 << 31, where="data")


PAIRS = np.dtype([("a", "O"), ("b", "i4"), ("c", [("d", "O", (2, 2))])])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(300).astype(object),
        np.full((20, 20), None),
        np.ma.masked_array(np.full(300, True, object), [True] * 300),
        np.array([(1, 2, ([[None, True], [None, 7]],))] * 300, PAIRS),
    ],
)
def test_objects_count_as_the_least_that_they_arrive_as(array):
    shards = [((0, 0), [((0, 0), array)])]
    check_shards(shards, LIMITS, given=len(pickle.dumps(array)), where="data")
    objects = array.size * (5 if array.dtype == PAIRS else 1)
    with pytest.raises(PayloadError):
        check_shards(shards, LIMITS, given=objects - 1, where="data")


ONE = np.broadcast_to(np.float64(1), (1 << 20,))


@pytest.mark.parametrize(
    ("shards", "rule"),
    [
        ([(0, CRASH)], "shuffle.table"),
        ([((0, 0), [((0, 0), ((0, 0), ONE)), ((0, 1), ("text", None))])], "shuffle.size"),
        ([(0, np.frombuffer(HONEST, "u1"))], None),
    ],
    ids=["table", "one number a million times", "honest"],
)
def test_no_worker_gets_them(talk, shards, rule):
    t = talk("worker", "worker")
    header, frames = families.serialize(shards, ["dask"])
    said = {"op": "shuffle_receive", "shuffle_id": "s", "run_id": 1}
    t.attack({**said, "data": t.Row(header, tuple(frames))})
    assert t.refused_by_server == [rule] * (rule is not None)


# -- parts that a worker was not assigned, or that lead out of its folder --------------------------


HERE, ELSEWHERE = "safeser://127.0.0.1:1", "safeser://127.0.0.1:2"
CONTENT = b"\nimport os\n"


KEEPS = "distributed.shuffle._core:ShuffleRun._write_to_disk"


@pytest.fixture(autouse=True)
def _kept():
    with patched(KEEPS):
        yield


def receive(kind, folder, *shards):
    """Have a worker that keeps some parts of a shuffle receive *shards*; return its files."""

    async def received():
        options = {
            "id": "s",
            "run_id": 1,
            "span_id": None,
            "local_address": HERE,
            "directory": str(folder / "run"),
            "executor": pool,
            "rpc": None,
            "digest_metric": lambda *_: None,
            "scheduler": None,
            "memory_limiter_disk": ResourceLimiter(None),
            "memory_limiter_comms": ResourceLimiter(None),
            "disk": True,
            "loop": IOLoop.current(),
        }
        if kind == "array":
            chunks = ((2, 2), (4,))
            worker_for = {(0, 0): HERE, (0, 1): ELSEWHERE}
            run = ArrayRechunkRun(worker_for=worker_for, old=chunks, new=((4,), (2, 2)), **options)
        else:
            meta = pd.DataFrame({"v": [b""], "_partitions": [0]})
            run = DataFrameShuffleRun(
                worker_for={0: HERE, 1: ELSEWHERE, 2: HERE},
                column="_partitions",
                meta=meta,
                drop_column=True,
                **options,
            )
        try:
            for number, shard in enumerate(shards):
                named = (number, 0) if kind == "array" else number
                await run.receive([(named, shard)])
            await run.flush_receive()
            return sorted(path.name for path in (folder / "run").iterdir())
        finally:
            await run.close()

    with ThreadPoolExecutor(1) as pool:
        return asyncio.run(received())


def table(*partitions, kind=None):
    return serialize_table(
        pa.table({"v": [CONTENT] * len(partitions), "_partitions": pa.array(partitions, kind)})
    )


def piece(partition):
    return [(partition, ((0, 0), np.frombuffer(CONTENT, "u1")))]


def test_own_parts_are_kept(tmp_path):
    for kind in ("i8", "u1"):
        made = receive("frame", tmp_path, table(0, 2, kind=pa.type_for_alias(kind)), table(2))
        assert made == ["0", "2"]
    assert receive("array", tmp_path, piece((0, 0))) == ["0_0"]


def escaping(kind, name):
    """Return a shard whose part's name leads to *name* beside the folder of the shuffle."""
    return table(f"../{name}") if kind == "frame" else piece((f"../{name}",))


@pytest.mark.parametrize("kind", ["frame", "array"])
def test_no_file_elsewhere_is_written(tmp_path, monkeypatch, kind):
    with monkeypatch.context() as stock:
        stock.setattr(ShuffleRun, "_write_to_disk", original(KEEPS))
        receive(kind, tmp_path, escaping(kind, "control"))
    assert CONTENT in (tmp_path / "control").read_bytes(), "the control did not run"

    with refusal(PayloadError, "shuffle.partition"):
        receive(kind, tmp_path, escaping(kind, "target"))
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("kind", "shard"),
    [
        ("frame", table(1)),
        ("frame", table(0, 3)),
        ("frame", table(0.0)),
        ("frame", table("0")),
        ("frame", table(False)),
        ("array", piece((0, 1))),
        ("array", piece((0,))),
        ("array", piece("00")),
        ("array", piece((0, False))),
        ("array", piece((0, 0.0))),
        ("array", piece((0, ("../x",)))),
    ],
)
def test_no_part_of_another_worker_is_kept(tmp_path, kind, shard):
    with refusal(PayloadError, "shuffle.partition"):
        receive(kind, tmp_path, shard)


def test_what_is_kept_out_is_recorded(tmp_path, doors, monkeypatch):
    channel = doors.channel("worker", "demo")
    monkeypatch.setattr(direct_requests, "open_channels", lambda: (channel,))
    with pytest.raises(PayloadError):
        receive("frame", tmp_path, escaping("frame", "target"))
    (record,) = channel.audit.events
    told = [record[name] for name in ("sender", "recipient", "operation", "rule", "where")]
    assert told == ["unknown", "worker", "shuffle_receive", "shuffle.partition", "data"]
