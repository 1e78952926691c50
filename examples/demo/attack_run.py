"""Run the table of attacks against both clusters, and collect the outcomes.

The marker files show whether an attack ran; the audit logs show which process refused it, by which
rule.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from examples.demo.attacks import ATTACKS, Attack, markers
from examples.demo.clusters import Cluster, identity, start_program
from examples.demo.errors import StepFailed
from examples.demo.folder import Folder
from examples.demo.processes import Child, Processes
from examples.demo.refusals import Refusal, now, wait_for_refusals
from examples.demo.screen import Row

__all__ = ["AttackRun", "Outcome"]

_ANSWER = 150.0  # seconds, for a busy machine
#: A late reply to a cancelled request must not be taken for that of the next attack.
_SETTLES = 0.3
_RAN = 10.0  # seconds that stock Dask may take to run a payload

_SHOWN = {"impostor": "stranger"}

#: Whose messages a refusal is about. The scheduler relays a worker's messages to alice.
_SENDERS = {
    "stranger": frozenset({"unknown"}),
    "impostor": frozenset({"unknown"}),
    "bob": frozenset({"bob"}),
    "worker": frozenset({"worker", "scheduler"}),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one attack.

    :param stock: whether it ran on the stock cluster.
    :param safeser: whether it ran on the cluster under policy.
    :param refusals: the refusals that the cluster under policy recorded.
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
        """Return the rules by which its recipient refused it, else those of a process before it."""
        own = [each for each in self.refusals if each.by == self.attack.recipient]
        shown = dict.fromkeys(
            each.rule if own else f"{each.rule} ({each.by})" for each in own or self.refusals
        )
        return "\n".join(shown) or "no rule recorded"

    def require_expected(self) -> None:
        """Raise :class:`StepFailed` unless it ran on stock Dask only, and a record says why."""
        if self.safeser:
            raise StepFailed(f"'{self.attack.what}' ({self.row.sender}) ran on safeser://")
        if not self.refusals:
            raise StepFailed(
                f"'{self.attack.what}' ({self.row.sender}) did not run on safeser://, but no"
                " record says that it was refused"
            )
        if not self.stock:
            raise StepFailed(
                f"'{self.attack.what}' ({self.row.sender}) did not run on stock Dask, so its"
                " refusal by safeser proves nothing"
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
class AttackRun:
    """All attacks on both clusters, one after another, so that each refusal has one cause."""

    processes: Processes
    folder: Folder
    policy: str
    cluster: Cluster
    stock: Cluster
    alice: Child
    stock_alice: Child
    outcomes: list[Outcome] = field(default_factory=list)
    _alice_ran: dict[str, bool] = field(default_factory=dict)

    def run(self) -> Iterator[tuple[int, int]]:
        """Run one attack after another; yield how many are done, and of how many."""
        total = len(ATTACKS) + 1
        yield 0, total
        stranger = start_program(self.processes, "stranger", "attacker", "stranger")
        bob = start_program(
            self.processes, "bob", "attacker", "bob", environment=self._attacker("bob")
        )
        sides = [
            self._side("stock", self.stock, self.stock_alice, stranger),
            self._side("safeser", self.cluster, self.alice, bob),
        ]
        for done, attack in enumerate(ATTACKS, 1):
            self.outcomes.append(self._attack(attack, sides, stranger))
            yield done, total
        rogues = [side.rogue for side in sides]
        self.processes.end([*rogues, stranger, sides[1].bob])
        for side in sides:
            self._alice_ran[side.name] = self._submit_code(side)
        self.outcomes = [self._checked_again(outcome, sides[1]) for outcome in self.outcomes]
        yield total, total

    def _checked_again(self, outcome: Outcome, side: _Side) -> Outcome:
        """Return *outcome* with whether the attack has run by the end of all attacks.

        On a busy machine a scheduler can take longer to load a payload than to record the refusal
        of another. Alice's code ran after all attacks, on the same servers.
        """
        return replace(outcome, safeser=outcome.safeser or self._marked(outcome.attack, side))

    @property
    def rows(self) -> list[Row]:
        """Return the rows of the table; the last one is alice's permitted code."""
        ran = {True: "ran", False: "refused"}
        last = Row(
            "update-graph with code",
            "alice",
            "scheduler",
            ran[self._alice_ran["stock"]],
            "ran: permitted" if self._alice_ran["safeser"] else "REFUSED",
            good=self._alice_ran["safeser"],
        )
        return [*(outcome.row for outcome in self.outcomes), last]

    def require_expected(self) -> None:
        """Raise :class:`StepFailed` for the first attack with another outcome than expected."""
        for outcome in self.outcomes:
            outcome.require_expected()
        if not all(self._alice_ran.values()):
            raise StepFailed("alice's own code did not run, although the policy permits it")

    def _attacker(self, principal: str) -> dict[str, str]:
        # An attacker's own records prove nothing, so its log is in another folder.
        return {
            **identity(self.folder, principal, policy=self.policy),
            "DASK_SAFESER__AUDIT": str(self.folder.path / "attackers"),
        }

    def _side(self, name: str, cluster: Cluster, victim: Child, bob: Child) -> _Side:
        scratch = self.folder.scratch / f"{name}-rogue"
        rogue = start_program(
            self.processes,
            f"rogue worker on {name}",
            "rogue",
            *(cluster.address, str(self.folder.markers(name)), str(scratch)),
            environment=self._attacker("worker") if name == "safeser" else None,
        )
        return _Side(name, cluster, victim, bob, rogue)

    def _attack(self, attack: Attack, sides: list[_Side], stranger: Child) -> Outcome:
        ran = {}
        refused: list[Refusal] = []
        for side in sides:
            since = self._prepare(attack, side)
            ran[side.name] = self._ran_on(attack, side, stranger)
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

    def _ran_on(self, attack: Attack, side: _Side, stranger: Child) -> bool:
        """Run *attack* on one side and return whether its payload ran."""
        check = self.processes.check
        if attack.attacker == "worker":
            for form in range(attack.forms):
                key = f"{attack.name}-{form}"
                meeting = {"do": "meet_rogue", "key": key, "worker": side.rogue_address}
                side.victim.ask(meeting, timeout=_ANSWER, check=check)
            ran = self._ran(attack, side)
            side.victim.ask({"do": "cancel"}, timeout=_ANSWER, check=check)
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
                "roster": str(self.folder.impostor_roster),
                "audit": str(self.folder.impostor / "audit"),
            }
        answer = who.ask(command, timeout=_ANSWER, check=check)
        return bool(answer["leaked"]) if attack.leaks else self._ran(attack, side)

    def _address(self, attack: Attack, cluster: Cluster) -> str:
        # A stranger has no key and uses plain TCP.
        if attack.attacker == "stranger":
            return (
                cluster.plain_address if attack.recipient == "scheduler" else cluster.plain_worker
            )
        return cluster.address if attack.recipient == "scheduler" else cluster.workers[0]

    def _marked(self, attack: Attack, side: _Side) -> bool:
        return any(path.exists() for path in markers(self.folder.markers(side.name), attack))

    def _ran(self, attack: Attack, side: _Side) -> bool:
        """Return whether a marker file exists; stock Dask gets time to create it."""
        deadline = time.monotonic() + (_RAN if side.name == "stock" else 0)
        while not self._marked(attack, side) and time.monotonic() < deadline:
            self.processes.check()
            time.sleep(0.05)
        return self._marked(attack, side)

    def _submit_code(self, side: _Side) -> bool:
        marker = self.folder.markers(side.name) / "alice-update-graph"
        side.victim.ask(
            {"do": "submit_code", "marker": str(marker)},
            timeout=_ANSWER,
            check=self.processes.check,
        )
        return marker.exists()
