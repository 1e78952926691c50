"""Verify payloads of family ``sealed`` on arrival, before anything about them is decided.

The one rule: the author of a sealed payload is the principal that signed it, never the one that
sends it, and a payload of this family stands where a graph or a task stands, nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from safeser.channel import Arrived, Link, Received
from safeser.dask.sealed.call import Call, Kept
from safeser.dask.sealed.form import same_key, spelling
from safeser.dask.sealed.graph import Head, SealedGraph, barrier_plan, parse, read_statement
from safeser.dask.sealed.node import VerifiedTask
from safeser.dask.sealed.statement import ASK_OPERATOR, SignedStatement
from safeser.dask.sealed.verification import require_permitted, require_signed, require_signer
from safeser.dask.sealed.writing import ACTOR
from safeser.dask.wire.codec import PayloadRow
from safeser.dask.wire.reader import Reference
from safeser.dask.wire.task_key import key_text
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.gate.decision import COMPUTE, SUBMIT
from safeser.gate.values import SEALED, Context, Kind, Limits

__all__ = ["received", "require_sealed", "runnable"]

#: Characters of a digest in the log: 96 bits.
_DIGEST = 24


def require_sealed(link: Link, context: Context, body: Any, rows: Sequence[PayloadRow]) -> None:
    """Refuse a task that is not sealed where the policy lets sealed ones through.

    A failure that stands in place of one passes: it says why the scheduler could not send it.

    :raises PolicyDenied: if that is so, or the policy grants nothing in *context*.
    """
    if context.operation != COMPUTE:
        return
    grant, spec = link.policy.grant(context), body.get("run_spec")
    if grant.submission != SEALED:
        return
    if isinstance(spec, Reference):
        row = rows[spec.index]
        if row.failed or row.is_sealed:
            return
    raise PolicyDenied(
        "the task is not sealed",
        rule="sealed.required",
        where="run_spec",
        fix="Submit it with a safeser.Client whose policy says 'submission: sealed'.",
    )


def received(
    link: Link,
    verified: Arrived,
    context: Context,
    where: str,
    row: PayloadRow,
    *,
    body: Any,
    asked: Mapping[str, Any],
) -> Received:
    """Return the payload that *row* is, with the author whose signature it bears.

    :param body: the request or element that it is part of.
    :param asked: the request to which it is the reply; empty where it is no reply.
    :raises PayloadError: if it is malformed, or stands where no graph or task stands.
    :raises PolicyDenied: if its statement does not count here and now.
    """
    sealed: SealedGraph | Call
    if context.operation == SUBMIT and where == "expr_ser" and not row.failed:
        author, sealed = _graph(link, verified, context, row)
    elif isinstance(row.call, SafeserError):
        raise row.call
    elif (
        row.call is not None
        and context.operation == COMPUTE
        and where == "run_spec"
        and not row.failed
    ):
        call: Call = row.call
        author = require_signed(call.signed, link.channel, scheduler=link.peer)
        _require_place(call.head, body, link.policy.limits)
        if not link.policy.may_sign(author, link.peer, Kind.TASK):
            own = link.signed(
                *(verified, where, row.header, row.frames),
                author=author,
                sealed=None,
                task=key_text(call.head.key),
            )
            link.permit_payload(context, own, None)
            require_signer(link, author, Kind.TASK, where)
        sealed = call
    elif context.operation is None and where == "" and not row.failed:
        author, sealed = _own_task(link, where, row, asked)
    else:
        raise PayloadError(
            "a sealed payload stands where no graph or task can", rule="sealed.place", where=where
        )
    # For the log, a task has the digest of its first definition: tasks of one function have the
    # same one, whatever their arguments.
    if isinstance(sealed, SealedGraph):
        task, named = "", sealed.signed.statement.root
    else:
        task, named = key_text(sealed.head.key), b"".join(sealed.head.digests[:1])
    return link.signed(
        *(verified, where, row.header, row.frames),
        author=author,
        sealed=sealed,
        task=task,
        digest=named.hex()[:_DIGEST],
    )


def _graph(
    link: Link, verified: Arrived, context: Context, row: PayloadRow
) -> tuple[str, SealedGraph]:
    """Return the author of a graph, and the graph.

    Nothing of it beside the statement is checked before it is known that it may pass.
    """
    where = "expr_ser"
    link.permit_named(context, where="op")
    author = require_signed(read_statement(row.frames), link.channel, scheduler=link.local)
    if author != link.peer:
        raise PolicyDenied(
            f"the graph is signed by {author!r}, and {link.peer!r} submits it",
            rule="sealed.author",
            where=where,
            fix="Submit it by the identity that signs it.",
        )
    unread = link.signed(verified, where, row.header, row.frames, author=author, sealed=None)
    link.permit_payload(context, unread, None)
    if isinstance(row.call, SafeserError):
        raise row.call
    return author, parse(row.header, row.frames, link.policy.limits)


def _own_task(
    link: Link, where: str, row: PayloadRow, asked: Mapping[str, Any]
) -> tuple[str, Call]:
    """Return the task that its author *asked* for, who opens it here.

    Otherwise a scheduler could choose which of a user's own tasks runs in their client.
    """
    limits = link.policy.limits
    call = Kept().call(row.frames, limits)
    barrier_plan(call.head, limits)
    author = require_signed(call.signed, link.channel, scheduler=link.peer)
    if author != link.local:
        raise PolicyDenied(
            f"the task is signed by {author!r}, and only its author opens it here",
            rule="sealed.author",
            where=where,
        )
    if asked.get("op") != "get_runspec" or not same_key(asked.get("key"), call.head.key):
        raise PolicyDenied(
            "the task is another one than was asked for",
            rule="sealed.moved",
            where=where,
            fix=ASK_OPERATOR,
        )
    return author, call


def _require_place(head: Head, body: Any, limits: Limits) -> None:
    """Refuse a task under another key, without its inputs, or as an actor that it is not.

    Keys are compared as they are spelled. Inputs beyond its own reach no task: Dask adds those of
    another definition under the same key.
    """
    barrier_plan(head, limits)
    if (body.get("actor") is True) is not bool(head.flags & ACTOR):
        raise PolicyDenied(
            "a task is to make an actor, or none, against what its author signed",
            rule="sealed.actor",
            where="actor",
        )
    given = body.get("who_has")
    inputs = {*map(spelling, given)} if head.dependencies and isinstance(given, dict) else set()
    if not same_key(body.get("key"), head.key) or not inputs.issuperset(
        map(spelling, head.dependencies)
    ):
        raise PolicyDenied(
            "the task is handed over under another key, or with other inputs, than its author"
            " signed",
            rule="sealed.moved",
            where="run_spec",
            fix=ASK_OPERATOR,
        )


def runnable(link: Link, context: Context, call: Call) -> VerifiedTask:
    """Return an admitted task as Dask's worker runs it.

    Before it runs it is asked again whether its author may: keys and policy may have changed.
    """
    still = partial(_require_valid, link, context, call.signed)
    task = VerifiedTask(call, link.policy.limits, still)
    if call.head.dependencies:
        task.prepare()
    return task


def _require_valid(link: Link, context: Context, signed: SignedStatement) -> None:
    try:
        author = require_signed(signed, link.channel, scheduler=link.peer)
        if context.operation is not None:  # in a reply, this principal's own
            require_permitted(link, context, author)
            require_signer(link, author, Kind.TASK, "run_spec")
    except PolicyDenied as error:
        link.note_refusal(context, error)
        error.recorded = True
        raise
