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
from tests.dask.live.controls import Traps, control, is_stream, send_all
from tests.dask.live.payloads import CANARY, in_all_forms, places
from tests.dask.live.rig import CONFIGURED, SECRET, Rig
from tests.dask.live.table import ROWS, Row
from tests.dask.live.wires import Sealing

pytestmark = pytest.mark.cluster

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

#: Forms that may arrive as what they are, unless a handler would open them: bytes are data.
INERT = {"bytes", "in-msgpack", "eager-in-msgpack"}

#: Bob sends these in every form there is; what he is refused elsewhere does not depend on it.
IN_FULL = {
    "scheduler.any-op.__Pickled__",
    "worker.any-op.__Pickled__",
    "scheduler.update-graph.expr_ser(client stream)",
    "worker.update_data.Serialized-pickle",
}

#: A flood of refusals by one rule is counted, and the count written ten seconds later.
RECORDED = 30.0


class Attacks:
    """All rows by one role; what failed, and how much was tried."""

    def __init__(self, rig: Rig, traps: Traps, role: str) -> None:
        self.rig = rig
        self.traps = traps
        self.role = role
        self.sent: list[tuple[str, Path]] = []
        self.failures: list[str] = []
        self.refused: set[str] = set()
        self.rules: set[str] = set()

    def run(self, row: Row) -> None:
        target = row.target.removeprefix("blocked-")
        wire: Sealing | None = None
        contacts = self.traps.stock.connections
        for form, marker, messages in self._messages(row):
            self.rig.log.new()
            name = f"{row.name} by {self.role} as {form}"
            self.sent.append((name, marker))
            try:
                if wire is None:
                    wire = self._open(target, messages)
                answer = b"" if wire is None else send_all(wire, row, messages)
            except (OSError, AuthenticationError) as error:
                self.failures.append(f"{name}: {type(error).__name__}: {error}")
                return
            if SECRET.encode() in answer or CONFIGURED.encode() in answer:
                self.failures.append(f"{name}: the secret came back")
            self._look_for_the_record(name, row, form, target)
            if wire is not None and is_stream(row):  # Dask's own handler may have ended it
                wire.close()
                wire = None
        if wire is not None:
            wire.close()
        if self.traps.stock.connections != contacts:
            self.failures.append(f"{row.name} by {self.role}: it connected to tcp://")

    def _open(self, target: str, messages: list[Any]) -> Sealing | None:
        """Connect; an attack in the greeting itself ends what it began."""
        address, channel = self.rig.sealed[target], self.rig.channel(self.role)
        if messages[0]["op"] != "greet":
            return Sealing.to(address, channel)
        with contextlib.suppress(ConnectionError):
            Sealing.to(address, channel, note=messages[0]["note"]).close()
        return None

    def _messages(self, row: Row) -> Iterator[tuple[str, Path, list[Any]]]:
        made: list[Path] = []

        def marker(form: str) -> Path:
            made.append(self.rig.marker(f"{self.role}-{form}"))
            return made[-1]

        forms = in_all_forms(row.say, marker, self._here(made), short=not self._in_full(row))
        for form, messages in forms:
            yield form, (made[-1] if made else marker(form)), list(messages)

    def _in_full(self, row: Row) -> bool:
        return self.role == "bob" and row.name in IN_FULL

    def _here(self, made: list[Path]) -> Any:
        def here(name: str) -> Any:
            if not made:
                made.append(self.rig.marker(self.role))
            return self.traps.here(made[-1], stock=False)(name)

        return here

    def _look_for_the_record(self, name: str, row: Row, form: str, target: str) -> None:
        # What a trap sends back, it sends as a worker.
        senders = {self.role, "worker"} if "fake-worker" in row.name else {self.role}
        needed = form not in INERT or (form == "bytes" and "bytes" in places(row.say))
        if "SSRF" in row.name:
            needed = self.role not in ("carol", "worker")  # who may: it has nobody to talk to
        # A nanny may not ask for the broadcast that would make the trap answer.
        answers = "fake-worker" in row.name and self.role != "nanny"
        about = {""} if answers else _operations(row)
        found = self.rig.log.wait(
            # What a flood of refusals is counted as, names neither whom they reached nor what.
            lambda r: (
                r["sender"] in senders
                and (r["recipient"] == "" or (r["recipient"] == target and r["operation"] in about))
            ),
            patience=RECORDED if needed else 0.0,
        )
        if found is not None:
            self.refused.add(row.name)
            self.rules.add(found["rule"])
        elif needed:
            self.failures.append(f"{name}: no record says that {about} was refused")


def _operations(row: Row) -> set[str]:
    """Return which operations the record of a refusal may name: a greeting none."""
    if row.say[0]["op"] == "greet":
        return {""}
    return {each["op"] for said in row.say for each in (said, said.get("msg", said))}


ROLES = {
    "scheduler": ("bob", "carol", "worker", "nanny", "alice"),
    "worker": ("bob", "carol", "worker", "nanny", "alice"),
    "nanny": ("carol", "worker"),
}


def _may_be_sent(row: Row, role: str) -> bool:
    """Tell whether *row* is an attack, coming from *role*, and not what the role is granted."""
    first = row.say[0]["op"]
    if role == "carol" and row.authority:
        return False
    return role != "alice" or first in NOT_GRANTED


def test_nobodys_key_runs_code_in_a_server(rig: Rig, traps: Traps) -> None:
    modules = {who: rig.evaluate("alice", who, _MODULES) for who in ROLES}
    failures = [wrong for row in ROWS if (wrong := control(rig, traps, row))]
    sent: list[tuple[str, Path]] = []
    for role in ("bob", "carol", "worker", "nanny", "alice"):
        attacks = Attacks(rig, traps, role)
        for row in ROWS:
            target = row.target.removeprefix("blocked-")
            if role in ROLES[target] and _may_be_sent(row, role):
                attacks.run(row)
        failures += attacks.failures
        sent += attacks.sent
    for who, before in modules.items():
        after = rig.evaluate("alice", who, _MODULES)
        for address, names in before.items():
            # The lists of pickle profiles are read when the first pickle is looked at.
            new = {n for n in set(after[address]) - set(names) if not n.startswith("importlib.")}
            if new:
                failures.append(f"{who} at {address} imported {sorted(new)}")
    failures += [f"{name}: RAN" for name, marker in sent if rig.made(marker)]
    failures += [f"{who} repeats what a payload holds" for who in rig.told(CANARY)]
    assert not failures, "\n".join(failures)


_MODULES = "sorted(__import__('sys').modules)"
