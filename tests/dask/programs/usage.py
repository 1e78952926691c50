"""What else Dask offers to somebody whose policy grants it, step by step; prints it as JSON.

Each step is a function whose result is compared in tests/dask/clusters/test_live_usage.py. Run as a
program.
"""

from __future__ import annotations

import io
import json
import logging
import operator
import os
import sys
import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
from dask import delayed
from distributed import (
    MultiLock,
    NannyPlugin,
    SchedulerPlugin,
    Semaphore,
    WorkerPlugin,
    span,
    wait,
)
from steps import step, taken

import safeser


def until(probe: Any) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(0.02)
    raise TimeoutError("it did not happen")


# --- work ---------------------------------------------------------------------------------------


@step
def copies(client: Any) -> Any:
    """Broadcast, replicate and rebalance: where copies are."""
    client.amm.stop()  # every two seconds it takes back what is there more than once
    everywhere = client.scatter(np.arange(10), broadcast=True, direct=True)
    one = client.scatter(np.arange(11))
    client.replicate([one], n=2)
    client.rebalance()
    who = client.who_has([everywhere, one])
    client.amm.start()
    return [len(who[everywhere.key]), len(who[one.key]), client.gather(one, direct=True).tolist()]


@step
def locks(client: Any) -> Any:
    semaphore = Semaphore(max_leases=2, name="two")
    semaphore.acquire()
    with MultiLock(["a", "b"]):
        held = semaphore.get_value()
    semaphore.release()
    inside = client.submit(lambda s: s.acquire() and s.release(), semaphore).result(timeout=30)
    return [held, inside, semaphore.get_value()]


@step
def annotations(client: Any) -> Any:
    """Workers, resources, priorities and retries by name."""
    one, two = sorted(client.scheduler_info()["workers"])

    def where() -> str:
        from distributed import get_worker

        return get_worker().address

    async def give(dask_worker: Any) -> None:
        await dask_worker.set_resources(GLASS=1)

    client.run(give, workers=[two])
    needs = client.submit(where, resources={"GLASS": 1}, pure=False).result(timeout=30)
    with dask.annotate(workers=[one], priority=5, retries=1):
        placed = delayed(where)().compute(optimize_graph=False)
    with span("of glass"):  # tasks of one name are one group, which stays in its first span
        client.submit(where, key="glass").result(timeout=30)
    spans = client.run_on_scheduler(
        lambda dask_scheduler: [
            list(each.name) for each in dask_scheduler.extensions["spans"].spans.values()
        ]
    )
    return [needs == two, placed == one, ["of glass"] in spans]


# --- failures -----------------------------------------------------------------------------------


class Broken(Exception):
    def __init__(self, part: str, number: int) -> None:
        super().__init__(part, number)
        self.part = part


@step
def failures(client: Any) -> Any:
    """A class that only this program has, and the failing task itself."""

    def breaks(number: int) -> None:
        raise Broken("glass", number)

    future = client.submit(breaks, client.submit(operator.neg, -7))
    try:
        future.result(timeout=30)
    except Broken as error:
        said = [error.part, error.args[1], any("in breaks" in n for n in error.__notes__)]
    for again in (client.recreate_error_locally, client.recreate_task_locally):
        try:
            again(future)
        except Broken as error:
            said.append(error.part)
    return said


# --- authority ----------------------------------------------------------------------------------


@step
def runs(client: Any) -> Any:
    workers = client.run(os.getpid)
    nannies = client.run(os.getpid, nanny=True)
    scheduler = client.run_on_scheduler(os.getpid)
    return len({*workers.values(), *nannies.values(), scheduler, os.getpid()})


class OnWorkers(WorkerPlugin):
    name = "on-workers"

    def setup(self, worker: Any) -> None:
        worker.of_glass = 1

    def teardown(self, worker: Any) -> None:
        worker.of_glass = 2


class OnScheduler(SchedulerPlugin):
    name = "on-scheduler"

    def start(self, scheduler: Any) -> None:
        scheduler.of_glass = 1


class OnNannies(NannyPlugin):
    name = "on-nannies"

    def setup(self, nanny: Any) -> None:
        nanny.of_glass = 1


@step
def plugins(client: Any) -> Any:
    for plugin in (OnWorkers(), OnScheduler(), OnNannies()):
        client.register_plugin(plugin)
    there = [
        *client.run(lambda dask_worker: dask_worker.of_glass).values(),
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.of_glass),
        *client.run(lambda dask_worker: dask_worker.of_glass, nanny=True).values(),
    ]
    client.unregister_worker_plugin("on-workers")
    client.unregister_scheduler_plugin("on-scheduler")
    client.unregister_worker_plugin("on-nannies", nanny=True)
    return [there, *client.run(lambda dask_worker: dask_worker.of_glass).values()]


@step
def uploads(client: Any) -> Any:
    Path("of_glass.py").write_text("number = 41\n")
    client.upload_file("of_glass.py")

    def imports() -> int:
        import of_glass

        return int(of_glass.number)

    upload = {"op": "upload_file", "data": b"number = 1", "load": False}
    out = [client.submit(imports).result(timeout=30)]
    for name in ("../escaped.py", "/tmp/escaped.py", "beside.py"):  # no grant leads out of it
        try:
            client.sync(client.scheduler.broadcast, msg={**upload, "filename": name})
            out.append("written")
        except safeser.SafeserError as error:
            out.append(error.rule)
    folders = client.run(lambda dask_worker: dask_worker.local_directory).values()
    there = [(Path(at) / "beside.py").exists() for at in folders]
    return [*out, there, [(Path(at).parent / "escaped.py").exists() for at in folders]]


# --- looking ------------------------------------------------------------------------------------


@step
def forwards(client: Any) -> Any:
    """What workers log and what tasks report arrives where the client listens."""
    lines, events = io.StringIO(), []
    handler = logging.StreamHandler(lines)
    logger = logging.getLogger("of.glass")
    logger.addHandler(handler)
    client.forward_logging("of.glass", level=logging.INFO)
    client.subscribe_topic("of-glass", events.append)

    def says(x: int) -> None:
        from distributed import get_worker

        logging.getLogger("of.glass").warning("a worker says %s", x)
        get_worker().log_event("of-glass", {"x": x})

    client.submit(says, 5).result(timeout=30)
    client.log_event("of-glass", {"x": 6})
    until(lambda: "a worker says 5" in lines.getvalue() and len(events) == 2)
    client.unforward_logging("of.glass")
    client.unsubscribe_topic("of-glass")
    logger.removeHandler(handler)
    return sorted(event["x"] for _, event in events)


@step
def looks(client: Any) -> Any:
    """Everything that tells about the cluster."""
    future = client.submit(operator.neg, 3)
    wait(future)
    client.get_versions(check=True)
    client.dump_cluster_state("dump")
    asked = {
        "ncores": client.ncores(),
        "has_what": client.has_what(),
        "nbytes": client.nbytes(),
        "scheduler_logs": client.get_scheduler_logs(),
        "worker_logs": client.get_worker_logs(),
        "nanny_logs": client.get_worker_logs(nanny=True),
        "story": client.story(future.key),
        "profile": client.profile(),
    }
    client.processing()
    client.call_stack()
    client.amm.stop()
    stopped = client.amm.running()
    client.amm.start()
    return [sorted(name for name, value in asked.items() if value), stopped, client.amm.running()]


# --- the end ------------------------------------------------------------------------------------


@step
def retires(client: Any) -> Any:
    """What a worker holds moves on before it goes."""
    one, _ = sorted(client.scheduler_info()["workers"])
    array = client.submit(np.arange, 30, workers=[one], pure=False)
    wait(array)
    client.retire_workers([one])
    return [len(client.scheduler_info()["workers"]), int(array.result(timeout=30)[-1])]


@step
def restarts(client: Any) -> Any:
    kept = client.submit(operator.neg, 8, pure=False)
    wait(kept)
    client.restart(wait_for_workers=False)
    client.wait_for_workers(1, timeout=60)
    return [kept.cancelled(), client.submit(lambda: "again").result(timeout=30)]


def main(address: str) -> None:
    out: dict[str, Any] = {}
    with safeser.Client(address, timeout=30) as client:
        client.wait_for_workers(2, timeout=60)
        out |= taken(client)
    print(json.dumps(out, default=str))


if __name__ == "__main__":
    main(sys.argv[1])
