"""The benchmark of serialization counts what it says, and its tables are those of one run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT))
    from benchmarks.serialization import __main__ as module

    return module


def test_an_object_counts_its_own_pickles(benchmark, tmp_path, monkeypatch):
    from benchmarks.serialization.counted import FOLDER, Counted, counts

    monkeypatch.setenv(FOLDER, str(tmp_path))
    written = pickle.dumps(Counted(5))
    assert pickle.loads(pickle.dumps(pickle.loads(written))).number == 5
    roles = {os.getpid(): "client", 0: "worker"}
    assert counts(tmp_path, roles) == {"client": (2, 2), "worker": (0, 0)}
    assert counts(tmp_path, roles)["client"] == (0, 0)
    monkeypatch.delenv(FOLDER)
    pickle.dumps(Counted(5))
    assert list(tmp_path.iterdir()) == []


class Started:
    """A cluster without processes, which takes what a test knows."""

    def __init__(self, name):
        self.name = name


def counts_of(cluster):
    sealed = cluster.name == "safeser sealed"
    return {"flat": {"client": (3, 2), "scheduler": (0, 0) if sealed else (1, 1),
                     "worker": (0, 1)}}  # fmt: skip


def cost_of(module):
    taken = {"tcp": 1.0, "safeser": 1.5, "safeser sealed": 0.5}

    def cost(cluster, measure, amount):
        n = taken[cluster.name]
        return module.Cost(n, n, n, n, n * 1e6, n * 1e6, n / 1e3, n / 1e3)

    return cost


def test_the_tables(benchmark, monkeypatch, tmp_path):
    import contextlib

    import typer
    from typer.testing import CliRunner

    @contextlib.contextmanager
    def running(folder):
        yield {name: Started(name) for name in benchmark.COMPARED}

    monkeypatch.setattr(benchmark, "running", running)
    monkeypatch.setattr(benchmark, "counted", counts_of)
    monkeypatch.setattr(benchmark, "cost", cost_of(benchmark))
    app = typer.Typer()
    app.command()(benchmark.main)
    file = tmp_path / "table.md"
    ran = CliRunner().invoke(app, ["--rounds", "2", "--markdown", str(file)])
    assert ran.exit_code == 0, ran.output
    text = file.read_text()
    for line in (
        "| flat, client | 3P 2U | 3P 2U | 3P 2U |",
        "| flat, scheduler | 1P 1U | 1P 1U | 0 |",
        "| flat, worker | 1U | 1U | 1U |",
        "| map(call, partials), 20,000 |  |  |  |  |  |",
        "|   scheduler (s) | 1.00 | 1.50 | 0.50 | 1.50 | 0.50 |",
        "|   client to scheduler (MB) | 1.00 | 1.50 | 0.50 | 1.50 | 0.50 |",
        "|   scheduler's loop held (ms) | 1.00 | 1.50 | 0.50 | 1.50 | 0.50 |",
        "|   client's loop held (ms) | 1.00 | 1.50 | 0.50 | 1.50 | 0.50 |",
    ):
        assert line in text
    assert "2 rounds in turns" in text
    assert max(map(len, ran.output.splitlines()[:30])) <= 80


def test_counts_alone(benchmark, monkeypatch, tmp_path):
    assert benchmark.count_lines({name: counts_of(Started(name)) for name in benchmark.COMPARED})[
        0
    ] == ["flat, client", "3P 2U", "3P 2U", "3P 2U"]


def test_the_watch_says_the_longest_hold_once(benchmark, monkeypatch, tmp_path):
    import threading

    from benchmarks.serialization import loop_watch

    monkeypatch.chdir(tmp_path)
    stream = SimpleNamespace(comm=SimpleNamespace(stream=SimpleNamespace(_total_write_index=7)))
    gone = SimpleNamespace(comm=SimpleNamespace(stream=None))
    server = SimpleNamespace(stream_comms={"a": stream, "b": gone})
    watch = loop_watch.LoopWatch()
    watch._longest = 0.5
    with loop_watch.socket.socket(loop_watch.socket.AF_UNIX) as listener:
        listener.bind(loop_watch.SOCKET)
        listener.listen()
        given = watch, server, listener
        threading.Thread(target=loop_watch.answer, args=given, daemon=True).start()
        assert loop_watch.ask(tmp_path) == {"held": 0.5, "sent": 7}
        assert loop_watch.ask(tmp_path) == {"held": 0.0, "sent": 7}


def test_a_hold_of_a_loop_in_another_thread_is_seen(benchmark):
    import asyncio
    import threading
    import time

    from benchmarks.serialization import loop_watch

    watch, loop = loop_watch.LoopWatch(0.001), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        ticking = asyncio.run_coroutine_threadsafe(watch.tick(), loop)
        watch.take_all()
        loop.call_soon_threadsafe(time.sleep, 0.05)
        assert watch.take_all() + watch.take_all() >= 0.04
        ticking.cancel()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
