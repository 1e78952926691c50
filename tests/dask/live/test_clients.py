"""Every way into a client, from a scheduler or a worker that it trusts with nothing but data.

The one rule: a row counts only if its control ran in a stock client with ``deserializers=['dask',
'msgpack']``, in this very job; then no form of it runs in a client of safeser's, each refusal is in
that client's log, and the same client completes another future.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dask.live.client_table import CLIENT_ROWS, Told
from tests.dask.live.hostile import Hostile
from tests.dask.live.payloads import in_all_forms, in_stock, places
from tests.dask.live.rig import Rig
from tests.dask.live.table import NEW_MODULES
from tests.dask.live.told import Told as Victim
from tests.dask.live.wires import PayloadRow
from tests.processes import until

pytestmark = pytest.mark.cluster

#: Forms that may arrive as what they are, unless a client would open them: bytes are data.
INERT = {"bytes", "in-msgpack", "eager-in-msgpack"}

#: An honest scheduler sends bytes here, too: they are read as data, and never opened.
AS_DATA = {"client.run.broadcast-raw-bytes": {"bytes"}}


@pytest.fixture(scope="module")
def servers(rig: Rig) -> Iterator[dict[str, Hostile]]:
    made = {
        "stock": Hostile(),
        "safeser": Hostile(
            channel=rig.channel("scheduler"),
            worker_channel=rig.channel("worker"),
            row=PayloadRow,
        ),
    }
    yield made
    for server in made.values():
        server.close()


def _done(victim: Victim, server: Hostile, row: Told, messages: list[Any]) -> dict[str, Any]:
    """Have the client do what *row* says, once for each of *messages*, its answers."""
    address = server.scheduler.address
    if row.op == "greet":
        [message] = messages
        address = server.greeting({"note": message})
    server.plan(row.op, messages)
    told = {"address": address, "does": row.does, "times": len(messages)}
    said: dict[str, Any] = victim.ask(told)
    return said


def _named(name: str) -> str:
    return {"new-module": NEW_MODULES[0]}[name]


def _has_read(said: dict[str, Any]) -> bool:
    """Tell whether an answer was made of what the client's own modules hold."""
    return any("environ({" in got for got in said["got"])


def _control(rig: Rig, victim: Victim, server: Hostile, row: Told) -> str:
    marker = rig.marker("stock-client")
    known = set(victim.ask({"does": "modules"})) if row.effect == "imported" else set()
    said = _done(victim, server, row, [in_stock(row.say, marker, _named)])
    if row.effect == "wrote":  # once nothing in the client holds the object any more
        until(row.name, marker.exists)
    ran = marker.exists()
    if row.effect == "imported":
        ran = NEW_MODULES[0] in set(victim.ask({"does": "modules"})) - known
    if row.effect == "read":
        ran = _has_read(said)
    if not ran:
        return f"{row.name}: the control did not run in a stock client {said}"
    if row.effect == "ran" and int(marker.read_text()) != victim.process.pid:
        return f"{row.name}: the control ran in another process than the client's"
    return ""


def _attacked(rig: Rig, victim: Victim, server: Hostile, row: Told) -> Iterator[str]:
    """Send every form of *row*; yield what is wrong."""
    markers: list[Path] = []

    def marker(form: str) -> Path:
        markers.append(rig.marker(f"client-{form}"))
        return markers[-1]

    forms = list(in_all_forms(row.say, marker, _named))
    batches = [[each] for each in forms] if row.op == "greet" else [forms]
    for batch in batches:
        rig.log.new()
        said = _done(victim, server, row, [message for _, message in batch])
        if row.op != "greet" and said["then"] != 5:
            yield f"{row.name}: the client completes no other future: {said}"
        if _has_read(said):
            yield f"{row.name}: the client read what the answer names"
        inert = (INERT - places(row.say)) | AS_DATA.get(row.name, set())
        needed = sum(form not in inert for form, _ in batch)
        found = [
            each
            for each in rig.log.refusals()
            if each["recipient"] == "alice" and each["sender"] in ("scheduler", "worker")
        ]
        if len(found) < needed:
            names = [form for form, _ in batch]
            rules = [each["rule"] for each in found]
            yield f"{row.name}: {len(found)} records {rules} of {names} {said['got']}"
    yield from (f"{row.name}: RAN {each}" for each in markers if rig.made(each))


def _guarded(rig: Rig, victim: Victim, server: Hostile, row: Told) -> Iterator[str]:
    """Have a guarded client of the stock server hear what ran in a stock client."""
    marker = rig.marker("guarded-client")
    said = _done(victim, server, row, [in_stock(row.say, marker, _named)])
    if rig.made(marker) or _has_read(said):
        yield f"{row.name}: RAN in a guarded client"
    if row.op != "greet" and said["then"] != 5:
        yield f"{row.name}: the guarded client completes no other future: {said}"


def test_no_code_reaches_a_client(
    rig: Rig, victims: dict[str, Victim], servers: dict[str, Hostile]
) -> None:
    failures = []
    modules: dict[str, set[str]] = {}
    asked: set[str] = set()  # each once by a guarded client: tests/dask/stock has all in memory
    for row in CLIENT_ROWS:
        failures.append(_control(rig, victims["stock"], servers["stock"], row))
        failures += _attacked(rig, victims["safeser"], servers["safeser"], row)
        if row.op not in asked:
            failures += _guarded(rig, victims["guarded"], servers["stock"], row)
        asked.add(row.op)
        for kind in ("safeser", "guarded"):
            now = set(victims[kind].ask({"does": "modules"}))
            new = {n for n in now - modules.setdefault(kind, now) if not n.startswith("importlib.")}
            if new:
                failures.append(f"{row.name}: the {kind} client imported {sorted(new)}")
                modules[kind] = now
    failures = [each for each in failures if each]
    assert not failures, "\n".join(failures)
