"""What an analyst does who may submit approved functions alone; prints what came out as JSON."""

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
import distributed
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
        client.submit(operator.add, 1, 2).result(timeout=30),
        client.submit(models.train, [1, 2, 3]).result(timeout=30),
        client.submit(models.train, data=[1, 2], rate=2.0).result(timeout=30),
    ]


@step
def maps(client: Any) -> Any:
    futures = client.map(models.double, range(5))
    more = client.map(operator.add, futures, [1] * 5)
    keywords = client.map(models.train, [[1], [2]], rate=3.0)
    return [client.gather(futures), client.gather(more), client.gather(keywords)]


@step
def futures_as_arguments(client: Any) -> Any:
    one = client.submit(operator.add, 1, 1)
    nested = client.submit(sum, [one, one, 1])
    named = client.submit(models.train, data=[one, one])
    inside = client.submit(models.double, {"a": [one]}["a"])
    return [f.result(timeout=30) for f in (nested, named, inside)]


@step
def scatters(client: Any) -> Any:
    whole = client.scatter(np.arange(10))
    several = client.scatter([1, 2, 3])
    return [
        int(client.submit(np.sum, whole).result(timeout=30)),
        client.submit(sum, several).result(timeout=30),
    ]


@step
def arrays(client: Any) -> Any:
    x = da.random.default_rng(1).random((40, 40), chunks=20)
    kept = (x + x.T).persist()
    return [
        float(da.ones((10, 10), chunks=5).sum().compute()),
        bool(np.allclose(kept.compute(), (x + x.T).compute())),
        list(x.rechunk((40, 10)).mean(axis=0).compute().shape),
        float(x.map_blocks(models.double, dtype="f8").max().compute()) <= 2,
        bool(client.compute(x.sum()).result(timeout=30) == x.sum().compute()),
    ]


@step
def frames(_: Any) -> Any:
    frame = pd.DataFrame({"k": list("abcab") * 4, "v": range(20)})
    df = dd.from_pandas(frame, npartitions=3)
    other = dd.from_pandas(pd.DataFrame({"k": list("abc"), "w": [1, 2, 3]}), npartitions=2)
    return [
        df.groupby("k").v.sum().compute().sort_index().tolist(),
        len(df.merge(other, on="k").compute()),
        df.sort_values("v", ascending=False).v.compute().tolist()[:3],
        df.k.str.upper().compute().tolist()[:3],
        float(df.v.rolling(2).mean().compute().sum()),
        bool(df.persist().v.max().compute() == 19),
    ]


@step
def masks_and_neighbours(client: Any) -> Any:
    x = da.from_array(np.arange(24.0).reshape(4, 6), chunks=2)
    masked = da.ma.masked_inside(x, 5, 10)
    values = dd.from_pandas(pd.Series(range(6)), npartitions=2)
    leaking = np.ma.masked_array(np.ones((4, 2)), mask=True)
    refused = client.submit(
        np.quantile, leaking, 0.5, axis=1, weights=np.ones((4, 2)), method="inverted_cdf"
    )
    return [
        [part.compute().tolist()[0] for part in da.gradient(x, axis=(0, 1))],
        int(da.ma.count(masked).compute()),
        da.ma.getdata(masked).compute().tolist() == x.compute().tolist(),
        [part.compute().tolist() for part in da.unravel_index(da.arange(4, chunks=2), (2, 2))],
        da.nanquantile(x.rechunk((4, 2)), 0.5, axis=0).compute().tolist(),
        values.case_when([(values > 3, 0)]).compute().tolist(),
        "a weighted quantile of" in str(refused.exception(timeout=30)),
    ]


@step
def delayed(_: Any) -> Any:
    train = dask.delayed(models.train)
    return dask.compute(train([1, dask.delayed(models.double)(2)]), da.ones(4, chunks=2).sum())


@step
def bags(_: Any) -> Any:
    bag = db.from_sequence(range(10), npartitions=3)
    return [bag.map(models.double).compute(), bag.sum().compute()]


@step
def annotates(client: Any) -> Any:
    with dask.annotate(priority=5, retries=1):
        done = client.submit(models.double, 21).result(timeout=30)
        shape = da.ones(6, chunks=2).sum().compute()
    return [done, float(shape), client.submit(models.double, 1, priority=3).result(timeout=30)]


@step
def low_level_graphs(client: Any) -> Any:
    graph = {"x": 1, "y": (operator.add, "x", 2), "z": (sum, ["x", "y", "y"])}
    return client.get(graph, ["y", "z"])


@step
def many(client: Any) -> Any:
    return sum(client.gather(client.map(models.double, range(300))))


@step
def fails(client: Any) -> Any:
    try:
        client.submit(operator.truediv, 1, 0).result(timeout=30)
    except ZeroDivisionError as error:
        return str(error)


REFUSED: dict[str, Any] = {
    "lambda": lambda c: c.submit(lambda x: x, 1),
    "main": lambda c: c.submit(of_the_script, 1),
    "unlisted": lambda c: c.submit(models.other, 1),
    "partial": lambda c: c.submit(functools.partial(models.other, 1)),
    "argument": lambda c: c.submit(sorted, [1], key=models.other),
    "attrgetter": lambda c: c.submit(operator.attrgetter("__class__"), 1),
    "methodcaller": lambda c: c.submit(operator.methodcaller("tofile", "x"), np.ones(2)),
    "dask-method": lambda c: c.submit(dask.utils.methodcaller("to_pickle"), pd.DataFrame(), "x"),
    "instance": lambda c: c.submit(models.double, models.Thing(1)),
    "class": lambda c: c.submit(models.Thing, 1),
    "method": lambda c: c.submit(models.Thing().method, 1),
    "map": lambda c: c.map(models.other, [1, 2]),
    "system": lambda c: c.submit(os.system, "true"),
    "eval": lambda c: c.submit(eval, "1"),
    "getattr": lambda c: c.submit(getattr, 1, "__class__").result(timeout=30),
    "array": lambda c: da.ones(4, chunks=2).map_blocks(lambda x: x + 1).compute(),
    "array-save": lambda c: c.submit(np.save, "x", [1]),
    "frame": lambda c: (
        dd.from_pandas(pd.DataFrame({"a": [1]}))
        .map_partitions(models.other, meta={"a": "i8"})
        .compute()
    ),
    "p2p": lambda c: da.ones((4, 4), chunks=2).rechunk((4, 1), method="p2p").compute(),
    "lock": lambda c: c.submit(models.double, distributed.Lock("l")),
    "query": lambda c: dd.from_pandas(pd.DataFrame({"a": [1]})).query("a > 0").compute(),
    "delayed": lambda c: dask.delayed(models.other)(1).compute(),
    "actor": lambda c: c.submit(models.double, 1, actor=True),
    "annotation": lambda c: annotated(c),
    "run": lambda c: c.run(os.getpid),
}


def annotated(client: Any) -> Any:
    with dask.annotate(priority=len):
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
    with safeser.Client(
        address,
        serializers=["dask", "msgpack", "pickle"],
        deserializers=["dask", "msgpack", "pickle"],
        timeout=30,
    ) as client:
        client.wait_for_workers(2, timeout=60)
        out |= taken(client)
        out["attacks"] = attacked(client, mark)
        out["afterwards"] = submits(client)
    print(json.dumps(out, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
