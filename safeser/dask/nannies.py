"""Nannies: whose word one takes for its worker's, and how long others wait for one that starts.

The one rule: of a worker that retires, its nanny hears from that worker, or from somebody who may
end it anyway; and no nanny that never finishes to start keeps anybody waiting.

In distributed 2026.8.0 whoever asks a nanny to close gracefully has it start no worker any more: a
worker's key was enough to have each node of the cluster lost at its worker's next end. And a
plugin for nannies waits for each one that said that it starts and not yet that it did, for ever;
any worker's key was enough to say so.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
from distributed.comm.addressing import parse_address, parse_host_port

from safeser.dask.servers import Part
from safeser.values import Kind

__all__ = ["Starting", "require_own_worker"]

logger = logging.getLogger("safeser.dask")

#: So long does a plugin wait for nannies that start; they get it afterwards if they take longer.
PATIENCE = 30.0


# --- on a nanny ----------------------------------------------------------------------------------


def require_own_worker(nanny: Any, comm: Any, *, worker_key: str | None) -> None:
    """Refuse a peer that tells *nanny* that a worker retires, unless it is its own.

    :param worker_key: the key that its worker has; None if that is not known here.
    :raises PolicyDenied: which was recorded.
    """
    link = comm.link
    if not _may_end(link) and not _is_of(nanny, comm, link, worker_key):
        link.refuse(
            link.inbound(Kind.CONTROL, "close_gracefully"),
            "nanny.another",
            "a nanny is told by its own worker alone that this retires",
        )


def _may_end(link: Any) -> bool:
    permits = link.policy.permits_operation
    return bool(permits(link.inbound(Kind.CONTROL, "kill")).permitted)


def _is_of(nanny: Any, comm: Any, link: Any, key: str | None) -> bool:
    """Tell whether the peer on *comm* is the worker of *nanny*: by its key, or by its process."""
    if key is not None and link.session.peer_key.text == key:
        return True
    # It may have been given another key than this process knows of.
    pid = nanny.pid
    if not pid:
        return False
    peer = parse_host_port(parse_address(comm.peer_address)[1])
    try:
        held = psutil.Process(pid).net_connections(kind="inet")
    except psutil.Error:
        return False
    return any(tuple(each.laddr[:2]) == peer for each in held)


# --- on the scheduler ----------------------------------------------------------------------------


class Starting(Part):
    """The nannies that have registered and not yet said that they started."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._numbers = itertools.count()
        #: What each of them was not waited for, by the name that Dask has for it meanwhile.
        self._missed: dict[str, dict[str, Any]] = {}

    async def register(self, stock: Callable[..., Awaitable[Any]], comm: Any, address: str) -> Any:
        """Do what ``Scheduler.add_nanny``, *stock*, does, and tell of plugins that came meanwhile.

        Each is one of its own: of two that say the same address, the first to leave would take the
        other's place with it.
        """
        name = f"{address} ({next(self._numbers)})"
        missed = self._missed[name] = {}
        try:
            await stock(comm, address=name)
        finally:
            del self._missed[name]
        for plugin, content in missed.items():
            if self._server.nanny_plugins.get(plugin) is content:
                await self._tell(address, plugin, content)

    async def _tell(self, address: str, plugin: str, content: bytes) -> None:
        try:
            await self._server.rpc(address).plugin_add(plugin=content, name=plugin)
        except Exception as error:  # whatever the nanny answers; nobody waits for it any more
            logger.warning("The nanny at %s did not take %s: %s", address, plugin, error)

    async def register_plugin(self, plugin: bytes, name: str, idempotent: bool) -> Any:
        """Do as ``Scheduler.register_nanny_plugin``, which waits until no nanny starts at all."""
        scheduler = self._server
        if name in scheduler.nanny_plugins and idempotent:
            return {}
        logger.info("Registering Nanny plugin %s", name)
        scheduler.nanny_plugins[name] = plugin
        late = await self._wait(frozenset(self._missed))
        reached = {state.nanny for state in scheduler.workers.values()}
        for each in late:
            if each.rpartition(" ")[0] not in reached:
                self._missed[each][name] = plugin
        told = {"op": "plugin_add", "plugin": plugin, "name": name}
        return await scheduler.broadcast(msg=told, nanny=True)

    async def _wait(self, starting: frozenset[str]) -> frozenset[str]:
        """Wait for *starting*, and for none that come later: these are told of the plugin."""
        over = self._server._starting_nannies_cond

        async def started() -> None:
            async with over:
                await over.wait_for(lambda: starting.isdisjoint(self._missed))

        try:
            await asyncio.wait_for(started(), PATIENCE)
        except TimeoutError:
            logger.warning("Some nannies take long to start, and are not waited for any longer")
        return starting & self._missed.keys()
