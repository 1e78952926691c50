"""Resolve no host names that peers send to the scheduler, except those of registering workers.

The one rule: the host name of a worker that registers is looked up, and only its registration waits
for the answer. Dask's scheduler looks up every address in a request or an annotation, in its event
loop, each time: a list of names in a slow zone blocks the whole cluster, and the zone's name server
learns of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from numbers import Number
from typing import Any

from distributed.comm.addressing import (
    normalize_address,
    parse_address,
    parse_host_port,
    resolve_address,
    unparse_host_port,
)

from safeser.dask.servers import Part
from safeser.errors import ConfigError, PayloadError

__all__ = ["Names", "place", "resolved"]

_THIS_MACHINE = ("", "localhost")

#: Not the event loop's own threads, which others need to connect.
_lookups = ThreadPoolExecutor(max_workers=4, thread_name_prefix="safeser-names")


async def resolved(address: str) -> str:
    """Return *address* with that of its host in place of a name.

    :raises OSError: if there is none of that name.
    """
    if not _is_name(address):
        return address
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_lookups, resolve_address, address)


def place(address: str) -> tuple[str, int | None]:
    """Return where *address* leads, whatever its spelling; ValueError if it is none.

    A server of this machine may listen at any of its addresses.
    """
    host, port = parse_host_port(parse_address(address)[1])
    if host in _THIS_MACHINE:
        return "here", port
    ip = ip_address(host.partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ("here" if ip.is_loopback or ip.is_unspecified else str(ip)), port


class Names(Part):
    """The addresses of one scheduler's workers that registered by the name of a host."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._found: dict[str, str] = {}

    async def look_up(self, address: Any) -> None:
        """Look the host of a worker up that is about to register as *address*.

        :raises OSError: if there is none of that name.
        """
        if type(address) is not str or ("://" not in address and address in self._server.aliases):
            return
        if _is_name(address):
            self._found[address] = await resolved(address)

    def forget(self, address: Any) -> None:
        """Forget what :meth:`look_up` found for *address*, unless a worker is there."""
        if self._found.get(address) not in self._server.workers:
            self._found.pop(address, None)

    def coerce_address(
        self, stock: Callable[..., str], addr: Any, resolve: bool | None = None
    ) -> str:
        """Return what ``Scheduler.coerce_address``, *stock*, does of an address and no name.

        Dask says whether to resolve for workers alone: those that register or send a heartbeat.
        """
        if resolve is not False and type(addr) is str and addr in self._found:
            return self._found[addr]
        if type(addr) is str and addr in self._server.workers:
            return addr  # whatever name another worker chose
        # A worker says where it is, whatever name another worker chose.
        says_where = resolve is not None and type(addr) is str and "://" in addr
        if says_where or addr not in self._server.aliases:
            if isinstance(addr, Number):  # by which no worker registered
                raise PayloadError(
                    f"there is no worker of the name {addr!r:.20}",
                    rule="worker.unknown",
                    fix="Name workers as client.scheduler_info()['workers'] does, by address or"
                    " name.",
                )
            named = unparse_host_port(*addr) if isinstance(addr, tuple) else addr
            if resolve and isinstance(named, str) and _is_name(named):
                return named  # a heartbeat of a worker that left, or never registered
            # What Dask raises itself of what is no address: it may be the name of a host.
            if isinstance(named, str) and _is_name(named):  # of anything else, Dask says so
                raise ValueError("a worker is named by its address, not by that of a host")
            if isinstance(named, str) and "://" not in named:
                addr = f"safeser://{named}"  # which is the scheme of every process here
        try:
            if says_where:
                return str(resolve_address(addr) if resolve else normalize_address(addr))
            return str(stock(addr) if resolve is None else stock(addr, resolve))
        except ConfigError as error:
            raise ValueError(error.message) from None


def _is_name(address: str) -> bool:
    """Tell whether *address* names a host that is to be looked up; ValueError if it is none."""
    host, _ = parse_host_port(parse_address(address)[1])
    if host in _THIS_MACHINE:
        return False
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return True
    return False
