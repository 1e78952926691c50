"""The attacks of the demo, as its own programs write them.

The one rule: each message of the demo is a row here, with the rule that the demo's table shows.
"""

from __future__ import annotations

from typing import Any

from examples.demo.messages import BUILDERS, evil, payload
from examples.demo.rogue import _frames
from safeser.dask.wire.codec import PayloadRow
from tests.dask.attacks.rows import MARKER, PICKLE, Raw, Row
from tests.dask.forged import Eager
from tests.dask.live.wires import Stock

__all__ = ["ROWS"]

_NOT_GRANTED, _TYPE = "operation.not-granted", "families.type-serialized"

#: Of each message of bob's: its recipient, the operation that the record names, and the rule.
_BOB: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "pickled": ("scheduler", "identity", ("operation.unknown-field", "marker.pickled")),
    "type-serialized": ("worker", "update_data", (_TYPE,)),
    "object-array": ("worker", "update_data", (_TYPE, _NOT_GRANTED)),
    "run": ("worker", "run", (_NOT_GRANTED,)),
    "run-function": ("scheduler", "run_function", (_NOT_GRANTED,)),
    "upload-file": ("worker", "upload_file", (_NOT_GRANTED,)),
    "enum": ("scheduler", "echo", ("marker.enum",)),
    "update-graph": ("scheduler", "update-graph", ("submission.none",)),
}


def _says(name: str) -> list[Any]:
    """Return the messages of an attack of bob's, without one that registers before it."""
    said = BUILDERS[name]([MARKER, MARKER], "secret")
    return [[each] for each in said[1:]] if said[0]["op"] == "register-client" else said


def _raw(message: Any) -> Raw:
    return Raw(tuple(map(bytes, _frames(message))), listed=isinstance(message, list))


_EVIL = evil(MARKER)
_FAILED = {"status": "uncaught-error", "exception": _EVIL, "traceback": None}
_FAILED = {**_FAILED, "exception_text": "an error", "traceback_text": ""}
_ASKED = {"op": "get_data", "keys": ["x"], "who": None}

ROWS: tuple[Row, ...] = (
    Row(
        *("stranger-scheduler", "unknown", "scheduler", Stock.encoded({"note": payload(MARKER)})),
        *("authentication", "demo"),
    ),
    Row(
        *("stranger-worker", "unknown", "worker", Stock.encoded({"note": payload(MARKER)})),
        *("authentication", "demo"),
    ),
    Row("impostor", "unknown", "scheduler", None, "authentication.key", "demo", operation=""),
    *(
        Row(f"{name}-{form}", "bob", recipient, _raw(said), rule, "demo", operation=operation)
        for name, (recipient, operation, rules) in _BOB.items()
        for form, (said, rule) in enumerate(zip(_says(name), rules, strict=True))
    ),
    *(
        Row(
            f"error-reply-{form}",
            "worker",
            "scheduler",
            {**_FAILED, "exception": said},
            rule,
            "demo",
            _ASKED,
        )
        for form, (said, rule) in enumerate(
            ((_EVIL, "raw.exception"), (Eager(PayloadRow(PICKLE, (_EVIL,))), "context.family"))
        )
    ),
    Row(
        "warn-event",
        *("worker", "scheduler"),
        [{"op": "log-event", "topic": "warn", "msg": {"message": _EVIL, "category": _EVIL}}],
        *("context.family", "demo"),
    ),
    Row(
        "result-type",
        *("worker", "scheduler"),
        [{"op": "task-finished", "key": "x", "type": _EVIL}],
        *("raw.type", "demo"),
        leaves=("task-finished",),
    ),
)
