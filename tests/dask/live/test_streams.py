"""Streams of somebody who registered: other people's names, batches good and bad.

The one rule: what is refused takes nothing else with it, and nobody speaks as another. Each attack
did on stock Dask, in this very job, what it is there for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.dask.live.controls import Traps
from tests.dask.live.payloads import CANARY, Evil, filled, in_all_forms, in_stock
from tests.dask.live.rig import Rig
from tests.dask.live.table import REGISTER_WORKER
from tests.dask.live.wires import Wire

pytestmark = pytest.mark.cluster


class Side:
    """One of the two clusters, and wires to its scheduler."""

    def __init__(self, rig: Rig, *, stock: bool, target: str = "scheduler") -> None:
        self.rig = rig
        self.stock = stock
        self.addresses = rig.stock if stock else rig.sealed
        self.target = target
        self._open = ExitStack()
        self.said: Any = None  # to the last worker that registered

    def wire(self, role: str) -> Wire:
        if self.stock:
            return self._open.enter_context(self.rig.stock_to(self.target))
        return self._open.enter_context(self.rig.sealed_to(self.target, role))

    def client(self, role: str, client: str) -> Wire:
        wire = self.wire(role)
        wire.ask({"op": "register-client", "client": client, "reply": False, "versions": {}})
        return wire

    def worker(self, role: str, number: int, **more: Any) -> tuple[Wire, str]:
        """Register a worker that takes no tasks; return its address as well."""
        address = f"{'tcp' if self.stock else 'safeser'}://127.0.0.1:{number}"
        wire = self.wire(role)
        named = filled(REGISTER_WORKER, lambda place: address)
        self.said = wire.ask({**named, "status": "paused", "reply": True, **more})
        return wire, address

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def sides(rig: Rig) -> Iterator[dict[str, Side]]:
    made = {"stock": Side(rig, stock=True), "safeser": Side(rig, stock=False)}
    yield made
    for side in made.values():
        side.close()


def _until_event(wire: Wire, topic: str, patience: float = 60.0) -> list[Any]:
    """Read the stream until an event of *topic* comes; return all that came."""
    seen: list[Any] = []
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        batch = wire.read()
        for element in batch if isinstance(batch, list | tuple) else [batch]:
            seen.append(element)
            if isinstance(element, dict) and element.get("topic") == topic:
                return seen
    raise AssertionError(f"no event of {topic} in {seen}")


def _wait(what: Callable[[], bool], patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


# --- somebody else's name -------------------------------------------------------------------------


def test_nobody_registers_as_another(rig: Rig, sides: dict[str, Side]) -> None:
    for name, side in sides.items():
        first = side.client("alice", f"Client-first-{name}")
        second = side.wire("bob")
        again = {"op": "register-client", "client": f"Client-first-{name}", "reply": False}
        rig.log.new()
        answer = second.ask({**again, "versions": {}})
        taken = isinstance(answer, list | tuple) and answer[0]["op"] == "stream-start"
        assert taken is side.stock, answer
        if side.stock:
            continue
        found = rig.log.wait(lambda r: r["sender"] == "bob")
        assert (found["operation"], found["rule"]) == ("register-client", "stream.client-id")
        first.send([{"op": "subscribe-topic", "topic": "still-here"}])
        _wait(lambda side=side: _is_heard(side, "still-here"))
        assert _until_event(first, "still-here")


def _is_heard(side: Side, topic: str) -> bool:
    side.wire("alice").ask({"op": "log_event", "topic": topic, "msg": 1})
    return True


def test_no_worker_takes_anothers_address_for_a_name(rig: Rig, sides: dict[str, Side]) -> None:
    for side in sides.values():
        rig.log.new()
        scheme = "tcp" if side.stock else "safeser"
        first, _ = side.worker("worker", 1005, name=f"{scheme}://127.0.0.1:1006")
        second, _ = side.worker("worker", 1006)
        # Dask's scheduler looks for the name first, and finds that the other one is there.
        assert (side.said.get("status") != "OK") is side.stock, side.said
        first.close()
        second.close()
    found = rig.log.wait(lambda r: r["sender"] == "worker")
    assert (found["operation"], found["rule"]) == ("register-worker", "stream.name")


def test_no_worker_takes_anothers_id(rig: Rig, sides: dict[str, Side]) -> None:
    for side in sides.values():
        rig.log.new()
        first, _ = side.worker("worker", 1007, server_id="Worker-same")
        second, _ = side.worker("worker", 1008, server_id="Worker-same")
        assert (side.said.get("status") == "OK") is side.stock, side.said
        first.close()
        second.close()
    found = rig.log.wait(lambda r: r["sender"] == "worker")
    assert (found["operation"], found["rule"]) == ("register-worker", "worker.id")


@pytest.mark.parametrize("field", ["address", "nanny"])
def test_no_address_of_a_worker_leads_elsewhere(
    rig: Rig, sides: dict[str, Side], traps: Traps, field: str
) -> None:
    for name, side in sides.items():
        marker = rig.marker(f"{name}-{field}")
        traps.here(marker, stock=side.stock)
        contacts = traps.stock.connections
        rig.log.new()
        worker, address = side.worker("worker", 1010, **{field: traps.stock.address})
        assert (side.said.get("status") == "OK") is side.stock, side.said
        told = {"workers": [traps.stock.address if field == "address" else address]}
        if field == "nanny" and not side.stock:
            told = {}  # there is no such worker: all nannies are asked
        ask = {"op": "broadcast", "msg": {"op": "identity"}, "nanny": field == "nanny", **told}
        side.wire("alice").ask({**ask, "on_error": "return"})
        worker.close()
        if side.stock:
            assert int(marker.read_text()) == rig.pids["scheduler"], "the control did not run"
        else:
            assert not rig.made(marker)
            assert traps.stock.connections == contacts
            found = rig.log.wait(lambda r: r["sender"] == "worker")
            assert found["operation"] == "register-worker"


# --- good and bad in one message ------------------------------------------------------------------


def test_what_is_refused_takes_nothing_with_it(rig: Rig, sides: dict[str, Side]) -> None:
    failures: list[str] = []
    markers: list[Path] = []

    def marked(form: str) -> Path:
        markers.append(rig.marker(f"batch-{form}"))
        return markers[-1]

    marker = rig.marker("stock-batch")
    heard = _batch(sides["stock"], in_stock(Evil("pickled"), marker, str), "batch-stock")
    assert marker.exists(), "the control did not run"
    assert heard == ["first", "second"]
    for form, payload in in_all_forms(Evil("pickled"), marked, str):
        rig.log.new()
        heard = _batch(sides["safeser"], payload, f"batch-{form}")
        if heard != ["first", "second"]:
            failures.append(f"{form}: of what was good came {heard}")
        found = rig.log.wait(lambda r: (r["sender"], r["operation"]) == ("worker", "keep-alive"))
        if found is None:
            failures.append(f"{form}: nothing is recorded")
    failures += [f"{each.name}: RAN" for each in markers if rig.made(each)]
    failures += [f"{who} repeats what a payload holds" for who in rig.told(CANARY)]
    assert not failures, "\n".join(failures)


def _batch(side: Side, payload: Any, topic: str) -> list[Any]:
    """Send a batch of which the middle is hostile; return what good there is of it, in order."""
    worker, address = side.worker("worker", 1004)
    said = {"op": "log-event", "worker": address, "topic": topic}
    bad = {"op": "keep-alive", "worker": address, "note": payload}
    # Dask's own handler ends the stream of who says what it does not take, after it was opened.
    worker.send([{**said, "msg": "first"}, {**said, "msg": "second"}, bad])
    if not side.stock:
        worker.send([bad, {**said, "msg": "third"}, bad])
    asks = side.wire("alice")
    wanted = 2 if side.stock else 3
    _wait(lambda: len(asks.ask({"op": "events", "topic": topic})) >= wanted)
    heard = [message for _, message in asks.ask({"op": "events", "topic": topic})]
    worker.close()
    asks.close()
    if not side.stock:
        assert heard[2:] == ["third"]
    return heard[:2]
