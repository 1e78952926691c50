"""Run everyday uses of Dask as 84 small workloads, one after the other, by one client.

``workloads.py ADDRESS FOLDER [NAME ...]`` prints, as one line of JSON, the result of each workload
and when it began and ended, in microseconds since 1970. An error is given by its class name.
"""

from __future__ import annotations

import contextlib
import gc
import json
import operator
import os
import pathlib
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import distributed
import golden_tasks as tasks
import numpy as np
import pandas as pd
from dask import delayed
from distributed.diagnostics import MemorySampler
from golden_work import WORKLOADS, Session, steps, submitted, workload

import safeser

#: Seconds after each workload for its last messages.
SETTLING = 0.4


class _WorkerPlugin(distributed.WorkerPlugin):
    name = "golden-worker"

    def setup(self, worker: Any) -> None:
        worker.golden = 1


class _SchedulerPlugin(distributed.SchedulerPlugin):
    name = "golden-scheduler"

    def start(self, scheduler: Any) -> None:
        pass


class _NannyPlugin(distributed.NannyPlugin):
    name = "golden-nanny"

    def setup(self, nanny: Any) -> None:
        pass


# --- functions and plugins that run on servers ---------------------------------------------------

steps(
    run=lambda s: [s.client.run(os.getpid), s.client.run(lambda dask_worker: dask_worker.id)],
    run_nanny=lambda s: s.client.run(os.getpid, nanny=True),
    run_on_scheduler=lambda s: [
        s.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)),
        s.client.run_on_scheduler(os.getpid),
    ],
    register_worker_plugin=lambda s: [
        s.client.register_plugin(_WorkerPlugin()),
        s.client.unregister_worker_plugin("golden-worker"),
    ],
    register_scheduler_plugin=lambda s: [
        s.client.register_plugin(_SchedulerPlugin()),
        s.client.unregister_scheduler_plugin("golden-scheduler"),
    ],
    register_nanny_plugin=lambda s: [
        s.client.register_plugin(_NannyPlugin()),
        s.client.unregister_worker_plugin("golden-nanny", nanny=True),
    ],
    forward_logging_output=lambda s: [
        s.client.forward_logging("golden"),
        s.client.unforward_logging("golden"),
    ],
)


@workload
def run_error(s: Session) -> None:
    with contextlib.suppress(ValueError):
        s.client.run(tasks.fail, 1)
    s.client.run(tasks.fail, 1, on_error="return")


@workload
def run_on_scheduler_error(s: Session) -> None:
    with contextlib.suppress(ValueError):
        s.client.run_on_scheduler(tasks.fail, 1)


@workload
def upload_file(s: Session) -> None:
    path = s.folder / "golden_uploaded.py"
    path.write_text("Z = 1\n")
    s.client.upload_file(str(path))


# --- errors --------------------------------------------------------------------------------------


def _failing(error: type[Exception], *call: Any) -> Callable[[Session], None]:
    def run(s: Session) -> None:
        with contextlib.suppress(error):
            s.client.submit(*call).result()

    return run


steps(
    task_error_builtin=_failing(ValueError, tasks.fail, 1),
    task_error_custom_cls=_failing(tasks.Custom, tasks.fail_by_own_class, 1),
    task_error_chained=_failing(RuntimeError, tasks.fail_in_a_chain, 1),
    task_error_lambda=_failing(ZeroDivisionError, lambda: 1 / 0),
)


@workload
def task_error_dependents(s: Session) -> None:
    first = s.client.submit(tasks.fail, 1)
    second = s.client.submit(tasks.inc, first)
    with contextlib.suppress(ValueError):
        second.result()
    second.exception()
    second.traceback()


@workload
def recreate_error_locally(s: Session) -> None:
    future = s.client.submit(tasks.fail, 3)
    distributed.wait(future)
    with contextlib.suppress(ValueError):
        s.client.recreate_error_locally(future)


@workload
def retry_cancel(s: Session) -> None:
    future = s.client.submit(tasks.fail, 9)
    distributed.wait(future)
    future.retry()
    distributed.wait(future)
    s.client.submit(tasks.slow, 1).cancel()


# --- events, progress, reports -------------------------------------------------------------------


@workload
def warn_print_events(s: Session) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s.client.submit(tasks.warned, 1).result()
        time.sleep(0.5)


@workload
def log_event_topic(s: Session) -> None:
    s.client.subscribe_topic("golden", lambda event: None)
    s.client.submit(tasks.log_event, 1).result()
    s.client.log_event("golden", {"a": 1})
    time.sleep(0.3)
    s.client.get_events("golden")
    s.client.unsubscribe_topic("golden")


@workload
def progress_bar(s: Session) -> None:
    futures = s.client.map(tasks.slow, range(6))
    distributed.progress(futures, notebook=False)
    distributed.wait(futures)


@workload
def multi_progress_dask(s: Session) -> None:
    futures = s.client.map(tasks.slow, range(20, 26))
    distributed.progress(*futures, notebook=False, multi=True)
    distributed.wait(futures)


@workload
def performance_reported(s: Session) -> None:
    with distributed.performance_report(str(s.folder / "report.html")):
        s.client.gather(s.client.map(tasks.inc, range(100, 110)))


@workload
def task_stream(s: Session) -> None:
    with distributed.get_task_stream():
        s.client.gather(s.client.map(tasks.inc, range(200, 210)))


@workload
def memory_sampler(s: Session) -> None:
    with MemorySampler().sample("golden", interval=0.1):
        time.sleep(0.3)


@workload
def info_calls(s: Session) -> None:
    c = s.client
    for ask in (
        *(c.scheduler_info, c.ncores, c.who_has, c.has_what, c.processing, c.call_stack, c.profile),
        *(c.nbytes, c.get_scheduler_logs, c.get_worker_logs, c.get_versions, c.get_task_stream),
        c.amm.running,
    ):
        ask()
    c.get_metadata("x", default=None)
    c.set_metadata("x", 1)
    c.story("x")


@workload
def annotations_resources(s: Session) -> None:
    with dask.annotate(priority=3, retries=2):
        s.client.compute(delayed(tasks.inc)(3)).result()
    with dask.annotate(workers=_workers(s)[:1]):
        dask.compute(da.ones(4, chunks=2).sum())


@workload
def spans(s: Session) -> None:
    with distributed.span("golden"):
        s.client.submit(tasks.inc, 500).result()


# --- other ways in, and other workers ------------------------------------------------------------

submitted(worker_client=((tasks.nested, 4),))
steps(
    completed_one_by_one=lambda s: list(
        distributed.as_completed(s.client.map(tasks.inc, range(300, 305)), with_results=True)
    ),
    dump_cluster_state=lambda s: s.client.dump_cluster_state(
        str(s.folder / "dump"), format="msgpack"
    ),
)


@workload
def replicate_rebalance(s: Session) -> None:
    future = s.client.scatter(np.ones(100) + 7)
    s.client.replicate([future])
    s.client.rebalance()


@workload
def cf_executor(s: Session) -> None:
    executor = s.client.get_executor()
    executor.submit(tasks.inc, 1).result()
    list(executor.map(tasks.inc, range(3)))


@workload
def joblib(s: Session) -> None:
    import joblib

    with joblib.parallel_backend("dask"):
        joblib.Parallel()(joblib.delayed(tasks.inc)(i) for i in range(5))


@workload
def worker_transfer_deps(s: Session) -> None:
    one, other = _workers(s)[:2]
    for make, arguments, put_together in (
        (np.arange, (5000,), np.add),
        (pd.DataFrame, ({"a": range(100)},), operator.add),
    ):
        a = s.client.submit(make, *arguments, workers=one, pure=False)
        b = s.client.submit(make, *arguments, workers=other, pure=False)
        s.client.submit(put_together, a, b).result()


@workload
def retire_workers(s: Session) -> None:
    s.client.retire_workers([_workers(s)[0]])
    time.sleep(2)


@workload
def restart(s: Session) -> None:
    workers = len(_workers(s))
    s.client.restart(wait_for_workers=False, timeout=30)
    time.sleep(2)
    s.client.wait_for_workers(workers, timeout=60)
    time.sleep(2)


@workload
def close(s: Session) -> None:
    s.client.close()


def _workers(s: Session) -> list[str]:
    return list(s.client.scheduler_info(n_workers=-1)["workers"])


# --- the program ---------------------------------------------------------------------------------


def _now() -> int:
    return time.time_ns() // 1000


def taken(session: Session, names: list[str]) -> dict[str, Any]:
    """Run the workloads *names*; return the result, begin and end of each."""
    out: dict[str, Any] = {}
    for name in names:
        begun = _now()
        try:
            WORKLOADS[name](session)
            said = "ok"
        # Any failure is a result that is compared.
        except Exception as error:
            traceback.print_exc()
            said = type(error).__name__
        gc.collect()
        time.sleep(SETTLING)
        out[name] = [said, begun, _now()]
        print(f"{name}: {said}", file=sys.stderr, flush=True)
    return out


def main(address: str, folder: str, *names: str) -> None:
    begun = _now()
    client = safeser.Client(address, timeout=60)
    client.wait_for_workers(2)
    chosen = list(names or WORKLOADS)
    out = taken(Session(client, pathlib.Path(folder)), chosen)
    client.close()
    if "connect" in out:
        out["connect"][1] = begun
    print(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
