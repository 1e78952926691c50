"""Attacks by elements of a stream, up from clients and workers, and down from a scheduler.

The one rule: an element that is refused fails alone. Where somebody waits for it, Dask reads one in
its place, which says why.
"""

from __future__ import annotations

from typing import Any

from safeser.dask.wire.codec import PayloadRow
from tests.dask.attacks.rows import (
    ALL,
    EVIL,
    FORMS,
    WITHOUT_CODE,
    Raw,
    Row,
    by,
    in_forms,
    payload,
    rows,
)
from tests.dask.forged import Eager

__all__ = ["ROWS"]

_alice = by("alice")
_bob = by("bob")
_to_bob = by("scheduler", "bob")
_worker = by("worker")

_HERE, _ELSEWHERE = "safeser://127.0.0.1:1", "safeser://127.0.0.1:2"
_PAYLOADS = "opaque eager cloudpickle failed author"
_BYTES = "bare bytes eager-bytes"
_EVERY = " ".join(ALL)

# --- what is another's to say --------------------------------------------------------------------

_FINISHED = {"op": "task-finished", "key": "x", "type": "int"}
_OF_WORKERS = (
    {"op": "task-finished", "key": "x", "worker": "w", "type": b"x"},
    {"op": "add-keys", "keys": ["x"]},
    {"op": "log-event", "topic": "warn", "msg": {}},
    {"op": "compute-task", "key": "x"},
    {"op": "key-in-memory", "key": "x"},
    {"op": "register-worker"},
    {"op": "identity"},
)
_OF_CLIENTS = (
    {"op": "update-graph", "keys": ["x"]},
    {"op": "cancel-keys", "keys": ["x"]},
)
_OTHERS = (
    *_alice(
        "alice says what only workers say", "operation.unknown", [[each] for each in _OF_WORKERS]
    ),
    *_bob("bob says it", "operation.unknown", [[_OF_WORKERS[0]]]),
    *_worker(
        "a worker says what only clients say", "operation.unknown", [[each] for each in _OF_CLIENTS]
    ),
    *_alice("an element of no name", "operation.missing", [[{"op": 5}], [5], [{"no": "op"}]]),
    *_alice(
        "an element with a marker",
        "marker.enum",
        [[{"op": "heartbeat-client", "note": {"__Enum__": True, "name": "x"}}]],
    ),
    Row(
        "a worker reports what it is not granted",
        *("worker", "scheduler", [_FINISHED], "operation.not-granted"),
        WITHOUT_CODE.replace("{grant: [basic, cluster]}", "{grant: [register-worker]}"),
    ),
    *_worker(
        "a stray pickle in an element",
        "operation.unknown-field",
        [[{"op": "keep-alive", "traceback": FORMS["opaque"]}]],
    ),
)

# --- whose name it is ----------------------------------------------------------------------------

_FORGOTTEN = {"op": "client-desires-keys", "keys": ["x"], "client": "fire-and-forget"}
_RELEASES = {"op": "client-releases-keys", "keys": ("k",)}


def _as_payload(name: str) -> list[Any]:
    return [Eager(payload(name)), payload(name), (name,), None, 5]


_REGISTERS = {"op": "register-worker", "reply": False, "address": _HERE}
_JOINS = {"op": "register-client", "reply": False, "versions": {}}
_NAMES = (
    *_bob(
        "a client speaks for another",
        "stream.identity",
        [
            *([{**_RELEASES, "client": each}] for each in ("Client-2", *_as_payload("Client-1"))),
            [{"op": "heartbeat-client", "client": "Client-2"}],
            [_FORGOTTEN],
        ],
    ),
    *_alice(
        "who submits fires and does not forget",
        "stream.identity",
        [[{**_FORGOTTEN, "op": "client-releases-keys"}]],
    ),
    *_alice("who submits may forget", None, [[_FORGOTTEN]]),
    *_worker(
        "a worker speaks for another",
        "stream.identity",
        [
            *([{**_FINISHED, "type": each, "worker": _ELSEWHERE}] for each in ("int", b"x")),
            [{"op": "task-erred", "key": "x", "exception": None, "worker": _ELSEWHERE}],
            *(
                [{"op": "add-keys", "keys": ("k",), "worker": each}]
                for each in (_ELSEWHERE, *_as_payload(_HERE))
            ),
        ],
    ),
    # A reference equals every other reference to the same row, whatever is in the row.
    *_bob(
        "a client registers by no plain name",
        "stream.identity",
        [_JOINS, *({**_JOINS, "client": each} for each in _as_payload("Client-1"))],
    ),
    *_worker(
        "a worker registers at no plain address",
        "stream.identity",
        [
            {"op": "register-worker", "reply": False},
            *({**_REGISTERS, "address": each} for each in _as_payload(_HERE)),
        ],
    ),
    # Leaving would release what others published, and take what all tasks need from the scheduler.
    *(
        row
        for client in ("fire-and-forget", "queue-q", "variable-v", "published-d")
        for row in rows(
            f"a client is called {client}",
            *("bob", "scheduler", "stream.client-id"),
            [
                {**_JOINS, "client": client},
                {"op": "queue_put", "name": "q", "data": 1, "client": client},
            ],
        )
    ),
    # Dask's scheduler takes an address for a worker's name before it takes it for an address.
    *_worker(
        "a worker is called like another one's address",
        "stream.name",
        [
            {**_REGISTERS, "name": name}
            for name in (
                *(_ELSEWHERE, "tcp://node:2", "127.0.0.1:2", "localhost:2", "127.0.0.1"),
                *("::1", "[::1]:2", "fe80::1%eth0"),
            )
        ],
    ),
    *_worker(
        "a worker has a name of its own",
        None,
        [{**_REGISTERS, "name": each} for each in (_HERE, "first", "cluster-1:0", 5, "5", "")],
    ),
)

# --- pickles up ----------------------------------------------------------------------------------

_GRAPH = {"op": "update-graph", "expr_ser": EVIL, "keys": ["x"]}
_WARNING = {"message": "careful", "category": "builtins:UserWarning"}
_WARNINGS = ({**_WARNING, "message": EVIL}, {**_WARNING, "category": EVIL})
_FAILED = {"op": "task-erred", "key": "x", "exception": None, "traceback": None}
_UNSENT = PayloadRow({"serializer": "msgpack"}, (b"\xa1x",), "alice", True)
_REPORT = {
    **{"op": "task-finished", "key": "x", "stimulus_id": "s", "run_id": 1, "nbytes": 1},
    **{"typename": "int", "startstops": (), "status": "OK", "thread": 1},
}
_UP = (
    *in_forms("a graph", "bob", "scheduler", {_EVERY: "submission.none"}, [[_GRAPH]]),
    *_bob(
        "a graph without keys",
        "submission.none",
        [[{"op": "update-graph", "keys": keys}] for keys in (None, 5, "xy", {"x": 1}, [])],
    ),
    *in_forms(
        "a graph that is no pickle",
        *("alice", "scheduler"),
        {"bytes failed eager-bytes": "submission.none"},
        [[_GRAPH]],
    ),
    *in_forms(
        "a type from a worker",
        *("worker", "scheduler"),
        {_BYTES: "raw.type", _PAYLOADS: "operation.field"},
        [[{"op": "task-finished", "key": "x", "type": EVIL, "nbytes": 8}]],
        leaves=("task-finished",),
    ),
    *in_forms(
        "an error from a worker",
        *("worker", "scheduler"),
        {"bare eager-bytes": "raw.exception"},
        [[{**_FAILED, "exception": EVIL}]],
        leaves=("task-erred",),
    ),
    *in_forms(
        "an error from a worker in a pickle",
        *("worker", "scheduler"),
        {_PAYLOADS: "operation.field"},
        [[{**_FAILED, "exception": EVIL}]],
    ),
    *_worker(
        "a traceback from a worker",
        "raw.traceback",
        [[{**_FAILED, "traceback": b"x"}]],
        leaves=("task-erred",),
    ),
    *_worker(
        "what is known of a task",
        "peer.unsent",
        [[{**_REPORT, "metadata": {"x": _UNSENT}}]],
        leaves=("task-erred",),
    ),
    *(
        Row(f"no batch up {number}", "bob", "scheduler", Raw((body,), listed=True), rule, "demo")
        for number, (body, rule) in enumerate(
            ((b"\xc1", "payload.msgpack"), (b"", "payload.msgpack"))
        )
    ),
    *in_forms(
        "a warning from a worker",
        *("worker", "scheduler"),
        {"bare": "context.family", f"bytes eager-bytes {_PAYLOADS}": "raw.payload"},
        [[{"op": "log-event", "topic": "warn", "msg": each}] for each in _WARNINGS],
    ),
)

# --- down ----------------------------------------------------------------------------------------

_TOLD = {"op": "event", "topic": "warn"}
_NEXT = {"op": "key-in-memory", "key": "y", "type": None}
_ERRED = {"op": "task-erred", "key": "x", "exception": EVIL, "traceback": b"x"}
_LOST = {"op": "lost-data", "key": "x", "status": "error", "traceback": None, "exception": EVIL}
_TASK = {"op": "compute-task", "key": "x", "run_spec": EVIL, "who_has": {"k": ["w"]}}
_DOWN = (
    *in_forms(
        "a warning to a client",
        *("scheduler", "bob"),
        {"bare": "context.none", f"bytes eager-bytes {_PAYLOADS}": "raw.payload"},
        [[{**_TOLD, "event": [1.0, each]}] for each in _WARNINGS],
    ),
    *_to_bob(
        "no warning",
        "raw.warn",
        [
            [{**_TOLD, "event": each}]
            for each in (None, 5, [1], [1, 2], [1, {"message": 5}], [1, {}], {"message": "x"})
        ],
    ),
    *in_forms(
        "a type to a client",
        *("scheduler", "bob"),
        {_BYTES: "raw.type", _PAYLOADS: "operation.field"},
        [[{"op": "key-in-memory", "key": "x", "type": EVIL}]],
        leaves=("key-in-memory",),
    ),
    *in_forms(
        "an error to a client",
        *("scheduler", "bob"),
        {_BYTES: "raw.exception raw.traceback", _PAYLOADS: "operation.field"},
        [[_ERRED, _NEXT]],
        leaves=("task-erred", "key-in-memory"),
    ),
    *(
        Row(f"no batch down {number}", "scheduler", "alice", Raw(frames, listed=True), rule, "demo")
        for number, (frames, rule) in enumerate(
            (
                ((b"\x93\x80",), "payload.msgpack"),
                ((b"\x91" * 3000,), "payload.msgpack"),
                ((b"\x92\xc7\x04\x01\0\0\0\0\xc7\x04\x01\0\0\0\0",), "payload.table"),
                ((), "payload.empty"),
            )
        )
    ),
    *in_forms(
        "a status to a client", "scheduler", "bob", {_EVERY: "operation.unknown-field"}, [[_LOST]]
    ),
    *in_forms(
        "a status and no name",
        *("scheduler", "bob"),
        {_EVERY: "operation.missing"},
        [[{"status": "error", "exception": EVIL}]],
    ),
    *in_forms(
        "a task to a worker that takes no code",
        *("scheduler", "worker"),
        {_PAYLOADS: "context.family"},
        [[_TASK, {"op": "free-keys", "keys": ["z"]}]],
        policy=WITHOUT_CODE,
        leaves=("compute-task", "free-keys"),
    ),
    *(
        row
        for key, rule in ((None, "operation.field-shape"), (1.5, "context.family"))
        for row in in_forms(
            f"a task whose key is {key}",
            *("scheduler", "worker"),
            {"opaque": rule},
            [[{**_TASK, "key": key}]],
            policy=WITHOUT_CODE,
        )
    ),
)

ROWS: tuple[Row, ...] = (*_OTHERS, *_NAMES, *_UP, *_DOWN)
