"""Attacks on ``submission: approved``: what its authors could sign beside listed functions.

The one rule: who may sign no code signs nothing. A definition that was the name of a function or
typed data is bytes that who may sign code wrote, and no reader knows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
from dask._expr import LLGExpr
from dask._task_spec import Task

from safeser.dask.sealed.call import HEADER, Sent
from safeser.dask.sealed.definitions import Definitions
from safeser.dask.sealed.graph import parse, write_out
from safeser.dask.sealed.node import nodes
from safeser.dask.sealed.value import sign_request
from safeser.dask.wire.codec import PayloadRow
from safeser.gate.values import Limits
from safeser.policy.ready import locate
from tests.dask.attacks.rows import Row
from tests.dask.sealed.conftest import SigningDoors as Signing

__all__ = ["ROWS"]

_CLUSTER = locate("dask-cluster").read_text("utf-8")
#: Workers take what alice signed, and no context lets her submit anything.
_LISTED = _CLUSTER.replace("authors: [group:engineers]", "authors: [alice, group:engineers]")

_SYSTEM = b"@os:system"


class _Bytes(Definitions):
    """A patched client's: what is called by its bytes is a definition of these bytes."""

    def _written(self, obj: Any) -> bytes:
        return obj if type(obj) is bytes else super()._written(obj)


def _code() -> Task:
    return Task("x", lambda: 1)


def _reference() -> Task:
    return Task("x", _SYSTEM, "true")


def _typed() -> Task:
    return Task("x", b"=" + bytes(8))


def _in_data() -> Task:
    """A task in data, which Dask hands over where it computes all others."""
    return Task("x", print, [Task(None, len, "x")])


def _written(task: Task, author: str, **options: Any) -> tuple[dict[str, Any], list[bytes]]:
    doors = Signing()
    audience = doors.identity("scheduler").public
    identity = doors.identity(author)
    return write_out(
        LLGExpr({"x": task}), identity, audience, Limits(), definitions=_Bytes(), **options
    )


def _submitted() -> Any:
    """Return the submission of a name, signed by alice."""
    header, frames = _written(_reference(), "alice")
    return [{"op": "update-graph", "expr_ser": PayloadRow(header, tuple(frames)), "keys": []}]


def _handed(task: Callable[[], Task], author: str = "alice", **options: Any) -> Callable[[], Any]:
    """Return what makes the message by which a scheduler hands *task* to a worker."""

    def made() -> Any:
        header, frames = _written(task(), author, **options)
        graph = parse({**header, "sizes": tuple(header["sizes"])}, frames, Limits())
        row = PayloadRow(HEADER, tuple(Sent().frames(nodes(graph)["x"].call)))
        actor = {"actor": True} if options else {}
        return [{"op": "compute-task", "key": "x", "run_spec": row, **actor}]

    return made


def _requested(op: str, field: str, data: bytes, **more: Any) -> Callable[[], Any]:
    """Return what makes the request *op* with *data* that alice signed in its *field*."""

    def made() -> Any:
        doors = Signing()
        audience = doors.identity("scheduler").public
        [value] = sign_request({field: data}, doors.identity("alice"), audience).values()
        name = field.partition(":")[0].rpartition(".")[2]
        return {"op": op, name: value, **more}

    return made


_PICKLED = PayloadRow(
    {"serializer": "pickle", "writeable": []}, (cloudpickle.dumps(LLGExpr({"x": _code()})),)
)
_TASKS = {
    "code": _handed(_code),
    "a name": _handed(_reference),
    "typed data": _handed(_typed),
    "an actor": _handed(_code, actors=True),
}
#: A task that a worker refuses fails by the reason.
_FAILS = ("compute-task",)
_RUN = _requested("run", "run.function", _SYSTEM, wait=True)
_PLUGIN = _requested("plugin-add", "plugin-add.plugin:p", _SYSTEM, name="p")

ROWS: tuple[Row, ...] = (
    # What is in it does not matter: nothing of it is read.
    Row("alice submits a name", "alice", "scheduler", _submitted, "operation.not-granted"),
    Row(
        *("alice submits code in a pickle", "alice", "scheduler"),
        [{"op": "update-graph", "expr_ser": _PICKLED, "keys": ["x"]}],
        "operation.not-granted",
    ),
    *(
        Row(*(f"{name} of {who}", "scheduler", "worker", made, rule, policy), leaves=_FAILS)
        for who, rule, policy in (
            ("alice", "author.relayed", "dask-cluster"),
            ("an author", "sealed.author", _LISTED),
        )
        for name, made in _TASKS.items()
    ),
    *(
        Row(f"alice{what} runs a name on a {at}", "scheduler", at, _RUN, rule, policy)
        for at in ("worker", "nanny")
        for what, rule, policy in (
            ("", "author.relayed", "dask-cluster"),
            (", an author,", "sealed.author", _LISTED),
        )
    ),
    Row("a plugin of alice", "scheduler", "worker", _PLUGIN, "sealed.author", _LISTED),
    # Who may sign code signs its own.
    Row("carol calls a name", "scheduler", "worker", _handed(_reference, "carol"), None),
    Row("carol calls typed data", "scheduler", "worker", _handed(_typed, "carol"), None),
    Row("a task of carol in data", "scheduler", "worker", _handed(_in_data, "carol"), None),
)
