"""Payloads of family ``sealed`` on their way in: verified before anything about them is decided.

The one rule: the author of a sealed payload is whose signature it bears, never who hands it over,
and a payload of this family stands where a graph or a task stands, nowhere else.
"""

from __future__ import annotations

from functools import partial

from safeser.channel import Arrived, Link, Received
from safeser.dask.codec import PayloadRow
from safeser.dask.sealed.call import Call, Kept
from safeser.dask.sealed.graph import SealedGraph, parse
from safeser.dask.sealed.node import VerifiedTask
from safeser.dask.sealed.statement import SignedStatement
from safeser.dask.sealed.verification import require_signed
from safeser.dask.sealed.writing import ACTOR
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.values import SEALED, Context

__all__ = ["is_sealed", "received", "runnable"]


def is_sealed(row: PayloadRow) -> bool:
    """Tell whether *row* says that it is of family ``sealed``."""
    return row.header.get("serializer") == SEALED


def received(
    link: Link,
    verified: Arrived,
    context: Context,
    where: str,
    row: PayloadRow,
    *,
    actor: bool = False,
) -> Received:
    """Return the payload that *row* is, with the author whose signature it bears.

    :param actor: whether the message wants what a task returns to be an actor.
    :raises PayloadError: if it is malformed, or stands where no graph or task stands.
    :raises PolicyDenied: if its statement does not count here and now.
    """
    sealed: SealedGraph | Call
    if context.operation == "update-graph" and where == "expr_ser" and not row.failed:
        sealed = parse(row.header, row.frames, link.policy.limits)
        author = require_signed(sealed.signed, link.voices, scheduler=link.local)
        if author != link.peer:
            raise PolicyDenied(
                f"the graph is signed by {author!r}, and {link.peer!r} submits it",
                rule="sealed.author",
                where=where,
                fix="Submit it by the identity that signs it.",
            )
    elif isinstance(row.call, SafeserError):
        raise row.call
    elif row.call is not None and where == "run_spec" and not row.failed:
        call: Call = row.call
        if actor is not bool(call.head.flags & ACTOR):
            raise PolicyDenied(
                "a task is to make an actor, or none, against what its author signed",
                rule="sealed.actor",
            )
        sealed, author = call, require_signed(call.signed, link.voices, scheduler=link.peer)
    elif context.operation is None and where == "" and not row.failed:
        sealed = Kept().call(row.frames, link.policy.limits)
        author = require_signed(sealed.signed, link.voices, scheduler=link.peer)
        if author != link.local:
            raise PolicyDenied(
                f"the task is signed by {author!r}, and only its author opens it here",
                rule="sealed.author",
                where=where,
            )
    else:
        raise PayloadError(
            "a sealed payload stands where no graph or task can", rule="sealed.place", where=where
        )
    return link.signed(verified, where, row.header, row.frames, author=author, sealed=sealed)


def runnable(link: Link, context: Context, call: Call) -> VerifiedTask:
    """Return an admitted task as Dask's worker runs it.

    Before it runs it is asked again whether its author may: keys and policy may have changed.
    """
    still = partial(_require_valid, link, context, call.signed)
    return VerifiedTask(call, link.policy.limits, still)


def _require_valid(link: Link, context: Context, signed: SignedStatement) -> None:
    try:
        author = require_signed(signed, link.voices, scheduler=link.peer)
        if author != link.local:
            _require_permitted(link, context, author)
    except PolicyDenied as error:
        link.note_refusal(context, error)
        error.recorded = True
        raise


def _require_permitted(link: Link, context: Context, author: str) -> None:
    decision = link.voices.policy.decide(context, SEALED, author=author)
    if not decision.permitted:
        raise PolicyDenied(decision.reason, rule=decision.rule, fix=decision.fix)
