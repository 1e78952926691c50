"""Addresses at which processes of a cluster listen, on this machine or as a scheduler names them.

The one rule: addresses that peers name are shown and compared, and never connected to.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from distributed.comm.addressing import parse_host_port

from safeser.dask.same_host import is_of_this_machine

__all__ = ["announced", "bound_here"]

_COMMANDS = ("dask", "dask-scheduler", "dask-worker")
_SERVERS = ("scheduler", "worker")
_EVERYWHERE = "all interfaces"
_ALL = ("0.0.0.0", "::")  # noqa: S104 - they are compared, not bound
_TEXT = 80


def bound_here(scheduler: str) -> list[tuple[str, list[str]]]:
    """Return the Dask commands of one cluster that this user runs here, and where each listens.

    It is the cluster of the scheduler at whose address a command, or a process that it started,
    listens or to which it is connected. What listens on all interfaces comes first.
    """
    host, port = parse_host_port(scheduler.partition("://")[2])
    try:
        asked = {str(found[4][0]) for found in socket.getaddrinfo(host, port)}
    except OSError:
        return []  # connecting there fails as well, and says so
    local = any(map(is_of_this_machine, asked))

    def is_scheduler(place: Any) -> bool:
        here = local and (place.ip in _ALL or is_of_this_machine(place.ip))
        return place.port == port and (here or place.ip in asked)

    found = []
    for name, sockets in _commands():
        bound = [each.laddr for each in sockets if each.status == psutil.CONN_LISTEN]
        if bound and any(is_scheduler(each.raddr or each.laddr) for each in sockets):
            found.append((name, sorted({_place(*each) for each in bound}, reverse=True)))
    return sorted(found, key=lambda each: not each[1][0].startswith(_EVERYWHERE))


def _commands() -> Iterator[tuple[str, list[Any]]]:
    """Yield the name of each Dask command of this user, and its sockets."""
    for process in psutil.process_iter(["cmdline", "uids"]):
        uids, words = process.info["uids"], process.info["cmdline"] or []
        named = [Path(word).name for word in words[:4]]
        at = next((n for n, name in enumerate(named) if name in _COMMANDS), None)
        if at is None or uids is None or uids.effective != os.geteuid():
            continue
        server = named[at + 1] if named[at] == "dask" and len(named) > at + 1 else ""
        if named[at] == "dask" and server not in _SERVERS:
            continue
        yield f"{named[at]} {server}".strip() + f" (pid {process.pid})", list(_sockets(process))


def _sockets(process: psutil.Process) -> Iterator[Any]:
    try:
        for each in (process, *process.children(recursive=True)):
            yield from each.net_connections(kind="tcp")
    except psutil.Error:
        return  # it ended meanwhile


def _place(ip: str, port: int) -> str:
    if ip in _ALL:
        return f"{_EVERYWHERE}, port {port}"
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def announced(identity: Mapping[str, Any], reached: str) -> Iterator[tuple[bool, str, str]]:
    """Yield whether something is wrong with the addresses that a scheduler names, what, and a fix.

    :param reached: the address at which it answered.
    """
    own = str(identity.get("address", ""))[:_TEXT]
    named = identity.get("workers")
    workers = [str(each)[:_TEXT] for each in named] if isinstance(named, Mapping) else []
    if not _is_loopback(reached) and _is_loopback(own):
        yield (
            True,
            f"the scheduler tells workers to reach it at {own}, which is this machine to each",
            "Start it with '--host' or '--contact-address' of an address that they reach.",
        )
        return
    local = [each for each in workers if _is_loopback(each)]
    if local and not _is_loopback(own):
        yield (
            True,
            f"{len(local)} of {len(workers)} workers listen on loopback only, such as {local[0]}",
            "Start workers with '--host' of their machine's own address.",
        )
        return
    count = identity.get("n_workers")
    total = count if type(count) is int else len(workers)
    yield False, f"{own}; workers: {total}", ""


def _is_loopback(address: str) -> bool:
    try:
        host = parse_host_port(address.partition("://")[2], 0)[0]
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return address.partition("://")[2].startswith("localhost:")
