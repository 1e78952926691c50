"""Addresses that a client names to the scheduler, which would ask name servers for them.

The one rule: only workers that register have their host names looked up. Dask's scheduler does so
for whatever address a request or an annotation names, in its event loop, as often as one is named:
a list of names in a slow zone holds the whole cluster, and who answers for the zone hears of it.
"""

from __future__ import annotations

from ipaddress import ip_address
from types import MethodType
from typing import Any

from distributed.comm.addressing import parse_address, parse_host_port, unparse_host_port
from distributed.scheduler import Scheduler

from safeser.errors import ConfigError

__all__ = ["look_up_no_names"]

#: Workers' names that are remembered; a cluster has fewer.
_MAX_NAMES = 10_000

_THIS_MACHINE = ("", "localhost")


def look_up_no_names(scheduler: Any) -> None:
    """Have *scheduler* take addresses from clients, and no names of hosts."""
    if not isinstance(scheduler, Scheduler) or "coerce_address" in vars(scheduler):
        return
    stock = MethodType(type(scheduler).coerce_address, scheduler)
    registered: dict[str, str] = {}

    def coerce_address(addr: Any, resolve: bool | None = None) -> str:
        # Dask says whether to resolve for workers alone: those that register or send a heartbeat.
        if resolve is not None:
            found: str = stock(addr, resolve)
            if type(addr) is str and len(registered) < _MAX_NAMES:
                registered[addr] = found
            return found
        if type(addr) is str and addr in registered:
            return registered[addr]
        if addr not in scheduler.aliases:
            _require_no_name(unparse_host_port(*addr) if isinstance(addr, tuple) else addr)
        try:
            return str(stock(addr))
        except ConfigError as error:
            raise ValueError(error.message) from None

    scheduler.coerce_address = coerce_address


def _require_no_name(address: Any) -> None:
    """Raise what Dask raises itself of what is no address: it may be the name of a host."""
    if not isinstance(address, str):
        return  # Dask says so
    host, _ = parse_host_port(parse_address(address)[1])
    if host not in _THIS_MACHINE:
        try:
            ip_address(host.partition("%")[0])
        except ValueError:
            raise ValueError("a worker is named by its address, not by that of a host") from None
