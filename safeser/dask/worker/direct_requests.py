"""Requests to a worker, from peers other than its scheduler, for its values or to change them.

The one rule: the scheduler decides who reads which value, and under which keys data may stand. A
worker gives values to principals that may read all of them, and every other client asks the
scheduler. A worker that holds a value under a key takes it for the result of the task of that name,
whichever peer brought it, and the scheduler is not told. So only two kinds of peers have values
brought, fetched and dropped: the scheduler, and principals that may run code in the worker, sealed
or not, which could change every value there anyway.
"""

from __future__ import annotations

from collections.abc import Callable

from safeser.channel import Link
from safeser.gate.values import Kind
from safeser.policy.questions.readable import readable, reads_all, runs_code
from safeser.policy.rules import WEAKEST

__all__ = ["CHANGES", "require_own_scheduler", "require_reader"]

#: Requests that change the values of a worker, and what the refused sender can do instead.
CHANGES = {
    "update_data": "Leave out direct=True: the scheduler checks the owners of the keys.",
    "gather": "Ask the scheduler to replicate.",
    "free_keys": "Release the futures: the scheduler has workers drop what no client wants.",
}


def require_reader(
    link: Link, name: str, is_scheduler: Callable[[str], bool], author: str | None = None
) -> None:
    """Refuse *name*, which reads a worker's values, to a peer that may not read all of them.

    :param author: of the only value that is read, where it is known: an actor's.
    :raises PolicyDenied: which was recorded.
    """
    if link.peer == link.local or is_scheduler(link.peer):
        return
    context = link.inbound(WEAKEST[name], name)
    may = readable(link.policy, context)
    if author in may or reads_all(link.policy, context):
        # Of get_data its count says that it asks for all.
        if author not in (None, link.peer):
            link.note_reading(context, (author,), "actor")
    else:
        link.refuse(
            context,
            "values.direct",
            f"a worker does {name} only for principals that may read the values of every author",
            fix="Leave out direct=True: the scheduler hands out the values that you may read. Or"
            " ask the operator to list every author under 'values' of your context with workers.",
        )


def require_own_scheduler(link: Link, name: str, is_scheduler: Callable[[str], bool]) -> None:
    """Refuse *name*, which changes a worker's values, unless its scheduler asks for it.

    :param is_scheduler: tells whether a principal is the one that answered where the worker has
        registered.
    :raises PolicyDenied: which was recorded.
    """
    # By this very connection: contexts of the policy may ask how it travels, and where from.
    context = link.inbound(Kind.DATA, name)
    schedulers = filter(is_scheduler, link.policy.principals)
    if not is_scheduler(link.peer) and not runs_code(link.policy, context, schedulers):
        link.refuse(
            context,
            "key.direct",
            f"a worker does {name} only for its scheduler and principals that may run code in it",
            fix=CHANGES[name],
        )
