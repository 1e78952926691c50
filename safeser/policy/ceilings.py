"""The largest size of a message, by its operation and by what the policy grants its sender.

The one rule: the answer depends on the authenticated sender and the operation's name, and on
nothing else of the message, so that it is known before the body is parsed.
"""

from __future__ import annotations

from functools import lru_cache

from safeser.gate.values import Context
from safeser.operations import OPERATIONS, Ceiling, Channel, Operation, Server
from safeser.policy.policy import Policy

__all__ = ["ceiling", "largest"]

#: What nothing larger than may be said, as if no operation were granted.
_NOTHING = Ceiling(0, 0, 0)


def ceiling(policy: Policy, context: Context, row: Operation) -> Ceiling:
    """Return how large a message of *row* may be in *context*."""
    return row.ceiling(submits=policy.bound(context).submission != "none")


@lru_cache(maxsize=1024)  # asked for each connection; there are as many answers as pairs of peers
def largest(policy: Policy, context: Context, server: Server, channel: Channel) -> Ceiling:
    """Return the most that any operation which *context*'s sender may ask *server* for may be.

    :param context: of any kind and operation: those of each operation stand in their place.
    """
    highest = _NOTHING
    for row in OPERATIONS:
        if row.server is not server or row.channel is not channel:
            continue
        asked = Context(
            context.sender,
            context.recipient,
            row.kind,
            row.name,
            transport=context.transport,
            same_host=context.same_host,
        )
        if policy.permits_operation(asked).permitted:
            highest = highest.or_more(ceiling(policy, asked, row))
    return highest
