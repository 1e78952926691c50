"""What an engineer does under ``submission: sealed``: each step's result as one line of JSON."""

from __future__ import annotations

import json
import os
import sys
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import only_on_workers
import pandas as pd
from dask import delayed
from distributed import NannyPlugin, WorkerPlugin

import safeser


def add(x, y):
    return x + y


class Counter:
    value = 0

    def __init__(self, value):
        self.value = value

    def plus(self, other):
        return self.value + other


async def later(value):
    return value + 1


@cache
def cached(n):
    return n if n < 2 else cached(n - 1) + cached(n - 2)


def failure(future):
    try:
        future.result(timeout=60)
    except Exception as error:
        return [type(error).__name__, str(error)]


def tasks(client):
    one = client.submit(add, 1, 1)
    nested = client.submit(lambda d: d["k"][0] + 1, {"k": [one]})
    yield "futures in nested containers", nested.result(timeout=60)
    yield "method", client.submit(Counter(5).plus, 3).result(timeout=60)
    yield "coroutine", client.submit(later, 3).result(timeout=60)
    yield "module of the user's", client.submit(only_on_workers.double, 4).result(timeout=60)
    same = client.submit(only_on_workers.Point, 1, 2)
    yield "class of the user's", client.submit(only_on_workers.total, same).result(timeout=60)
    yield "error of the user's", failure(client.submit(only_on_workers.fail))
    yield "error of a dependency", failure(client.submit(add, client.submit(lambda: 1 / 0), 1))
    yield "retries", client.submit(only_on_workers.flaky, retries=5).result(timeout=60)
    yield "no resources", client.submit(add, 7, 8, resources={"GPU": 1}).status
    equal = client.submit(only_on_workers.in_place, np.zeros(3), np.zeros(3))
    yield "equal arguments", client.submit(sum, equal).result(timeout=60)
    yield "a function with a cache", client.submit(cached, 9).result(timeout=60)
    [held] = client.scatter([Counter(5)], broadcast=True)
    summed = client.submit(sum, [client.submit(Counter.plus, held, n) for n in range(9)])
    yield "an own object scattered", summed.result(timeout=60)
    yield "scattered", client.submit(sum, client.scatter([1, 2, 3])[0:1]).result(timeout=60)


def collections(client):
    x = da.ones((40, 40), chunks=10)
    yield "array", float((x + x.T).sum().compute())
    y = da.arange(400, chunks=40).reshape(20, 20).rechunk((5, 20))
    with dask.config.set({"array.rechunk.method": "p2p"}):
        yield "rechunk among peers", int(y.rechunk((20, 5)).sum().compute())
        unknown = y[y.sum(axis=1) > 1000]
        yield "rechunk of unknown sizes", int(unknown.rechunk({1: 10}).sum().compute())
    with dask.annotate(priority=3, retries=1):
        yield "annotations", delayed(add)(1, 2).compute()
    data = pd.DataFrame({"a": range(20), "b": list("ab") * 10})
    frame = dd.from_pandas(data, npartitions=3)
    yield "merged among peers", int(frame.merge(frame, on="b").a_x.sum().compute())
    legacy = {"a": 1, "b": (add, "a", 2), "c": (sum, ["a", "b"])}
    yield "legacy graph", client.get(legacy, ["c"])


class Prepared(WorkerPlugin):
    def setup(self, worker):
        worker.prepared = "by a plugin"


class Noted(NannyPlugin):
    def setup(self, nanny):
        nanny.env["NOTED"] = "by a nanny's plugin"


def requests(client):
    yield "run", [*client.run(lambda: 1).values()]
    yield "run again", [*client.run(lambda: 1).values()]
    yield "run a coroutine", [*client.run(later, 1).values()]
    yield "run on nannies", [*client.run(lambda: 2, nanny=True).values()]
    client.register_plugin(Prepared())
    seen = client.run(lambda dask_worker: dask_worker.prepared)
    yield "a worker's plugin", [*seen.values()]
    client.register_plugin(Noted(), name="noted")
    seen = client.run(lambda dask_worker: dask_worker.env["NOTED"], nanny=True)
    yield "a nanny's plugin", [*seen.values()]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "uploaded.py"
        path.write_text("def triple(x): return 3 * x\n")
        client.upload_file(str(path))
        sys.path.insert(0, folder)
        import uploaded

        yield "an uploaded file", client.submit(uploaded.triple, 5).result(timeout=60)
    failed = client.submit(lambda x: x / 0, 1)
    failure(failed)
    try:
        client.recreate_error_locally(failed)
    except ZeroDivisionError as error:
        yield "an error recreated", str(error)
    client.publish_dataset(kept=client.submit(add, 20, 1))
    yield "a dataset", client.get_dataset("kept").result(timeout=60)
    client.unpublish_dataset("kept")


def actors(client):
    counter = client.submit(Counter, 5, actor=True).result(timeout=60)
    yield "an actor's method", counter.plus(2).result(timeout=60)
    yield "an actor's attribute", counter.value
    made = delayed(Counter)(6)
    counter = client.compute(made, actors=made).result(timeout=60)
    yield "an actor of a collection", counter.plus(1).result(timeout=60)


def counted(client):
    """Yield who pickles and unpickles an argument how often, as lines of process ids."""
    with TemporaryDirectory() as folder:
        paths = (str(Path(folder) / str(number)) for number in range(10))

        def lines(path, *futures):
            client.gather(futures)
            return [line.split() for line in Path(path).read_text().splitlines()]

        def argument():
            path = next(paths)
            return path, only_on_workers.Counted(path)

        path, one = argument()
        held = client.submit(str, one)
        yield "flat", lines(path, held)
        yield "its key taken by the same", lines(path, client.submit(str, one))
        path, one = argument()
        yield "nested", lines(path, client.submit(str, [{"a": one}]))
        path, one = argument()
        yield "keyword", lines(path, client.submit(add, 1, y=one, pure=False))
        path, one = argument()
        yield "partial", lines(path, client.submit(partial(add, 1, y=one)))
        path, one = argument()
        yield "closure", lines(path, client.submit(lambda: str(one)))
        path, one = argument()
        yield "impure", lines(path, client.submit(str, one, pure=False))
        path, one = argument()
        yield "delayed", lines(path, client.compute(delayed(str)(one)))
        path = next(paths)
        five = [only_on_workers.Counted(path) for _ in range(5)]
        yield "map", lines(path, *client.map(str, five, pure=False))


def main(address):
    answers = {}
    with safeser.Client(address) as client:
        client.wait_for_workers(2, timeout=60)
        for steps in (tasks, collections, requests, actors):
            answers.update(steps(client))
        answers["counted"] = dict(counted(client))
        answers["pid"] = str(os.getpid())
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
