"""Which principals may read a value of one scheduler: its author, and those that policy names.

The one rule: whatever hands a principal a value, or computes with it in that principal's name, asks
here first. The author of a value is the principal that submitted its key or scattered it; a dataset
that an authorised reader published may be read by every principal that may ask for it.

A graph that depends on a value is a reader as well: the result of a function that returns its
argument is that value.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from itertools import chain
from typing import Any

from safeser.dask.messages.author_statements import stating
from safeser.dask.scheduler.conflicts import Owners
from safeser.dask.servers import Part
from safeser.dask.wire.task_key import shown_key
from safeser.errors import AuditError, PolicyDenied, SafeserError
from safeser.gate.values import Context
from safeser.operations import GROUPS
from safeser.policy import Policy
from safeser.policy.questions.readable import readable
from safeser.policy.rules import WEAKEST

__all__ = ["Readers", "unreadable"]

#: Characters of a key that errors show: its submitter chose it.
_SHOWN = 60

#: What the names of clients begin with for which Dask's scheduler keeps published keys.
_PUBLISHED = "published-"

#: The link over which a dataset is published in this context.
_publisher: ContextVar[Any] = ContextVar("safeser-publisher", default=None)


def unreadable(policy: Policy, context: Context, key: Any, author: str | None) -> PolicyDenied:
    """Return the error that refuses the sender of *context* the value of *key*."""
    shown = shown_key(key, _SHOWN)
    whose = f"a value of {author!r}" if author else "a value whose author is not known"
    rule = policy.match(context)
    name = "a context" if rule is None else f"context {rule.name!r}"
    return PolicyDenied(
        f"{context.sender!r} may not read {shown!r}, {whose}",
        rule="values.author",
        where="keys",
        fix=f"If it should, ask the operator to list {author or 'its author'} under 'values' of"
        f" {name}, or its author to publish it as a dataset.",
    )


class Readers(Part):
    """The permitted readers of the values of one scheduler."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._owners = self._known.part(self._server, Owners)

    @property
    def _policy(self) -> Policy:
        return self._known.channel.policy

    def refusal(
        self, link: Any, context: Context, keys: Iterable[Any], *, every: bool = False
    ) -> SafeserError | None:
        """Return the refusal for the first of *keys* that the sender of *context* may not read.

        :param link: of the sender, whose log says whose they are; None if it has left.
        :param every: whether it may use the values of every author, unknown ones too.
        """
        if context.sender == context.recipient:
            return None
        tasks, may = self._server.tasks, readable(self._policy, context)
        others: set[str] = set()
        for key in keys:
            task = tasks.get(key)
            owner = context.sender if task is None else self._owners.of(task)
            wanting = () if task is None else task.who_wants or ()
            if owner == context.sender or any(
                each.client_key.startswith(_PUBLISHED) for each in wanting
            ):
                continue
            if owner not in may and not every:
                return unreadable(self._policy, context, key, owner)
            others.add(owner)
        try:
            if link is not None:
                link.note_reading(context, others)
        except AuditError as error:
            return error
        return None

    def require(self, link: Any, name: str, keys: Iterable[Any]) -> None:
        """Refuse the request *name* for values of *keys* that the peer on *link* may not read.

        :raises PolicyDenied: which was recorded.
        """
        context = link.inbound(WEAKEST[name], name)
        error = self.refusal(link, context, keys)
        if error is not None:
            link.note_refusal(context, error)
            error.recorded = True
            raise error

    def require_values(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse a *request* for values that its peer may not read, as :meth:`require` does."""
        self.require(comm.link, request["op"], request.get("keys", ()))

    def require_relayed(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse to relay a call of an actor whose peer may not read it.

        To the worker, the scheduler is the peer that asks.
        """
        asked = request.get("msg")
        if isinstance(asked, Mapping) and asked.get("op") in GROUPS["actors"]:
            self.require(comm.link, asked["op"], [asked.get("actor")])

    def of_graph(
        self, link: Any, context: Context, graph: Mapping[Any, Any]
    ) -> SafeserError | None:
        """Return the refusal of *graph* for an existing value that its author may not use.

        A key of the graph that exists already names the value of its first author.

        :param link: of the author; None if it has left.
        """
        every = self._policy.principals.keys() <= readable(self._policy, context)
        if every and self._known.channel.shadow is None:
            return None  # no policy is rehearsed that could tell values apart
        inputs = chain.from_iterable(node.dependencies for node in graph.values())
        keys = chain(graph, (key for key in inputs if key not in graph))
        return self.refusal(link, context, keys, every=every)

    async def gathered(
        self, stock: Callable[..., Awaitable[Any]], keys: Collection[Any], serializers: Any = None
    ) -> Any:
        """Return what ``Scheduler.gather``, *stock*, returns, if *keys* name the same tasks then.

        Dask looks for workers again after each that does not answer (distributed 2026.8.0,
        ``Scheduler.gather``). By then the key that was asked for may be another author's task.
        """
        tasks = self._server.tasks
        before = [(key, tasks.get(key)) for key in keys]
        there = (task for _, task in before if task is not None)
        # Where policy lets others bring data under a key that is taken, whose it is, is open.
        taken = self._policy.lets_keys_be_taken
        with stating("get_data", authors={} if taken else self._owners.of_tasks(there)):
            reply = await stock(keys, serializers)
        changed = [key for key, task in before if tasks.get(key) is not task]
        return {"status": "error", "keys": changed} if changed else reply

    # --- datasets --------------------------------------------------------------------------------

    async def put(self, stock: Callable[..., Any], comm: Any, *args: Any, **dataset: Any) -> Any:
        """Publish a dataset as *stock* does, on behalf of the peer on *comm*."""
        token = _publisher.set(None if comm is None else comm.link)
        try:
            said = stock(*args, **dataset)
            return await said if inspect.isawaitable(said) else said
        finally:
            _publisher.reset(token)

    def keep(self, stock: Callable[..., None], keys: Collection[Any], client: str) -> None:
        """Keep *keys* for *client* as *stock* does, if it is no dataset of others' values.

        :raises PolicyDenied: if its publisher may not read them, which was recorded.
        """
        link = _publisher.get()
        if link is not None and client.startswith(_PUBLISHED):
            self.require(link, "publish_put", keys)
        stock(keys, client)
