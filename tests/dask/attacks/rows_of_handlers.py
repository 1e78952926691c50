"""Attacks on handlers of Dask: what a message of a right shape makes them do is Dask's.

The one rule: a row without a rule is what one user of a cluster may cost the others there. What is
still refused leads out of a folder, to another scheme, or puts an object where plain data belongs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyarrow import Table

from tests.dask.attacks.rows import Row, payload

__all__ = ["ROWS"]

_SHAPE, _ANSWER = "operation.field-shape", "reply.form"
_WORKER = "safeser://127.0.0.1:1"
_NAN, _INFINITE = float("nan"), float("inf")


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = (value,)
    return value


#: One byte, of which NumPy prints six to the power of eleven.
_LONG = payload(np.broadcast_to(np.array(1, "i1"), (6,) * 11))
#: A few bytes that take a reader for ever to iterate over.
_ENDLESS = payload(range(1 << 60))
_KEYS = payload(np.broadcast_to(np.array("k"), (1 << 27,)))


# --- requests ------------------------------------------------------------------------------------

#: What handlers take long over, keep for good, or end in the middle of: by name, one request each.
_ADMITTED: dict[str, dict[str, Any]] = {
    # Each task is visited once for each path to it.
    "retries a task along 2**40 paths": {"op": "retry", "keys": [(40, 0)]},
    "takes samples without a pause": {
        "op": "memory_sampler_start",
        "measure": "process",
        "interval": 0,
    },
    "says 65 topics": {"op": "log_event", "topic": [*map(str, range(65))], "msg": 1},
    "logs 90 levels": {"op": "log_event", "topic": "x", "msg": _nested(90)},
    "collects in place of a plugin": {"op": "start_task_metadata", "name": "shuffle"},
    "asks a worker twice": {
        "op": "broadcast",
        "msg": {"op": "identity"},
        "workers": [_WORKER, _WORKER],
    },
    "waits for less than nothing": {"op": "event_wait", "name": "x", "timeout": -1},
    "holds less than nothing": {
        "op": "update_data",
        "who_has": {"x": [_WORKER]},
        "nbytes": {"x": -1},
    },
}

_REGISTERS = {"op": "register-worker", "address": _WORKER}
#: What a worker tells of itself, which ends or falsifies what the scheduler computes of all.
_TOLD: dict[str, dict[str, Any]] = {
    "has no threads": {"nthreads": 0},
    "speaks for its host": {"host_info": {"addresses": 5}},
    "reports nothing": {"metrics": {}},
    "reports what prints a gigabyte": {"metrics": {"x": _LONG}},
    "has packages that are a number": {"versions": {"packages": 5}},
}
_HEARTBEAT = {"op": "heartbeat_worker", "address": _WORKER}
_BEATS = {"spends nothing on spans": {"extensions": {"spans": 5}}}

#: What is still refused: it is no data of the shape, or leads elsewhere.
_REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "text for keys": ("client", "scheduler", {"op": "retry", "keys": "abc"}),
    "a mapping for keys": ("client", "scheduler", {"op": "who_has", "keys": {"x": 1}}),
    "no number": ("client", "scheduler", {"op": "event_wait", "name": "x", "timeout": _NAN}),
    "an object for keys": ("client", "scheduler", {"op": "who_has", "keys": _ENDLESS}),
    "an infinite resource": (
        "client",
        "scheduler",
        {"op": "set_resources", "worker": _WORKER, "resources": {"GPU": _INFINITE}},
    ),
    "an upload out of its folder": (
        "client",
        "worker",
        {"op": "upload_file", "filename": "../x.py", "data": b""},
    ),
    "another scheme to gather from": (
        "scheduler",
        "worker",
        {"op": "gather", "who_has": {"x": ["tcp://attacker:1"]}},
    ),
    "another scheme to relay to": (
        "client",
        "scheduler",
        {"op": "proxy", "msg": {"op": "identity"}, "worker": "tcp://a:1"},
    ),
    "another scheme for a nanny": ("worker", "scheduler", {**_REGISTERS, "nanny": "tcp://a:1"}),
}

# --- elements ------------------------------------------------------------------------------------

_FINISHED = {
    **{"op": "task-finished", "key": "x", "stimulus_id": "s", "run_id": 1, "metadata": {}},
    **{"nbytes": 28, "type": "int", "typename": "int", "startstops": (), "thread": 7},
    "status": "OK",
}
_ELEMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "wants 1,000 unknown keys": (
        "client",
        {"op": "client-desires-keys", "keys": [f"n-{n}" for n in range(1000)]},
    ),
    "computed less than nothing": ("worker", {**_FINISHED, "nbytes": -1}),
    "did what no task does": (
        "worker",
        {**_FINISHED, "startstops": [{"action": "<b>", "start": "x", "stop": 1}]},
    ),
}

# --- shards --------------------------------------------------------------------------------------


def _frame(**columns: Any) -> tuple[Any, ...]:
    from distributed.shuffle._arrow import serialize_table

    return ((0, serialize_table(Table.from_pydict(columns))),)


#: Of a shuffle, by what Dask makes of it: a table for each number, elements that are not written.
_SHARDS: dict[str, Any] = {
    "a table for each of 30,000 numbers": _frame(_partitions=[*range(30_000)], v=[0] * 30_000),
    "pieces that are no grid": (((0, 0), [((0, 0), np.ones((1, 2))), ((1, 0), np.ones((3, 1)))]),),
}

# --- answers -------------------------------------------------------------------------------------

_NODE = {"identifier": "root", "count": 1, "description": {}, "children": {}}
#: What is asked, and answers that Dask goes through for ever, or fails on for all.
_ANSWERS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "values": (
        {"op": "gather", "keys": ["k"]},
        [{"status": "error", "keys": ("k", "other")}, (1, 2), {}],
    ),
    "samples": (
        {"op": "memory_sampler_stop", "key": "k"},
        [((0.0, 1), (9e9, 1)), (5,), ((_NAN, 1),)],
    ),
    "a dataset": ({"op": "publish_get", "names": ["a"]}, [(), (None, None), 5]),
    "a call": (
        {"op": "proxy", "msg": {"op": "actor_execute"}, "worker": "x"},
        [{"status": "OK"}, {"status": "error"}, {"status": None}, "OK"],
    ),
    "holders": ({"op": "who_has"}, [{"k": 5}, {"k": "text"}, 5]),
}
_OF_WORKERS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "no values": ({"op": "get_data", "keys": ["x"], "who": None}, [{}, "OK", {"status": "error"}]),
    "a size": (
        {"op": "update_data", "data": {"k": 1}},
        [{"status": "OK", "nbytes": {"k": _INFINITE}}, {"status": "OK", "nbytes": {"other": 8}}],
    ),
    "a profile": (
        {"op": "profile"},
        [{}, 5, {**_NODE, "identifier": "x"}, {**_NODE, "children": ["a"]}],
    ),
}
#: Values that were asked for, and of which an answer says nothing: the client took keys for them.
_UNSAID = ({"status": "OK"}, {"status": "OK", "data": {}}, {"status": "OK", "data": {"l": 1}})
#: An object in an answer, where no operation carries values.
_OBJECTS: dict[str, tuple[dict[str, Any], Any]] = {
    "a service": ({"op": "identity"}, lambda x: {"id": "s", "services": {"dashboard": x}}),
    "a count": ({"op": "ncores"}, lambda x: {"w": x}),
    "a call": ({"op": "call_stack"}, lambda x: {"k": (x,)}),
    "missing keys": ({"op": "gather", "keys": ["k"]}, lambda x: {"status": "error", "keys": x}),
    "names of datasets": ({"op": "publish_list"}, lambda x: x),
    "holders": ({"op": "who_has"}, lambda x: {"k": x}),
    "a worker's state": (
        {"op": "get_cluster_state", "exclude": ()},
        lambda x: {"workers": {"w": x}},
    ),
}
_PATHS = ("../../.config/dask", "/etc", "a/b", "..", "", 5, None)

ROWS: tuple[Row, ...] = (
    *(
        Row(f"a client {name}", "client", "scheduler", said, None, "trusted")
        for name, said in _ADMITTED.items()
    ),
    *(
        Row(f"a worker {name}", "worker", "scheduler", {**base, **said}, None, "trusted")
        for base, told in ((_REGISTERS, _TOLD), (_HEARTBEAT, _BEATS))
        for name, said in told.items()
    ),
    *(
        Row(name, sender, recipient, said, _SHAPE, "trusted")
        for name, (sender, recipient, said) in _REFUSED.items()
    ),
    *(
        Row(f"a {sender} {name}", sender, "scheduler", [said], None, "trusted")
        for name, (sender, said) in _ELEMENTS.items()
    ),
    *(
        Row(
            name,
            "worker",
            "worker",
            {"op": "shuffle_receive", "shuffle_id": "s", "run_id": 1, "data": payload(shards)},
            None,
            "trusted",
        )
        for name, shards in _SHARDS.items()
    ),
    *(
        Row(f"answer {number}: {name}", sender, recipient, said, None, "trusted", asked)
        for recipient, sender, table in (
            ("client", "scheduler", _ANSWERS),
            ("scheduler", "worker", _OF_WORKERS),
        )
        for name, (asked, answers) in table.items()
        for number, said in enumerate(answers)
    ),
    *(
        Row(f"no value in {said}", "scheduler", "client", said, _ANSWER, "trusted", asked)
        for said in _UNSAID
        for asked in ({"op": "gather", "keys": ["k"]},)
    ),
    *(
        Row(f"{what} for {name}", "scheduler", "client", made(row), _ANSWER, "trusted", asked)
        for what, row in (("a long array", _LONG), ("a range", _ENDLESS), ("one key", _KEYS))
        for name, (asked, made) in _OBJECTS.items()
    ),
    *(
        Row(f"{name!r} for {op}", sender, recipient, made({"id": name}), _ANSWER, "trusted", asked)
        for name in _PATHS
        for op, sender, recipient, made in (
            ("dump_state", "worker", "scheduler", lambda state: state),
            ("get_cluster_state", "scheduler", "client", lambda state: {"workers": {"w": state}}),
        )
        for asked in ({"op": op, "exclude": ()},)
    ),
)
