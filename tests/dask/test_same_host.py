"""Whether a connection ends on this machine: read off the socket, whatever the peer says."""

import socket
from types import SimpleNamespace

import psutil
import pytest

from safeser.dask.same_host import is_same_host


def stream(peer, own="192.0.2.9"):
    def name(address):
        if isinstance(address, Exception):
            raise address
        return (address, 4711)

    return SimpleNamespace(
        socket=SimpleNamespace(getpeername=lambda: name(peer), getsockname=lambda: name(own))
    )


@pytest.fixture(autouse=True)
def interfaces(monkeypatch):
    def listed(family, address):
        return SimpleNamespace(family=family, address=address)

    found = {
        "lo": [listed(socket.AF_INET, "127.0.0.1")],
        "eth0": [
            listed(socket.AF_INET, "192.0.2.9"),
            listed(socket.AF_INET6, "fe80::1%eth0"),
            listed(psutil.AF_LINK, "02:00:00:00:00:01"),
        ],
        "eth1": [listed(socket.AF_INET, "198.51.100.9")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)


def test_where_interfaces_cannot_be_listed_only_loopback_is_known(monkeypatch):
    def forbidden():
        raise PermissionError("no")

    monkeypatch.setattr(psutil, "net_if_addrs", forbidden)
    assert is_same_host(stream("127.0.0.1")) is True
    assert is_same_host(stream("192.0.2.9")) is True
    assert is_same_host(stream("198.51.100.9")) is None


@pytest.mark.parametrize(
    ("here", "peers"),
    [
        (True, ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"]),
        (True, ["192.0.2.9", "::ffff:192.0.2.9", "198.51.100.9", "fe80::1%eth0"]),
        (False, ["192.0.2.10", "::ffff:192.0.2.10", "203.0.113.1", "fe80::1%eth1", "2001:db8::1"]),
        (None, ["", "localhost", "/run/socket", OSError("closed")]),
    ],
)
def test_an_address_is_of_this_machine_or_of_another_or_not_known(here, peers):
    assert [is_same_host(stream(peer)) for peer in peers] == [here] * len(peers)
    if here is None:
        assert {is_same_host(stream("127.0.0.1", own=peer)) for peer in peers} == {None}
        assert is_same_host(SimpleNamespace(socket=None)) is None
