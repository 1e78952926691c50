"""Determine whether the other end of a connection is on this machine.

The one rule: it is read off the socket. Nothing that a peer says, no address in a message and no
name that it was asked for by, takes part; what cannot be read is not known.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import psutil

__all__ = ["is_of_this_machine", "is_same_host"]


def is_same_host(stream: Any) -> bool | None:
    """Tell whether *stream* is connected to this machine; None where that is unknown.

    A proxy or a tunnel that ends here counts as this machine, whatever connects to it.
    """
    try:
        peer = _address(stream.socket.getpeername()[0])
        own = _address(stream.socket.getsockname()[0])
        # The kernel drops packets that come from outside with either as their source.
        return peer.is_loopback or peer == own or peer in _of_this_machine()
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        # Closed in between, or no internet socket at all.
        return None


def is_of_this_machine(host: str) -> bool:
    """Tell whether *host* is an IP address of this machine; a name is none."""
    try:
        return _address(host) in _of_this_machine()
    except ValueError:
        return False


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text)
    # A socket for both versions writes an IPv4 peer as ::ffff:a.b.c.d.
    return getattr(address, "ipv4_mapped", None) or address


def _of_this_machine() -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    return {
        _address(listed.address)
        for addresses in psutil.net_if_addrs().values()
        for listed in addresses
        if listed.family in (socket.AF_INET, socket.AF_INET6)
    }
