"""Parts of a shuffle that a worker was not assigned, lead out of its folder, or repeat too much."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import dask.dataframe  # noqa: F401 - registers how Arrow's tables become frames
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed.shuffle import _shuffle
from distributed.shuffle._arrow import deserialize_table, serialize_table
from distributed.shuffle._core import ShuffleRun
from distributed.shuffle._limiter import ResourceLimiter
from distributed.shuffle._rechunk import ArrayRechunkRun
from distributed.shuffle._shuffle import DataFrameShuffleRun
from tornado.ioloop import IOLoop

from safeser.dask.patches import shuffle
from safeser.errors import PayloadError
from tests.dask.patched import original, patched

HERE, ELSEWHERE = "safeser://127.0.0.1:1", "safeser://127.0.0.1:2"
CONTENT = b"\nimport os\n"


KEEPS = "distributed.shuffle._core:ShuffleRun._write_to_disk"
DIVIDES = "distributed.shuffle._shuffle:DataFrameShuffleRun._repartition_buffers"


@pytest.fixture(autouse=True)
def _kept():
    with patched(KEEPS, DIVIDES):
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
        stock.setattr(DataFrameShuffleRun, "_repartition_buffers", original(DIVIDES))
        receive(kind, tmp_path, escaping(kind, "control"))
    assert CONTENT in (tmp_path / "control").read_bytes(), "the control did not run"

    with pytest.raises(PayloadError) as caught:
        receive(kind, tmp_path, escaping(kind, "target"))
    assert caught.value.rule == "shuffle.partition"
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
        ("array", piece(0)),
        ("array", piece("00")),
        ("array", piece((0, -1))),
        ("array", piece((0, False))),
        ("array", piece((0, 0.0))),
        ("array", piece((0, ("../x",)))),
    ],
)
def test_no_part_of_another_worker_is_kept(tmp_path, kind, shard):
    with pytest.raises(PayloadError) as caught:
        receive(kind, tmp_path, shard)
    assert caught.value.rule == "shuffle.partition"


def test_what_is_kept_out_is_recorded(tmp_path, doors, monkeypatch):
    channel = doors.channel("worker", "demo")
    monkeypatch.setattr(shuffle, "open_channels", lambda: (channel,))
    with pytest.raises(PayloadError):
        receive("frame", tmp_path, escaping("frame", "target"))
    (record,) = channel.audit.events
    told = [record[name] for name in ("sender", "recipient", "operation", "rule", "where")]
    assert told == ["unknown", "worker", "shuffle_receive", "shuffle.partition", "data"]


# -- tables ---------------------------------------------------------------------------------------


def run(own):
    made = object.__new__(DataFrameShuffleRun)
    made.column, made.drop_column, made.local_address = "_partitions", True, HERE
    made.partitions_of = {HERE: list(range(own))}
    made.run_id, made.id = 1, "s"
    return made


def divided(column, numbers, own=100, **more):
    numbers = numbers if isinstance(numbers, pa.Array) else pa.array(numbers, "i4")
    shard = pa.table({"v": column, **more, "_partitions": numbers})
    return run(own)._repartition_buffers([(0, serialize_table(shard))])


def refused(rule, *shard, **more):
    with pytest.raises(PayloadError) as caught:
        divided(*shard, **more)
    assert caught.value.rule == rule


def test_tables_are_divided_into_own_parts_as_by_dask():
    made = divided(list("abcd"), [1, 0, 1, 99])
    assert {at: deserialize_table(part)["v"].to_pylist() for at, part in made.items()} == {
        (0,): ["b"],
        (1,): ["a", "c"],
        (99,): ["d"],
    }
    shard = pa.table({"v": list("abcd"), "_partitions": [1, 0, 1, 99]})
    assert original(DIVIDES)(run(100), [(0, serialize_table(shard))]) == made


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 100],
        [-1, 0],
        pa.array([0, None]),
        pa.array([0.0, 1.0]),
        pa.array([False, True]),
        pa.array(["0", "1"]),
        pa.array([[0], [1]]),
        pa.array([0, 1]).dictionary_encode(),
    ],
)
def test_no_table_is_made_of_a_part_of_another_worker(numbers, monkeypatch):
    monkeypatch.setattr(_shuffle, "split_by_partition", None)
    refused("shuffle.partition", ["a", "b"], numbers)


def test_no_more_numbers_are_looked_at_than_tell():
    assert shuffle._numbers(pa.chunked_array([range(10)]), 3) == [(0,), (1,), (2,), (3,)]


TEXTS = pa.array(["x" * 1000])
NAMED = pa.DictionaryArray.from_arrays(pa.array([0] * 100, "i1"), TEXTS)


@pytest.fixture
def small(monkeypatch):
    """A process whose policy lets no array have more than 40,000 bytes."""
    monkeypatch.setattr(shuffle, "most_bytes", lambda: 40_000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "column",
    [
        NAMED,
        pa.StructArray.from_arrays([NAMED], ["a"]),
        pa.ListArray.from_arrays(range(101), NAMED),
        pa.DictionaryArray.from_arrays(
            pa.array([0] * 100, "i1"), pa.StructArray.from_arrays([NAMED[:1]], ["a"])
        ),
    ],
)
def test_categories_are_not_written_for_many_parts(column):
    whole = pa.table({"v": column, "_partitions": pa.array(range(100), "i4")})
    made = original(DIVIDES)(run(0), [(0, serialize_table(whole))])
    assert sum(map(len, made.values())) > 99_000, "the control did not run"
    refused("shuffle.size", column, range(100))
    assert len(divided(column, [at % 9 for at in range(100)])) == 9


@pytest.mark.usefixtures("small")
def test_nor_are_long_names():
    names = {f"{at}" * 50: pa.nulls(100) for at in range(10)}
    refused("shuffle.size", pa.nulls(100), range(100), **names)
    assert len(divided(pa.nulls(100), [0] * 100, **names)) == 1


@pytest.mark.usefixtures("small")
def test_large_tables_that_repeat_little_pass():
    texts = pa.array([f"{at}" * 500 for at in range(100)])
    assert len(divided(texts, range(100))) == 100


def test_a_part_may_be_as_large_as_an_array(doors, monkeypatch):
    assert shuffle.most_bytes() == 1 << 30
    channel = doors.channel("worker", "demo")
    monkeypatch.setattr(shuffle, "open_channels", lambda: (channel,))
    assert shuffle.most_bytes() == channel.policy.limits.max_array
