"""Who is the author of each value that a worker has, and whom the worker gives it.

The one rule: a worker gives a value to processes of its own principal and to its scheduler, and to
another principal only if the policy lets that one read values of the author. A value whose author
is not known goes to no other principal.

The author of a task is in its statement where it is sealed. Of all else the scheduler says it with
the message by which the worker gets a value or has to fetch it: the worker that gives the value is
not asked. What a client brings by itself is that client's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from safeser.dask.failures import Failure, failed_value
from safeser.dask.readers import unreadable
from safeser.dask.servers import Part
from safeser.errors import PolicyDenied
from safeser.policy.readable import is_worker, may_read
from safeser.values import Kind

__all__ = ["Authors", "StatedKeys", "handing", "require_receiver", "stated", "stating"]

#: As many entries more than twice those in use are kept of keys that are gone.
_SPARE = 1_000

#: What requests of one name say of authors, as long as they are sent here and now.
_stated: ContextVar[tuple[str, Mapping[str, Any]] | None] = ContextVar(
    "safeser-stated", default=None
)

#: Whose shards are sent here and now, with the request that carries them.
_handing: ContextVar[tuple[str, str | None] | None] = ContextVar("safeser-handing", default=None)


# --- what is said of them ------------------------------------------------------------------------


class StatedKeys(dict[Any, Any]):
    """The holders of keys, as the scheduler names them, with the authors that it states.

    :ivar author: of the key that is to be computed; None if there is none.
    :ivar authors: of the others, where they are not of the same author.
    """

    author: str | None = None
    authors: Mapping[Any, str] = {}

    @classmethod
    def taken_from(cls, element: dict[str, Any]) -> None:
        """Move what *element* states of authors, which Dask does not know, to its keys."""
        keys = element["who_has"] = cls(element.get("who_has") or {})
        keys.author = element.pop("author", None)
        keys.authors = element.pop("authors", None) or {}


@contextmanager
def stating(name: str, **fields: Any) -> Iterator[None]:
    """Have the requests *name* that are sent meanwhile say *fields*."""
    token = _stated.set((name, fields))
    try:
        yield
    finally:
        _stated.reset(token)


def stated(request: dict[str, Any]) -> dict[str, Any]:
    """Return *request* with what is stated of the authors of its values."""
    said = _stated.get()
    return request if said is None or said[0] != request["op"] else {**request, **said[1]}


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
        """Note the *authors* of keys that this worker has by now."""
        self._of.update(authors)
        self._forget()

    def note_event(self, event: Any) -> None:
        """Note what the scheduler states with *event*, which the worker's state has handled."""
        keys = event.who_has
        if type(keys) is not StatedKeys:
            return
        own, of = keys.author, self._of
        if own is not None:
            # What its author signed counts more than what the scheduler says of it.
            of[event.key] = getattr(event.run_spec, "author", own)
            if keys:
                of.update(dict.fromkeys(keys, own))
        if keys.authors:
            of.update(keys.authors)
        self._forget()

    def _forget(self) -> None:
        """Forget the authors of keys that are gone, now and then."""
        if len(self._of) > self._most:
            there = self._server.state.tasks
            self._of = {key: author for key, author in self._of.items() if key in there}
            self._most = 2 * len(self._of) + _SPARE

    # --- shuffles --------------------------------------------------------------------------------

    def note_shuffle(self, shuffle: str, run_id: int, author: str) -> None:
        """Note the author of the latest run of a shuffle."""
        self._shuffles.pop(shuffle, None)
        self._shuffles[shuffle] = run_id, author
        if len(self._shuffles) > _SPARE:
            del self._shuffles[next(iter(self._shuffles))]

    def of_shuffle(self, shuffle: str, run_id: int) -> str | None:
        known, author = self._shuffles.get(shuffle, (None, None))
        return author if known == run_id else None

    # --- who may have them -----------------------------------------------------------------------

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
        """Take from *request*, for values, the keys that its peer may not read.

        A worker is sent the reason in place of each value: what it merely misses, it asks for
        again. A client does not get it: then it asks the scheduler, which knows what is published.
        """
        link, keys = comm.link, request.get("keys", ())
        comm.conversation.withheld = {}
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
            comm.conversation.withheld = _withheld(refused, errors)


#: Refused keys of one request that are recorded one by one.
_RECORDED = 20


def _errors(made: Iterable[PolicyDenied]) -> list[PolicyDenied]:
    return [error for _, error in zip(range(_RECORDED), made, strict=False)]


def _withheld(keys: Iterable[Any], errors: list[PolicyDenied]) -> dict[Any, Failure]:
    values = [failed_value(error) for error in errors]
    return {key: values[min(place, len(values) - 1)] for place, key in enumerate(keys)}


def require_reader(link: Any, name: str, author: str | None, what: Any) -> None:
    """Refuse that the peer on *link* has *what*, a value of *author*, by the request *name*.

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
