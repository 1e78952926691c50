"""``suite: encrypt`` on real clusters: everything works, and the network shows none of it.

Relays stand before the scheduler and each worker and keep all that passes. Under suite
authenticate they see the word that the program carries, so that the same relays prove that it is
not to be seen under encrypt.
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
from safeser.envelope import preamble
from safeser.values import Suite
from tests.conftest import DASK, in_suite, until

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


def free_port() -> int:
    """Return a port for a worker whose own choice of one its relay could not know."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def relayed(cluster, workers=2):
    """Start workers that everyone reaches through a relay each; yield all relays."""
    relays = [Relay() for _ in range(workers + 1)]
    relays[0].to(int(cluster.address.rpartition(":")[2]))
    try:
        for number, relay in enumerate(relays[1:]):
            port = free_port()
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


@pytest.fixture(scope="module", params=list(Suite), ids=lambda suite: suite.word)
def traffic(request, cluster_under):
    """Return the suite, what the program printed, and what each relay saw."""
    with (
        cluster_under(in_suite("demo", request.param), workers=0) as cluster,
        relayed(cluster) as relays,
    ):
        ended = cluster.run("alice", PROGRAM, relays[0].address, WORD, timeout=300)
        assert ended.code == 0, f"{ended.err}\n{cluster.logs()}"
        yield request.param, ended.answer, relays, cluster


def test_everything_works_in_either_suite(traffic):
    suite, answer, _, _ = traffic
    assert answer == {**DONE, "suite": suite.word}


def test_relays_see_the_word_where_traffic_is_readable_and_only_there(traffic):
    suite, _, relays, _ = traffic
    # The word; and words of Dask's that stand in its messages and in their headers.
    words = (WORD, WORD.lower(), "serializer", "msgpack", "shuffle", "safeser://127.0.0.1")
    for relay in relays:
        found = {word for word in words if word.encode() in relay.bytes}
        if suite is Suite.ENCRYPT:
            assert not found
        else:
            assert {WORD, "serializer", "msgpack", "shuffle"} <= found
        assert len(relay.bytes) > 100_000


def test_every_connection_is_of_the_suite(traffic):
    suite, _, relays, _ = traffic
    for relay in relays:
        spoken = [there for there, _ in relay.seen if there]
        assert spoken
        assert {bytes(there[:12]) for there in spoken} == {preamble(suite)}


def test_the_audit_log_says_which_suite_each_pair_spoke(traffic):
    suite, _, _, cluster = traffic
    found = audit.verify(cluster.audit, key=cluster.keys / "audit.key")
    assert found.ok
    spoken = suites(cluster)
    for sender, recipient in (("alice", "scheduler"), ("worker", "scheduler"), ("worker",) * 2):
        assert spoken[sender, recipient] == {(f"suite.{suite.word}", True)}
    assert {said for each in spoken.values() for said in each} == {(f"suite.{suite.word}", True)}


# --- clusters whose processes differ -------------------------------------------------------------


SUBMITS = """
import json, sys, safeser
try:
    with safeser.Client(sys.argv[1], timeout=20) as client:
        client.wait_for_workers(1, timeout=60)
        comm = client.scheduler_comm.comm
        print(json.dumps([client.submit(sum, [1, 2]).result(timeout=60),
            comm.link.session.suite.word]))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.mark.parametrize("traffic", [Suite.ENCRYPT], indirect=True, ids=["encrypt"])
def test_a_client_with_a_weaker_policy_is_refused_and_told_what_to_check(traffic):
    _, _, relays, cluster = traffic
    weaker = cluster.path / "weaker.yaml"
    weaker.write_text(in_suite("demo", Suite.AUTHENTICATE))
    said = cluster.run("alice", SUBMITS, relays[0].address, DASK_SAFESER__POLICY=str(weaker)).answer
    assert said[0] == "AuthenticationError"
    assert "both policies ask for the same suite" in said[1]
    assert "would be of suite authenticate" in cluster.log("scheduler")

    def recorded():
        return ("suite.authenticate", False) in suites(cluster)["alice", "scheduler"]

    until("the refusal in the audit log", recorded)
    assert cluster.run("alice", SUBMITS, relays[0].address).answer == [3, "encrypt"]


def test_a_client_with_a_stricter_policy_encrypts_its_own_connections(cluster, tmp_path):
    stricter = tmp_path / "stricter.yaml"
    stricter.write_text(in_suite("demo", Suite.ENCRYPT))
    said = cluster.run("alice", SUBMITS, cluster.address, DASK_SAFESER__POLICY=str(stricter))
    assert said.answer == [3, "encrypt"]
