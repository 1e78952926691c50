"""Check requests that need more than a grant, against the state of the server.

The one rule: a request is checked in one turn of the event loop with the handler that serves it.
The policy decides whether a principal may ask for an operation at all; this module decides for
whose values.

The checks stand before Dask's handlers and not in their place: a handler of another release is
checked just the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from safeser.dask.scheduler.readers import Readers
from safeser.dask.scheduler.workers import Workers
from safeser.dask.servers import Part, Served
from safeser.dask.worker import direct_requests
from safeser.dask.worker.direct_requests import Direct
from safeser.operations import GROUPS, Server

__all__ = ["require_authority"]

#: By server and request the part that decides, and its method, which gets connection and request.
_CHECKS: Mapping[tuple[Server, str], tuple[type[Part], Callable[[Any, Any, Any], None]]] = {
    **{
        (Server.WORKER, name): (Direct, Direct.require_changing) for name in direct_requests.CHANGES
    },
    (Server.WORKER, "get_data"): (Direct, Direct.require_fetching),
    **{(Server.WORKER, name): (Direct, Direct.require_calling) for name in GROUPS["actors"]},
    (Server.SCHEDULER, "unregister"): (Workers, Workers.require_ending),
    (Server.SCHEDULER, "replicate"): (Workers, Workers.require_client),
    (Server.SCHEDULER, "rebalance"): (Workers, Workers.require_client),
    (Server.SCHEDULER, "gather"): (Readers, Readers.require_values),
    (Server.SCHEDULER, "proxy"): (Readers, Readers.require_relayed),
    (Server.SCHEDULER, "broadcast"): (Readers, Readers.require_relayed),
}


def require_authority(known: Served, server: Any, comm: Any, request: Any) -> None:
    """Refuse a *request* that its peer may not make of *server* as it is now.

    :param request: admitted and built; what is no request is not for this to judge.
    :raises PolicyDenied: which was recorded.
    """
    name = request.get("op") if isinstance(request, dict) else None
    check = _CHECKS.get((known.role, name)) if isinstance(name, str) else None
    if check is not None:
        kind, require = check
        require(known.part(server, kind), comm, request)
