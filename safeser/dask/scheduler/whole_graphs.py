"""Add graphs and data to the scheduler as a whole or not at all.

The one rule: a refused graph leaves no task behind, and each task of the scheduler has a priority.

Dask's scheduler creates the tasks of a graph first, and then reads the fields beside it: a time
that is none, or a task that is named as the sender's and has no priority, raises in between. Tasks
remain that no client wants and whose keys are taken for good. Tasks that the client's own order of
its graph leaves out get no priority: where tasks queue, they cannot be compared with any other, so
that all work stopped and worker after worker was removed. Data of which the message says that an
unknown worker has it leaves its key taken as well (distributed 2026.8.0).

A task whose key or annotation fits into no message counts as handed to a worker, and never arrives
there: a few of them stop all work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from distributed.shuffle._core import P2PBarrierTask

from safeser.dask.contents.annotations import can_be_sent
from safeser.dask.sealed.writing import require_own_plan
from safeser.errors import PayloadError

__all__ = ["create", "update_data"]


def create(
    scheduler: Any,
    stock: Callable[..., Any],
    *,
    dsk: Mapping[Any, Any],
    ordered: Mapping[Any, Any],
    client: str,
    **rest: Any,
) -> Any:
    """Do what ``_create_taskstate_from_graph``, *stock*, does, or leave nothing behind."""
    if not dsk.keys() <= ordered.keys():
        ordered = {**dict.fromkeys(dsk, 0), **ordered}
    for key, node in dsk.items():
        if isinstance(node, P2PBarrierTask):
            require_own_plan(key, node.spec)
    new = [key for key in dsk if key not in scheduler.tasks]
    said = (rest["global_annotations"], rest["annotations_by_type"])
    if not all(map(can_be_sent, new)) or not all(map(can_be_sent, said)):
        raise PayloadError(
            "a key or an annotation holds text or a number that no message can hold",
            rule="payload.unsendable",
            fix="Name and annotate them by text of Unicode characters, or numbers of 63 bits.",
        )
    try:
        return stock(dsk=dsk, ordered=ordered, client=client, **rest)
    except Exception:
        _forget(scheduler, new, client)
        raise


def update_data(
    scheduler: Any,
    stock: Callable[..., Any],
    *,
    who_has: Mapping[Any, Any],
    nbytes: Mapping[Any, Any],
    client: str | None = None,
) -> Any:
    """Do what ``Scheduler.update_data``, *stock*, does, or leave nothing behind."""
    new = [key for key in who_has if key not in scheduler.tasks]
    try:
        return stock(who_has=who_has, nbytes=nbytes, client=client)
    except Exception:
        _forget(scheduler, new, client)
        raise


def _forget(scheduler: Any, keys: Iterable[Any], client: str | None) -> None:
    stimulus = "safeser-taken"
    if client in scheduler.clients:
        # First, so that the client gets the error, and not a cancellation.
        scheduler.client_releases_keys(keys, client, stimulus)
    left = {key: "forgotten" for key in keys if key in scheduler.tasks}
    scheduler.transitions(left, stimulus)
