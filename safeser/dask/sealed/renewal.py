"""Renew statements: keep the current statement of each graph, on schedulers and on workers.

The one rule: a statement replaces another one only if author, graph and audience are the same and
it expires later. Each process that keeps it verifies it anew.
"""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from safeser.channel import Link
from safeser.dask.sealed.statement import SignedStatement
from safeser.dask.sealed.verification import require_permitted, require_signed
from safeser.errors import PayloadError, PolicyDenied
from safeser.gate.decision import RENEW
from safeser.gate.values import Context
from safeser.policy.rules import RENEWED

__all__ = ["RENEWALS", "Current", "Statements", "require_renewal"]

#: The stream elements that carry a renewed statement: to a scheduler, and on to its workers.
RENEWALS = frozenset({RENEW, RENEWED})


class Current:
    """The statement of one graph that counts now; all tasks of the graph share it."""

    __slots__ = ("__weakref__", "signed")

    def __init__(self, signed: SignedStatement) -> None:
        self.signed = signed

    def take(self, signed: SignedStatement) -> bool:
        """Replace the statement by *signed*, which is verified, if that one expires later."""
        later = signed.statement.expires > self.signed.statement.expires
        if later:
            self.signed = signed
        return later


class Statements:
    """The current statements of the graphs that a scheduler has, or a worker of its scheduler.

    One is kept as long as a task of its graph. Calls may come from any thread.
    """

    def __init__(self) -> None:
        self._of: WeakValueDictionary[bytes, Current] = WeakValueDictionary()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._of)

    def of(self, signed: SignedStatement) -> Current:
        """Return what counts of the graph of *signed*, a verified statement, for its tasks to keep.

        :raises PolicyDenied: if another graph has its id.
        """
        with self._lock:
            known = self._same(signed)
            if known is None:
                known = self._of[signed.statement.graph] = Current(signed)
            known.take(signed)
            return known

    def check(self, signed: SignedStatement) -> None:
        """Refuse *signed* unless it can renew the statement of its graph, or the graph is gone.

        :raises PolicyDenied: if its id is that of another graph, or it expires too early.
        """
        known = self._same(signed)
        if known is None or known.signed.packed == signed.packed:
            return
        if signed.statement.expires <= known.signed.statement.expires:
            raise PolicyDenied(
                "the renewed statement of a graph expires no later than the one that is there",
                rule="sealed.renewal",
                where="statement",
                fix="Compare the clocks if an honest client sent it.",
            )

    def renew(self, signed: SignedStatement) -> Current | None:
        """Take *signed*, which is verified and checked; return what it renewed, if anything."""
        with self._lock:
            known = self._same(signed)
            return known if known is not None and known.take(signed) else None

    def _same(self, signed: SignedStatement) -> Current | None:
        known = self._of.get(signed.statement.graph)
        if known is not None and not known.signed.statement.says_same(signed.statement):
            raise PolicyDenied(
                "another graph has that id: its author, its number of tasks or its root differs",
                rule="sealed.graph-id",
                fix="Submit the graph again; a client gives each a new id.",
            )
        return known


def require_renewal(link: Link, context: Context, packed: Any, statements: Statements) -> None:
    """Refuse the renewed statement *packed* where it does not count, before anything else of it.

    :param context: of the element that carries it.
    :param statements: of the graphs that it may be about.
    :raises PolicyDenied: if its sender may not say it, or it renews nothing.
    :raises PayloadError: if it is no statement.
    """
    link.permit_named(context, where="op")
    signed = renewed_in(packed)
    author = signed.statement.author
    submits = context.operation == RENEW
    if submits and author != link.peer:
        raise PolicyDenied(
            f"the statement is of {author!r}, and {link.peer!r} renews it",
            rule="sealed.author",
            where="statement",
            fix="Each author renews its own.",
        )
    statements.check(signed)
    require_signed(signed, link.channel, scheduler=link.local if submits else link.peer)
    require_permitted(link, context, author)


def renewed_in(packed: Any) -> SignedStatement:
    """Return the statement in the field of a renewal.

    :raises PayloadError: if it is none.
    """
    if type(packed) is not bytes:
        raise PayloadError("a renewal holds no statement", rule="sealed.statement")
    return SignedStatement.parse(packed)
