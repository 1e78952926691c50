"""An analyst whose client is patched to send what it likes, and what the cluster says to it."""

from __future__ import annotations

import pickle
import time
from typing import Any

import cloudpickle
import dask.array as da
from dask._expr import LLGExpr
from dask._task_spec import DataNode, Task
from distributed.protocol.serialize import Serialized
from mylib import models

from safeser.channel import Link
from safeser.dask.sealed.definitions import Definitions
from safeser.dask.sealed.graph import write_out
from safeser.dask.sealed.references import ListedDefinitions

KEY = "attack"


class Cheat:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return models.touch, (self._path,)

    def __dask_tokenize__(self) -> str:
        return "cheat"  # or this process itself would unpickle it


class Claiming(ListedDefinitions):
    """Refers to functions by any name, and pickles arguments."""

    def add_function(self, function: Any) -> bytes:
        return self._kept(function, b"@" + function.encode())

    def add(self, obj: Any) -> bytes:
        return Definitions.add(self, obj)


def pickled(data: bytes) -> Serialized:
    return Serialized({"serializer": "pickle", "writeable": ()}, [data])


def signed(client: Any, node: Any, definitions: Any = None) -> Serialized:
    link, identity = client._policy_link(), client._identity()
    expr, audience = LLGExpr({KEY: node}), link.session.peer_key
    return Serialized(
        *write_out(expr, identity, audience, link.policy.limits, definitions=definitions)
    )


def attacks(client: Any, mark: str) -> dict[str, Any]:
    def claiming() -> Claiming:
        return Claiming(frozenset(), "", client._policy_link().policy.limits)

    touch = Task(KEY, models.touch, mark)
    named = Task(KEY, "mylib.models:touch", mark)
    listed = Task(KEY, "mylib.models:double", Cheat(mark))
    return {
        "code": pickled(cloudpickle.dumps(LLGExpr({KEY: Task(KEY, lambda: 1)}))),
        "root": pickled(pickle.dumps(Cheat(mark))),
        "array": pickled(pickle.dumps(da.ones(4, chunks=2).map_blocks(models.double).dask)),
        "garbage": pickled(b"\x80\x05garbage"),
        "nothing": pickled(b""),
        "signed code": signed(client, Task(KEY, lambda: models.touch(mark))),
        "signed reference": signed(client, touch),
        "signed value": signed(client, DataNode(KEY, Cheat(mark))),
        "unlisted": signed(client, named, claiming()),
        "pickled argument": signed(client, listed, claiming()),
        "system": signed(client, Task(KEY, "os:system", f"touch {mark}"), claiming()),
    }


def said(client: Any, graph: Serialized) -> list[str]:
    client._as_sent = lambda expr, **_: expr
    try:
        future = client._graph_to_futures(graph, [KEY], span_metadata={})[KEY]
    finally:
        del client._as_sent
    try:
        return ["came out", repr(future.result(timeout=60))]
    except Exception as error:  # whatever reached the future
        return ["refused", type(error).__name__, str(error)[:200]]
    finally:
        future.release()
        # A client opens what it sent itself under a key that it holds, to compare it.
        while KEY in client.futures:
            time.sleep(0.01)


def attacked(client: Any, mark: str) -> dict[str, list[str]]:
    """Send what no honest client sends; return what was said to each."""
    allowed = Link.permit_sending
    Link.permit_sending = lambda *_, **__: None
    try:
        return {name: said(client, graph) for name, graph in attacks(client, mark).items()}
    finally:
        Link.permit_sending = allowed
