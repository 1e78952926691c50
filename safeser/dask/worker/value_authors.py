"""Authors of the values of one worker: which task's value it has under a key.

The one rule: a value is named by key and author. A key outlives no task: once the scheduler forgets
it, another author's task may get it, while some worker still has the former value. So a process
that fetches a value states its author, and so does a worker that reports a copy.

The author of a task is in its statement where it is sealed. Of all else the scheduler says it with
the message by which the worker gets a value or has to fetch it: the worker that gives the value is
not asked. What a client brings by itself is that client's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from safeser.dask.messages.author_statements import statement, stating, take_stated
from safeser.dask.messages.fetched import gather_apart
from safeser.dask.servers import Part
from safeser.gate.values import Kind

__all__ = ["Authors"]

#: Entries of released keys that are kept beyond twice the number of those in use.
_SPARE = 1_000


class Authors(Part):
    """The authors of the values of one worker."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._of: dict[Any, str] = {}
        self._most = _SPARE

    def of(self, key: Any) -> str | None:
        """Return the author of the value of *key*, if it is known."""
        return self._of.get(key)

    def note(self, authors: Mapping[Any, str]) -> None:
        """Record the *authors* of keys that this worker has by now."""
        self._of.update(authors)
        if len(self._of) > self._most:
            there = self._server.state.tasks
            self._of = {key: author for key, author in self._of.items() if key in there}
            self._most = 2 * len(self._of) + _SPARE

    def batched_send(self, stock: Callable[[Any], None], message: dict[str, Any]) -> None:
        """Send *message* as *stock* does; a report of copies states their authors."""
        reports = message.get("op") == "add-keys"
        stock({**message, **statement(message["keys"], self._of)} if reports else message)

    async def gather_dep(
        self, stock: Callable[..., Any], worker: str, to_gather: Any, *args: Any, **more: Any
    ) -> Any:
        """Fetch values as *stock* does, of their present authors, each of which may be refused."""
        with self.wanted(to_gather):
            return await gather_apart(stock, worker, to_gather, *args, **more)

    def wanted(self, keys: Iterable[Any]) -> AbstractContextManager[None]:
        """Require the present authors for values of *keys* that are fetched within the block.

        Not where policy lets others bring data under a key that is taken: whose it is, is open.
        """
        known = {key: self._of[key] for key in keys if key in self._of}
        if known and self._known.channel.policy.lets_keys_be_taken:
            known = {}
        return stating("get_data", authors=known)

    # --- values of others ------------------------------------------------------------------------

    def of_others(self, authors: Mapping[Any, str]) -> list[Any]:
        """Return the keys under which this worker knows values of other authors than *authors*."""
        known = self._of
        return [
            key for key, author in authors.items() if author and known.get(key, author) != author
        ]

    def require_free(self, link: Any, keys: Iterable[Any]) -> list[Any]:
        """Return those of *keys* under which the peer on *link* may bring data.

        :raises PolicyDenied: if another author's value is here under one of them, or on its way.
        """
        there = self._server.state.tasks
        taken = {key for key in self.of_others(dict.fromkeys(keys, link.peer)) if key in there}
        if taken and not self._known.channel.policy.lets_keys_be_taken:
            link.refuse(
                link.inbound(Kind.DATA, "update_data"),
                "key.definition",
                "this worker has a task of another author under a key of these data",
                fix="Choose another key.",
            )
        return [key for key in keys if key not in taken]

    def leave_out_former(self, request: dict[str, Any]) -> None:
        """Leave out of *request*, for values, the keys by which its peer means others than these.

        As if they were not here: Dask asks the next holder.
        """
        keys = request.get("keys", ())
        former = set(self.of_others(take_stated(request, keys)))
        if former:
            request["keys"] = [key for key in keys if key not in former]
