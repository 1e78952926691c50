"""A live cluster: of each class of attack named rows, over real connections, under policy demo.

The one rule: what shows a refusal is the log of the process that was attacked, and the same peer is
served afterwards.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from safeser.errors import SafeserError
from safeser.identity import Identity, Roster, RosterEntry, today
from safeser.policy import Policy
from tests.dask.attacks import rows_of_the_demo
from tests.dask.attacks.rows import MARKER, Raw, Row
from tests.dask.attacks.table import ROWS, STRANGERS
from tests.dask.live.payloads import filled
from tests.dask.live.rig import Log, Silent
from tests.dask.live.table import REGISTER_WORKER
from tests.dask.live.wires import Host, Sealing, Wire, channel_of, place
from tests.processes import until

pytestmark = pytest.mark.cluster

#: By class, the row that is sent beside all those of the demo.
NAMED = {
    "role": "a guest asks for authority (0)",
    "operation": "a guest asks for 'no-such-operation'",
    "relay": "a relay of bob's that brings values to workers in the scheduler's name (0)",
    "field": "counts of another shape (0)",
    "pickle": "a warning from a worker (0): bare",
    "payload": "a value to pass on (0)",
    "message": "bytes 1",
    "stream": "a client speaks for another (0)",
    "author": "a value by another author (0)",
    "answer": "a worker's answer to its scheduler (0): opaque",
    "admitted": "bob asks it to running",
}
SENT = [row for row in (*ROWS, *STRANGERS) if row.name in NAMED.values()]
SENT += [row for row in rows_of_the_demo.ROWS if row.asked is None]


def test_of_each_class_a_row_is_sent():
    assert {row.kind for row in (*ROWS, *STRANGERS)} == {row.kind for row in SENT}
    assert {name: kind for kind, name in NAMED.items()}.items() <= {
        r.name: r.kind for r in SENT
    }.items()


class Attacked:
    """A running cluster, and peers of it that keep keys and no rules."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.log = Log(cluster.audit)
        self.policy = Policy.load(cluster.policy)
        with self.wire("alice", cluster.address) as wire:
            workers = until(
                "a worker", lambda: wire.ask({"op": "identity", "n_workers": -1})["workers"]
            )
        self.addresses = {"scheduler": cluster.address, "worker": next(iter(workers))}

    def channel(self, principal: str) -> Any:
        return channel_of(self.cluster.keys, principal, self.policy, Silent())

    def wire(self, principal: str, address: str) -> Sealing:
        return Sealing.to(address, self.channel(principal))

    def send(self, row: Row) -> None:
        if row.sender == "unknown":
            self.strange(row)
        elif row.asked is not None:
            self.answer(row)
        else:
            with self.wire(row.sender, self.addresses[row.recipient]) as wire:
                self.say(wire, row)

    def say(self, wire: Sealing, row: Row) -> None:
        said = row.message
        frames = list(said.frames) if isinstance(said, Raw) else None
        listed = said.listed if isinstance(said, Raw) else isinstance(said, list)
        if listed and row.sender == "worker":
            own = filled(REGISTER_WORKER, lambda _: "safeser://127.0.0.1:1")
            wire.ask({**own, "status": "paused"})
            said = [{**each, "worker": own["address"]} for each in said]
        elif listed:
            wire.ask(
                {"op": "register-client", "client": "Client-1", "reply": False, "versions": {}}
            )
        wire.send(said) if frames is None else wire.send_frames(frames)
        if listed:
            wire.send([{"op": "close-stream"}])
        else:
            wire.read()
            assert wire.ask({"op": "identity", "reply": True})["id"]

    def answer(self, row: Row) -> None:
        """Have the scheduler ask the process that holds the sender's key."""

        def answers(wire: Wire) -> None:
            wire.read()
            wire.send(row.message)
            wire.read()

        with (
            Host(answers, channel=self.channel(row.sender)) as host,
            self.wire("alice", self.addresses["scheduler"]) as wire,
        ):
            ask = {"op": "broadcast", "msg": row.asked, "workers": [host.address]}
            wire.ask({**ask, "on_error": "return"})

    def strange(self, row: Row) -> None:
        if row.message is None:
            path = self.cluster.path / "another"
            path.mkdir()
            own = Identity.generate("bob")
            own.save(path / "bob.key")
            listed = Roster.load(self.cluster.keys / "roster")
            listed.with_entry(RosterEntry.of(own, created=today())).save(path / "roster")
            channel = channel_of(path, "bob", self.policy, Silent())
            with pytest.raises((SafeserError, ConnectionError)):
                Sealing.to(self.addresses[row.recipient], channel)
            return
        with (
            socket.create_connection(place(self.addresses[row.recipient]), timeout=30) as peer,
            contextlib.suppress(ConnectionError),
        ):
            peer.sendall(row.message)
            assert peer.recv(1) == b""

    def recorded(self, row: Row) -> Any:
        """Return the record of the refusal, or None. Counts are written with a later decision."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for record in self.log.refusals():
                if (record["sender"], record["rule"]) == (row.sender, row.rule):
                    return record
            with self.wire("alice", self.addresses[row.recipient]) as wire:
                wire.ask({"op": "identity", "reply": True})
        return None


@pytest.fixture(scope="module")
def attacked(cluster: Any) -> Iterator[Attacked]:
    yield Attacked(cluster)
    assert not MARKER.exists()


@pytest.mark.parametrize("row", SENT, ids=lambda row: row.name)
def test_a_live_process_refuses_it_by_the_same_rule(attacked, row):
    attacked.log.new()
    attacked.send(row)
    if row.rule is None:
        assert not attacked.log.refusals()
        return
    record = attacked.recorded(row)
    assert record is not None, attacked.cluster.logs()
    assert record["recipient"] == row.recipient
    if row.operation is not None:
        assert record["operation"] in (row.operation, "handshake")
    assert not MARKER.exists()
