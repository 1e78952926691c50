"""Data that somebody brings to a worker by themselves, past the scheduler.

The one rule: under which keys data may stand is the scheduler's to say. A worker that holds a value
under a key takes it for the result of the task of that name, whoever brought it, and the scheduler
never hears of it. So only the scheduler brings data, and those who may run code in the worker:
they could change every value there anyway.
"""

from __future__ import annotations

from typing import Any

from distributed.worker import Worker

from safeser.channel import Channel, Link
from safeser.dask.replies import error_reply
from safeser.errors import PolicyDenied
from safeser.pickles.shims.labels import hide_memory_in_frames
from safeser.values import Kind

__all__ = ["guard_worker"]


def guard_worker(worker: Any, channel: Channel) -> None:
    """Have *worker* take data from nobody else; to be called before it listens.

    Where graphs are approved, its frames answer for no memory: tasks make labels of any text.
    """
    if not isinstance(worker, Worker):
        return
    if any(context.submission == "approved" for context in channel.policy.contexts):
        hide_memory_in_frames()
    stock = worker.update_data

    def update_data(comm: Any, **request: Any) -> Any:
        link = getattr(comm, "link", None)
        if link is None or _may_bring(link):
            return stock(**request)
        try:
            link.refuse(
                link.inbound(Kind.DATA, "update_data"),
                "key.direct",
                "data is brought to this worker by its scheduler alone",
                fix="Leave out direct=True: the scheduler looks whose the keys are.",
            )
        except PolicyDenied as error:
            return error_reply(error)

    worker.handlers["update_data"] = update_data


def _may_bring(link: Link) -> bool:
    # By this very connection: contexts of the policy may ask how it travels, and where from.
    if link.policy.permits_operation(link.outbound(Kind.ADMIN, "register-worker")).permitted:
        return True
    return link.policy.grant(link.inbound(Kind.DATA, "update_data")).submission == "code"
