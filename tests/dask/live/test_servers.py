"""Every way into a scheduler, a worker and a nanny, on stock Dask and here, by everybody.

The one rule: a row counts only if its control did on stock Dask, in this very job, what it is there
for; then nobody's key makes it run here, and each refusal is in the log of whoever refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safeser.errors import AuthenticationError
from tests.dask.live.controls import Traps, control, send_all
from tests.dask.live.payloads import CANARY, FORMS, Here, data_of, filled
from tests.dask.live.rig import CONFIGURED, SECRET, Rig
from tests.dask.live.table import ROWS, Row
from tests.dask.live.wires import Sealing

pytestmark = pytest.mark.cluster

ROLES = {
    "scheduler": ("bob", "carol", "worker", "alice"),
    "worker": ("bob", "carol", "worker", "alice"),
    "nanny": ("carol", "worker"),
}

#: What alice, who may run code, is not granted: these she attacks with, too.
NOT_GRANTED = {
    "greet",
    "identity",
    "heartbeat-client",
    "echo",
    "connection_stream",
    "upload_file",
    "dump_cluster_state_to_url",
    "gather",
    "keep-alive",
}


def _may_be_sent(row: Row, role: str) -> bool:
    """Tell whether *row* is an attack, coming from *role*, and not what the role is granted."""
    first = row.say[0]["op"]
    if role == "carol" and row.authority:
        return False
    return role != "alice" or first in NOT_GRANTED


def _attacked(rig: Rig, traps: Traps, row: Row, role: str, marker: Path) -> Iterator[str]:
    """Send *row* by *role*, with a payload that is opened at once; yield what is wrong."""
    target, contacts = row.target, traps.stock.connections
    here = traps.here(marker, stock=False)

    def made(place: Any) -> Any:
        if isinstance(place, Here):
            return here(place.name)
        return FORMS["eager"](data_of("eager", marker, place.then))

    rig.log.new()
    messages = list(filled(row.say, made))
    answer = b""
    try:
        if messages[0]["op"] == "greet":  # an attack in the greeting itself ends what it began
            with contextlib.suppress(ConnectionError):
                rig.sealed_to(target, role, note=messages[0]["note"]).close()
        else:
            with Sealing.to(rig.sealed[target], rig.channel(role)) as wire:
                answer = send_all(wire, row, messages)
    except (OSError, AuthenticationError) as error:
        yield f"{type(error).__name__}: {error}"
        return
    if SECRET.encode() in answer or CONFIGURED.encode() in answer:
        yield "the secret came back"
    if traps.stock.connections != contacts:
        yield "it connected to tcp://"
    if not _recorded(rig, row, role, target):
        yield "no record says that it was refused"


def _recorded(rig: Rig, row: Row, role: str, target: str) -> bool:
    if "SSRF" in row.name and role in ("carol", "worker"):
        return True  # who may: it has nobody to talk to
    # What a trap sends back, it sends as a worker.
    hostile = "fake-worker" in row.name
    senders = {role, "worker"} if hostile else {role}
    about = {each["op"] for said in row.say for each in (said, said.get("msg", said))}
    if row.say[0]["op"] == "greet" or hostile:
        about = {""}

    def wanted(record: dict[str, Any]) -> bool:
        # What a flood of refusals is counted as, names neither whom they reached nor what.
        one = record["recipient"] == target and record["operation"] in about
        return record["sender"] in senders and (record["recipient"] == "" or one)

    return rig.log.wait(wanted) is not None


def test_nobodys_key_runs_code_in_a_server(rig: Rig, traps: Traps) -> None:
    modules = {who: rig.evaluate("alice", who, _MODULES) for who in ROLES}
    failures = [wrong for row in ROWS if (wrong := control(rig, traps, row))]
    markers: list[tuple[str, Path]] = []
    for row in ROWS:
        for role in ROLES[row.target]:
            if _may_be_sent(row, role):
                name, marker = f"{row.name} by {role}", rig.marker(role)
                markers.append((name, marker))
                failures += [f"{name}: {each}" for each in _attacked(rig, traps, row, role, marker)]
    for who, before in modules.items():
        after = rig.evaluate("alice", who, _MODULES)
        for address, names in before.items():
            # The lists of pickle profiles are read when the first pickle is looked at.
            new = {n for n in set(after[address]) - set(names) if not n.startswith("importlib.")}
            if new:
                failures.append(f"{who} at {address} imported {sorted(new)}")
    failures += [f"{name}: RAN" for name, marker in markers if rig.made(marker)]
    failures += [f"{who} repeats what a payload holds" for who in rig.told(CANARY)]
    assert not failures, "\n".join(failures)


_MODULES = "sorted(__import__('sys').modules)"
