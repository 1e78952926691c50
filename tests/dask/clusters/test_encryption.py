"""Real clusters: everything works, and the network shows none of it.

Relays stand before the scheduler and each worker and keep all that passes.
"""

from __future__ import annotations

import collections
import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest

from safeser import audit
from safeser.gate.handshake import PREAMBLE
from safeser.policy.ready import locate
from tests.processes import DASK, free_ports

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parents[1] / "programs" / "confidential.py"
WORD = "Zq7Confidential3xW"


class Relay:
    """Passes every byte to a server on loopback and back, and keeps it.

    :ivar seen: for each connection the bytes of each direction.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[bytearray, bytearray]] = []
        self._target = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"safeser://127.0.0.1:{self._listener.getsockname()[1]}"

    def to(self, port: int) -> None:
        self._target = port

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here = self._listener.accept()[0]
                threading.Thread(target=self._pass, args=(here,), daemon=True).start()

    def _pass(self, here: socket.socket) -> None:
        there = socket.create_connection(("127.0.0.1", self._target))
        self._open += (here, there)
        kept = bytearray(), bytearray()
        self.seen.append(kept)
        back = threading.Thread(target=self._pump, args=(there, here, kept[1]), daemon=True)
        back.start()
        self._pump(here, there, kept[0])

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                kept += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for each in self._open:
            each.close()

    @property
    def bytes(self) -> bytes:
        return b"".join(bytes(side) for both in self.seen for side in both)


@contextlib.contextmanager
def relayed(cluster, workers=2):
    """Start workers that everyone reaches through a relay each; yield all relays."""
    relays = [Relay() for _ in range(workers + 1)]
    relays[0].to(int(cluster.address.rpartition(":")[2]))
    try:
        for number, relay in enumerate(relays[1:]):
            [port] = free_ports(1)  # for a worker whose own choice its relay could not know
            relay.to(port)
            cluster.start(
                f"relayed-{number}",
                *(DASK, "worker", relays[0].address, "--nthreads", "1", "--no-nanny"),
                *("--listen-address", f"safeser://127.0.0.1:{port}", "--no-dashboard"),
                *("--contact-address", relay.address),
                *("--local-directory", str(cluster.path / f"relayed-{number}")),
                environment=cluster.environment("worker"),
            )
        yield relays
    finally:
        for relay in relays:
            relay.close()


def suites(cluster):
    """Return what the audit logs say of each pair's handshakes: rules, and whether permitted."""
    found = collections.defaultdict(set)
    for path in cluster.audit.glob("*.log"):
        for line in path.read_text().splitlines():
            for sender, recipient, what, rule, permitted, _ in json.loads(line)["record"].get(
                "counts", ()
            ):
                if what == "handshake":
                    found[sender, recipient].add((rule, permitted))
    return found


DONE = {
    "scatter": True,
    "gather": True,
    "submit": WORD.lower(),
    "map": [f"{WORD}-{n}" for n in range(3)],
    "error": True,
    "between": 100_000 * len(WORD),
    "shuffle": 2000,
    "variable": WORD,
    "queue": WORD,
    "datasets": [f"{WORD}_dataset"],
    "metadata": WORD,
    "run": [WORD, WORD],
}


@pytest.fixture(scope="module")
def traffic(cluster_under):
    """A cluster that encrypts, what the program printed there, and what each relay saw."""
    with (
        cluster_under(locate("demo").read_text("utf-8"), workers=0) as cluster,
        relayed(cluster) as relays,
    ):
        ended = cluster.run("alice", PROGRAM, relays[0].address, WORD, timeout=300)
        assert ended.code == 0, f"{ended.err}\n{cluster.logs()}"
        yield ended.answer, relays, cluster


def test_everything_works(traffic):
    answer, _, _ = traffic
    assert answer == DONE


#: Words of Dask's that stand in its messages and in their headers, beside the program's.
WORDS = (WORD, WORD.lower(), "serializer", "msgpack", "shuffle", "safeser://127.0.0.1")


def seen_by(relay):
    return {word for word in WORDS if word.encode() in relay.bytes}


def test_relays_see_nothing_of_it(traffic):
    _, relays, _ = traffic
    for relay in relays:
        assert not seen_by(relay)
        assert len(relay.bytes) > 100_000
        spoken = [there for there, _ in relay.seen if there]
        assert spoken
        assert {bytes(there[:12]) for there in spoken} == {PREAMBLE}


def test_the_audit_log_says_which_suite_each_pair_spoke(traffic):
    _, _, cluster = traffic
    assert audit.verify(cluster.audit, key=cluster.keys / "audit.key").ok
    spoken = suites(cluster)
    for sender, recipient in (("alice", "scheduler"), ("worker", "scheduler"), ("worker",) * 2):
        assert spoken[sender, recipient] == {("suite.encrypt", True)}
    assert {said for each in spoken.values() for said in each} == {("suite.encrypt", True)}
