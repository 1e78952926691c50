"""One program that an author runs in two processes: writes its tasks out, as a client does.

Each line of its output is a name, and the header and frames of one graph, in msgpack and base64.
"""

from __future__ import annotations

import base64
from typing import Any

import dask
import dask.dataframe as dd
import msgpack
import numpy as np
import pandas as pd
import xarray as xr
from dask._task_spec import DataNode, Set, Task, TaskRef
from dask.utils import SerializableLock
from xarray.backends.file_manager import CachingFileManager
from xarray.backends.locks import HDF5_LOCK, NETCDFC_LOCK, combine_locks

from safeser.identity import Identity
from tests.dask.sealed.graphs import written

BY = 1
NAMES = {"alpha", "beta", "gamma", "delta"}


def of_main(value: Any) -> Any:
    return (value, BY, NAMES)


def both(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def definitions() -> dict[str, Task]:
    """Return one task for each kind of definition, each with one argument of its own."""
    shared = [BY]
    refs = [TaskRef(name) for name in ("one", "two", "three", "four")]
    parts = [Task(name, both, *refs, BY) for name in ("p", "q")]
    return {
        "function": Task("function", of_main, 1),
        "array": Task("array", both, np.arange(200)),
        "frame": Task("frame", both, pd.DataFrame({"a": [BY, 2], "b": ["x", "y"]})),
        "set argument": Task("set argument", both, set(NAMES)),
        "set of tuples": Task("set of tuples", both, {(name, BY) for name in NAMES}),
        "set of objects": Task("set of objects", both, {Identity, int, both, of_main}),
        "dependencies": Task("dependencies", both, *refs, BY),
        "set of references": Task("set of references", both, Set(*refs)),
        "data": DataNode("data", {"names": NAMES}),
        "fused": Task.fuse(*parts, Task("last", both, TaskRef("p"), TaskRef("q")), key="fused"),
        "files": Task(
            "files",
            both,
            CachingFileManager(open, "file", lock=combine_locks([HDF5_LOCK, NETCDFC_LOCK])),
            SerializableLock(),
        ),
        "whole": Task("whole", both, shared, shared, *refs),
    }


def collections() -> dict[str, Any]:
    frame = dd.from_pandas(pd.DataFrame({"a": range(20), "b": list("abcd") * 5}), npartitions=3)
    values = xr.DataArray(np.arange(60.0).reshape(6, 10), dims=("t", "x"), name="v")
    lazy = values.assign_coords(t=pd.date_range("2026-01-01", periods=6)).chunk({"t": 2})
    return {
        "shuffled": frame.shuffle("b", shuffle_method="p2p"),
        "xarray": (lazy - lazy.mean("t")).resample(t="2D").mean().data,
    }


def graph_of(collection: Any) -> Any:
    if isinstance(collection, dd.DataFrame):
        return dict(collection.optimize().__dask_graph__())
    [optimized] = dask.optimize(collection)
    return dict(optimized.__dask_graph__())


def main() -> None:
    author, scheduler = Identity.generate("alice"), Identity.generate("scheduler")
    graphs = {"definitions": definitions()}
    graphs |= {name: graph_of(each) for name, each in collections().items()}
    for name, tasks in graphs.items():
        header, frames = written(tasks, author, scheduler.public)
        said = msgpack.packb([name, header, frames], use_bin_type=True)
        print(base64.b64encode(said).decode())


if __name__ == "__main__":
    main()
