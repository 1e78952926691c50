"""What safeser knows of each Dask server in this process that listens on ``safeser://``.

The one rule: a server is registered before it listens, and a server that is not registered gets
Dask's own behaviour. The functions that stand in place of Dask's methods, see
:mod:`safeser.dask.patches`, are put there once for all servers, and look up here which server they
are called for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import ref

from safeser.channel import Channel
from safeser.dask.client_ids import ClientIds
from safeser.dask.sealed.value import Requests
from safeser.operations import Server

__all__ = ["Part", "Served", "link_of", "part_of", "register", "served"]

P = TypeVar("P", bound="Part")


class Part:
    """State that safeser keeps for one server, made when it is first asked for.

    It does not keep the server alive: it lasts as long as the server.
    """

    def __init__(self, server: Any, known: Served) -> None:
        self._server_ref = ref(server)
        self._known = known

    @property
    def _server(self) -> Any:
        server = self._server_ref()
        if server is None:
            raise ReferenceError("the Dask server is gone")
        return server


@dataclass(eq=False, kw_only=True)
class Served:
    """One server that listens on ``safeser://``.

    :param role: which of Dask's servers it is.
    :param channel: its identity, policy and log.
    :param client_ids: which principal each client's id belongs to, on a scheduler.
    :param requests: signed requests to run functions that a worker or nanny has taken.
    :param is_scheduler: tells whether a principal answered where this worker or nanny registered.
        A policy may let workers ask each other for all that their scheduler asks them for, so who
        could be a scheduler by policy is not the question.
    """

    role: Server
    channel: Channel
    client_ids: ClientIds = field(default_factory=ClientIds)
    requests: Requests = field(default_factory=Requests)
    is_scheduler: Callable[[str], bool] = lambda _: False
    _parts: dict[type[Part], Part] = field(default_factory=dict, init=False)

    def part(self, server: Any, kind: type[P]) -> P:
        """Return the one *kind* of *server*, to which this belongs."""
        found = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind(server, self)
        assert isinstance(found, kind)
        return found


#: The attribute of a server that says so: it is asked for several times for each task.
_KNOWN = "_safeser_served"


def register(server: Any, known: Served) -> Served:
    """Record what is *known* of *server*, at however many addresses it listens; the first stays."""
    first: Served = vars(server).setdefault(_KNOWN, known)
    return first


def served(server: Any) -> Served | None:
    """Return what is known of *server*, or None if it does not listen on ``safeser://``."""
    known: Served | None = getattr(server, _KNOWN, None)
    return known


def link_of(stream: Any) -> Any:
    """Return the link of a *stream* that a server or client of Dask's sends; None without one."""
    return getattr(getattr(stream, "comm", None), "link", None)


def part_of(server: Any, kind: type[P]) -> P | None:
    """Return the one *kind* of *server*, or None if it does not listen on ``safeser://``."""
    known = served(server)
    return None if known is None else known.part(server, kind)
