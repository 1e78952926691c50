"""A peer without a listed key: what runs on stock Dask is closed here before it is read.

The one rule: a stranger sends the very bytes of attacks that run on a stock port;
greets or not, stalls, or ends the handshake; nothing is opened, everything is counted, and no
other peer is kept out.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time

import pytest

from safeser.errors import SafeserError
from safeser.gate.handshake import PREAMBLE
from tests.dask.live.payloads import Evil, in_stock
from tests.dask.live.rig import Rig
from tests.dask.live.wires import Stock, place

pytestmark = pytest.mark.cluster


def _begun(rig: Rig, target: str, data: bytes) -> socket.socket:
    """Send *data* to a port on safeser."""
    connection = socket.create_connection(place(rig.sealed[target]), timeout=30)
    with contextlib.suppress(ConnectionError):
        connection.sendall(data)
    return connection


def _drained(connection: socket.socket) -> bytes:
    """Return what came back until it was closed."""
    got = b""
    with connection, contextlib.suppress(ConnectionError):
        while more := connection.recv(1 << 16):
            got += more
    return got


def _sent(rig: Rig, target: str, data: bytes) -> bytes:
    return _drained(_begun(rig, target, data))


def _not_counted(rig: Rig, wanted: int) -> list[str]:
    """Return what is missing of *wanted* counts of peers that did not authenticate."""
    counted = 0
    deadline = time.monotonic() + 30
    while counted < wanted and time.monotonic() < deadline:
        for record in rig.log.new():
            for sender, _, _, rule, permitted, number in record.get("counts", ()):
                if (sender, rule, permitted) == ("unknown", "authentication", False):
                    counted += number
        if counted < wanted:  # counts are written with the first decision of the next second
            for target in ("scheduler", "worker", "nanny"):
                rig.evaluate("alice", target, "1")
            time.sleep(0.3)
    return [f"{counted} of {wanted} are in the log"] if counted < wanted else []


class Unfinished:
    """Connections that never shake hands, all at once: a deadline ends each, and it is one wait."""

    def __init__(self, rig: Rig) -> None:
        self.marker = rig.marker("unlisted")
        self.before = _memory(rig)
        # Under the name of somebody listed, with the preamble, and then what stock Dask would run.
        note = in_stock(Evil("pickled"), self.marker, str)
        evil = Stock.encoded({"op": "identity", "note": note})
        huge = struct.pack("Q", 1 << 62)
        said = [(target, PREAMBLE + evil) for target in ("scheduler", "worker", "nanny")]
        claims = (huge, struct.pack("QQ", 1 << 40, 1 << 61), PREAMBLE[:8] + huge, os.urandom(4096))
        said += [("scheduler", claim) for claim in claims]
        said += [("scheduler", PREAMBLE[: n % (len(PREAMBLE) + 1)]) for n in range(64)]
        self.count, self.claims = len(said), slice(3, 3 + len(claims))
        self.open = [_begun(rig, target, data) for target, data in said]
        self.meanwhile = rig.evaluate("alice", "scheduler", "40 + 2")
        self.answers = [_drained(each) for each in self.open]
        self.after = _memory(rig)


@pytest.fixture(scope="module")
def unfinished(rig: Rig) -> Unfinished:
    rig.log.new()
    return Unfinished(rig)


def test_peers_that_stall_keep_nobody_out(rig: Rig, unfinished: Unfinished) -> None:
    assert unfinished.meanwhile == {rig.sealed["scheduler"]: 42}


def test_nothing_is_opened_without_a_session(rig: Rig, unfinished: Unfinished) -> None:
    # What begins as a preamble of another version is told this one's.
    assert unfinished.answers[unfinished.claims] == [b"", b"", PREAMBLE, b""]
    assert not rig.made(unfinished.marker)
    assert not _not_counted(rig, unfinished.count)


def test_claims_of_sizes_take_nothing_from_a_server(unfinished: Unfinished) -> None:
    assert unfinished.after - unfinished.before < 64 << 20


def test_a_peer_that_ends_before_it_proves_a_key_is_counted(rig: Rig) -> None:
    """A user's policy has no context with nannies, so that the user's side ends the handshake."""
    rig.log.new()
    with pytest.raises((SafeserError, ConnectionError)):
        rig.sealed_to("nanny", "unlisted")
    assert not _not_counted(rig, 1)


def _memory(rig: Rig) -> int:
    code = "int(open('/proc/self/statm').read().split()[1]) * 4096"
    [pages] = rig.evaluate("alice", "scheduler", code).values()
    return int(pages)
