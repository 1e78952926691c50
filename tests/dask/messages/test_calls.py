"""One pass over a message: how many calls, through how many files, one array takes.

A worker's array of 800 kB goes to a client by its scheduler. The bounds are a little above what is
measured; a change that goes beyond them walks or asks for something once more.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from distributed.protocol import to_serialize

import safeser
from tests.dask.conftest import Talk

HERE = str(Path(safeser.__file__).parent)


class Cost(NamedTuple):
    calls: int
    files: frozenset[str]


def measured(work: Callable[[], Any]) -> tuple[Any, Cost]:
    """Return what *work* returns, and how many functions of safeser in how many files it calls."""
    files: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HERE):
            files.append(frame.f_code.co_filename)

    before = sys.getprofile()
    # A collection in between would call what other tests left behind.
    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return result, Cost(len(files), frozenset(files))


def received(talk: Any, frames: list[Any]) -> tuple[Any, Cost]:
    """Return what the asker of *talk* reads of *frames* that its server wrote, and what it took."""
    sealed = talk.far.session.seal(b"", frames)
    return measured(lambda: talk.asker.receive(talk.near.verify(sealed), None))


@pytest.fixture(scope="module")
def costs(doors):
    """What the scheduler's reading, its writing, and the client's reading of one array take."""
    array = np.arange(100_000.0)
    worker = Talk(doors, "scheduler", "worker", "default").greet()
    client = Talk(doors, "client", "scheduler", "default").greet()
    for _ in range(4):  # the first ones find out what all others know
        worker.request({"op": "get_data", "keys": ["x"], "who": "safeser://1:1", "reply": True})
        frames = worker.server.send({"status": "OK", "data": {"x": to_serialize(array)}})
        relayed, reading = received(worker, frames)
        worker.request("OK")
        client.request({"op": "gather", "keys": ["x"], "reply": True})
        reply = {"status": "OK", "data": relayed["data"]}
        frames, writing = measured(lambda reply=reply: client.server.send(reply))
        got, opening = received(client, frames)
        np.testing.assert_array_equal(got["data"]["x"], array)
    return {"scheduler reads": reading, "scheduler writes": writing, "client reads": opening}


@pytest.mark.parametrize(
    ("step", "calls", "files"),
    [("scheduler reads", 157, 30), ("scheduler writes", 38, 13), ("client reads", 134, 31)],
)
def test_one_array_takes_no_more_calls_than_this(costs, step, calls, files):
    cost = costs[step]
    assert cost.calls <= calls
    assert len(cost.files) <= files, sorted(cost.files)
