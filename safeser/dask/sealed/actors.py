"""Calls of actors where graphs are sealed: to the worker itself, in the caller's own session.

The one rule: what a call asks for is vouched for by the session that it comes by. A scheduler that
relays calls could make others, of any method that the actor's class has.
"""

from __future__ import annotations

from typing import Any

__all__ = ["directly"]


def directly(stock: property) -> property:
    """Return Dask's ``Actor._worker_rpc``, which leads past the scheduler if graphs are sealed."""
    ask = stock.fget
    assert ask is not None

    def worker_rpc(actor: Any) -> Any:
        found = ask(actor)  # binds the actor to a client or worker
        if actor._worker is None and getattr(actor._client, "seals", False):
            return actor._client.rpc(actor._address)
        return found

    return property(worker_rpc)
