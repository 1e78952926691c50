"""One program that an author runs in two processes: writes its tasks out, as a client does.

    python same_work.py [changed]

Each line of its output is a name, and the header and frames of one graph, in msgpack and base64.
With ``changed`` each definition differs a little, under the same keys.
"""

from __future__ import annotations

import base64
import sys
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import msgpack
import numpy as np
import pandas as pd
import xarray as xr
from dask._task_spec import DataNode, List, Set, Task, TaskRef
from dask.utils import SerializableLock
from xarray.backends.file_manager import CachingFileManager
from xarray.backends.locks import HDF5_LOCK, NETCDFC_LOCK, combine_locks

from safeser.dask.sealed.graph import write_out
from safeser.identity import Identity
from safeser.values import Limits
from tests.dask.sealed.graphs import Graph

CHANGED = sys.argv[1:] == ["changed"]
BY = 2 if CHANGED else 1
NAMES = {"alpha", "beta", "gamma", "delta", *(["epsilon"] if CHANGED else [])}


def of_main(value: Any) -> Any:
    return (value, BY, NAMES)


def with_set(word: str) -> bool:
    return word in {"alpha", "beta", "gamma", "delta"} and BY > 0


def adder(by: int) -> Any:
    def add(value: Any) -> Any:
        return (value, by, NAMES)

    return add


class OfMain:
    names = frozenset(NAMES)

    def __init__(self) -> None:
        self.seen = set(NAMES)

    def call(self, value: Any) -> Any:
        return (value, self.seen, self.names)


@dataclass
class Point:
    x: int
    tags: frozenset[str] = frozenset(NAMES)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = NAMES, BY


def local_class() -> Any:
    class Local:
        words = NAMES

        def __init__(self) -> None:
            self.by = BY

        def __call__(self, value: Any) -> Any:
            return super().__hash__() and (value, self.by)

    return Local()


def colours() -> Any:
    return Enum("Colour", {name: place * BY for place, name in enumerate(sorted(NAMES))})


def nested(value: Any) -> Any:
    return [each for each in NAMES if value and (lambda: each in {"alpha", "beta", "zeta"})()]


def both(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def definitions() -> dict[str, Task]:
    """Return one task for each kind of definition, each with one argument of its own."""
    shared = [BY]
    refs = [TaskRef(name) for name in ("one", "two", "three", "four")]
    parts = [Task(name, both, *refs, BY) for name in ("p", "q")]
    return {
        "function": Task("function", of_main, 1),
        "set constant": Task("set constant", with_set, "beta"),
        "closure": Task("closure", adder(BY), 1),
        "lambda": Task("lambda", lambda value: (value, BY, NAMES), 1),
        "nested": Task("nested", nested, 1),
        "method": Task("method", OfMain().call, 1),
        "class": Task("class", OfMain),
        "local class": Task("local class", local_class(), 1),
        "dataclass": Task("dataclass", both, Point(BY)),
        "slots": Task("slots", both, Slotted()),
        "enum": Task("enum", both, list(colours())),
        "partial": Task("partial", partial(of_main, names=NAMES, by=BY), 1),
        "array": Task("array", both, np.arange(200) * BY),
        "frame": Task("frame", both, pd.DataFrame({"a": [BY, 2], "b": ["x", "y"]})),
        "set argument": Task("set argument", both, set(NAMES)),
        "frozenset argument": Task("frozenset argument", both, [frozenset(NAMES)]),
        "set of tuples": Task("set of tuples", both, {(name, BY) for name in NAMES}),
        "set of objects": Task("set of objects", both, {Enum, int, both, of_main}),
        "long list": Task("long list", both, [*range(100), BY]),
        "plain": Task("plain", both, BY, {"k": [1, "two", None]}, k=slice(0, BY)),
        "dependencies": Task("dependencies", both, *refs, BY),
        "set of references": Task("set of references", both, Set(*refs[: 5 - BY])),
        "data": DataNode("data", {"names": NAMES}),
        "gathered": Task("gathered", both, List(*refs, BY)),
        "fused": Task.fuse(*parts, Task("last", both, TaskRef("p"), TaskRef("q")), key="fused"),
        "files": Task(
            "files",
            both,
            CachingFileManager(open, f"file-{BY}", lock=combine_locks([HDF5_LOCK, NETCDFC_LOCK])),
            SerializableLock(),
        ),
        "whole": Task("whole", both, shared, shared, *refs),
    }


def collections() -> dict[str, Any]:
    x = da.arange(100, chunks=10)
    y = da.ones((20, 20), chunks=7)
    data = pd.DataFrame({"a": range(20), "b": list("abcd") * 5, "c": np.arange(20.0)})
    frame = dd.from_pandas(data, npartitions=3)
    values = xr.DataArray(np.arange(60.0).reshape(6, 10), dims=("t", "x"), name="v")
    lazy = values.assign_coords(t=pd.date_range("2026-01-01", periods=6)).chunk({"t": 2})
    return {
        "sum": (y + y.T).sum(),
        "map_blocks": x.map_blocks(np.multiply, 3, dtype=x.dtype),
        "rechunk": y.rechunk((20, 5)),
        "bag": db.from_sequence(range(30), npartitions=4).map(str).frequencies(),
        "grouped": frame.groupby("b").c.mean(),
        "shuffled": frame.shuffle("b", shuffle_method="p2p"),
        "xarray": (lazy - lazy.mean("t")).resample(t="2D").mean().data,
        "dataset": xr.Dataset({"v": lazy, "w": lazy * 2}).isel(x=slice(0, 5)).sum("t").w.data,
    }


def graph_of(collection: Any) -> Any:
    if isinstance(collection, dd.DataFrame | dd.Series) or hasattr(collection, "optimize"):
        return dict(collection.optimize().__dask_graph__())
    [optimized] = dask.optimize(collection)
    return dict(optimized.__dask_graph__())


def main() -> None:
    author, scheduler = Identity.generate("alice"), Identity.generate("scheduler")
    graphs = {"definitions": definitions()}
    if not CHANGED:
        graphs |= {name: graph_of(each) for name, each in collections().items()}
    for name, tasks in graphs.items():
        header, frames = write_out(Graph(tasks), author, scheduler.public, Limits())
        said = msgpack.packb([name, header, frames], use_bin_type=True)
        print(base64.b64encode(said).decode())


if __name__ == "__main__":
    main()
