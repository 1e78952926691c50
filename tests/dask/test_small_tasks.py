"""What a scheduler does for many small tasks: :mod:`safeser.dask.patches.small_tasks`."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest
from dask._expr import LLGExpr
from dask._task_spec import Task
from distributed.scheduler import _materialize_graph
from distributed.utils import offload as dask_offload

from safeser.dask.contents.opened_graph import opened
from safeser.dask.patches import small_tasks
from safeser.dask.patches.small_tasks import SMALL_GRAPH
from safeser.dask.transport.comm import SafeserComm

TO_CLIENT = "Scheduler->Client"
BATCHES, OFFLOAD = small_tasks.ROWS


def named(name):
    comm = SafeserComm.__new__(SafeserComm)
    comm.name = name
    return comm


@pytest.mark.parametrize(
    ("comm", "before", "after"),
    [
        (named(TO_CLIENT), 0.002, small_tasks.INTERVAL),
        (named(TO_CLIENT), 0.01, 0.01),
        (named("Scheduler->Worker"), 0.001, 0.001),
        (named(None), 0.001, 0.001),
        (SimpleNamespace(name=TO_CLIENT), 0.002, 0.002),
    ],
)
def test_only_the_streams_to_clients_of_safeser_have_longer_intervals(comm, before, after):
    started = []
    sender = SimpleNamespace(interval=before)
    BATCHES.replacement(lambda *given: started.append(given))(sender, comm)
    assert sender.interval == after
    assert started == [(sender, comm)]


def tasks(number):
    return {f"t{each}": Task(f"t{each}", sum, (each,)) for each in range(number)}


def built(number):
    return opened(tasks(number), {"priority": {"t0": 7}}).frames[0].take()


def listed(graph):
    """Return what the scheduler is given, the thread that listed it, and that of the loop."""
    seen = []

    def materialize(**given):
        seen.append(threading.current_thread())
        return _materialize_graph(**given)

    async def run():
        got = await OFFLOAD.replacement(dask_offload)(materialize, expr=graph, validate=False)
        return got, *seen, threading.current_thread()

    return asyncio.run(run())


@pytest.mark.parametrize("number", [1, SMALL_GRAPH, SMALL_GRAPH + 1])
def test_small_graphs_of_signed_tasks_are_listed_in_the_loop(number):
    (dsk, annotations), where, loop = listed(built(number))
    assert (where is loop) is (number <= SMALL_GRAPH)
    assert dsk.keys() == tasks(number).keys()
    assert annotations == {"priority": {"t0": 7}}
    (dsk, _), where, loop = listed(LLGExpr(tasks(1)))  # which a user made
    assert where is not loop
    assert dsk == tasks(1)


def test_what_waits_for_the_loop_runs_between_the_graphs_of_a_batch():
    done = []

    async def run():
        offload = OFFLOAD.replacement(dask_offload)
        for number in range(3):
            asyncio.get_running_loop().call_soon(done.append, f"other {number}")
            await offload(lambda expr, at=number: done.append(f"graph {at}"), expr=built(1))

    asyncio.run(run())
    assert done == ["other 0", "graph 0", "other 1", "graph 1", "other 2", "graph 2"]
