"""Which values a worker has: what somebody else than its scheduler asks it to keep or to drop.

The one rule: under which keys data may stand is the scheduler's to say. A worker that holds a value
under a key takes it for the result of the task of that name, whoever brought it or told the worker
where to fetch it, and the scheduler never hears of it. So only the scheduler has values brought,
fetched and dropped, and those who may run code in the worker: they could change every value there
anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed.worker import Worker

from safeser.channel import Channel, Link
from safeser.dask.replies import error_reply
from safeser.errors import PolicyDenied
from safeser.pickles.shims.labels import hide_memory_in_frames
from safeser.policy import Policy
from safeser.values import Kind

__all__ = ["guard_worker"]

#: What changes the values of a worker, and what the sender is told to do about it.
_SCHEDULERS = {
    "update_data": "Leave out direct=True: the scheduler looks whose the keys are.",
    "gather": "Ask the scheduler to replicate.",
    "free_keys": "Release the futures: the scheduler has workers drop what nobody wants.",
}


def guard_worker(worker: Any, channel: Channel, *, is_scheduler: Callable[[str], bool]) -> None:
    """Have *worker* change its values for nobody else; to be called before it listens.

    Where graphs are approved, its frames answer for no memory: tasks make labels of any text.

    :param is_scheduler: tells whether a principal is the one that answered where *worker* has
        registered. Not who could be by policy: a policy may let workers ask each other for all that
        their scheduler asks them for.
    """
    if not isinstance(worker, Worker):
        return
    channel.on_policy(_hide_memory)
    for name in _SCHEDULERS.keys() & worker.handlers.keys():
        worker.handlers[name] = _guarded(name, worker.handlers[name], is_scheduler)


def _hide_memory(policy: Policy) -> None:
    if any(context.submission == "approved" for context in policy.contexts):
        hide_memory_in_frames()


def _guarded(
    name: str, stock: Callable[..., Any], is_scheduler: Callable[[str], bool]
) -> Callable[..., Any]:
    def handler(comm: Any, **request: Any) -> Any:
        link = getattr(comm, "link", None)
        if link is None or is_scheduler(link.peer) or _runs_code(link, name):
            return stock(**request)
        try:
            link.refuse(
                link.inbound(Kind.DATA, name),
                "key.direct",
                f"a worker does {name} for its scheduler and who may run code in it alone",
                fix=_SCHEDULERS[name],
            )
        except PolicyDenied as error:
            return error_reply(error)

    return handler


def _runs_code(link: Link, name: str) -> bool:
    # By this very connection: contexts of the policy may ask how it travels, and where from.
    return link.policy.grant(link.inbound(Kind.DATA, name)).submission == "code"
