"""Attacks on groups of workers on one scheduler, and on what is left of their boundaries.

Workers of one cluster trust each other (docs/decisions/0062-one-cluster-one-trust-group.md): what
one asks of another, or of the scheduler, about values of any author is admitted. What relays carry
and what no context grants is refused as ever.
"""

from __future__ import annotations

import pickle
from typing import Any

from tests.dask.attacks.rows import Row

__all__ = ["ROWS"]

_ELSEWHERE = "safeser://127.0.0.1:1"


def _row(name: str, sender: str, recipient: str, op: str, rule: str | None, **more: Any) -> Row:
    return Row(name, sender, recipient, {"op": op, **more}, rule)


#: What kept groups of workers on one scheduler apart.
_DELETED = (
    _row("a worker takes any value from another", "worker", "worker", "get_data", None, keys=["k"]),
    _row("a worker gathers any value", "worker", "scheduler", "gather", None, keys=["k"]),
    _row(
        *("a worker joins any shuffle", "worker", "scheduler", "shuffle_get_or_create", None),
        **{"shuffle_id": "s", "key": "k", "worker": _ELSEWHERE},
    ),
    _row(
        *("a worker adds shards to any shuffle", "worker", "worker", "shuffle_receive", None),
        **{"shuffle_id": "s", "run_id": 1, "data": pickle.dumps([(0, [1])])},
    ),
    _row(
        *("a user scatters to any worker", "carol", "scheduler", "scatter", None),
        **{"data": {"k": 1}, "workers": [_ELSEWHERE]},
    ),
    _row(
        *("a user retires the last worker of a group", "carol", "scheduler", "retire_workers"),
        *(None,),
        **{"workers": [_ELSEWHERE]},
    ),
)

#: What a relay asked for, or a worker asked of another one, in the name of a group.
_REFUSED = (
    _row(
        *("a worker calls another's actor", "worker", "worker", "actor_execute"),
        *("operation.not-granted",),
        **{"actor": "k", "function": "f", "args": [], "kwargs": {}},
    ),
    _row(
        *("a worker hands another one a task", "worker", "worker", "compute-task"),
        *("operation.unknown",),
        **{"key": "k"},
    ),
)

ROWS: tuple[Row, ...] = (*_DELETED, *_REFUSED)
