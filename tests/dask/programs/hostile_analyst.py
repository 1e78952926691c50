"""An analyst whose client is patched to send what it likes, and what the scheduler says to it."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
from dask._expr import LLGExpr
from dask._task_spec import DataNode, Task
from distributed.protocol.serialize import Serialized
from mylib import models

from safeser.channel import Link
from safeser.dask import approved


class Cheat:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return models.touch, (self._path,)


def patched() -> None:
    """Have this process check nothing that it sends."""
    approved.as_granted = lambda expr, link, *, actors: expr
    Link.permit_sending = lambda *_, **__: None


def sent(data: bytes) -> Serialized:
    return Serialized({"serializer": "pickle", "writeable": ()}, [data])


def graph(**tasks: Any) -> dict[str, Any]:
    return {"tasks": tasks, "annotations": {}}


def attacks(mark: str) -> dict[str, Any]:
    key = "attack"
    touch = Task(key, models.touch, mark)
    method = Task(key, dask.utils.methodcaller("rename"), Path(mark), mark)
    return {
        "code": cloudpickle.dumps(LLGExpr({key: Task(key, lambda: models.touch(mark))})),
        "unlisted": pickle.dumps(graph(**{key: touch})),
        "reduce": pickle.dumps(graph(**{key: Cheat(mark)})),
        "root": pickle.dumps(Cheat(mark)),
        "low-level": pickle.dumps(LLGExpr({key: touch})),
        "array": pickle.dumps(da.ones(4, chunks=2).map_blocks(models.double).dask),
        "data": pickle.dumps(graph(**{key: DataNode(key, models.touch)})),
        "pickles": pickle.dumps(graph(**{key: Task(key, pickle.loads, pickle.dumps(1))})),
        "pointers": pickle.dumps(graph(**{key: Task(key, np.ndarray, (1,), "O", b"x" * 8)})),
        "path": pickle.dumps(graph(**{key: method})),
        "garbage": b"\x80\x05garbage",
        "nothing": b"",
    }


def said(client: Any, data: bytes) -> list[str]:
    future = client._graph_to_futures(sent(data), ["attack"], span_metadata={})["attack"]
    try:
        return ["came out", repr(future.result(timeout=60))]
    except Exception as error:  # whatever reached the future
        return ["refused", type(error).__name__, str(error)[:200]]
    finally:
        future.release()
        # A client opens what it sent itself under a key that it holds, to compare it.
        while "attack" in client.futures:
            time.sleep(0.01)


def attacked(client: Any, mark: str) -> dict[str, list[str]]:
    """Send what no honest client sends; return what was said to each."""
    honest, allowed = approved.as_granted, Link.permit_sending
    patched()
    try:
        return {name: said(client, data) for name, data in attacks(mark).items()}
    finally:
        approved.as_granted, Link.permit_sending = honest, allowed
