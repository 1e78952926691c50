"""The log of an afternoon under policy ``observe``: what one user's cluster says to itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safeser.audit import AuditKey, AuditLog

NOON = 1_790_000_000

#: Messages with a payload or authority: sender, recipient, kind, operation, family, author, times,
#: and the rule by which the contexts of policy observe refuse them.
ADMITTED = (
    ("client", "scheduler", "task", "update-graph", "cloudpickle", "client", 12, ""),
    ("client", "scheduler", "control", "run", "cloudpickle", "client", 1, ""),
    ("scheduler", "worker", "task", "compute-task", "cloudpickle", "scheduler", 340, ""),
    ("worker", "scheduler", "control", "register-worker", "pickle", "worker", 2, ""),
    ("worker", "scheduler", "task", "task-finished", "pickle", "worker", 340, ""),
    ("worker", "worker", "data", "", "dask", "worker", 95, ""),
    ("worker", "worker", "data", "", "cloudpickle", "worker", 7, "context.family"),
    ("worker", "client", "data", "", "dask", "worker", 12, ""),
    ("worker", "client", "data", "", "pickle", "worker", 2, "context.family"),
)

#: Plain messages: sender, recipient, operation, times.
COUNTED = (
    ("client", "scheduler", "register-client", 1),
    ("client", "scheduler", "heartbeat-client", 60),
    ("client", "scheduler", "gather", 12),
    ("client", "scheduler", "client-releases-keys", 12),
    ("client", "worker", "get_data", 14),
    ("worker", "scheduler", "heartbeat_worker", 600),
    ("worker", "scheduler", "add-keys", 7),
    ("worker", "scheduler", "task-erred", 1),
    ("worker", "worker", "get_data", 102),
    ("scheduler", "worker", "free-keys", 80),
    ("scheduler", "client", "key-in-memory", 352),
    ("scheduler", "client", "stream-start", 1),
)

#: The fields of payloads by operation; a reply holds values under the keys of their tasks.
_FIELDS = {
    "": "data.load-7f3a9c",
    "update-graph": "expr_ser",
    "run": "function",
    "compute-task": "run_spec",
    "register-worker": "extra",
    "task-finished": "type",
}


def write(folder: Path) -> None:
    """Write the log of one process that received all of it."""
    now = [NOON * 10**9]

    def clock() -> int:
        now[0] += 10**9
        return now[0]

    key = AuditKey.new()
    with AuditLog.open(folder, key=key, principal="scheduler", clock=clock) as log:
        for sender, recipient, kind, operation, family, author, times, shadow in ADMITTED:
            event: dict[str, Any] = {
                **{"event": "admit", "sender": sender, "recipient": recipient, "kind": kind},
                **{"operation": operation, "family": family, "author": author},
                **{"where": _FIELDS[operation]},
                **{"bytes": 100, "rule": "permit", "permitted": True},
            }
            if shadow:
                event["shadow_rule"] = shadow
            log.record_all([event] * times)
        for sender, recipient, operation, times in COUNTED:
            log.count(sender, recipient, operation, "permit", True, times=times)
