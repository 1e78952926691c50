"""Use one small cluster on ``safeser://`` as people use Dask, and print what works as JSON.

``python -m verification.compat.smoke`` needs only what safeser needs with its extras dask and
arrow, so that it runs with any release of Dask. It prints an object with one item for each line of
:data:`LINES`: ``"ok"``, or the error that ended it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import operator
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Queue
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

import safeser

#: Longer than anything takes on a busy machine, in seconds.
PATIENCE = 300


def equal(found: Any, wanted: Any) -> None:
    if not (type(found) is type(wanted) and found == wanted):
        raise AssertionError(f"{found!r} in the place of {wanted!r}")


def increment(x: int) -> int:
    return x + 1


def submit(client: safeser.Client) -> None:
    first = client.submit(increment, 1)
    equal(client.submit(operator.add, first, 3).result(timeout=PATIENCE), 5)
    equal(client.submit(lambda x: x * 2, first, pure=False).result(timeout=PATIENCE), 4)


def map_(client: safeser.Client) -> None:
    equal(client.gather(client.map(increment, range(50))), list(range(1, 51)))


def arrays(client: safeser.Client) -> None:
    x = da.ones((200, 200), chunks=(50, 50))
    equal(float((x + x.T).sum().compute()), 80_000.0)
    equal((x @ x).persist().mean().compute().item(), 200.0)


def table() -> pd.DataFrame:
    return pd.DataFrame({"key": [f"k{i % 7}" for i in range(700)], "value": np.arange(700)})


def frames(client: safeser.Client) -> None:
    frame = dd.from_pandas(table(), npartitions=5)
    # As a dictionary: with which type of text Dask makes an index, its releases differ.
    found = frame.groupby("key").value.sum().compute().to_dict()
    equal(found, table().groupby("key").value.sum().to_dict())
    equal(len(frame[frame.value > 600].compute()), 99)


def bags(client: safeser.Client) -> None:
    bag = db.from_sequence(range(40), npartitions=4)
    equal(bag.map(increment).filter(lambda x: x % 2).sum().compute(), 400)


def p2p(client: safeser.Client) -> None:
    frame = dd.from_pandas(table(), npartitions=4)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        found = frame.shuffle("key").compute()
    equal(sorted(found.value.tolist()), list(range(700)))
    x = da.arange(10_000, chunks=1_000).reshape(100, 100)
    with dask.config.set({"array.rechunk.method": "p2p"}):
        found = x.rechunk((100, 10)).compute()
        pairs = pd.DataFrame({"a": range(100), "b": range(100)})
        unknown = dd.from_pandas(pairs, npartitions=4).values.rechunk((None, 1)).compute()
    np.testing.assert_array_equal(found, np.arange(10_000).reshape(100, 100))
    np.testing.assert_array_equal(unknown, pairs.to_numpy())


def datasets(client: safeser.Client) -> None:
    kept = client.persist(da.arange(10, chunks=5))
    client.publish_dataset(kept=kept, other=client.submit(increment, 10))
    equal(sorted(client.list_datasets()), ["kept", "other"])
    equal(client.get_dataset("kept").sum().compute().item(), 45)
    equal(client.get_dataset("other").result(timeout=PATIENCE), 11)
    client.unpublish_dataset("kept")
    client.unpublish_dataset("other")
    equal(client.get_dataset("kept", default=7), 7)
    equal(client.list_datasets(), ())


def queues(client: safeser.Client) -> None:
    queue = Queue("compat", client=client)
    queue.put({"a": (1, 2)})
    queue.put(client.submit(increment, 1))
    equal(queue.get(timeout=PATIENCE), {"a": (1, 2)})
    equal(queue.get(timeout=PATIENCE).result(timeout=PATIENCE), 2)
    queue.close()


class Counter:
    count = 0

    def add(self, by: int) -> int:
        self.count += by
        return self.count


def actors(client: safeser.Client) -> None:
    counter = client.submit(Counter, actor=True).result(timeout=PATIENCE)
    counter.add(2).result(timeout=PATIENCE)
    equal(counter.add(3).result(timeout=PATIENCE), 5)
    equal(counter.count, 5)


def fail(text: str) -> None:
    raise LookupError(text)


def errors(client: safeser.Client) -> None:
    future = client.submit(fail, "of the user's")
    with contextlib.suppress(LookupError):
        future.result(timeout=PATIENCE)
    equal(future.status, "error")
    equal(str(future.exception(timeout=PATIENCE).args[0]), "of the user's")
    later = client.submit(increment, future)
    equal(isinstance(later.exception(timeout=PATIENCE), LookupError), True)


def run(client: safeser.Client) -> None:
    found = client.run(os.getpid)
    equal(len(set(found.values())), 2)
    equal(client.run_on_scheduler(os.getpid), os.getpid())


class Setting(WorkerPlugin):
    name = "compat-worker"

    def setup(self, worker: Any) -> None:
        worker.of_compat = 5


class Adding(SchedulerPlugin):
    name = "compat-scheduler"

    async def start(self, scheduler: Any) -> None:
        scheduler.of_compat = 6


def plugins(client: safeser.Client) -> None:
    client.register_plugin(Setting())
    client.register_plugin(Adding())
    found = client.run(lambda dask_worker: dask_worker.of_compat)
    equal(sorted(found.values()), [5, 5])
    equal(client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.of_compat), 6)
    client.unregister_worker_plugin("compat-worker")


def restart(client: safeser.Client) -> None:
    before = set(client.run(os.getpid).values())
    client.restart(timeout=PATIENCE)
    client.wait_for_workers(2, timeout=PATIENCE)
    after = set(client.run(os.getpid).values())
    equal(sorted(before & after), [])
    equal(client.submit(increment, 1).result(timeout=PATIENCE), 2)


LINES: Mapping[str, Callable[[safeser.Client], None]] = {
    "submit": submit,
    "map": map_,
    "arrays": arrays,
    "frames": frames,
    "bags": bags,
    "p2p": p2p,
    "datasets": datasets,
    "queues": queues,
    "actors": actors,
    "errors": errors,
    "run": run,
    "plugins": plugins,
    "restart": restart,
}


def outcome(line: Callable[[safeser.Client], None], client: safeser.Client) -> str:
    try:
        line(client)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return "ok"


def main() -> None:
    logging.getLogger("distributed").setLevel(logging.ERROR)
    logging.getLogger("distributed.nanny").setLevel(logging.WARNING)
    warnings.simplefilter("ignore")
    # Dask's local cluster gives up a worker that takes longer to restart than this.
    patient = dask.config.set({"distributed.deploy.lost-worker-timeout": PATIENCE})
    with patient, safeser.Client(n_workers=2, threads_per_worker=2, memory_limit=0) as client:
        found = {name: outcome(line, client) for name, line in LINES.items()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
