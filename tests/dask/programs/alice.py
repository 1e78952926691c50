"""What an engineer meets on a cluster beside ordinary work, step by step; prints it as JSON.

Ordinary work is that of tests/dask/notebook. tests/dask/clusters/test_cluster.py runs it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from distributed import Queue, wait
from steps import own, step, taken

import safeser


@step
def failed_future_in_a_queue(client: Any) -> Any:
    queue = Queue(own("failed"))
    future = client.submit(lambda: 1 / 0, key="failed-in-queue")
    wait(future)
    queue.put(future)
    [back] = queue.get(batch=1)
    return type(back.exception(timeout=10)).__name__


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
def relayed_classes(client: Any) -> Any:
    """Values of classes that the scheduler, through which all of it goes, does not have."""
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
    n = 0


@step
def actors_of_two_clients(client: Any) -> Any:
    """An actor belongs to the client that it came to, whichever is the process's latest."""
    with safeser.Client(client.scheduler.address, timeout=30):
        counter = client.submit(Counter, actor=True).result(timeout=30)
        client.set_metadata([own("actor")], counter)
        found = [counter, client.get_metadata([own("actor")])]
        stream = client.scheduler_comm.comm  # which a hostile scheduler may send one by as well
        return [*(each._client is client for each in found), stream._client() is client]


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


def main(address: str) -> None:
    with safeser.Client(address, deserializers=["dask", "msgpack"], timeout=30) as client:
        client.wait_for_workers(2, timeout=60)
        print(json.dumps(taken(client), default=str))


if __name__ == "__main__":
    main(sys.argv[1])
