"""Rows of the list of patches for Dask's client, with or without :class:`safeser.Client`.

The one rule: a method of the client is replaced only where a peer's message would do more than be
read; :class:`safeser.Client` overrides the others that it changes.
"""

from __future__ import annotations

from typing import Any

from safeser.dask.clients.gathering import with_failures
from safeser.dask.contents.opened_graph import FAMILY, SERIALIZATION
from safeser.dask.patches.patch import Patch

__all__ = ["ROWS"]


def _own_functions(stock: Any) -> Any:
    """Return the functions of safeser's family, which nothing else has registered."""
    if stock is not None:
        raise ValueError(f"a serialization family {FAMILY} is registered already")
    return SERIALIZATION


# --- call actors where graphs are sealed: on the worker directly, in the caller's own session -----
# The one rule: the session of its caller authenticates a call. A scheduler that relayed calls could
# make others, of any method that the actor's class has.


def direct_worker_rpc(stock: property) -> property:
    """Return Dask's ``Actor._worker_rpc``, which leads past the scheduler if graphs are sealed."""
    ask = stock.fget
    assert ask is not None

    def worker_rpc(actor: Any) -> Any:
        found = ask(actor)  # binds the actor to a client or worker
        if actor._worker is None and getattr(actor._client, "seals", False):
            return actor._client.rpc(actor._address)
        return found

    return property(worker_rpc)


ROWS = (
    Patch(
        target="distributed.client:as_completed._track_future",
        reason="as_completed(with_results=True) waits for ever for a value that may not come.",
        process=("client",),
        needed=False,
        replace=with_failures,
    ),
    Patch(
        target="distributed.actor:Actor._worker_rpc",
        reason="A scheduler that opens nothing relays no calls of actors: it could make others.",
        process=("client",),
        needed=False,
        replace=direct_worker_rpc,
    ),
    Patch(
        target=f"distributed.protocol.serialize:families[{FAMILY}]",
        reason="Dask's scheduler opens a graph by a family that it knows; safeser hands"
        " it the tasks that were verified.",
        process=("scheduler", "client"),
        replace=_own_functions,
        source=("distributed.protocol.serialize:register_serialization_family",),
    ),
)
