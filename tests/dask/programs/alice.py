"""What a data scientist does on a cluster, step by step; prints what came out as JSON.

Each step is a function whose result is compared in tests/dask/clusters/test_cluster.py. Run as a
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
import traceback
import warnings
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from distributed import Client as _DaskClient
from distributed import NannyPlugin, Queue, SchedulerPlugin, WorkerPlugin, span, wait
from steps import step, taken

import safeser


def until(probe: Any) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(0.02)
    raise TimeoutError("it did not happen")


@step
def direct(client: Any) -> Any:
    """Past the scheduler: the client itself connects to workers."""
    array = client.scatter(np.ones(3), direct=True)
    squares = client.map(lambda x: x * x, range(3), pure=False)
    return [
        float(client.submit(np.sum, array).result(timeout=30)),
        client.gather(squares, direct=True),
    ]


@step
def failing(client: Any) -> Any:
    future = client.submit(lambda: 1 / 0, key="failing")
    try:
        future.result(timeout=30)
    except ZeroDivisionError as error:
        return [str(error), "".join(traceback.format_exception(error))]
    return None


@step
def unsendable(client: Any) -> Any:
    class Local:
        pass

    first, second = client.submit(Local), client.submit(lambda: "next")
    try:
        first.result(timeout=30)
    except safeser.SafeserError as error:
        return [str(error), second.result(timeout=30)]
    return None


@step
def code_as_result(client: Any) -> Any:
    try:
        client.submit(lambda: lambda: 1).result(timeout=30)
    except safeser.SafeserError as error:
        return error.rule
    return None


@step
def failed_future_in_a_queue(client: Any) -> Any:
    queue = Queue("failed")
    future = client.submit(lambda: 1 / 0, key="failed-in-queue")
    wait(future)
    queue.put(future)
    [back] = queue.get(batch=1)
    return type(back.exception(timeout=10)).__name__


@step
def warns(client: Any) -> Any:
    def work() -> int:
        from distributed.worker import warn

        warn("careful", FutureWarning)
        return 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.submit(work).result(timeout=30)
        deadline = time.monotonic() + 10
        while not caught and time.monotonic() < deadline:
            time.sleep(0.02)
        return [[str(w.message), w.category.__name__] for w in caught][:1]


@step
def from_inside(client: Any) -> Any:
    def work() -> int:
        from distributed import get_worker, worker_client

        assert get_worker().address.startswith("safeser://")
        with worker_client() as inner:
            return int(inner.submit(lambda x: x + 1, 41).result(timeout=20))

    try:
        return client.submit(work).result(timeout=30)
    except Exception as error:  # the refusal crossed twice, as data
        return str(error)


SHAPES = """
import dataclasses, safeser
@safeser.register_class
@dataclasses.dataclass
class Shape:
    sides: int
    at: tuple
@safeser.register_class
class Broken(Exception):
    pass
def breaks():
    raise Broken("of glass")
"""


@step
def own_classes(client: Any) -> Any:
    """A module that registers its classes, imported in every process of the cluster."""
    Path("shapes.py").write_text(SHAPES)

    def imported(folder: str) -> None:
        sys.path.insert(0, folder)
        __import__("shapes")

    folder = str(Path.cwd())
    client.run(imported, folder)
    client.run_on_scheduler(imported, folder)
    imported(folder)
    shapes = sys.modules["shapes"]
    shape = client.submit(lambda: sys.modules["shapes"].Shape(3, (1.5, "x"))).result(timeout=30)
    try:
        client.submit(lambda: sys.modules["shapes"].breaks()).result(timeout=30)
    except shapes.Broken as error:
        return [shape == shapes.Shape(3, (1.5, "x")), str(error)]
    return None


@step
def relayed_classes(client: Any) -> Any:
    """The same where the scheduler, through which all of it goes, has no such module."""
    folder = Path.cwd() / "unknown-to-the-scheduler"
    folder.mkdir()
    (folder / "parcels.py").write_text(SHAPES)

    def imported() -> None:
        sys.path.insert(0, str(folder))
        __import__("parcels")

    client.run(imported)
    imported()
    parcels = sys.modules["parcels"]
    sent = parcels.Shape(4, (1.5, "x"))
    one, two = client.scheduler_info()["workers"]
    kept = client.scatter(sent, hash=False, direct=False, workers=[one])
    made = client.submit(lambda: sys.modules["parcels"].Shape(5, ()), workers=[one], pure=False)
    moved = client.submit(lambda *all_: [each.sides for each in all_], kept, made, workers=[two])
    out = [client.gather(kept, direct=False) == sent, made.result(timeout=30).sides]
    out.append(moved.result(timeout=30))
    failed = client.submit(lambda: sys.modules["parcels"].breaks(), pure=False)
    out.append(type(failed.exception(timeout=30)) is parcels.Broken)
    return [*out, client.run_on_scheduler(lambda: "parcels" in sys.modules)]


class Odd:
    pass


@step
def says_what_is_inside(client: Any) -> Any:
    """What cannot be sent fails alone and by name; what is asked for next still comes."""
    said = {}
    for name, make in {
        "lambda": lambda: {"f": [lambda: 1]},
        "objects": lambda: np.array([1, Odd()], dtype=object),
        "column": lambda: pd.DataFrame({"ok": [1], "odd": [Odd()]}),
        "file": lambda: open(__file__),  # noqa: SIM115 - it is the result
        "generator": lambda: [(n for n in (1, 2))],
    }.items():
        bad, good = client.submit(make, pure=False), client.submit(lambda: "next", pure=False)
        try:
            said[name] = repr(bad.result(timeout=30))
        except safeser.SafeserError as error:
            said[name] = f"{error} {good.result(timeout=30)}"
    return said


class Counter:
    start = 5

    def __init__(self) -> None:
        self.n = self.start

    def add(self, more: int) -> int:
        self.n += more
        return self.n

    def fails(self) -> None:
        raise KeyError("inside")


@step
def actors(client: Any) -> Any:
    counter = client.submit(Counter, actor=True).result(timeout=30)
    counter.add(1).result(timeout=10)
    try:
        counter.fails().result(timeout=10)
    except KeyError as error:
        return [counter.add(2).result(timeout=10), counter.start, error.args[0], repr(counter)[:17]]
    return None


@step
def actors_of_two_clients(client: Any) -> Any:
    """An actor belongs to the client that it came to, whichever is the process's latest."""
    with safeser.Client(client.scheduler.address, timeout=30):
        counter = client.submit(Counter, actor=True).result(timeout=30)
        client.set_metadata(["actor"], counter)
        found = [counter, client.get_metadata(["actor"])]
        stream = client.scheduler_comm.comm  # which a hostile scheduler may send one by as well
        return [*(each._client is client for each in found), stream._client() is client]


@step
def published_collections(client: Any) -> Any:
    """Futures and what was persisted are names of results, for whoever may ask for them."""
    frame = dd.from_pandas(pd.DataFrame({"v": [1, 2, 3]}), npartitions=2).persist()
    client.publish_dataset(ones=da.ones(10, chunks=5).persist(), frame=frame)
    client.publish_dataset(one=client.submit(lambda: 41))
    got = {name: client.get_dataset(name) for name in ("ones", "frame", "one")}
    return [
        float(got["ones"].sum().compute()),
        int(got["frame"].v.sum().compute()),
        got["one"].result(timeout=10),
    ]


@step
def copies(client: Any) -> Any:
    """Broadcast, replicate and rebalance: where copies are."""
    client.amm.stop()  # every two seconds it takes back what is there more than once
    everywhere = client.scatter(np.arange(10), broadcast=True, direct=True)
    one = client.scatter(np.arange(11))
    client.rebalance()

    def counted() -> Any:
        client.replicate([everywhere, one], n=2)  # its last round may still take one back
        who = client.who_has([everywhere, one])
        return [len(who[everywhere.key]), len(who[one.key])]

    until(lambda: counted() == [2, 2])
    client.amm.start()
    return client.gather(one, direct=True).tolist()


@step
def annotations(client: Any) -> Any:
    """Workers, priorities and retries by name, and spans."""
    one, _ = sorted(client.scheduler_info()["workers"])

    def where() -> str:
        from distributed import get_worker

        return get_worker().address

    with dask.annotate(workers=[one], priority=5, retries=1):
        placed = delayed(where)().compute(optimize_graph=False)
    with span("of glass"):  # tasks of one name are one group, which stays in its first span
        client.submit(where, key="glass").result(timeout=30)
    spans = client.run_on_scheduler(
        lambda dask_scheduler: [
            list(each.name) for each in dask_scheduler.extensions["spans"].spans.values()
        ]
    )
    return [placed == one, ["of glass"] in spans]


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


@step
def metered(client: Any) -> Any:
    """Dask's fine performance metrics of serialization, as on tcp://."""

    def measured(dask_worker: Any) -> Any:
        return [[str(p) for p in key] for key in dask_worker.digests_total if type(key) is tuple]

    one, other = client.scheduler_info()["workers"]
    made = client.submit(np.zeros, 100_000, workers=[one], pure=False)
    client.submit(np.sum, made, workers=[other], pure=False).result(timeout=30)
    made.result(timeout=30)
    found = client.run(measured)
    return [
        ["get-data", "serialize", "seconds"] in found[one],
        ["gather-dep", "deserialize", "seconds"] in found[other],
    ]


@step
def restart(client: Any) -> Any:
    client.restart(timeout=60)
    client.wait_for_workers(2, timeout=60)
    return client.submit(lambda: "again").result(timeout=30)


def main(address: str) -> None:
    out: dict[str, Any] = {}
    with safeser.Client(address, deserializers=["dask", "msgpack"], timeout=30) as client:
        assert isinstance(client, _DaskClient)
        client.wait_for_workers(2, timeout=60)
        out["repr"] = repr(client)
        out |= taken(client)
    print(json.dumps(out, default=str))


if __name__ == "__main__":
    main(sys.argv[1])
