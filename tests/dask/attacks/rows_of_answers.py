"""Attacks by answers: to a client, a scheduler or a worker that asked for something honest.

The one rule: nothing in an answer is unpickled but values that were asked for, errors least of all.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from safeser.dask.wire.codec import PayloadRow
from tests.dask.attacks.rows import EVIL, FORMS, PICKLE, WITHOUT_CODE, Row, by, in_forms, payload

__all__ = ["ROWS"]

_to_alice = by("scheduler", "alice")
_to_client = by("scheduler", "client")

_FAMILY = "context.family"
_PAYLOADS = "opaque eager cloudpickle failed author"
_BYTES = "bare bytes eager-bytes"
#: Bytes are no error, and a client of this policy takes no pickle.
_ERRORS = {_BYTES: "raw.exception", _PAYLOADS: _FAMILY}

_IDENTITY = {"op": "identity"}
_GATHER = {"op": "gather", "keys": ["x"]}
_FAILED = {"status": "uncaught-error", "exception": None, "traceback": None}

_INSTANCE = {"serializer": "dask", "sub-header": {"plain": b"\x80"}}

# --- pickles -------------------------------------------------------------------------------------

_CODE = pickle.dumps(len)
_ERROR = {
    "status": "error",
    "type": "Future",
    "state": "erred",
    "exception": EVIL,
    "traceback": None,
}
_PLUGIN = {"plugin": pickle.dumps(1), "name": "x"}
#: Places of an error inside an answer, and what is asked.
_INSIDE: tuple[tuple[dict[str, Any], Any], ...] = (
    ({"op": "register_worker_plugin", **_PLUGIN}, {"w": _ERROR}),
    ({"op": "register_nanny_plugin", **_PLUGIN}, {"w": _ERROR}),
    ({"op": "unregister_worker_plugin", "name": "x"}, {"w": _ERROR}),
    ({"op": "variable_get", "name": "x"}, _ERROR),
    ({"op": "queue_get", "name": "x"}, _ERROR),
    ({"op": "queue_get", "name": "x"}, [_ERROR]),
    ({"op": "broadcast", "msg": _IDENTITY}, {"w": _ERROR}),
    ({"op": "run_function", "function": _CODE}, {**_FAILED, "exception": EVIL}),
    ({"op": "proxy", "msg": _IDENTITY, "worker": "x"}, _ERROR),
)
_PICKLES = (
    *in_forms(
        "an exception",
        *("scheduler", "alice"),
        _ERRORS,
        [{**_FAILED, "exception": EVIL}],
        asked=_IDENTITY,
    ),
    *in_forms(
        "a traceback",
        *("scheduler", "alice"),
        {
            _BYTES: "raw.traceback raw.exception",
            "opaque eager cloudpickle author": f"{_FAMILY} raw.exception",
            "failed": "raw.exception",
        },
        [{**_FAILED, "traceback": EVIL}],
        asked=_IDENTITY,
    ),
    *in_forms(
        "a pickle for a client",
        *("scheduler", "alice"),
        {"opaque eager cloudpickle": _FAMILY},
        [EVIL, {"x": EVIL}, [[EVIL]]],
        asked=_IDENTITY,
    ),
    *(
        row
        for number, (asked, said) in enumerate(_INSIDE)
        for row in in_forms(
            f"an error inside an answer, {number}",
            *("scheduler", "alice"),
            _ERRORS,
            [said],
            asked=asked,
        )
    ),
    # Bytes in the place of one worker's answer become an error that is made here.
    *in_forms(
        "all that a worker answered",
        *("scheduler", "alice"),
        {_PAYLOADS: _FAMILY},
        [{"w": EVIL}],
        asked={"op": "broadcast", "msg": _IDENTITY},
    ),
    *_to_alice(
        "bytes that a worker answered",
        None,
        [{"w": FORMS[form]} for form in _BYTES.split()],
        asked={"op": "broadcast", "msg": _IDENTITY},
    ),
    *in_forms(
        "a type",
        *("scheduler", "alice"),
        {"bare": "context.none", "bytes eager-bytes eager": "raw.payload"},
        [[{"key": "x", "type": EVIL}]],
        asked={"op": "get_task_stream", "start": None},
    ),
    *in_forms(
        "a worker's answer to its scheduler",
        *("worker", "scheduler"),
        {"opaque eager cloudpickle failed": _FAMILY, "author": "author.relayed"},
        [{"id": EVIL}],
        asked=_IDENTITY,
    ),
    *in_forms(
        "a plugin of who may send no code",
        *("scheduler", "worker"),
        {"bare": _FAMILY, f"bytes eager-bytes {_PAYLOADS}": "raw.payload"},
        [{"status": "OK", "nanny-plugins": {"x": EVIL}}],
        policy=WITHOUT_CODE,
        asked={"op": "register_nanny", "address": "x"},
    ),
    *_to_alice(
        "a pickle by whoever its author is",
        _FAMILY,
        [
            {"data": {"x": PayloadRow(PICKLE, FORMS["opaque"].frames, author)}}
            for author in ("scheduler", "alice", "worker", "nobody", "any", "unknown")
        ],
        asked=_GATHER,
    ),
    # Policy lets the scheduler send it any pickle, as a value.
    Row(
        "a pickle where an answer has no values",
        *("scheduler", "worker", {"x": FORMS["opaque"]}, "operation.field", "demo"),
        asked={"op": "who_has", "keys": ["x"]},
    ),
)

# --- forms ---------------------------------------------------------------------------------------

#: Six to the power of eleven elements of one byte, all of which NumPy prints.
_LONG = payload(np.broadcast_to(np.array(1, "i1"), (6,) * 11))
#: What is told of a cluster can be printed.
_PRINTED: tuple[tuple[dict[str, Any], Any], ...] = (
    ({"op": "worker_logs"}, {"w": (("INFO", _LONG),)}),
    (
        {"op": "broadcast", "msg": {"op": "run", "function": _CODE}},
        {"w": {"status": _LONG, "result": 1}},
    ),
    ({"op": "register_worker_plugin", **_PLUGIN}, {"w": {"status": _LONG}}),
)
#: What is told honestly, some of it by numbers of NumPy, and what users put in is theirs.
_TOLD: tuple[tuple[dict[str, Any], Any], ...] = (
    (_IDENTITY, {"id": "s", "services": {"dashboard": 8787}, "workers": {"w": {"nthreads": 1}}}),
    (_IDENTITY, {"workers": {"w": {"metrics": {"own": payload(np.float32(2))}}}}),
    ({"op": "get_metadata", "keys": ["x"]}, {"x": _LONG}),
    ({"op": "broadcast", "msg": {"op": "run", "function": _CODE}}, {"w": {"result": _LONG}}),
    (
        {"op": "get_cluster_state", "exclude": ()},
        {"workers": {"a": {"id": "x"}, "b": "OSError()"}, "versions": {}},
    ),
)
_FORM = (
    *(
        Row(f"a long array, {number}", "scheduler", "client", said, "reply.form", "trusted", asked)
        for number, (asked, said) in enumerate(_PRINTED)
    ),
    *(
        Row(f"an honest answer, {number}", "scheduler", "client", said, None, "trusted", asked)
        for number, (asked, said) in enumerate(_TOLD)
    ),
    *_to_client(
        "no state of a cluster",
        "reply.form",
        [{"workers": []}, [], "x"],
        policy="trusted",
        asked={"op": "get_cluster_state", "exclude": ()},
    ),
    *(
        Row(f"a stray field from a {who}", who, "alice", said, "reply.field", "demo", asked)
        for who, asked in (("worker", {"op": "get_data", "keys": ["x"]}), ("scheduler", _GATHER))
        for said in ({"status": "OK", "data": {}, "stray": 1},)
    ),
    *_to_alice(
        "a marker in an answer",
        "marker.enum",
        [{"x": {"__Enum__": True}}],
        asked={"op": "who_has", "keys": []},
    ),
)

#: Classes that are loaded here and not of the client's program, and names that lead elsewhere.
_OF_OTHERS = (
    *("distributed.client:Future", "safeser.gate.values:Grant", "builtins:object", "os:_Environ"),
    *("__main__:sys.modules", "__mp_main__:P", "tests.dask.attacks.rows:Row", "tests:dask.Row"),
)
_CLASSES = tuple(
    Row(
        f"an instance of {name} by {author}",
        *(sender, "client"),
        {"data": {"x": PayloadRow({**_INSTANCE, "type": name}, (), author)}},
        *("families.type", "default", _GATHER),
    )
    for name in _OF_OTHERS
    for sender, author in (("scheduler", "worker"), ("scheduler", "nobody"))
)

ROWS: tuple[Row, ...] = (*_PICKLES, *_FORM, *_CLASSES)
