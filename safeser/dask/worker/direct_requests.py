"""Requests to a worker, from peers other than its scheduler, for its values or to change them.

The one rule: the scheduler decides who reads which value, and under which keys data may stand. A
worker gives values to principals that may read all of them, and every other client asks the
scheduler. A worker that holds a value under a key takes it for the result of the task of that name,
whichever peer brought it, and the scheduler is not told. So only two kinds of peers have values
brought, fetched and dropped: the scheduler, and principals that may run code in the worker, sealed
or not, which could change every value there anyway. Of a shuffle, a worker writes the parts that
the scheduler assigned to it.

Dask makes the name of a file of a partition's number, in the folder of the shuffle, and takes it
from the shards themselves (distributed 2026.8.0, ``shuffle/_core.py``): a column of text in place
of numbers, or a tuple of text, leads up from that folder, and one worker's bytes are appended to
any file that the user of another worker's process may write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

from safeser.channel import Link
from safeser.channel.records import note_refusal
from safeser.dask.servers import Part
from safeser.dask.settings import open_channels
from safeser.dask.worker.value_authors import Authors
from safeser.errors import PayloadError
from safeser.gate.values import UNKNOWN, Context, Kind
from safeser.policy.questions.readable import readable, reads_all, runs_code
from safeser.policy.rules import WEAKEST

__all__ = ["CHANGES", "Direct", "write_own"]

#: Requests that change the values of a worker, and what the refused sender can do instead.
CHANGES = {
    "update_data": "Leave out direct=True: the scheduler checks the owners of the keys.",
    "gather": "Ask the scheduler to replicate.",
    "free_keys": "Release the futures: the scheduler has workers drop what no client wants.",
}


class Direct(Part):
    """What peers ask one worker for by themselves."""

    def require_changing(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse a request that changes its values, unless its scheduler makes it.

        :raises PolicyDenied: which was recorded.
        """
        # By this very connection: contexts of the policy may ask how it travels, and where from.
        link, name = comm.link, request["op"]
        context, is_scheduler = link.inbound(Kind.DATA, name), self._known.is_scheduler
        schedulers = filter(is_scheduler, link.policy.principals)
        if not is_scheduler(link.peer) and not runs_code(link.policy, context, schedulers):
            link.refuse(
                context,
                "key.direct",
                f"a worker does {name} only for its scheduler and principals that may run code in"
                " it",
                fix=CHANGES[name],
            )

    def require_fetching(self, comm: Any, request: dict[str, Any]) -> None:
        """Refuse to give values to a peer that may not read those of every author.

        :raises PolicyDenied: which was recorded.
        """
        self._require_reader(comm.link, request["op"])
        self._known.part(self._server, Authors).leave_out_former(request)

    def require_calling(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse to call an actor for a peer that may not read its author's values.

        :raises PolicyDenied: which was recorded.
        """
        author = self._known.part(self._server, Authors).of(request.get("actor"))
        self._require_reader(comm.link, request["op"], author)

    def _require_reader(self, link: Link, name: str, author: str | None = None) -> None:
        """Refuse *name* to a peer that may not read all values.

        :param author: of the only value that is read, where it is known: an actor's.
        """
        if link.peer == link.local or self._known.is_scheduler(link.peer):
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
                f"a worker does {name} only for principals that may read the values of every"
                " author",
                fix="Leave out direct=True: the scheduler hands out the values that you may read."
                " Or ask the operator to list every author under 'values' of your context with"
                " workers.",
            )


# --- parts of a shuffle --------------------------------------------------------------------------


#: Which partitions each run of a shuffle keeps here, which does not change.
_known: WeakKeyDictionary[Any, frozenset[Any]] = WeakKeyDictionary()


async def write_own(
    stock: Callable[[Any], Awaitable[None]], run: Any, data: Mapping[Any, Any]
) -> None:
    """Write the shards *data* of a shuffle's *run* as *stock* does, if they are this worker's own.

    :raises PayloadError: which was recorded; the sender of a shard is not known here.
    """
    own = _known.get(run)
    if own is None:
        # As they are named when they are written: those of frames are numbers, of arrays tuples.
        assigned = run.partitions_of.get(run.local_address, ())
        own = frozenset(each if isinstance(each, tuple) else (each,) for each in assigned)
        _known[run] = own
    for partition in data:
        # True and 1.0 are equal to 1, and are spelt otherwise.
        numbered = isinstance(partition, tuple) and all(
            isinstance(each, Integral) and not isinstance(each, bool) for each in partition
        )
        if numbered and partition in own:
            continue
        error = PayloadError(
            "a shard is of no part of the shuffle that this worker keeps",
            rule="shuffle.partition",
            where="data",
        )
        for channel in open_channels():
            told = Context(UNKNOWN, channel.identity.principal, Kind.DATA, "shuffle_receive")
            note_refusal(channel.audit, told, error)
        raise error
    await stock(data)
