"""A cluster of real processes whose roster, policy and keys change while it works.

The one rule: each worker and each nanny has a key of its own, so that one can be revoked alone.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from safeser.audit.names import Resolver
from safeser.audit.record import parse
from safeser.identity import Identity, KeyState, Roster, RosterEntry, today
from safeser.policy.ready import locate
from tests.processes import DASK, Cluster, until

__all__ = ["Team", "work"]


_LOOKING = Path(__file__).with_name("looking.py")

ENGINEERS = ("alice", "carol", "mallory")
PRINCIPALS = ("scheduler", "worker", "nanny", *ENGINEERS, "bob")

#: What a client of the team does: rounds of so many tasks until a file says that it is enough.
WORK = """
import json, os, sys, time
import safeser

address, stop, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
client = safeser.Client(address)

def slow(x, salt):
    time.sleep(0.01)
    return x

rounds = 0
while True:
    futures = client.map(slow, range(count), salt=rounds)
    print("working", flush=True)
    assert sum(client.gather(futures)) == count * (count - 1) // 2
    rounds += 1
    if os.path.exists(stop):
        break
print(json.dumps({"rounds": rounds}), flush=True)
"""


def policy_text() -> str:
    """Return policy ``demo`` with three engineers; workers may ask it to end workers."""
    text = locate("demo").read_text("utf-8")
    more = "".join(f"  {name}: {{groups: [engineers]}}\n" for name in ENGINEERS[1:])
    return text.replace("  bob:", f"{more}  bob:", 1).replace("worker-reports", "cluster")


class Team(Cluster):
    def __init__(self, path: Path) -> None:
        self.text = policy_text()
        self.policy_path = path / "policy.yaml"
        self._schedulers_policy = path / "scheduler.yaml"
        self.write_policy(self.text)
        super().__init__(path, str(self.policy_path), PRINCIPALS)
        self._rounds = 0
        #: For each log how much of it was read, and what that was.
        self._read: dict[Path, tuple[int, list[dict[str, Any]], Resolver]] = {}

    def environment(self, principal: str, **more: str) -> dict[str, str]:
        # Nobody listens where a revoked process was, and who asks there waits.
        more["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "8s"
        for each in ("SCHEDULER", "WORKER", "NANNY"):
            more[f"DASK_DISTRIBUTED__{each}__PRELOAD"] = json.dumps([str(_LOOKING)])
        if principal == "scheduler":
            more["DASK_SAFESER__POLICY"] = str(self._schedulers_policy)
        return super().environment(principal, **more)

    # --- processes ---------------------------------------------------------------------------

    def add_workers(self, *names: str) -> None:
        """Start workers and their nannies, each with a new key of its own, and wait for them."""
        for name in names:
            self._add_worker(name)
        until("the workers", lambda: all(f"name: {n}\n" in self.log("scheduler") for n in names))

    def _add_worker(self, name: str) -> None:
        for role in ("worker", "nanny"):
            self.add_key(role, self.keys / f"{role}-{name}.key")
        scratch = str(self.path / f"scratch-{name}")
        self.start(
            f"worker-{name}",
            *(DASK, "worker", self.address, "--nthreads", "1", "--host", "127.0.0.1"),
            *("--no-dashboard", "--name", name, "--local-directory", scratch),
            environment=self.environment(
                "worker",
                DASK_SAFESER__WORKER__IDENTITY=str(self.keys / f"worker-{name}.key"),
                DASK_SAFESER__NANNY__IDENTITY=str(self.keys / f"nanny-{name}.key"),
            ),
        )

    def client(self, principal: str, program: str, *arguments: str) -> tuple[str, Any]:
        """Start a program of *principal*'s; return the name of its log and its process."""
        self._rounds += 1
        name = f"{principal}-{self._rounds}"
        command = (sys.executable, "-c", program, self.address, *arguments)
        return name, self.start(name, *command, environment=self.environment(principal))

    # --- files -------------------------------------------------------------------------------

    @property
    def roster(self) -> Roster:
        return Roster.load(self.keys / "roster")

    def save(self, roster: Roster) -> None:
        roster.save(self.keys / "roster")

    def add_key(self, principal: str, path: Path) -> Identity:
        identity = Identity.generate(principal)
        identity.save(path)
        entry = RosterEntry.of(identity, created=today())
        self.save(self.roster.with_entry(entry))
        return identity

    def retire(self, *identities: Identity) -> None:
        roster = self.roster
        for each in identities:
            entry = roster.entry_of(each.public)
            assert entry is not None
            roster = roster.with_entry(replace(entry, state=KeyState.RETIRED))
        self.save(roster)

    def write_policy(self, text: str, *, scheduler: bool = True) -> None:
        """Write the policy of all processes, or of all but the scheduler."""
        for path in (self.policy_path, *[self._schedulers_policy] * scheduler):
            new = path.with_suffix(".new")
            new.write_text(text)
            new.replace(path)

    # --- what was recorded -------------------------------------------------------------------

    def in_force(self, revision: int) -> dict[str, int]:
        """Return how many processes said in each log that they decide by *revision*."""
        said = re.compile(rf"new policy is in force: demo revision {revision}\b")
        return {log.stem: len(said.findall(log.read_text())) for log in self.path.glob("*.log")}

    def records(self, principal: str) -> list[dict[str, Any]]:
        """Return what all processes of *principal* recorded, as far as it is written."""
        found = []
        for path in self.audit.glob(f"{principal}-*.log"):
            read, kept, resolver = self._read.get(path, (0, [], Resolver()))
            with path.open("rb") as file:
                file.seek(read)
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                records = [resolver.resolve(parse(line)) for line in whole.splitlines()]
                kept += [{**each.fields, "type": each.type} for each in records]
                self._read[path] = (read + len(whole) + 1, kept, resolver)
            found += kept
        return found

    def rules(self, principal: str) -> list[str]:
        return [r["rule"] for r in self.records(principal) if "rule" in r]


class work:
    """While this block runs, *principal* computes hundreds of tasks, which all come out right."""

    def __init__(self, team: Team, principal: str = "alice", *, count: int = 200) -> None:
        self.team = team
        self.principal = principal
        self.count = str(count)

    def __enter__(self) -> work:
        self.stop = self.team.path / f"stop-{self.team._rounds}"
        self.name, self.process = self.team.client(self.principal, WORK, str(self.stop), self.count)
        until("work", lambda: self.failed() or "working" in self.team.log(self.name), 120)
        return self

    def go_on(self, rounds: int) -> None:
        """Wait until so many rounds more have begun."""
        enough = self._begun() + rounds
        until("more work", lambda: self._begun() >= enough, 120)

    def _begun(self) -> int:
        self.failed()
        return self.team.log(self.name).count("working")

    def failed(self) -> bool:
        assert self.process.poll() in (None, 0), self.team.log(self.name)
        return False

    def __exit__(self, kind: Any, *_: object) -> None:
        self.stop.touch()
        if kind is None:
            assert self.process.wait(180) == 0, self.team.log(self.name)
            self.rounds = self.team.printed(self.name)["rounds"]
            assert self.rounds >= 1
