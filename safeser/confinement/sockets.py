"""Probes of sockets: other ports than the cluster's, and other kinds than TCP.

The one rule: what is tried goes to this machine alone. A connection that a sandbox refuses fails
before the network sees it; one that is let through is refused by the port that does not listen.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import NamedTuple

from safeser.confinement.outcome import REFUSED, Outcome, Tries
from safeser.confinement.own import Own
from safeser.policy.confined import Confined

__all__ = ["connecting", "kinds"]

_PORTS_FIX = (
    "Start it with 'safeser confined'; bubblewrap, systemd and containers limit no ports. Where a"
    " firewall or network policy limits where it connects, write 'connect: any'."
)
_KINDS_FIX = (
    "Start it with 'safeser confined': systemd's RestrictAddressFamilies=AF_INET AF_INET6 leaves"
    " socketpair free; with bubblewrap, --seccomp FD."
)

#: Ports on which few programs listen, and those that many do.
_PORTS = (1, 9, 22, 80, 443, 65535)
_TRIED = 3

#: Families beside IP, where Python knows them; AF_UNIX is in every kernel.
_FAMILIES = ("AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_BLUETOOTH", "AF_CAN")

_KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)

_MPTCP = getattr(socket, "IPPROTO_MPTCP", 262)
_SCTP = 132
_FASTOPEN = getattr(socket, "MSG_FASTOPEN", 0x20000000)


class _Way(NamedTuple):
    """A way by which bytes leave a process."""

    name: str
    family: int = socket.AF_INET
    kind: int = socket.SOCK_STREAM
    protocol: int = 0
    address: str = "127.0.0.1"


_TCP = _Way("TCP")
_WAYS = (
    _TCP,
    _Way("TCP over IPv6", socket.AF_INET6, address="::1"),
    # Kernels apply rules for TCP to no other kind, and these speak to TCP's ports, too.
    _Way("Multipath TCP", protocol=_MPTCP),
    _Way("SCTP", protocol=_SCTP),
    _Way("UDP", kind=socket.SOCK_DGRAM),
    _Way("UDP over IPv6", socket.AF_INET6, socket.SOCK_DGRAM, address="::1"),
)


def connecting(confined: Confined, own: Own) -> Outcome:
    """Try to connect to other ports than the cluster's, to listen on one, and other protocols."""
    del own
    if confined.connect == "any":
        return Outcome("connect", "allowed", "the policy lets it connect anywhere")
    tries = Tries("connect", "use", _PORTS_FIX)
    for port in _other_ports(confined):
        for way in _WAYS:
            what = f"{way.name} to port {port}"
            with _opened(way, what, tries) as opened:
                if opened is not None:
                    _judge(opened.connect_ex((way.address, port)), what, tries)
        _try_fast_open(port, tries)
    _try_to_listen(tries)
    return tries.outcome()


def _other_ports(confined: Confined) -> list[int]:
    return [port for port in _PORTS if not any(port in each for each in confined.ports)][:_TRIED]


def _try_fast_open(port: int, tries: Tries) -> None:
    """Try to connect by sending: kernels may not ask there what they ask of connect."""
    what = f"TCP Fast Open to port {port}"
    with _opened(_TCP, what, tries) as opened:
        if opened is not None:
            try:
                opened.sendto(b"", _FASTOPEN, ("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # the system has it turned off
                    _judge(error.errno or 0, what, tries)
            else:
                tries.succeeded(what)


def _try_to_listen(tries: Tries) -> None:
    what = "a port to listen on that is not the cluster's"
    with _opened(_TCP, what, tries) as opened:
        if opened is not None:
            try:
                opened.bind(("127.0.0.1", 0))
            except OSError as error:
                _judge(error.errno or 0, what, tries)
            else:
                tries.succeeded(what)


def _judge(code: int, what: str, tries: Tries) -> None:
    if code in (errno.EACCES, errno.EPERM):
        tries.refused(what)
    elif code not in (errno.EADDRNOTAVAIL, errno.ENETUNREACH):  # no such address here
        tries.succeeded(what)


@contextlib.contextmanager
def _opened(way: _Way, what: str, tries: Tries) -> Iterator[socket.socket | None]:
    """Yield a socket; None where none can be made, which is a refusal or a kernel without it."""
    try:
        made = socket.socket(way.family, way.kind, way.protocol)
    except OSError as error:
        if error.errno in REFUSED:
            tries.refused(what)
        yield None
        return
    with made:
        made.setblocking(False)
        yield made


def kinds(confined: Confined, own: Own) -> Outcome:
    """Try to make sockets that are none of IP: to the kernel, to the machine and its host."""
    del confined, own
    tries = Tries("sockets", "make a socket of", _KINDS_FIX)
    for name in _FAMILIES:
        family = getattr(socket, name, None)
        for kind in _KINDS:
            if family is not None:
                try:
                    socket.socket(family, kind).close()
                except OSError as error:
                    # Of the others, a kernel may know none, or want a capability for them.
                    if error.errno in REFUSED and family == socket.AF_UNIX:
                        tries.refused(name)
                else:
                    tries.succeeded(name)
    _try_a_pair(tries)
    return tries.outcome()


def _try_a_pair(tries: Tries) -> None:
    """Try to make two datagram sockets at once: each sends to any UNIX socket that has a name."""
    what = "AF_UNIX for datagrams, by socketpair"
    try:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError as error:
        if error.errno in REFUSED:
            tries.refused(what)
        return
    for each in pair:
        each.close()
    tries.succeeded(what)
