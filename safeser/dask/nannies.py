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
from typing import Any

import psutil
from distributed.comm.addressing import parse_address, parse_host_port
from distributed.nanny import Nanny
from distributed.scheduler import Scheduler

from safeser.dask.replies import error_reply
from safeser.errors import PolicyDenied
from safeser.values import Kind

__all__ = ["guard_nanny", "wait_for_nannies"]

logger = logging.getLogger("safeser.dask")

#: So long does a plugin wait for nannies that start; they get it afterwards if they take longer.
PATIENCE = 30.0


# --- on a nanny ----------------------------------------------------------------------------------


def guard_nanny(nanny: Any, worker_key: str | None) -> None:
    """Have *nanny* hear of its own worker alone that this retires; to be called before it listens.

    :param worker_key: the key that its worker has; None if that is not known here.
    """
    if not isinstance(nanny, Nanny):
        return
    stock = nanny.handlers["close_gracefully"]

    def close_gracefully(comm: Any, **request: Any) -> Any:
        link = getattr(comm, "link", None)
        if link is None or _may_end(link) or _is_of(nanny, comm, link, worker_key):
            return stock(**request)
        try:
            link.refuse(
                link.inbound(Kind.CONTROL, "close_gracefully"),
                "nanny.another",
                "a nanny is told by its own worker alone that this retires",
            )
        except PolicyDenied as error:
            return error_reply(error)

    nanny.handlers["close_gracefully"] = close_gracefully


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


def wait_for_nannies(scheduler: Any) -> None:
    """Have *scheduler* wait for nannies that start, and end that; calling it again is harmless."""
    if not isinstance(scheduler, Scheduler):
        return
    if not isinstance(getattr(scheduler.handlers["register_nanny"], "__self__", None), _Starting):
        _Starting(scheduler)


class _Starting:
    """The nannies that have registered and not yet said that they started."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._register = scheduler.handlers["register_nanny"]
        self._numbers = itertools.count()
        #: What each of them was not waited for, by the name that Dask has for it meanwhile.
        self._missed: dict[str, dict[str, Any]] = {}
        scheduler.handlers["register_nanny"] = self.register
        scheduler.handlers["register_nanny_plugin"] = self.register_plugin

    async def register(self, comm: Any, address: str) -> Any:
        # Each is one of its own: of two that say the same address, the first to leave would take
        # the other's place with it.
        name = f"{address} ({next(self._numbers)})"
        missed = self._missed[name] = {}
        try:
            await self._register(comm, address=name)
        finally:
            del self._missed[name]
        for plugin, content in missed.items():
            if self._scheduler.nanny_plugins.get(plugin) is content:
                await self._tell(address, plugin, content)

    async def _tell(self, address: str, plugin: str, content: bytes) -> None:
        try:
            await self._scheduler.rpc(address).plugin_add(plugin=content, name=plugin)
        except Exception as error:  # whatever the nanny answers; nobody waits for it any more
            logger.warning("The nanny at %s did not take %s: %s", address, plugin, error)

    async def register_plugin(
        self, comm: Any, plugin: bytes, name: str, idempotent: bool = False
    ) -> Any:
        """Do as ``Scheduler.register_nanny_plugin``, which waits until no nanny starts at all."""
        scheduler = self._scheduler
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
        over = self._scheduler._starting_nannies_cond

        async def started() -> None:
            async with over:
                await over.wait_for(lambda: starting.isdisjoint(self._missed))

        try:
            await asyncio.wait_for(started(), PATIENCE)
        except TimeoutError:
            logger.warning("Some nannies take long to start, and are not waited for any longer")
        return starting & self._missed.keys()
