"""Workloads of tasks and their values: from one function to arrays, frames, actors and datasets."""

from __future__ import annotations

import contextlib
import operator
import pathlib
import time
from functools import partial
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import golden_tasks as tasks
import numpy as np
import pandas as pd
from dask import delayed
from distributed import Event, Lock, MultiLock, Queue, Semaphore, Variable, wait
from golden_registry import Session, workload


def _frame() -> pd.DataFrame:
    numbers = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "k": numbers.integers(0, 10, 2000),
            "v": numbers.random(2000),
            "s": numbers.choice(list("abc"), 2000),
        }
    )


# --- connections and plain tasks -----------------------------------------------------------------


@workload
def connect(s: Session) -> None:
    s.client.wait_for_workers(2)


@workload
def idle_heartbeats(s: Session) -> None:
    time.sleep(3)


@workload
def submit_module_fn(s: Session) -> None:
    s.client.submit(tasks.inc, 1).result()


@workload
def map_module_fn(s: Session) -> None:
    s.client.gather(s.client.map(tasks.inc, range(20)))


@workload
def submit_lambda(s: Session) -> None:
    s.client.submit(lambda x: x + 1, 1).result()


@workload
def partial_path(s: Session) -> None:
    s.client.gather(s.client.map(partial(tasks.path_of, pathlib.Path("/data/x")), range(10)))


@workload
def futures_as_args(s: Session) -> None:
    a, b = s.client.submit(tasks.inc, 1), s.client.submit(tasks.inc, 2)
    s.client.submit(tasks.add, a, b).result()
    s.client.submit(sum, [a, b]).result()


@workload
def builtin_operator(s: Session) -> None:
    s.client.submit(operator.add, 1, 2).result()
    s.client.submit(len, [1, 2]).result()


# --- values --------------------------------------------------------------------------------------


@workload
def numpy_result(s: Session) -> None:
    s.client.submit(np.arange, 1000).result()


@workload
def numpy_arg_direct(s: Session) -> None:
    s.client.submit(np.sum, np.arange(1000)).result()


@workload
def scatter_numpy(s: Session) -> None:
    future = s.client.scatter(np.arange(10_000))
    s.client.submit(np.sum, future).result()
    future.result()


@workload
def scatter_direct_broadcast(s: Session) -> None:
    future = s.client.scatter(np.arange(10_000) + 1, direct=True, broadcast=True)
    s.client.submit(np.sum, future).result()


@workload
def scatter_list_dict(s: Session) -> None:
    s.client.gather(s.client.scatter([1, "a", {"b": 2}]))
    s.client.gather(s.client.scatter({"k1": np.ones(3)}))


@workload
def scatter_pandas(s: Session) -> None:
    future = s.client.scatter(pd.DataFrame({"a": range(10), "b": list("abcdefghij")}))
    s.client.submit(len, future).result()
    future.result()


@workload
def gather_direct(s: Session) -> None:
    s.client.gather(s.client.map(np.arange, range(5, 10)), direct=True)


@workload
def objarray(s: Session) -> None:
    s.client.submit(np.array, [1, "a", None], dtype=object).result()


@workload
def masked_matrix_struct(s: Session) -> None:
    s.client.submit(np.ma.masked_array, [1, 2, 3], [0, 1, 0]).result()
    s.client.scatter(np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])).result()
    s.client.scatter(np.array(["2020-01-01"], dtype="M8[D]")).result()


@workload
def pandas_result(s: Session) -> None:
    s.client.submit(pd.DataFrame, {"a": [1, 2], "b": ["x", "y"]}).result()
    s.client.submit(pd.Series, [1, 2, 3]).result()


@workload
def scalars(s: Session) -> None:
    calls: list[tuple[Any, ...]] = [
        *((np.float64, 3.0), (float, 3), (str, "x"), (tuple, [1, 2]), (set, [1, 2])),
        *((bytes, 5), (complex, 1, 2), (pd.Timestamp, "2020-01-01"), (pathlib.Path, "/x")),
    ]
    futures = [s.client.submit(*call) for call in calls]
    s.client.gather([*futures, s.client.submit(dict, a=1)])


@workload
def pyarrow(s: Session) -> None:
    import pyarrow

    s.client.submit(pyarrow.table, {"a": [1, 2]}).result()


@workload
def sklearn(s: Session) -> None:
    from sklearn.linear_model import LinearRegression

    x, y = np.random.rand(20, 2), np.random.rand(20)
    s.client.submit(LinearRegression().fit, x, y).result()


@workload
def sklearn_rf(s: Session) -> None:
    from sklearn.ensemble import RandomForestClassifier

    x, y = np.random.rand(20, 2), np.arange(20) % 2
    s.client.submit(RandomForestClassifier(n_estimators=3).fit, x, y).result()


@workload
def scipy_sparse(s: Session) -> None:
    import scipy.sparse

    s.client.submit(scipy.sparse.random, 10, 10, 0.3, "csr").result()


# --- arrays --------------------------------------------------------------------------------------


@workload
def da_sum(s: Session) -> None:
    da.ones((400, 400), chunks=100).sum().compute()


@workload
def da_random_mean(s: Session) -> None:
    da.random.random((400, 400), chunks=100).mean(axis=0).compute()


@workload
def da_from_numpy(s: Session) -> None:
    (da.from_array(np.random.rand(400, 400), chunks=100) + 1).sum().compute()


@workload
def da_svd(s: Session) -> None:
    _, values, _ = da.linalg.svd(da.random.random((400, 50), chunks=(100, 50)))
    values.compute()


@workload
def da_matmul_T(s: Session) -> None:
    x = da.random.random((300, 300), chunks=100)
    (x @ x.T).std().compute()


@workload
def da_map_blocks_lambda(s: Session) -> None:
    da.ones((400, 400), chunks=100).map_blocks(lambda block: block + 1).sum().compute()


@workload
def da_rechunk_p2p(s: Session) -> None:
    with dask.config.set({"array.rechunk.method": "p2p"}):
        da.random.random((800, 800), chunks=(800, 100)).rechunk((100, 800)).sum().compute()


@workload
def da_persist(s: Session) -> None:
    x = da.ones((400, 400), chunks=100).persist()
    wait(x)
    x.sum().compute()


# --- frames and bags -----------------------------------------------------------------------------


@workload
def dd_groupby(s: Session) -> None:
    dd.from_pandas(_frame(), npartitions=4).groupby("k").v.mean().compute()


@workload
def dd_shuffle_p2p(s: Session) -> None:
    frame = dd.from_pandas(_frame(), npartitions=6)
    frame.shuffle("k", shuffle_method="p2p").map_partitions(len).compute()


@workload
def dd_merge_p2p(s: Session) -> None:
    frame = _frame()
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        left = dd.from_pandas(frame, npartitions=6)
        right = dd.from_pandas(frame.head(200), npartitions=5)
        left.merge(right, on="k").groupby("s_x").v_x.sum().compute()


@workload
def dd_set_index_tasks(s: Session) -> None:
    dd.from_pandas(_frame(), npartitions=4).set_index("v", shuffle_method="tasks").head()


@workload
def dd_apply_str(s: Session) -> None:
    frame = dd.from_pandas(_frame(), npartitions=4)
    frame.assign(z=lambda d: d.v * 2).describe().compute()


@workload
def dd_timeseries_parquet(s: Session) -> None:
    dask.datasets.timeseries(end="2000-01-03").x.mean().compute()
    path = str(s.folder / "parquet")
    dd.from_pandas(_frame(), npartitions=2).to_parquet(path)
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


@workload
def queue_in_task(s: Session) -> None:
    s.client.submit(lambda q: q.put(3), Queue("of-a-task")).result()


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
