"""Every way into a scheduler, a worker and a nanny, on stock Dask and here, by everybody.

The one rule: a row counts only if its control did on stock Dask, in this very job, what it is there
for; then nobody's key makes it run here, and each refusal is in the log of whoever refused.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safeser.errors import AuthenticationError
from tests.dask.live.payloads import CANARY, Evil, evil, in_all_forms, in_stock, places
from tests.dask.live.rig import CONFIGURED, SECRET, Rig
from tests.dask.live.table import NEW_MODULE, ROWS, Row
from tests.dask.live.wires import Eager, Host, PayloadRow, Sealing, Stock, Wire, place, value_of

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

#: How long stock Dask may take until it has run what it was sent.
RUNS = 20.0

#: A flood of refusals by one rule is counted, and the count written ten seconds later.
RECORDED = 30.0


class Traps:
    """Hostile servers that messages may name, and what else they may name."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.marker = rig.marker("unused")
        self.stock = Host(self._answer_stock)
        self.sealed = Host(self._answer_sealed, channel=rig.channel("worker"))

    def _answer_stock(self, wire: Wire) -> None:
        while True:
            wire.read()
            payload = in_stock(Evil("pickled"), self.marker, str)
            wire.send({"status": "OK", "data": {"x": payload}})

    def _answer_sealed(self, wire: Wire) -> None:
        while True:
            wire.read()
            row = PayloadRow({"serializer": "pickle", "writeable": []}, (evil(self.marker),))
            wire.send({"status": "OK", "data": {"x": Eager(row)}})

    def here(self, marker: Path, *, stock: bool, blocked: str = "") -> Any:
        """Return what tells what a name stands for in a message with that marker."""
        self.marker = marker
        addresses = self.rig.stock if stock else self.rig.sealed
        host = self.stock if stock else self.sealed
        code = f"open({str(marker)!r}, 'w').write(str(__import__('os').getpid()))\n"
        number, scheme = int(marker.name[:5]), host.address.partition(":")[0]
        named = {
            "client": f"Client-{marker.name}",
            "nobody": f"{scheme}://127.0.0.1:{1 + number % 1000}",
            "worker": addresses[f"{blocked}worker"],
            "hostile": host.address,
            "hostile-tcp": self.stock.address,
            "module-name": f"live_{marker.name.partition('-')[0]}.py",
            "module": code.encode(),
            "url": f"file://{marker}.yaml",
            "path": "../" * 40 + str(marker).lstrip("/"),
        }
        return named.__getitem__

    def close(self) -> None:
        self.stock.close()
        self.sealed.close()


@pytest.fixture(scope="module")
def traps(rig: Rig) -> Iterator[Traps]:
    made = Traps(rig)
    yield made
    made.close()


# --- one row, on one wire -----------------------------------------------------------------------


def _is_stream(row: Row) -> bool:
    return len(row.say) > 1


def _send_all(wire: Wire, row: Row, messages: list[Any]) -> bytes:
    """Send the messages of *row*, and return the bytes of the answer if there must be one."""
    wire.last = b""
    first, *rest = messages
    if not _is_stream(row):
        wire.send(first)
        return _answer(wire)
    wire.send(first)
    if first["op"] != "connection_stream":
        _answer(wire)
    for message in rest:
        wire.send([message])
    return b""


def _answer(wire: Wire) -> bytes:
    """Read the answer without believing that it can be decoded."""
    with contextlib.suppress(Exception):  # whatever it is, it is looked at as bytes
        wire.read()
    return wire.last


def _worked(rig: Rig, row: Row, marker: Path, answer: bytes) -> bool:
    if row.effect == "leaked":
        wanted = CONFIGURED if "config" in row.name else SECRET
        return wanted.encode() in answer
    return rig.made(marker)


def _control(rig: Rig, traps: Traps, row: Row) -> str:
    """Send *row* to stock Dask; return what is wrong with that, if anything."""
    marker = rig.marker("stock")
    blocked = "blocked-" if row.target.startswith("blocked-") else ""
    here = traps.here(marker, stock=True, blocked=blocked)
    messages = [in_stock(each, marker, here) for each in row.say]
    before = _imported(rig, row.target) if row.effect == "imported" else False
    if messages[0]["op"] == "greet":
        wire = Stock(socket.create_connection(place(rig.stock[row.target]), timeout=20))
        del messages[0]["op"]
        wire.greet(messages[0])
        answer = b""
    else:
        wire = rig.stock_to(row.target)
        answer = _send_all(wire, row, messages)
    with wire:
        ran = _worked(rig, row, marker, answer)
        deadline = time.monotonic() + (RUNS if row.runs and row.effect in ("ran", "wrote") else 0)
        while not ran and time.monotonic() < deadline:
            time.sleep(0.01)
            ran = _worked(rig, row, marker, answer)
    if row.effect == "imported":
        ran = _imported(rig, row.target) and not before
    if ran is not row.runs:
        return f"{row.name}: the control {'ran' if ran else 'did not run'} on stock Dask"
    if ran and row.effect == "ran":
        wrote, expected = _pid_in(marker), rig.pids[row.by or row.target]
        if wrote != expected:
            return f"{row.name}: the control ran in process {wrote}, not in {expected}"
    return ""


def _pid_in(marker: Path) -> int:
    deadline = time.monotonic() + RUNS
    while not (text := marker.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return int(text or 0)


def _imported(rig: Rig, target: str) -> bool:
    code = f"{NEW_MODULE!r} in __import__('sys').modules"
    call = {"function": pickle.dumps(eval), "args": pickle.dumps((code,)), "wait": True}
    with rig.stock_to(target) as wire:
        operation = "run_function" if target == "scheduler" else "run"
        return bool(value_of(wire.ask({"op": operation, **call})["result"]))


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
                answer = b"" if wire is None else _send_all(wire, row, messages)
            except (OSError, AuthenticationError) as error:
                self.failures.append(f"{name}: {type(error).__name__}: {error}")
                return
            if SECRET.encode() in answer or CONFIGURED.encode() in answer:
                self.failures.append(f"{name}: the secret came back")
            self._look_for_the_record(name, row, form, target)
            if wire is not None and _is_stream(row):  # Dask's own handler may have ended it
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
        about = _operations(row)
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
    """Return which operations the record of a refusal may name: a greeting and a reply none."""
    if row.say[0]["op"] == "greet" or "fake-worker" in row.name:
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
    failures = [wrong for row in ROWS if (wrong := _control(rig, traps, row))]
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
