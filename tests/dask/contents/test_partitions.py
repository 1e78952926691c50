"""Parts of a shuffle that a worker was not assigned, or that lead out of its folder."""

from __future__ import annotations

import asyncio
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
from tornado.ioloop import IOLoop

from safeser.dask.patches import shuffle
from safeser.errors import PayloadError
from tests.dask.patched import original, patched
from tests.refusal import refusal

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
    monkeypatch.setattr(shuffle, "open_channels", lambda: (channel,))
    with pytest.raises(PayloadError):
        receive("frame", tmp_path, escaping("frame", "target"))
    (record,) = channel.audit.events
    told = [record[name] for name in ("sender", "recipient", "operation", "rule", "where")]
    assert told == ["unknown", "worker", "shuffle_receive", "shuffle.partition", "data"]
