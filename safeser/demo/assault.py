"""Runs the table of attacks against both clusters and says what came of each.

The one rule: whether code ran is read from the marker files, and by which rule it was refused from
the records of whoever refused it. Attacks follow one another, so that a refusal has one cause.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from safeser.demo.attacks import ATTACKS, Attack, markers
from safeser.demo.clusters import Cluster, identity, python
from safeser.demo.evidence import Refusal, now, wait_for_refusals
from safeser.demo.failure import StepFailed
from safeser.demo.folder import Folder
from safeser.demo.processes import Child, Processes
from safeser.demo.screen import Row

__all__ = ["Assault", "Outcome"]

_ANSWER = 60.0
#: A reply that is on its way when alice lets go must not be taken for the next attack's.
_SETTLES = 0.3
_RAN = 10.0  # seconds that stock Dask may take to run what it was sent

_SHOWN = {"impostor": "stranger"}

#: Whose refusals can be about the attack. What a worker says reaches alice through the scheduler.
_SENDERS = {
    "stranger": frozenset({"unknown"}),
    "impostor": frozenset({"unknown"}),
    "bob": frozenset({"bob"}),
    "worker": frozenset({"worker", "scheduler"}),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attack.

    :param stock: whether it ran on the stock cluster.
    :param safeser: whether it ran on this one.
    :param refusals: what was recorded on this one.
    """

    attack: Attack
    stock: bool
    safeser: bool
    refusals: tuple[Refusal, ...]

    @property
    def row(self) -> Row:
        return Row(
            self.attack.what,
            _SHOWN.get(self.attack.attacker, self.attack.attacker),
            self.attack.recipient,
            "ran" if self.stock else "refused",
            "RAN" if self.safeser else self._rules(),
            good=not self.safeser and bool(self.refusals),
        )

    def _rules(self) -> str:
        """Return the rules of whoever it was meant for, else of who refused it on the way."""
        own = [each for each in self.refusals if each.by == self.attack.recipient]
        shown = dict.fromkeys(
            each.rule if own else f"{each.rule} ({each.by})" for each in own or self.refusals
        )
        return "\n".join(shown) or "no rule recorded"

    def require_as_said(self) -> None:
        """Raise :class:`StepFailed` unless it ran there, did not here, and a record says why."""
        if self.safeser:
            raise StepFailed(f"'{self.attack.what}' ({self.row.sender}) ran on safeser://")
        if not self.refusals:
            raise StepFailed(
                f"'{self.attack.what}' ({self.row.sender}) did nothing on safeser://, but no record"
                " says that it was refused"
            )
        if not self.stock:
            raise StepFailed(
                f"'{self.attack.what}' ({self.row.sender}) did not run on stock Dask, so that its"
                " refusal here shows nothing"
            )


@dataclass(slots=True)
class _Side:
    """One of the two clusters, with the attackers that face it."""

    name: str
    cluster: Cluster
    victim: Child
    bob: Child
    rogue: Child
    rogue_address: str = ""


@dataclass(slots=True)
class Assault:
    """All attacks on both clusters."""

    processes: Processes
    folder: Folder
    policy: str
    cluster: Cluster
    stock: Cluster
    alice: Child
    twin: Child
    outcomes: list[Outcome] = field(default_factory=list)
    _alice_ran: dict[str, bool] = field(default_factory=dict)

    def run(self) -> Iterator[tuple[int, int]]:
        """Run attack after attack; yield how many are done, of how many."""
        total = len(ATTACKS) + 1
        yield 0, total
        stranger = self.processes.start("stranger", python("attacker", "stranger"), talks=True)
        sides = [
            self._side("stock", self.stock, self.twin, stranger),
            self._side("safeser", self.cluster, self.alice, self._bob()),
        ]
        for done, attack in enumerate(ATTACKS, 1):
            self.outcomes.append(self._attack(attack, sides, stranger))
            yield done, total
        rogues = [side.rogue for side in sides]
        self.processes.end([*rogues, stranger, sides[1].bob])
        for side in sides:
            self._alice_ran[side.name] = self._submit_code(side)
        self.outcomes = [self._looked_at_again(outcome, sides[1]) for outcome in self.outcomes]
        yield total, total

    def _looked_at_again(self, outcome: Outcome, side: _Side) -> Outcome:
        """Return *outcome* after all is over, since an attack may run late.

        On a busy machine a scheduler can take longer to open what it was sent than to record the
        refusal of something else. Alice's code ran after all of it, on the same servers.
        """
        return replace(outcome, safeser=outcome.safeser or self._made(outcome.attack, side))

    @property
    def rows(self) -> list[Row]:
        """Return the table's rows, the honest one last."""
        ran = {True: "ran", False: "refused"}
        last = Row(
            "update-graph with code",
            "alice",
            "scheduler",
            ran[self._alice_ran["stock"]],
            "ran: she is granted it" if self._alice_ran["safeser"] else "REFUSED",
            good=self._alice_ran["safeser"],
        )
        return [*(outcome.row for outcome in self.outcomes), last]

    def require_as_said(self) -> None:
        """Raise :class:`StepFailed` for the first attack that did not come out as said."""
        for outcome in self.outcomes:
            outcome.require_as_said()
        if not all(self._alice_ran.values()):
            raise StepFailed("alice's own code did not run, although she is granted it")

    def _bob(self) -> Child:
        return self.processes.start(
            "bob", python("attacker", "bob"), environment=self._attacker("bob"), talks=True
        )

    def _attacker(self, principal: str) -> dict[str, str]:
        # Their own records prove nothing, so they are kept apart from the cluster's.
        kept = self.folder.path / "attackers"
        return {
            **identity(self.folder, principal, policy=self.policy),
            "DASK_SAFESER__AUDIT": str(kept),
        }

    def _side(self, name: str, cluster: Cluster, victim: Child, bob: Child) -> _Side:
        scratch = self.folder.scratch / f"{name}-rogue"
        rogue = self.processes.start(
            f"rogue worker on {name}",
            python("rogue", cluster.address, str(self.folder.markers(name)), str(scratch)),
            environment=self._attacker("worker") if name == "safeser" else None,
            talks=True,
        )
        return _Side(name, cluster, victim, bob, rogue)

    def _attack(self, attack: Attack, sides: list[_Side], stranger: Child) -> Outcome:
        ran = {}
        refused: list[Refusal] = []
        for side in sides:
            since = self._prepare(attack, side)
            ran[side.name] = self._one(attack, side, stranger)
            if side.name == "safeser":
                refused = wait_for_refusals(
                    self.folder.audit,
                    since=since,
                    senders=_SENDERS[attack.attacker],
                    check=self.processes.check,
                )
        return Outcome(attack, ran["stock"], ran["safeser"], tuple(refused))

    def _prepare(self, attack: Attack, side: _Side) -> int:
        if attack.attacker == "worker" and not side.rogue_address:
            met = side.rogue.ask({"do": "meet"}, timeout=_ANSWER, check=self.processes.check)
            side.rogue_address = met["address"]
        return now()

    def _one(self, attack: Attack, side: _Side, stranger: Child) -> bool:
        """Do *attack* on one side and tell whether it ran."""
        check = self.processes.check
        if attack.attacker == "worker":
            for form in range(attack.forms):
                key = f"{attack.name}-{form}"
                meeting = {"do": "meet_rogue", "key": key, "worker": side.rogue_address}
                side.victim.ask(meeting, timeout=_ANSWER, check=check)
            ran = self._ran(attack, side)
            side.victim.ask({"do": "let_go"}, timeout=_ANSWER, check=check)
            time.sleep(_SETTLES)
            return ran
        who = stranger if attack.attacker == "stranger" else side.bob
        command: dict[str, Any] = {
            "do": "attack",
            "name": attack.name,
            "address": self._address(attack, side.cluster),
            "markers": [str(path) for path in markers(self.folder.markers(side.name), attack)],
            "secret": side.cluster.secret,
        }
        if attack.attacker == "impostor" and side.name == "safeser":
            command["settings"] = {
                "identity": str(self.folder.impostor / "alice.key"),
                "roster": str(self.folder.impostors_roster),
                "audit": str(self.folder.impostor / "audit"),
            }
        answer = who.ask(command, timeout=_ANSWER, check=check)
        return bool(answer["leaked"]) if attack.leaks else self._ran(attack, side)

    def _address(self, attack: Attack, cluster: Cluster) -> str:
        # A stranger speaks plain TCP to whatever port there is.
        if attack.attacker == "stranger":
            return (
                cluster.plain_address if attack.recipient == "scheduler" else cluster.plain_worker
            )
        return cluster.address if attack.recipient == "scheduler" else cluster.workers[0]

    def _made(self, attack: Attack, side: _Side) -> bool:
        return any(path.exists() for path in markers(self.folder.markers(side.name), attack))

    def _ran(self, attack: Attack, side: _Side) -> bool:
        """Tell whether a marker is there; stock Dask gets the time that it may take."""
        deadline = time.monotonic() + (_RAN if side.name == "stock" else 0)
        while not self._made(attack, side) and time.monotonic() < deadline:
            self.processes.check()
            time.sleep(0.05)
        return self._made(attack, side)

    def _submit_code(self, side: _Side) -> bool:
        marker = self.folder.markers(side.name) / "alice-update-graph"
        side.victim.ask(
            {"do": "submit_code", "marker": str(marker)},
            timeout=_ANSWER,
            check=self.processes.check,
        )
        return marker.exists()
