"""The logs of some hours of a cluster under policy ``demo``, for the page of operators' questions.

Alice runs tasks, and shows up once more with a newer policy file; Bob looks and is refused; a
stranger connects with a key of its own. The records have the fields that such a cluster writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safeser.audit import AuditKey, AuditLog, SessionFacts
from safeser.identities import make_identities
from safeser.policy import Policy

__all__ = ["TASKS", "write"]

#: Keys of the tasks that Alice submits.
TASKS = tuple(f"inc-{number:032x}" for number in range(0xA1B2C3, 0xA1B2C3 + 60))

#: The fields in which these operations carry code.
_FIELDS = {"update-graph": "expr_ser", "compute-task": "run_spec", "run_function": "function"}

_PEERS = {name: f"{name[:4]:x<4}-c4rd-rzav-6hig" for name in ("alice", "bob", "scheduler")}
_PEERS["worker"] = "work-c4rd-rzav-6hig"


def write(folder: Path) -> None:
    """Write keys and logs into *folder*, dated now."""
    make_identities(folder / "keys", ("scheduler", "worker", "nanny", "alice", "bob"))
    (folder / "keys" / "audit.key").rename(folder / "audit.key")
    with _log(folder, "scheduler") as log:
        log.record_all([_code("alice", "scheduler", "update-graph", "task") for _ in range(4)])
        log.record_all([_code("alice", "scheduler", "run_function", "control") for _ in range(2)])
        log.record(_refused("bob", "scheduler", "restart", "operation.not-granted", "control"))
        log.record(
            {
                **_refused("unknown", "scheduler", "handshake", "authentication.key", "admin"),
                **{"address": "127.0.0.1:42164", "key": "zjyx-c4rd-rzav-6hig"},
            }
        )
        log.record_all([_drift("alice", "scheduler", 2) for _ in range(2)])
        log.count("alice", "scheduler", "heartbeat-client", "permit", True, times=20)
        log.count("bob", "scheduler", "register-client", "permit", True)
    with _log(folder, "worker") as log:
        log.record_all([_task(key) for key in TASKS])
        log.record_all([_shard() for _ in range(12)])
    for _ in range(4):
        with _log(folder, "worker"):
            pass
    with _log(folder, "alice", revision=2) as log:
        log.record_all([_drift("scheduler", "alice", 1) for _ in range(2)])
    with _log(folder, "bob") as log:
        log.record(_refused("bob", "unknown", "update-graph", "submission.none", "task"))


@contextlib.contextmanager
def _log(folder: Path, principal: str, revision: int = 1) -> Iterator[AuditLog]:
    policy = Policy.load("demo")
    stated = (policy.name, revision, policy.sha256)
    key = AuditKey.load(folder / "audit.key")
    with AuditLog.open(folder / "audit", key=key, principal=principal, policy=stated) as log:
        yield log


def _session(peer: str) -> SessionFacts:
    facts = {"peer": peer, "address": "127.0.0.1:35964", "key": _PEERS[peer]}
    return SessionFacts("ec7c1038490b", {**facts, "suite": "encrypt"})


def _said(sender: str, recipient: str, operation: str, kind: str, **more: Any) -> dict[str, Any]:
    return {
        **{"sender": sender, "recipient": recipient, "operation": operation, "kind": kind},
        **more,
    }


def _code(sender: str, recipient: str, operation: str, kind: str) -> dict[str, Any]:
    return {
        **_said(sender, recipient, operation, kind, family="cloudpickle", author=sender),
        **{"event": "admit", "permitted": True, "rule": "permit", "bytes": 807},
        **{"context": "engineers-submit-code", "where": _FIELDS[operation], "message": 4},
        **{"digest": "e773b372b2d029fa9b46ea7d", "session": _session(sender)},
    }


def _task(key: str) -> dict[str, Any]:
    return {
        **_code("scheduler", "worker", "compute-task", "task"),
        **{"context": "scheduler-directs", "where": "run_spec", "task": key},
        **{"task_author": "alice", "digest": "24eedcd977184c3857ee6279"},
    }


def _shard() -> dict[str, Any]:
    return {
        **_said("worker", "worker", "shuffle_receive", "data", family="pickle", author="worker"),
        **{"event": "admit", "permitted": True, "rule": "permit", "bytes": 4096},
        **{"context": "workers-exchange", "where": "data", "session": _session("worker")},
    }


def _refused(sender: str, recipient: str, operation: str, rule: str, kind: str) -> dict[str, Any]:
    said = _said(sender, recipient, operation, kind, event="refuse", permitted=False, rule=rule)
    # What a process refuses before there is a session has none.
    proven = recipient == "scheduler" and sender in _PEERS
    return {**said, "session": _session(sender)} if proven else said


def _drift(sender: str, recipient: str, revision: int) -> dict[str, Any]:
    return {
        **_said(sender, recipient, "", "admin", event="drift", permitted=True),
        **{"rule": "policy.drift", "peer_policy": "demo", "peer_revision": revision},
        **{"peer_sha256": "0" * 64, "session": _session(sender)},
    }
