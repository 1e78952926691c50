"""Workloads of tasks and their values: from one function to arrays, frames, actors and datasets.

They run in the order in which they stand here. A row of a table is a workload like a function.
"""

from __future__ import annotations

import contextlib
import operator
import pathlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import golden_tasks as tasks
import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse
from dask import delayed
from distributed import Event, Lock, MultiLock, Queue, Semaphore, Variable, wait
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression

__all__ = ["WORKLOADS", "Session", "steps", "submitted", "workload"]


class Session(NamedTuple):
    """What a workload runs with: a client, and a folder for its files."""

    client: Any
    folder: pathlib.Path


WORKLOADS: dict[str, Callable[[Session], Any]] = {}


def workload(function: Callable[[Session], Any]) -> Callable[[Session], Any]:
    """Make *function* the next workload."""
    WORKLOADS[function.__name__] = function
    return function


def steps(**rows: Callable[[Session], Any]) -> None:
    WORKLOADS.update(rows)


def submitted(**rows: tuple[Any, ...]) -> None:
    """Each row is calls; each is submitted, and its result awaited before the next one."""

    def run(calls: tuple[Any, ...], s: Session) -> None:
        for call in calls:
            s.client.submit(*call).result()

    WORKLOADS.update({name: partial(run, calls) for name, calls in rows.items()})


def scattered(**rows: tuple[Callable[[Any], Any], Any]) -> None:
    """Each row is a function and a value; the value is scattered, the function called with it."""

    def run(function: Any, value: Any, s: Session) -> None:
        future = s.client.scatter(value)
        s.client.submit(function, future).result()
        future.result()

    WORKLOADS.update({name: partial(run, *row) for name, row in rows.items()})


def computed(**rows: Callable[[], Any]) -> None:
    """Each row makes a collection, which is computed."""

    def run(make: Callable[[], Any], _: Session) -> None:
        make().compute()

    WORKLOADS.update({name: partial(run, make) for name, make in rows.items()})


def _frame() -> pd.DataFrame:
    numbers = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "k": numbers.integers(0, 10, 2000),
            "v": numbers.random(2000),
            "s": numbers.choice(list("abc"), 2000),
        }
    )


def _split(partitions: int = 4) -> Any:
    return dd.from_pandas(_frame(), npartitions=partitions)


# --- connections, plain tasks and values ---------------------------------------------------------

steps(
    connect=lambda s: s.client.wait_for_workers(2),
    idle_heartbeats=lambda s: time.sleep(3),
    map_module_fn=lambda s: s.client.gather(s.client.map(tasks.inc, range(20))),
    partial_path=lambda s: s.client.gather(
        s.client.map(partial(tasks.path_of, pathlib.Path("/data/x")), range(10))
    ),
)
submitted(
    submit_module_fn=((tasks.inc, 1),),
    submit_lambda=((lambda x: x + 1, 1),),
    builtin_operator=((operator.add, 1, 2), (len, [1, 2])),
    numpy_result=((np.arange, 1000),),
    numpy_arg_direct=((np.sum, np.arange(1000)),),
    pandas_result=((pd.DataFrame, {"a": [1, 2], "b": ["x", "y"]}), (pd.Series, [1, 2, 3])),
    pyarrow=((pa.table, {"a": [1, 2]}),),
    sklearn=((LinearRegression().fit, np.random.rand(20, 2), np.random.rand(20)),),
    sklearn_rf=(
        (RandomForestClassifier(n_estimators=3).fit, np.random.rand(20, 2), np.arange(20) % 2),
    ),
    scipy_sparse=((scipy.sparse.random, 10, 10, 0.3, "csr"),),
)
scattered(
    scatter_numpy=(np.sum, np.arange(10_000)),
    scatter_pandas=(len, pd.DataFrame({"a": range(10), "b": list("abcdefghij")})),
)
steps(
    gather_direct=lambda s: s.client.gather(s.client.map(np.arange, range(5, 10)), direct=True),
    objarray=lambda s: s.client.submit(np.array, [1, "a", None], dtype=object).result(),
    scatter_list_dict=lambda s: [
        s.client.gather(s.client.scatter([1, "a", {"b": 2}])),
        s.client.gather(s.client.scatter({"k1": np.ones(3)})),
    ],
    masked_matrix_struct=lambda s: [
        s.client.submit(np.ma.masked_array, [1, 2, 3], [0, 1, 0]).result(),
        s.client.scatter(np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])).result(),
        s.client.scatter(np.array(["2020-01-01"], dtype="M8[D]")).result(),
    ],
)


@workload
def futures_as_args(s: Session) -> None:
    a, b = s.client.submit(tasks.inc, 1), s.client.submit(tasks.inc, 2)
    s.client.submit(tasks.add, a, b).result()
    s.client.submit(sum, [a, b]).result()


@workload
def scatter_direct_broadcast(s: Session) -> None:
    future = s.client.scatter(np.arange(10_000) + 1, direct=True, broadcast=True)
    s.client.submit(np.sum, future).result()


@workload
def scalars(s: Session) -> None:
    calls: list[tuple[Any, ...]] = [
        *((np.float64, 3.0), (float, 3), (str, "x"), (tuple, [1, 2]), (set, [1, 2])),
        *((bytes, 5), (complex, 1, 2), (pd.Timestamp, "2020-01-01"), (pathlib.Path, "/x")),
    ]
    futures = [s.client.submit(*call) for call in calls]
    s.client.gather([*futures, s.client.submit(dict, a=1)])


# --- arrays, frames and bags ---------------------------------------------------------------------

computed(
    da_sum=lambda: da.ones((400, 400), chunks=100).sum(),
    da_random_mean=lambda: da.random.random((400, 400), chunks=100).mean(axis=0),
    da_from_numpy=lambda: (da.from_array(np.random.rand(400, 400), chunks=100) + 1).sum(),
    da_svd=lambda: da.linalg.svd(da.random.random((400, 50), chunks=(100, 50)))[1],
    da_matmul_T=lambda: ((x := da.random.random((300, 300), chunks=100)) @ x.T).std(),
    da_map_blocks_lambda=lambda: (
        da.ones((400, 400), chunks=100).map_blocks(lambda block: block + 1).sum()
    ),
    dd_groupby=lambda: _split().groupby("k").v.mean(),
    dd_shuffle_p2p=lambda: _split(6).shuffle("k", shuffle_method="p2p").map_partitions(len),
    dd_apply_str=lambda: _split().assign(z=lambda d: d.v * 2).describe(),
)
steps(dd_set_index_tasks=lambda s: _split().set_index("v", shuffle_method="tasks").head())


@workload
def da_rechunk_p2p(s: Session) -> None:
    with dask.config.set({"array.rechunk.method": "p2p"}):
        da.random.random((800, 800), chunks=(800, 100)).rechunk((100, 800)).sum().compute()


@workload
def da_persist(s: Session) -> None:
    x = da.ones((400, 400), chunks=100).persist()
    wait(x)
    x.sum().compute()


@workload
def dd_merge_p2p(s: Session) -> None:
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        right = dd.from_pandas(_frame().head(200), npartitions=5)
        _split(6).merge(right, on="k").groupby("s_x").v_x.sum().compute()


@workload
def dd_timeseries_parquet(s: Session) -> None:
    dask.datasets.timeseries(end="2000-01-03").x.mean().compute()
    path = str(s.folder / "parquet")
    _split(2).to_parquet(path)
    dd.read_parquet(path).v.sum().compute()


@workload
def bag(s: Session) -> None:
    numbers = db.from_sequence(range(50), npartitions=4).map(tasks.inc)
    numbers.filter(lambda x: x % 2).fold(operator.add).compute()
    db.from_sequence(["a", "b", "a"], npartitions=2).frequencies().compute()


@workload
def delayed_calls(s: Session) -> None:
    delayed(tasks.add)(delayed(tasks.inc)(1), 2).compute()
    dask.compute(delayed(sum)([delayed(tasks.inc)(i) for i in range(3)]))


@workload
def client_compute(s: Session) -> None:
    s.client.compute(da.ones(10, chunks=5).sum()).result()
    s.client.persist(delayed(tasks.inc)(5)).compute()


# --- actors, queues, locks, datasets -------------------------------------------------------------


@workload
def actors(s: Session) -> None:
    actor = s.client.submit(tasks.Counter, 5, actor=True).result()
    actor.increment().result()
    actor.increment(2).result()
    assert actor.n == 8
    with contextlib.suppress(KeyError):
        actor.fail().result()


@workload
def actors_local_class(s: Session) -> None:
    class Local:
        def echo(self, value: Any) -> Any:
            return value

    actor = s.client.submit(Local, actor=True).result()
    actor.echo(np.ones(3)).result()


@workload
def queue(s: Session) -> None:
    q = Queue("golden")
    for value in (1, {"a": [1, 2]}):
        q.put(value)
        q.get()
    q.put(s.client.submit(tasks.inc, 10))
    q.get().result()
    q.qsize()


@workload
def variable(s: Session) -> None:
    v = Variable("golden")
    v.set(5)
    v.get()
    v.set(s.client.submit(tasks.inc, 11))
    v.get().result()
    v.delete()


steps(
    queue_in_task=lambda s: s.client.submit(lambda q: q.put(3), Queue("of-a-task")).result(),
)


@workload
def lock_event_sem(s: Session) -> None:
    with Lock("l1"):
        pass
    event = Event("e1")
    event.set()
    event.wait(1)
    event.is_set()
    event.clear()
    semaphore = Semaphore(2, "s1")
    semaphore.acquire()
    semaphore.release()
    semaphore.get_value()
    with MultiLock(["a", "b"]):
        pass
    s.client.submit(tasks.synchronized, 1).result()
    s.client.submit(lambda lock: lock.acquire() and lock.release(), Lock("l2")).result()
    s.client.submit(lambda event: event.is_set(), Event("e2")).result()


@workload
def publish_dataset(s: Session) -> None:
    x = da.ones(10, chunks=5).persist()
    s.client.publish_dataset(x, name="ds")
    s.client.list_datasets()
    s.client.get_dataset("ds").sum().compute()
    s.client.unpublish_dataset("ds")
    s.client.publish_dataset(future=s.client.submit(tasks.inc, 77))
    s.client.get_dataset("future")
    s.client.unpublish_dataset("future")
