"""Record what a running task is refused by its own loads, in the log of its worker.

The one rule: the task gets the error in any case. A record that cannot be written changes nothing:
what was refused stays refused.
"""

from __future__ import annotations

import logging

from distributed.utils import thread_state

from safeser.channel.events import event, short_reason
from safeser.dask.servers import served
from safeser.dask.wire.task_key import key_text
from safeser.dask.worker.value_authors import Authors
from safeser.errors import AuditError, SafeserError
from safeser.gate.values import Context, Kind
from safeser.refused_loads import observe

__all__ = ["record_refused_loads"]

logger = logging.getLogger("safeser.dask")


def record_refused_loads() -> None:
    """Record refused loads of tasks that run on workers of this process."""
    observe(_record)


def _record(call: str, error: SafeserError) -> None:
    """Record that *call* raised *error* in the task of this thread, if it runs one."""
    state = getattr(thread_state, "execution_state", None)
    worker = state.get("worker") if isinstance(state, dict) else None
    known = None if worker is None else served(worker)
    if known is None:
        return
    own = known.channel.identity.principal
    said = event(
        *("refuse", Context(own, own, Kind.TASK, call), None, error.rule, False), where=error.where
    )
    said["reason"] = short_reason(error.message)
    if error.subject:
        said["global"] = error.subject
    key = getattr(thread_state, "key", None)
    said["task"] = key_text(key)
    author = known.part(worker, Authors).of(key)
    if author:
        said["task_author"] = author
    try:
        known.channel.audit.record(said)
    except AuditError as failure:
        logger.error("The audit log refuses a record: %s", failure)  # noqa: TRY400 - one line
    else:
        error.recorded = True
