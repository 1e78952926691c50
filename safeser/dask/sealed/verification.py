"""Verify signed statements: author, cluster and period.

The one rule: a statement is valid for its author alone, whose key the roster lists for signing, for
the cluster of the scheduler that sends it, and between its issue and its expiry. All of that is
checked again when a task runs: it may have waited for long.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import lru_cache

from safeser.channel import Channel, Link
from safeser.dask.sealed.statement import SignedStatement, Statement
from safeser.dask.sealed.value import SignedValue
from safeser.errors import PolicyDenied
from safeser.gate.values import SEALED, Context, Kind

__all__ = ["require_current", "require_permitted", "require_signed"]

#: Signatures that were found to hold and are remembered: one for each graph.
_REMEMBERED = 1024


def require_signed(signed: SignedStatement, channel: Channel, *, scheduler: str) -> str:
    """Return the author of the graph that *signed* is about, if it counts here and now.

    :param scheduler: principal of the scheduler that the graph was submitted to.
    :raises PolicyDenied: if it does not, with what its author or an operator can do about it.
    """
    holds = _holds(signed.packed)
    return require_current(signed.statement, channel, servers=(scheduler,), holds=holds)


def require_current(
    said: Statement | SignedValue, channel: Channel, *, servers: Collection[str], holds: bool
) -> str:
    """Return the author of *said*, if it is valid here and now.

    :param servers: principals to one of which it may have been sent.
    :param holds: whether its signature is valid.
    :raises PolicyDenied: if it does not count.
    """
    if not holds:
        raise _refused("sealed.signature", "its signature is not valid")
    if channel.author_of(said.signer) != said.author:
        raise _refused(
            "sealed.author",
            f"no active or verify-only key of {said.author!r} made its signature",
            "Sign with such a key, and submit it again.",
        )
    if channel.owner_of(said.audience) not in servers:
        raise _refused(
            "sealed.audience",
            f"it was signed for another server than {' or '.join(servers)}",
            "Submit it to this cluster.",
        )
    if not said.is_current(time.time()):
        raise _refused(
            "sealed.expired",
            "its statement is over, or not valid yet by this machine's clock",
            "Submit it again.",
        )
    return said.author


def require_permitted(link: Link, context: Context, author: str) -> None:
    """Refuse what *author* signed where policy lets no sealed call of that author pass.

    :raises PolicyDenied: as policy says it.
    """
    decision = link.channel.policy.decide(context, SEALED, author=author)
    if not decision.permitted:
        raise link.channel.policy.refusal(context, decision)


def require_signer(link: Link, author: str, kind: Kind, where: str) -> None:
    """Refuse what *author* signed where no context of its own lets it submit sealed calls.

    A worker so asks the contexts that the scheduler asks.

    :param kind: of the message by which the peer of *link*, a scheduler, hands it on.
    :raises PolicyDenied: naming the contexts that would have to say so.
    """
    if not link.policy.may_sign(author, link.peer, kind):
        raise PolicyDenied(
            f"no context lets {author!r} submit sealed calls to {link.peer!r}",
            rule="sealed.author",
            where=where,
            fix="Take it out of the 'authors' here, or submit it by an identity that may.",
        )


@lru_cache(maxsize=_REMEMBERED)
def _holds(packed: bytes) -> bool:
    return SignedStatement.parse(packed).verify()


def _refused(rule: str, why: str, fix: str = "") -> PolicyDenied:
    return PolicyDenied(f"a sealed call does not count here: {why}", rule=rule, fix=fix)
