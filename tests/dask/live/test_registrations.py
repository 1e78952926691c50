"""Hostile schedulers towards workers and nannies that register with them.

The one rule: on stock Dask whoever listens at the address is the scheduler, and sends code. Here
nobody is but who holds a key that policy lets be it; and where policy takes no code from the
scheduler either, its own key makes none run. A row counts only if its control ran in this job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.dask.live.controls import Traps
from tests.dask.live.payloads import CANARY, Evil, in_all_forms, in_stock, places
from tests.dask.live.rig import Rig
from tests.dask.live.told import Told
from tests.dask.live.wires import Host, Wire
from tests.processes import until

pytestmark = pytest.mark.cluster

#: Stock Dask must fail at it, or a nanny would go on and start a worker's process.
_FAILS = "1 / 0"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a hostile scheduler says to *kind*, which asked it for *op*, and then on its stream."""

    name: str
    kind: str
    op: str
    more: dict[str, Any]
    then: tuple[dict[str, Any], ...] = ()


_TASK = {
    "op": "compute-task",
    "key": "x",
    "run_id": 1,
    "run_spec": Evil("pickled"),
    "who_has": {},
    "nbytes": {},
    "priority": [0],
    "stimulus_id": "x",
    "resource_restrictions": {},
    "actor": False,
    "annotations": {},
    "span_id": None,
}
_CLOSE = {"op": "close", "reason": "over"}
_PLUGIN = {"x": Evil("bytes", _FAILS)}

REPLIES = (
    Reply("worker-plugins", "worker", "register-worker", {"worker-plugins": _PLUGIN}),
    Reply("any field of the reply", "worker", "register-worker", {"time": Evil("pickled", _FAILS)}),
    Reply("nanny-plugins", "nanny", "register_nanny", {"nanny-plugins": _PLUGIN}),
    Reply("compute-task", "told", "register-worker", {}, (_TASK, _CLOSE)),
    Reply(
        "any field of an element",
        "told",
        "register-worker",
        {},
        ({"op": "free-keys", "keys": [], "stimulus_id": Evil("pickled")}, _CLOSE),
    ),
)


class Impostor:
    """Answers one registration after the other as it is told."""

    def __init__(self, channel: Any = None) -> None:
        self.op = ""
        self.reply: dict[str, Any] = {}
        self.then: list[Any] = []
        self.streams: list[Wire] = []
        self.host = Host(self._answer, channel=channel)

    def _answer(self, wire: Wire) -> None:
        while True:
            message = wire.read()
            if not isinstance(message, dict):
                continue
            if message["op"] == self.op:
                self.streams.append(wire)
                wire.send({**_FINE[self.op], **self.reply})
                if self.then:
                    wire.send(self.then)
            elif message.get("reply", True):
                wire.send(_BEAT)


_BEAT = {"status": "OK", "time": 0.0, "heartbeat-interval": 1}
_FINE: dict[str, dict[str, Any]] = {
    "register-worker": {**_BEAT, "worker-plugins": {}},
    "register_nanny": {"status": "OK", "nanny-plugins": {}},
}


def _careful(rig: Rig) -> Path:
    """Return the cluster's policy, but that no code passes from the scheduler to workers."""
    text = Path(rig.cluster.policy).read_text()
    start = text.index("  - name: scheduler-directs")
    end = text.index("  - name: workers-report")
    context = """  - name: scheduler-directs
    sender: scheduler
    recipient: [worker, nanny]
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    pickle: {profile: [data, numpy, pandas]}
    operations: {grant: [basic, cluster, control, diagnose]}
"""
    made = rig.path / "careful.yaml"
    made.write_text(text[:start] + context + text[end:])
    return made


def _controls(rig: Rig, recruit: Told) -> Iterator[str]:
    impostor = Impostor()
    with impostor.host:
        for row in REPLIES:
            marker = rig.marker("stock-recruit")
            impostor.op = row.op
            impostor.reply = in_stock(row.more, marker, str)
            impostor.then = in_stock(list(row.then), marker, str)
            said = recruit.ask({"kind": row.kind, "address": impostor.host.address, "policy": None})
            if not marker.exists():
                yield f"{row.name}: the control did not run: {said}"
            elif int(marker.read_text()) != said["pid"]:
                yield f"{row.name}: the control ran in another process than the recruit's"


def _between(one: str, other: str) -> Any:
    """Return what picks refusals of one of them by the other."""
    return lambda record: {record["sender"], record["recipient"]} <= {one, other}


def _attacked(rig: Rig, recruit: Told, role: str, policy: str) -> Iterator[str]:
    """Have the holder of *role*'s key be the scheduler of whoever decides by *policy*."""
    impostor = Impostor(rig.channel(role))
    markers: list[Path] = []

    def marker(form: str) -> Path:
        markers.append(rig.marker(f"recruit-{role}-{form}"))
        return markers[-1]

    said_in = role in ("worker", "scheduler")  # whoever else holds a key gets no word in
    with impostor.host:
        for row in REPLIES if said_in else (REPLIES[0], REPLIES[2]):
            forms = in_all_forms([row.more, list(row.then)], marker, str)
            for form, (impostor.reply, impostor.then) in forms:
                impostor.op = row.op
                rig.log.new()
                asked = {"kind": row.kind, "address": impostor.host.address, "policy": policy}
                said = recruit.ask(asked)["said"]
                if row.kind != "told" and said == "worked":
                    yield f"{row.name} by {role} as {form}: it works for who sent it that"
                who = "nanny" if row.kind == "nanny" else "worker"
                # Who may not even meet ends the handshake, which nobody is named in.
                met = said_in or (role, who) == ("bob", "worker")
                # Bytes are data, unless a handler would open them.
                met = met and (form != "bytes" or "bytes" in places([row.more, list(row.then)]))
                if met and not rig.log.wait(_between(role, who)):
                    yield f"{row.name} by {role} as {form}: nothing is recorded: {said}"
                if not said_in:
                    break
    yield from (f"{each.name}: RAN" for each in markers if rig.made(each))


def test_nobody_but_its_scheduler_has_a_worker_run_code(
    rig: Rig, recruits: dict[str, Told]
) -> None:
    failures = list(_controls(rig, recruits["stock"]))
    live, careful = rig.cluster.policy, str(_careful(rig))
    for role, policy in (
        ("unlisted", live),
        ("bob", live),
        ("worker", live),
        ("scheduler", careful),
    ):
        failures += _attacked(rig, recruits["safeser"], role, policy)
    honest = {"kind": "worker", "address": rig.sealed["scheduler"], "policy": live}
    if (said := recruits["safeser"].ask(honest)["said"]) != "worked":
        failures.append(f"it works for nobody any more: {said}")
    failures += [f"{who} repeats what a payload holds" for who in rig.told(CANARY)]
    assert not failures, "\n".join(failures)


# --- addresses in the elements of a scheduler's stream --------------------------------------------


def _led_to(address: str) -> list[Any]:
    # A task that was refused has failed for its worker: another one is told of each address.
    where = {"who_has": {"k": [address]}, "nbytes": {"k": 1}}
    return [{**_TASK, "key": f"task at {address}", "run_spec": None, **where}]


@contextmanager
def _recruited(recruit: Told, impostor: Impostor, policy: str | None) -> Iterator[dict[str, Any]]:
    """Have a worker that *impostor* leads somewhere; end it, and tell what came of it."""
    impostor.op = "register-worker"
    said: dict[str, Any] = {}
    with impostor.host:
        recruit.tell({"kind": "told", "address": impostor.host.address, "policy": policy})
        yield said
        impostor.streams[0].send([_CLOSE])
        said |= recruit.hear()


def test_no_element_has_a_worker_connect_elsewhere(
    rig: Rig, recruits: dict[str, Told], traps: Traps
) -> None:
    """Other elements that name addresses are in ``test_forms.py``."""
    marker = rig.marker("stock-elsewhere")
    traps.here(marker, stock=True)
    impostor = Impostor()
    impostor.then = _led_to(traps.stock.address)
    with _recruited(recruits["stock"], impostor, None) as said:
        until("the control", lambda: marker.exists() and marker.read_text())
    assert int(marker.read_text()) == said["pid"]

    traps.here(marker := rig.marker("elsewhere"), stock=False)
    contacts = traps.stock.connections
    rig.log.new()
    impostor = Impostor(rig.channel("scheduler"))
    # The same elements are followed to a worker, whose answer is refused by itself.
    impostor.then = _led_to(traps.stock.address) + _led_to(traps.sealed.address)
    wanted = {("compute-task", "operation.field-shape"), ("", "context.family")}
    with _recruited(recruits["safeser"], impostor, str(_careful(rig))) as said:
        seen = []
        rig.log.wait(lambda r: seen.append((r["operation"], r["rule"])) or wanted <= set(seen))
    assert wanted <= set(seen), seen
    assert said["said"] == "worked"
    assert not rig.made(marker)
    assert traps.stock.connections == contacts
