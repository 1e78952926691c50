"""Use one small cluster on ``safeser://`` as people use Dask, and print what works as JSON.

``python -m verification.compat.smoke`` needs only what safeser needs with its extras dask and
arrow, so that it runs with any release of Dask. It prints an object with one item for each line of
:data:`LINES`: ``"ok"``, or the error that ended it. Most lines are jobs of the soak, which compare
what comes back with what they compute themselves.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Queue
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

import safeser
from verification.soak import jobs

#: Longer than anything takes on a busy machine, in seconds.
PATIENCE = 300


def equal(found: Any, wanted: Any) -> None:
    if not (type(found) is type(wanted) and found == wanted):
        raise AssertionError(f"{found!r} in the place of {wanted!r}")


def increment(x: int) -> int:
    return x + 1


def unknown_chunks(client: Any) -> None:
    pairs = pd.DataFrame({"a": range(100), "b": range(100)})
    with dask.config.set({"array.rechunk.method": "p2p"}):
        found = dd.from_pandas(pairs, npartitions=4).values.rechunk((None, 1)).compute()
    np.testing.assert_array_equal(found, pairs.to_numpy())


def datasets(client: Any) -> None:
    kept = client.persist(da.arange(10, chunks=5))
    client.publish_dataset(kept=kept, other=client.submit(increment, 10))
    equal(sorted(client.list_datasets()), ["kept", "other"])
    equal(client.get_dataset("kept").sum().compute().item(), 45)
    equal(client.get_dataset("other").result(timeout=PATIENCE), 11)
    client.unpublish_dataset("kept")
    client.unpublish_dataset("other")
    equal(client.get_dataset("kept", default=7), 7)
    equal(client.list_datasets(), ())


def queues(client: Any) -> None:
    queue = Queue("compat", client=client)
    queue.put(client.submit(increment, 1))
    equal(queue.get(timeout=PATIENCE).result(timeout=PATIENCE), 2)
    queue.close()


def actors(client: Any) -> None:
    counter = client.submit(jobs.Counter, actor=True).result(timeout=PATIENCE)
    counter.add(2).result(timeout=PATIENCE)
    equal(counter.n, 2)


def fail(text: str) -> None:
    raise LookupError(text)


def errors(client: Any) -> None:
    future = client.submit(fail, "of the user's")
    with contextlib.suppress(LookupError):
        future.result(timeout=PATIENCE)
    equal(future.status, "error")
    equal(str(future.exception(timeout=PATIENCE).args[0]), "of the user's")
    later = client.submit(increment, future)
    equal(isinstance(later.exception(timeout=PATIENCE), LookupError), True)


class Setting(WorkerPlugin):
    name = "compat-worker"

    def setup(self, worker: Any) -> None:
        worker.of_compat = 5


class Adding(SchedulerPlugin):
    name = "compat-scheduler"

    async def start(self, scheduler: Any) -> None:
        scheduler.of_compat = 6


def plugins(client: Any) -> None:
    client.register_plugin(Setting())
    client.register_plugin(Adding())
    found = client.run(lambda dask_worker: dask_worker.of_compat)
    equal(sorted(found.values()), [5, 5])
    equal(client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.of_compat), 6)
    client.unregister_worker_plugin("compat-worker")


def restart(client: Any) -> None:
    before = set(client.run(os.getpid).values())
    client.restart(timeout=PATIENCE)
    client.wait_for_workers(2, timeout=PATIENCE)
    after = set(client.run(os.getpid).values())
    equal(sorted(before & after), [])
    equal(client.submit(increment, 1).result(timeout=PATIENCE), 2)


#: Jobs of the soak that need its cluster, or kill what the others use.
_ITS_OWN = {"meets_the_rogue", "visits"}


def _soaked(job: jobs.Job) -> Callable[[Any], None]:
    return lambda client: equal(job(client, Random(job.__name__)) > 0, True)


LINES: Mapping[str, Callable[[Any], None]] = {
    "unknown chunks": unknown_chunks,
    "datasets": datasets,
    **{name: _soaked(job) for name, job in jobs.CODE.items() if name not in _ITS_OWN},
    "futures in queues": queues,
    "fields of actors": actors,
    "errors of dependents": errors,
    "plugins and functions that run": plugins,
    "restart": restart,
}


def outcome(line: Callable[[Any], None], client: Any) -> str:
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
        client.soak_method = "p2p"
        found = {name: outcome(line, client) for name, line in LINES.items()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
