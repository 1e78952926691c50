"""Authors of the values of one worker, and which principals the worker sends a value to.

The one rule: a worker gives a value to processes of its own principal and to its scheduler, and to
another principal only if the policy lets that one read values of the author. A value whose author
is not known goes to no other principal.

A key outlives no task: once the scheduler forgets it, another author's task may get it, while some
worker still has the former value. So a value is named by key and author. A process that fetches a
value states its author, and so does a worker that reports a copy.

The author of a task is in its statement where it is sealed. Of all else the scheduler says it with
the message by which the worker gets a value or has to fetch it: the worker that gives the value is
not asked. What a client brings by itself is that client's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from safeser.dask.contents.failures import Failure, failed_value
from safeser.dask.groups.author_statements import statement, stating, take_stated
from safeser.dask.groups.readers import unreadable
from safeser.dask.servers import Part
from safeser.errors import PolicyDenied
from safeser.policy import Policy
from safeser.policy.questions.readable import is_worker, may_read
from safeser.values import Kind

__all__ = ["Authors", "gathering", "handing", "require_receiver"]

#: Entries of released keys that are kept beyond twice the number of those in use.
_SPARE = 1_000

#: The authors of the values that a worker gathers for its scheduler in this context.
_gathered: ContextVar[Mapping[Any, str] | None] = ContextVar("safeser-gathered", default=None)

#: The author of the shards that are sent in this context, with the request that carries them.
_handing: ContextVar[tuple[str, str | None] | None] = ContextVar("safeser-handing", default=None)


# --- what is gathered -----------------------------------------------------------------------------


@contextmanager
def gathering(authors: Mapping[Any, str]) -> Iterator[None]:
    """Have the values that a worker gathers meanwhile be those of *authors*, by their keys."""
    token = _gathered.set(authors)
    try:
        yield
    finally:
        _gathered.reset(token)


# --- of one worker -------------------------------------------------------------------------------


class Authors(Part):
    """The authors of the values of one worker."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._of: dict[Any, str] = {}
        self._most = _SPARE
        self._shuffles: dict[str, tuple[int, str]] = {}

    def of(self, key: Any) -> str | None:
        """Return the author of the value of *key*, if it is known."""
        return self._of.get(key)

    def note(self, authors: Mapping[Any, str]) -> None:
        """Record the *authors* of keys that this worker has by now."""
        self._of.update(authors)
        self._forget()

    def fields(self, keys: Collection[Any]) -> dict[str, Any]:
        """Return what a message states of the authors of *keys*."""
        return statement(keys, self._of)

    def wanted(self, keys: Iterable[Any]) -> AbstractContextManager[None]:
        """Require the present authors for values of *keys* that are fetched within the block.

        Not where policy lets others bring data under a key that is taken: whose it is, is open.
        """
        known = {key: self._of[key] for key in keys if key in self._of}
        if known and self._policy.lets_keys_be_taken:
            known = {}
        return stating("get_data", authors=known)

    @property
    def _policy(self) -> Policy:
        return self._known.channel.policy

    # --- values of others ------------------------------------------------------------------------

    def is_of_another(self, key: Any, author: str | None) -> bool:
        """Tell whether the value under *key* is known to be of another author than *author*."""
        known = self._of.get(key)
        return known is not None and author is not None and known != author

    def of_others(self, authors: Mapping[Any, str]) -> list[Any]:
        """Return the keys under which this worker knows values of other authors than *authors*."""
        return [key for key, author in authors.items() if self.is_of_another(key, author)]

    def require_free(self, link: Any, keys: Iterable[Any]) -> list[Any]:
        """Return those of *keys* under which the peer on *link* may bring data.

        :raises PolicyDenied: if another author's value is here under one of them, or on its way.
        """
        there = self._server.state.tasks
        taken = {key for key in keys if key in there and self.is_of_another(key, link.peer)}
        if taken and not self._policy.lets_keys_be_taken:
            link.refuse(
                link.inbound(Kind.DATA, "update_data"),
                "key.definition",
                "this worker has a task of another author under a key of these data",
                fix="Choose another key.",
            )
        return [key for key in keys if key not in taken]

    def gathered(self, data: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """Return those of *data*, which was gathered, that are of the authors stated for it."""
        stated = _gathered.get()
        former = self.of_others(stated) if stated else ()
        return {key: data[key] for key in data if key not in former} if former else data

    def _forget(self) -> None:
        """Forget the authors of keys that are gone, now and then."""
        if len(self._of) > self._most:
            there = self._server.state.tasks
            self._of = {key: author for key, author in self._of.items() if key in there}
            self._most = 2 * len(self._of) + _SPARE

    # --- shuffles --------------------------------------------------------------------------------

    def note_shuffle(self, shuffle: str, run_id: int, author: str) -> None:
        """Record the author of the latest run of a shuffle."""
        self._shuffles.pop(shuffle, None)
        self._shuffles[shuffle] = run_id, author
        if len(self._shuffles) > _SPARE:
            del self._shuffles[next(iter(self._shuffles))]

    def of_shuffle(self, shuffle: str, run_id: int) -> str | None:
        known, author = self._shuffles.get(shuffle, (None, None))
        return author if known == run_id else None

    # --- permitted readers -----------------------------------------------------------------------

    def _has(self, key: Any) -> bool:
        return key in self._server.data or key in self._server.state.actors

    def _is_free(self, link: Any) -> bool:
        return link.peer == link.local or self._known.is_scheduler(link.peer)

    def require(self, link: Any, name: str, author: str | None, what: Any) -> None:
        """Refuse the request *name* of a peer that may not read values of *author*.

        :raises PolicyDenied: which was recorded.
        """
        if not self._is_free(link):
            require_reader(link, name, author, what)

    def narrow(self, comm: Any, request: dict[str, Any]) -> None:
        """Remove from *request*, for values, keys that its peer may not read or does not mean.

        A worker is sent the reason in place of each value: what it merely misses, it asks for
        again. A client does not get it: then it asks the scheduler, which knows what is published.
        """
        link, keys = comm.link, request.get("keys", ())
        comm.conversation.withheld = {}
        former = self.of_others(take_stated(request, keys))
        if former:  # the peer means another value of that key
            keys = request["keys"] = [key for key in keys if key not in set(former)]
        if self._is_free(link):
            return
        context = link.inbound(Kind.DATA, "get_data")
        policy, of = link.policy, self._of
        kept: list[Any] = []
        refused: list[Any] = []
        for key in keys:
            (kept if may_read(policy, context, of.get(key)) else refused).append(key)
        if not refused:
            return
        request["keys"] = kept
        # Of a key that is not here, Dask's worker asks the next one that has it.
        refused = [key for key in refused if self._has(key)]
        errors = _errors(unreadable(policy, context, key, of.get(key)) for key in refused)
        for error in errors:
            link.note_refusal(context, error)
        if is_worker(policy, link.peer):
            comm.conversation.withheld = _refusals_by_key(refused, errors)


#: Refused keys of one request that are recorded one by one.
_RECORDED = 20


def _errors(made: Iterable[PolicyDenied]) -> list[PolicyDenied]:
    return [error for _, error in zip(range(_RECORDED), made, strict=False)]


def _refusals_by_key(keys: Iterable[Any], errors: list[PolicyDenied]) -> dict[Any, Failure]:
    values = [failed_value(error) for error in errors]
    return {key: values[min(place, len(values) - 1)] for place, key in enumerate(keys)}


def require_reader(link: Any, name: str, author: str | None, what: Any) -> None:
    """Refuse the peer on *link* a value of *author*, *what*, that it asks for by *name*.

    :raises PolicyDenied: which was recorded.
    """
    context = link.inbound(Kind.DATA, name)
    if not may_read(link.policy, context, author):
        error = unreadable(link.policy, context, what, author)
        link.note_refusal(context, error)
        error.recorded = True
        raise error


@contextmanager
def handing(shuffle: str, author: str | None) -> Iterator[None]:
    """Have shards that are sent meanwhile go only to peers that may read values of *author*."""
    token = _handing.set((shuffle, author))
    try:
        yield
    finally:
        _handing.reset(token)


def require_receiver(link: Any, request: Mapping[str, Any]) -> None:
    """Refuse to send *request*, which carries shards, to a peer that may not read them.

    The plan of a shuffle names addresses, at which by now another principal may answer.

    :raises PolicyDenied: which was recorded.
    """
    handed = _handing.get()
    if handed is not None and request["op"] == "shuffle_receive" and link.peer != link.local:
        require_reader(link, "shuffle_receive", handed[1], f"shuffle {handed[0]}")
