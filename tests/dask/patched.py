"""Rows of the list of patches, installed for as long as a test needs them.

A test process keeps Dask as it is otherwise: many tests compare what safeser does with what Dask
does by itself, and speak ``tcp://``, which the whole list closes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from distributed.comm import Comm
from distributed.core import _expects_comm

from safeser.channel import Channel
from safeser.dask import patches, servers
from safeser.dask.messages.refused import error_reply
from safeser.dask.patches import PATCHES, Patch, scheduler, worker
from safeser.dask.patches.patch import (
    _holder,
    _replaced,
    _replacements,
    apply,
    is_applied,
    stock_of,
)
from safeser.dask.scheduler.request_authority import require_authority
from safeser.errors import PolicyDenied
from safeser.operations import Server

#: Closes every other scheme of the process.
CLOSES = "distributed.comm.registry:backends"

#: Leave every server alone that is not registered.
OF_SERVERS = tuple(
    each.target
    for each in (*scheduler.ROWS, *worker.ROWS)
    if each.target != CLOSES and not any(word in each.target for word in ("security", "shuffle"))
)


def row(target: str) -> Patch:
    [found] = [each for each in PATCHES if each.target == target]
    return found


@contextmanager
def patched(*targets: str) -> Iterator[None]:
    """Install the rows of *targets*, or all that leave ``tcp://`` open."""
    rows = [
        each
        for each in PATCHES
        if each.target in targets or (not targets and each.target != CLOSES)
    ]
    assert rows
    assert len(rows) >= len(targets)
    with ExitStack() as undoing:
        for each in rows:
            if not (each.waits or is_applied(each)):
                apply(each)
                undoing.callback(undo, each)
        yield


def original(target: str) -> Any:
    """Return what Dask has at *target*, which is replaced once a backend was loaded."""
    return _replaced[target] if target in _replaced else stock_of(target)


def with_rows(cls: Any, *targets: str) -> Any:
    """Return a class like *cls*, whose methods are replaced as those of Dask's class would be."""
    rows = [row(target) for target in targets]
    names = [each.target.rpartition(".")[2] for each in rows]
    made = {
        name: each.replacement(getattr(cls, name)) for name, each in zip(names, rows, strict=True)
    }
    return type(cls.__name__, (cls,), made)


class Peer:
    """A connection, as far as a handler asks it who is there."""

    def __init__(self, link: Any = None, address: str = "safeser://127.0.0.1:1") -> None:
        self.peer_address = address
        if link is not None:
            self.link = link


Comm.register(Peer)


def asked(server: Any, handlers: Any, comm: Any, name: str, **request: Any) -> Any:
    """Return what *server* says to *request*, as it does where it reads from *comm*."""
    known = servers.served(server)
    handler = handlers[name]
    call = partial(handler, comm) if _expects_comm(handler) else handler
    try:
        if known is not None and getattr(comm, "link", None) is not None:
            require_authority(known, server, comm, {"op": name, **request})
    except PolicyDenied as error:
        return error_reply(error)
    return call(**request)


def undo(patch: Patch) -> None:
    """Put back what Dask has where *patch* was applied."""
    stock = _replaced.pop(patch.target)
    holder, name, is_item = _holder(patch.target)
    if not is_item:
        setattr(holder, name, stock)
        _replacements.pop(stock, None) if callable(stock) else None
    elif stock is None:
        del holder[name]
    else:
        holder[name] = stock


def serve(server: Any, role: Server, channel: Channel, **known: Any) -> servers.Served:
    """Register *server*, as its listener does; a channel may be only what is asked of it."""
    found = servers.register(server, servers.Served(role=role, channel=channel, **known))
    patches.rebind(server)
    return found
