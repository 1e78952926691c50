"""Requests to a worker, from peers other than its scheduler, that change which values it holds.

The one rule: the scheduler decides under which keys data may stand. A worker that holds a value
under a key takes it for the result of the task of that name, whichever peer brought it, and the
scheduler is not told. So only two kinds of peers have values brought, fetched and dropped: the
scheduler, and principals that may run code in the worker, sealed or not, which could change every
value there anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from safeser.channel import Link
from safeser.policy import Policy
from safeser.policy.rules import COMPUTE
from safeser.values import SEALED, Context, Kind

__all__ = ["CHANGES", "require_own_scheduler", "runs_code"]

#: Requests that change the values of a worker, and what the refused sender can do instead.
CHANGES = {
    "update_data": "Leave out direct=True: the scheduler checks the owners of the keys.",
    "gather": "Ask the scheduler to replicate.",
    "free_keys": "Release the futures: the scheduler has workers drop what no client wants.",
}


def require_own_scheduler(link: Link, name: str, is_scheduler: Callable[[str], bool]) -> None:
    """Refuse *name*, which changes a worker's values, unless its scheduler asks for it.

    :param is_scheduler: tells whether a principal is the one that answered where the worker has
        registered.
    :raises PolicyDenied: which was recorded.
    """
    if not is_scheduler(link.peer) and not _runs_code(link, name, is_scheduler):
        link.refuse(
            link.inbound(Kind.DATA, name),
            "key.direct",
            f"a worker does {name} only for its scheduler and principals that may run code in it",
            fix=CHANGES[name],
        )


def _runs_code(link: Link, name: str, is_scheduler: Callable[[str], bool]) -> bool:
    # By this very connection: contexts of the policy may ask how it travels, and where from.
    schedulers = filter(is_scheduler, link.policy.principals)
    return runs_code(link.policy, link.inbound(Kind.DATA, name), schedulers)


def runs_code(policy: Policy, context: Context, schedulers: Iterable[str]) -> bool:
    """Tell whether the sender of *context* may run code in the worker that is its recipient.

    :param schedulers: principals that may hand on what the sender signed.
    """
    submission = policy.grant(context).submission
    if submission != SEALED:
        return submission == "code"
    return any(_is_author(policy, context, each) for each in schedulers)


def _is_author(policy: Policy, context: Context, scheduler: str) -> bool:
    handed = Context(scheduler, context.recipient, Kind.TASK, COMPUTE, transport="safeser")
    listed = policy.decide(handed, SEALED, author=context.sender).permitted
    return listed and policy.may_sign(context.sender, scheduler, Kind.TASK)
