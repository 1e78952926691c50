"""Rows of the list of patches for what every Dask server opens beside its comms.

The one rule: a peer that could not connect over ``safeser://`` reaches no server in another way,
and nothing that is downloaded becomes code (:mod:`safeser.dask.worker.process_surface`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeser.dask.monitoring import show
from safeser.dask.patches.patch import ANY, Patch
from safeser.dask.servers import served
from safeser.dask.transport.connection_roles import with_role
from safeser.dask.transport.other_schemes import sealed
from safeser.dask.worker.process_surface import confine_web_server, refuse_download

__all__ = ["ROWS"]


def _starting_confined(stock: Callable[..., None]) -> Callable[..., None]:
    def start_http_server(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        known = served(self)
        if known is not None:
            confine_web_server(self, known.channel.policy)
            show(self)

    return start_http_server


ROWS = (
    Patch(
        target="distributed.comm.registry:backends",
        reason="An address in a message chooses the transport: a worker whose own links were signed"
        " was told to gather from tcp:// and ran the pickle that came back.",
        process=ANY,
        replace=sealed,
        source=("distributed.comm.registry:get_backend",),
    ),
    Patch(
        target="distributed.security:Security.get_connection_args",
        reason="A connection's arguments do not say for which role it is opened, so that in a"
        " process of several roles one would speak as another.",
        process=ANY,
        replace=with_role,
    ),
    Patch(
        target="distributed.node:ServerNode.start_http_server",
        reason="A worker's dashboard, which authenticates no request, listens on all interfaces.",
        process=("worker",),
        replace=_starting_confined,
    ),
    Patch(
        target="distributed.preloading:_download_module",
        reason="A preload that is a web address is downloaded and run.",
        process=("scheduler", "worker", "nanny"),
        replace=lambda stock: refuse_download,
        source=(
            "distributed.preloading:_download_module",
            "distributed.preloading:Preload.__init__",
        ),
    ),
)
