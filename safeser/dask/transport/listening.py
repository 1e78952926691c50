"""Addresses at which processes of a cluster listen, on this machine or as a scheduler names them.

The one rule: addresses that peers name are shown and compared, and never connected to.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from distributed.comm.addressing import parse_host_port

__all__ = ["announced", "bound_here"]

_COMMANDS = ("dask", "dask-scheduler", "dask-worker")
_SERVERS = ("scheduler", "worker")
_EVERYWHERE = "all interfaces"
_TEXT = 80


def bound_here() -> list[tuple[str, list[str]]]:
    """Return the Dask commands that this user runs here, and where each and its children listen.

    What listens on all interfaces comes first.
    """
    return sorted(_commands(), key=lambda each: not each[1][0].startswith(_EVERYWHERE))


def _commands() -> Iterator[tuple[str, list[str]]]:
    for process in psutil.process_iter(["cmdline", "uids"]):
        uids, words = process.info["uids"], process.info["cmdline"] or []
        named = [Path(word).name for word in words[:4]]
        at = next((n for n, name in enumerate(named) if name in _COMMANDS), None)
        if at is None or uids is None or uids.effective != os.geteuid():
            continue
        server = named[at + 1] if named[at] == "dask" and len(named) > at + 1 else ""
        if named[at] == "dask" and server not in _SERVERS:
            continue
        places = sorted(set(_listening(process)), reverse=True)
        if places:
            yield f"{named[at]} {server}".strip() + f" (pid {process.pid})", places


def _listening(process: psutil.Process) -> Iterator[str]:
    try:
        for each in (process, *process.children(recursive=True)):
            for connection in each.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    yield _place(connection.laddr.ip, connection.laddr.port)
    except psutil.Error:
        return  # it ended meanwhile


def _place(ip: str, port: int) -> str:
    if ip in ("0.0.0.0", "::"):  # noqa: S104 - it is compared, not bound
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
