"""Attacks by requests: what is not granted, not known, or no plain data where that belongs.

The one rule: nothing of a refused request is opened, and its sender reads why.
"""

from __future__ import annotations

import pickle
from typing import Any

import msgpack

from safeser.dask.wire.codec import PayloadRow
from tests.dask.attacks.rows import (
    BYTES,
    EVIL,
    FORMS,
    PICKLE,
    WITHOUT_CODE,
    Raw,
    Row,
    by,
    in_forms,
    payload,
    rows,
)
from tests.dask.forged import Eager
from tests.dask.registered import METRICS

__all__ = ["ROWS"]

_alice = by("alice")
_bob = by("bob")
_bob_to_worker = by("bob", "worker")

_NOT_GRANTED, _UNKNOWN = "operation.not-granted", "operation.unknown"
_SHAPE, _FIELD = "operation.field-shape", "operation.unknown-field"
_HERE = "safeser://127.0.0.1:1"

#: Every payload: what is bare bytes is plain data.
_PAYLOADS = "opaque eager cloudpickle failed author"
#: Where a handler unpickles bytes: these are judged as a pickle, and any payload is none.
_OPENED = {"bare": "context.family", f"bytes eager-bytes {_PAYLOADS}": "raw.payload"}


def _relayed(inner: Any) -> list[dict[str, Any]]:
    return [{"op": "broadcast", "msg": inner}, {"op": "proxy", "worker": "x", "msg": inner}]


# --- pickles -------------------------------------------------------------------------------------

_NOTED = ({"op": "identity", "note": EVIL}, {"op": "identity", "deep": {"er": [EVIL]}})
_IN_FIELDS = tuple(
    row
    for sender, recipient in (
        ("bob", "scheduler"),
        ("bob", "worker"),
        ("worker", "scheduler"),
        ("alice", "scheduler"),
        ("scheduler", "worker"),
        ("scheduler", "nanny"),
    )
    for row in in_forms(
        f"a pickle from {sender} to {recipient} in a field that has none",
        *(sender, recipient),
        {_PAYLOADS: _FIELD},
        _NOTED,
    )
)

#: What a handler would unpickle; guests may ask for it by name, and bring no pickle.
_OPENED_BY_HANDLERS = (
    {"op": "run_function", "function": EVIL},
    {"op": "run_function", "kwargs": EVIL, "function": b""},
    {"op": "feed", "function": b"", "setup": EVIL, "teardown": b"", "interval": 1},
    {"op": "register_scheduler_plugin", "plugin": EVIL, "name": "x", "idempotent": True},
    {"op": "register_worker_plugin", "plugin": EVIL, "name": "x", "idempotent": True},
    {"op": "workers_to_close", "key": EVIL},
    {"op": "retire_workers", "key": EVIL},
    {"op": "broadcast", "msg": {"op": "run", "function": EVIL}},
    {"op": "broadcast", "msg": {"op": "plugin-add", "plugin": [{"deep": EVIL}]}},
    {"op": "proxy", "msg": {"op": "run", "args": EVIL}, "worker": "x"},
)
_OPENED_BY_WORKERS = (
    {"op": "run", "function": EVIL},
    {"op": "run_coroutine", "function": b"", "args": EVIL},
    {"op": "plugin-add", "plugin": EVIL, "name": "x"},
)
_CODE = (
    *in_forms(
        "a pickle that a handler opens",
        *("bob", "scheduler"),
        _OPENED,
        _OPENED_BY_HANDLERS,
        policy=WITHOUT_CODE,
    ),
    *in_forms(
        "a pickle that a worker opens",
        *("bob", "worker"),
        _OPENED,
        _OPENED_BY_WORKERS,
        policy=WITHOUT_CODE,
    ),
    # Where Dask's handler expects bytes, a payload would be judged as something else than is run.
    *in_forms(
        "a payload in the place of bytes",
        *("alice", "scheduler"),
        {"bytes eager-bytes opaque eager": "raw.payload"},
        [{"op": "run_function", "function": EVIL}],
    ),
    *in_forms(
        "a warning that is no text",
        *("bob", "scheduler"),
        {"bare": "context.family", _PAYLOADS: "raw.payload"},
        [
            {"op": "log_event", "topic": "warn", "msg": {"message": EVIL, "category": "x"}},
            {"op": "log_event", "topic": "warn", "msg": {"message": "x", "category": EVIL}},
        ],
    ),
)

_AUTHORS = rows(
    "a value by another author",
    *("alice", "scheduler", "author.relayed"),
    [
        {"op": "scatter", "data": {"x": PayloadRow(PICKLE, (b"",), author)}}
        for author in ("scheduler", "worker", "nobody", "any", "unknown")
    ],
)


def _shards(layers: int, form: str) -> Any:
    data = FORMS["bare"]
    for _ in range(layers - 1):
        data = pickle.dumps(data)
    if form == "bytes":
        return payload(data)
    if form == "bare":
        return data
    row = PayloadRow(PICKLE, (pickle.dumps(data),))
    return Eager(row) if form == "eager" else row


_SHARDS = tuple(
    Row(
        f"shards of {layers} layers: {form}",
        *("worker", "worker"),
        {"op": "shuffle_receive", "data": _shards(layers, form), "shuffle_id": "s", "run_id": 1},
        "context.family" if layers == 1 and form in ("bare", "bytes") else "raw.wrapped",
        "demo",
    )
    for layers in (1, 2, 3)
    for form in ("bare", "opaque", "eager", "bytes")
)

# --- relays --------------------------------------------------------------------------------------

_AUTHORITY: dict[str, dict[str, Any]] = {
    "run": {"function": b"", "wait": True},
    "upload_file": {"filename": "x.py", "data": b"x", "load": True},
    "plugin-add": {"plugin": b"", "name": "x"},
    "plugin-remove": {"name": "x"},
    "terminate": {"reason": "x"},
    "actor_execute": {"actor": "x", "function": "x"},
    "dump_state": {},
}
_FOR_WORKERS = (
    {"op": "update_data", "data": {"k": 1}},
    {"op": "gather", "who_has": {"k": [_HERE]}},
    {"op": "get_data", "keys": ["k"]},
    {"op": "free_keys", "keys": ["k"], "stimulus_id": "x"},
    {"op": "shuffle_receive", "shuffle_id": "x", "run_id": 1, "data": b""},
    {"op": "shuffle_inputs_done", "shuffle_id": "x", "run_id": 1},
)
_RELAYS = (
    *(
        row
        for rule, inner in {
            _UNKNOWN: ({"op": "no-such"},),
            "operation.missing": ({}, {"op": 5}),
            _SHAPE: ("x", None, 5),
        }.items()
        for row in _alice(
            f"a relay of no operation, {rule}",
            rule,
            [{"op": "broadcast", "msg": each} for each in inner],
        )
    ),
    *(
        row
        for op, more in _AUTHORITY.items()
        for row in rows(
            f"a relay of {op}, which its sender may not ask for",
            *("bob", "scheduler", _NOT_GRANTED),
            _relayed({"op": op, **more}),
            operation=op,
        )
    ),
    *_alice(
        "a relay of a relay or an element",
        _UNKNOWN,
        [
            said
            for op in ("broadcast", "proxy", "compute-task")
            for said in _relayed({"op": op, "msg": {"op": "identity"}})
        ],
    ),
    *(
        row
        for who in ("alice", "bob")
        for row in rows(
            f"a relay of {who}'s that brings values to workers in the scheduler's name",
            *(who, "scheduler", "operation.relayed"),
            [said for inner in _FOR_WORKERS for said in _relayed(inner)],
        )
    ),
)

# --- what is not granted, or not known -----------------------------------------------------------

#: Dask's operations that engineers may ask a scheduler for, or no principal may.
_GUESTS_MAY_NOT = (
    {"op": "run_function", "function": b""},
    {"op": "feed", "function": b"", "setup": b"", "teardown": b"", "interval": 1},
    {"op": "register_worker_plugin", "plugin": b"", "name": "x", "idempotent": True},
    {"op": "register_scheduler_plugin", "plugin": b"", "name": "x", "idempotent": True},
    {"op": "unregister_nanny_plugin", "name": "x"},
    {"op": "restart"},
    {"op": "retire_workers", "workers": []},
    {"op": "get_cluster_state", "exclude": []},
    {"op": "dump_cluster_state_to_url", "url": "file:///tmp/x"},
    {"op": "benchmark_hardware"},
    {"op": "set_resources", "worker": _HERE, "resources": {}},
    {"op": "unregister", "address": _HERE},
    {"op": "get_task_stream"},
    {"op": "echo", "data": 1},
    {"op": "connection_stream"},
    {"op": "register-worker", "address": "x", "reply": False},
)
_AUTHORITIES = (
    *_bob("a guest asks for authority", _NOT_GRANTED, _GUESTS_MAY_NOT),
    *_bob_to_worker(
        "a guest asks a worker for authority",
        _NOT_GRANTED,
        [{"op": op, **more} for op, more in _AUTHORITY.items()],
    ),
    *(
        Row(f"a guest asks for {op!r}", "bob", "scheduler", {"op": op}, rule, "demo")
        for op, rule in {
            "no-such-operation": _UNKNOWN,
            "update-graph": _UNKNOWN,
            "\x1b[2J": _UNKNOWN,
            "upload_file": _UNKNOWN,
            "OK": _UNKNOWN,
            5: "operation.missing",
            None: "operation.missing",
            ("identity",): "operation.missing",
        }.items()
    ),
    *_bob("no request", "operation.missing", [{}, "identity", None, {"operation": "x"}]),
    Row("no element", "bob", "scheduler", Raw((b"\x90",)), "operation.missing", "demo"),
    # A thief of a worker's key may be the one who listens where a scheduler was.
    *(
        row
        for who in ("alice", "bob")
        for row in rows(
            f"{who} takes a worker for the scheduler",
            *(who, "worker", _UNKNOWN),
            [
                {"op": op, "client": "Client-1", "reply": False, "msg": {"op": "identity"}}
                for op in ("register-client", "scatter", "queue_put", "broadcast")
            ],
        )
    ),
    # The values that a worker fetches, it takes for the results of the tasks of those names.
    *(
        row
        for policy in ("dask-cluster", "demo", "default")
        for row in rows(
            f"what a worker does for its scheduler, under {policy}",
            *("worker", "worker", _NOT_GRANTED),
            [
                {"op": "gather", "who_has": {"x": [_HERE]}},
                {"op": "free_keys", "keys": ["x"], "stimulus_id": "s"},
                {"op": "update_data", "data": {"x": 1}},
                {"op": "shuffle_inputs_done", "shuffle_id": "x", "run_id": 1},
            ],
            policy=policy,
        )
    ),
)


# --- one handler, two groups ---------------------------------------------------------------------


def _amm(method: Any) -> dict[str, Any]:
    return {"op": "amm_handler", "method": method}


_OTHERS = ("__init__", "policies", "", 5, None)
_AMM = (
    *_bob(
        "who has no control steers the memory manager",
        _NOT_GRANTED,
        map(_amm, ("stop", *_OTHERS, payload("stop"))),
    ),
    *_alice("another attribute of it", _SHAPE, map(_amm, (*_OTHERS, payload("__init__")))),
    *_alice("who has steers it", None, map(_amm, ("stop", payload("stop")))),
    Row("bob asks it to running", "bob", "scheduler", _amm("running"), None, "demo"),
)

# --- requests that are safeser's own -------------------------------------------------------------

_COUNTS = {"op": "serialization_counts", "trace": "a", "seconds": 60, "reply": True}
_OWN = (
    *(
        Row(f"{who} has a {at} counted", who, at, _COUNTS, _NOT_GRANTED, "demo")
        for who, at in (("bob", "scheduler"), ("alice", "worker"), ("worker", "worker"))
    ),
    Row(
        "a relay has workers counted",
        "bob",
        "scheduler",
        {"op": "broadcast", "msg": _COUNTS},
        _NOT_GRANTED,
        "demo",
        operation="serialization_counts",
    ),
    *_alice(
        "counts of another shape",
        _SHAPE,
        [
            {**_COUNTS, **changed}
            for changed in (
                *({"trace": trace} for trace in (5, "x" * 1001, "\x1b[2J")),
                *({"seconds": each} for each in (float("nan"), "60", 1 << 60)),
            )
        ],
    ),
    *_alice(
        "counts of nothing",
        "operation.field-missing",
        [{n: v for n, v in _COUNTS.items() if n != lost} for lost in ("trace", "seconds")],
    ),
)

# --- shapes of messages --------------------------------------------------------------------------

_BAD = {"__Enum__": True, "name": "x"}
_MALFORMED = (
    *(
        Row(
            f"a marker in {operation or number}",
            "bob",
            "scheduler",
            said,
            "marker.enum",
            "demo",
            operation=operation,
        )
        for number, (said, operation) in enumerate(
            (
                ({"op": "identity", "note": _BAD}, "identity"),
                ({"note": _BAD, "op": "no-such-operation"}, ""),
                ({**{str(n): _BAD for n in range(64)}, "op": "who_has"}, "who_has"),
                (_BAD, ""),
            )
        )
    ),
    *(
        Row(f"bytes {number}", "bob", "scheduler", Raw(frames), rule, "demo")
        for number, (frames, rule) in enumerate(
            (
                ((b"",), "payload.msgpack"),
                ((b"\xc1",), "payload.msgpack"),
                ((msgpack.packb({"__Pickled__": 1}),), "marker.pickled"),
            )
        )
    ),
    Row("all workers", "bob", "scheduler", {"op": "identity", "n_workers": "all"}, _SHAPE, "demo"),
    *_bob(
        "a stray field",
        _FIELD,
        [
            {"op": "gather", "keys": ["x"], "note": 1},
            {"op": "gather", "who_has": {"x": ["tcp://127.0.0.1:1"]}},
        ],
    ),
)

# --- what a scheduler keeps ----------------------------------------------------------------------

#: One guest's event, or one worker's report, that nobody can open would end answers for everybody.
_POISON = {
    "unsent": PayloadRow({"serializer": "msgpack"}, (b"\xa1x",), None, True),
    "unknown": PayloadRow(
        {"serializer": "dask", "type": "shop.things:Thing", "sub-header": {}}, (b"x",)
    ),
    "another's": PayloadRow({"serializer": "msgpack"}, (b"\xa1x",), "alice", True),
}


def _kept(poison: PayloadRow) -> list[tuple[str, Any]]:
    beats, registers = {"op": "heartbeat_worker"}, {"op": "register-worker", "address": _HERE}
    metrics = {"metrics": {**METRICS, "x": poison}}
    return [
        ("worker", {**beats, **metrics}),
        ("worker", {**beats, "host_info": {"x": poison}, "metrics": METRICS}),
        ("worker", {**registers, **metrics}),
        ("worker", {**registers, "versions": {"x": poison}}),
        ("worker", {**registers, "extra": {"x": poison}}),
        ("worker", [{"op": "log-event", "topic": "x", "msg": {"x": poison}, "worker": _HERE}]),
        ("bob", {"op": "log_event", "topic": "x", "msg": poison}),
        ("bob", {"op": "set_metadata", "keys": ["x"], "value": poison}),
        ("bob", {"op": "register-client", "client": "Client-1", "versions": {"x": poison}}),
    ]


_KEPT = tuple(
    Row(f"what is kept ({number}) is {name}", sender, "scheduler", said, rule, "demo")
    for name, poison in _POISON.items()
    for rule in ("families.type" if name == "unknown" else "peer.unsent",)
    for number, (sender, said) in enumerate(_kept(poison))
)

#: A process that passes a value on checks the shape of its header and frames.
_COUNT = "families.frame-count"
_THING = {"serializer": "dask", "type": "shop.things:Thing", "sub-header": {}}
_PASSED_ON = tuple(
    Row(
        f"a value to pass on ({number})",
        "alice",
        "scheduler",
        {"op": "scatter", "data": {"x": PayloadRow(header, frames)}},
        rule,
        "demo",
    )
    for number, (header, frames, rule) in enumerate(
        (
            ({**_THING, "type": "a\nb"}, (b"x",), "families.header"),
            ({**_THING, "type-serialized": b"x"}, (b"x",), "families.type-serialized"),
            ({**_THING, "sub-headers": [_THING], "frame-lengths": [2]}, (b"x",), _COUNT),
            ({"serializer": "msgpack"}, (b"\xc1",), "families.msgpack"),
            ({"serializer": "parcels", "sub-header": {}}, (b"x",), "families.serializer"),
        )
    )
)

_INSIDE = {**_THING, "sub-headers": [PICKLE], "frame-lengths": [1]}
_MORE = (
    Row(
        "a pickle in a value to pass on",
        *("bob", "scheduler", {"op": "scatter", "data": {"x": PayloadRow(_INSIDE, (BYTES,))}}),
        *("context.family", "demo"),
    ),
    Row(
        "a value of no class to a worker",
        *("scheduler", "worker", {"op": "update_data", "data": {"x": PayloadRow(_THING, (b"x",))}}),
        *("families.type", "demo"),
    ),
)

ROWS: tuple[Row, ...] = (
    *_IN_FIELDS,
    *_CODE,
    *_AUTHORS,
    *_SHARDS,
    *_RELAYS,
    *_AUTHORITIES,
    *_AMM,
    *_OWN,
    *_MALFORMED,
    *_KEPT,
    *_PASSED_ON,
    *_MORE,
)
