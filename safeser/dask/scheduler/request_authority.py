"""Check requests that need more than a grant, against the state of the server.

The one rule: a request is checked in one turn of the event loop with the handler that serves it.
The policy decides whether a principal may ask for an operation at all; this module decides for
which worker, which shuffle and whose values.

The checks stand before Dask's handlers and not in their place: a handler of another release is
checked just the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from safeser.dask.scheduler import worker_authority
from safeser.dask.scheduler.readers import Readers
from safeser.dask.scheduler.worker_authority import Workers
from safeser.dask.servers import Served
from safeser.dask.worker import direct_requests, nannies
from safeser.dask.worker.value_authors import Authors
from safeser.operations import GROUPS, Server

__all__ = ["require_authority"]

Request = Mapping[str, Any]
_Check = Callable[[Served, Any, Any, Request], Awaitable[None] | None]


def _own_scheduler(known: Served, _: Any, comm: Any, request: Request) -> None:
    direct_requests.require_own_scheduler(comm.link, request["op"], known.is_scheduler)


def _own_worker(known: Served, server: Any, comm: Any, _: Request) -> None:
    nannies.require_own_worker(server, comm, worker_key=known.worker_key)


def _runs_code(known: Served, _: Any, comm: Any, request: Request) -> None:
    nannies.require_unconfined(known, comm, request["op"])


#: Requests about workers, and about what they have or compute, by what decides them.
_OF_WORKERS: Mapping[str, Callable[[Workers, Any, str, Request], Awaitable[None] | None]] = {
    **dict.fromkeys(worker_authority.ABOUT, Workers.require_own),
    "unregister": Workers.require_ending,
    "replicate": Workers.require_client,
    "rebalance": Workers.require_client,
    "shuffle_barrier": Workers.require_barrier,
    "shuffle_restrict_task": Workers.require_part,
}


def _asks_workers(
    known: Served, server: Any, comm: Any, request: Request
) -> Awaitable[None] | None:
    name = request["op"]
    return _OF_WORKERS[name](known.part(server, Workers), comm.link, name, request)


def _reads(known: Served, server: Any, comm: Any, request: Request) -> None:
    known.part(server, Readers).require(comm.link, request["op"], request.get("keys", ()))


def _relays(known: Served, server: Any, comm: Any, request: Request) -> None:
    asked = request.get("msg")
    if isinstance(asked, Mapping) and asked.get("op") in GROUPS["actors"]:
        # To the worker, the scheduler is the peer that asks.
        known.part(server, Readers).require(comm.link, asked["op"], [asked.get("actor")])


def _calls(known: Served, server: Any, comm: Any, request: Request) -> None:
    author = known.part(server, Authors).of(request.get("actor"))
    direct_requests.require_reader(comm.link, request["op"], known.is_scheduler, author)


def _fetches(known: Served, server: Any, comm: Any, request: Request) -> None:
    direct_requests.require_reader(comm.link, request["op"], known.is_scheduler)
    assert isinstance(request, dict)
    known.part(server, Authors).leave_out_former(request)


_CHECKS: Mapping[tuple[Server, str], _Check] = {
    **{(Server.WORKER, name): _own_scheduler for name in direct_requests.CHANGES},
    (Server.WORKER, "get_data"): _fetches,
    **{(Server.WORKER, name): _calls for name in GROUPS["actors"]},
    (Server.NANNY, "close_gracefully"): _own_worker,
    (Server.NANNY, "run"): _runs_code,
    (Server.NANNY, "plugin_add"): _runs_code,
    **{(Server.SCHEDULER, name): _asks_workers for name in _OF_WORKERS},
    (Server.SCHEDULER, "gather"): _reads,
    (Server.SCHEDULER, "proxy"): _relays,
    (Server.SCHEDULER, "broadcast"): _relays,
}


def require_authority(
    known: Served, server: Any, comm: Any, request: Any
) -> Awaitable[None] | None:
    """Refuse a *request* that its peer may not make of *server* as it is now.

    :param request: admitted and built; what is no request is not for this to judge.
    :return: the rest of the check, if that takes time: await it before the handler is called.
    :raises PolicyDenied: which was recorded.
    """
    name = request.get("op") if isinstance(request, dict) else None
    check = _CHECKS.get((known.role, name)) if isinstance(name, str) else None
    return None if check is None else check(known, server, comm, request)
