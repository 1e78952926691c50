"""What an analyst does who may submit listed functions alone; prints what came out as JSON."""

from __future__ import annotations

import functools
import json
import operator
import os
import sys
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from hostile_analyst import attacked
from mylib import models
from steps import step, taken

import safeser


def of_the_script(value: Any) -> Any:
    return value


@step
def submits(client: Any) -> Any:
    return [
        client.submit(models.train, [1, 2, 3]).result(timeout=30),
        client.submit(models.train, data=[1, 2], rate=2.0).result(timeout=30),
        client.submit(models.train, np.arange(4)).result(timeout=30),
        client.submit(models.double, pd.Series([1, 2])).result(timeout=30).tolist(),
    ]


@step
def maps(client: Any) -> Any:
    futures = client.map(models.double, range(5))
    more = client.map(models.double, futures)
    keywords = client.map(models.train, [[1], [2]], rate=3.0)
    batches = client.map(models.double, range(5), batch_size=2)
    return [client.gather(each) for each in (futures, more, keywords, batches)]


@step
def futures_as_arguments(client: Any) -> Any:
    one = client.submit(models.double, 1)
    nested = client.submit(models.train, [one, one, 1])
    named = client.submit(models.train, data=[one, one])
    inside = client.submit(models.double, {"a": [one]}["a"])
    return [f.result(timeout=30) for f in (nested, named, inside)]


@step
def scatters(client: Any) -> Any:
    whole = client.scatter(np.arange(10))
    several = client.scatter([1, 2, 3])
    return [
        client.submit(models.train, whole).result(timeout=30),
        client.submit(models.train, several).result(timeout=30),
    ]


@step
def delayed(client: Any) -> Any:
    train, double = dask.delayed(models.train), dask.delayed(models.double)
    values = [double(each) for each in range(3)]
    kept = train(values).persist()
    return [
        *dask.compute(train([1, double(2)]), double((1, double(3)))),
        kept.compute(),
        client.compute(train(data=values, rate=double(1))).result(timeout=30),
        train(double([1, 2])).compute(),
    ]


@step
def annotates(client: Any) -> Any:
    with dask.annotate(priority=5, retries=1):
        done = client.submit(models.double, 21).result(timeout=30)
    return [done, client.submit(models.double, 1, priority=3).result(timeout=30)]


@step
def low_level_graphs(client: Any) -> Any:
    graph = {"x": 1, "y": (models.double, "x"), "z": (models.train, ["x", "y", "y"])}
    return client.get(graph, ["y", "z"])


@step
def many(client: Any) -> Any:
    return sum(client.gather(client.map(models.double, range(300))))


@step
def fails(client: Any) -> Any:
    try:
        client.submit(models.train, 1).result(timeout=30)
    except TypeError as error:
        return str(error)


REFUSED: dict[str, Any] = {
    "lambda": lambda c: c.submit(lambda x: x, 1),
    "main": lambda c: c.submit(of_the_script, 1),
    "unlisted": lambda c: c.submit(models.other, 1),
    "partial": lambda c: c.submit(functools.partial(models.other, 1)),
    "argument": lambda c: c.submit(models.double, models.double),
    "instance": lambda c: c.submit(models.double, models.Thing(1)),
    "class": lambda c: c.submit(models.Thing, 1),
    "method": lambda c: c.submit(models.Thing().method, 1),
    "map": lambda c: c.map(models.other, [1, 2]),
    "system": lambda c: c.submit(os.system, "true"),
    "eval": lambda c: c.submit(eval, "1"),
    "add": lambda c: c.submit(operator.add, 1, 2),
    "array": lambda c: da.ones(4, chunks=2).sum().compute(),
    "frame": lambda c: dd.from_pandas(pd.DataFrame({"a": [1]})).a.sum().compute(),
    "bag": lambda c: db.from_sequence([1, 2]).map(models.double).compute(),
    "delayed": lambda c: dask.delayed(models.other)(1).compute(),
    "item": lambda c: dask.delayed(models.double)([1])[0].compute(),
    "actor": lambda c: c.submit(models.double, 1, actor=True),
    "annotation": lambda c: annotated(c),
    "run": lambda c: c.run(os.getpid),
}


def annotated(client: Any) -> Any:
    with dask.annotate(note=models.Thing()):
        return client.submit(models.double, 1).result(timeout=30)


@step
def refusals(client: Any) -> Any:
    said: dict[str, Any] = {}
    for name, attempt in REFUSED.items():
        try:
            said[name] = ["passed", repr(attempt(client))]
        except safeser.SafeserError as error:
            said[name] = [type(error).__name__, error.rule, str(error)]
        except Exception as error:  # as it reached the user
            said[name] = [type(error).__name__, "", str(error)]
        if client.submit(models.double, 4).result(timeout=30) != 8:
            said[name] = ["broken"]
    return said


def main(address: str, mark: str) -> None:
    out: dict[str, Any] = {}
    with safeser.Client(address, timeout=30) as client:
        client.wait_for_workers(2, timeout=60)
        out |= taken(client)
        out["attacks"] = attacked(client, mark)
        out["afterwards"] = submits(client)
    print(json.dumps(out, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
