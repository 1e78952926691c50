"""Work, kill, cut and attack for so long; write a line each minute and a summary at the end.

    python -m verification.soak --seconds 3600 --state DIR

Run again with the same folder, it goes on where it was stopped: what was counted is added up. It
ends with 0 if nothing was wrong, lost or executed, and the logs verify. Ctrl-C ends it cleanly.

The summary says what the scheduler holds more for each thousand jobs, and of what there is more at
the end than at the beginning; ``--stock`` has the same of Dask alone.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from safeser import audit
from verification.soak.chaos import EVERY, KILLS, Chaos
from verification.soak.cluster import Cluster, Talking
from verification.soak.figures import Tally, Trend, sample_of, was_disturbed

#: Name, kind of work, principal.
CLIENTS = (
    ("coder", "code", "coder"),
    ("analyst", "by tasks", "analyst"),
    ("reader", "data", "reader"),
)

_SAMPLED_EVERY = 10.0
_WRITTEN_EVERY = 60.0

#: A worker that was killed has ten seconds of imports before it; what it held is computed anew.
_GRACE = 60.0

#: A client that says nothing for so long waits for something that never comes.
_SILENCE = 400.0


class Soak:
    """One run: a cluster, its clients and what befalls them."""

    def __init__(self, state: Path, *, seconds: float, stock: bool) -> None:
        self.state = state
        self.seconds = seconds
        self.tally = Tally.read(state / "tally.json")
        self.before = self.tally.seconds
        self.stock = stock
        self.started = 0  # clients
        self.cluster = Cluster(state, stock=stock)
        self.chaos = Chaos(self.cluster, self.tally, seed=str(self.before))
        self.talking: dict[str, Talking] = {}
        self.heard: dict[str, float] = {}
        self.trends: dict[str, list[Trend]] = {}
        self.done_before = self.tally.outcomes()["done"]
        self.inventories: list[dict[str, int]] = []
        self.stopped = False
        self.begun = time.monotonic()

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        try:
            self.cluster.begin()
            for name, kind, principal in CLIENTS:
                self._client(name, kind, principal)
            self.begun = time.monotonic()
            self._work()
        finally:
            self.cluster.end()
            self.chaos.count_markers()
            self._write()
        return self._summary()

    def _stop(self, number: int, frame: object) -> None:
        del number, frame
        self.stopped = True

    def _client(self, name: str, kind: str, principal: str) -> None:
        self.started += 1
        seed = f"{self.before} {self.started}"
        self.talking[name] = self.cluster.client(name, kind, principal, seed)
        self.heard[name] = time.monotonic()

    @property
    def left(self) -> float:
        return self.seconds - self.before - (time.monotonic() - self.begun)

    def _work(self) -> None:
        self.chaos.begin(KILLS if self.stock else tuple(EVERY))
        sampled = written = 0.0
        try:
            while self.left > 0 and not self.stopped:
                time.sleep(0.5)
                self._listen()
                self._revive()
                now = time.monotonic()
                self.tally.seconds = self.before + now - self.begun
                if now - sampled >= _SAMPLED_EVERY:
                    sampled = now
                    self._sample()
                if now - written >= _WRITTEN_EVERY:
                    written = now
                    self._write()
        finally:
            self.chaos.end()
        for child in self.talking.values():
            child.end()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and any(c.code is None for c in self.talking.values()):
            time.sleep(0.2)
        self._listen()

    def _listen(self) -> None:
        for name, child in self.talking.items():
            for said in child.events():
                self.heard[name] = time.monotonic()
                if said["event"] == "job":
                    self.tally.job(name, said, outcome=self._judged(said))
                elif said["event"] == "inventory":
                    self.inventories.append(said["counts"])

    def _judged(self, said: dict[str, Any]) -> str:
        """The client's word, unless it blames a blow that never fell."""
        outcome = str(said["outcome"])
        blows = self.chaos.blows
        grace = 0.0 if said.get("during") else _GRACE
        felt = was_disturbed(said["begun"], time.time(), blows, grace=grace)
        if outcome == "disturbed" and not felt:
            return "failed"
        return "disturbed" if outcome == "failed" and said["job"] == "connect" and felt else outcome

    def _revive(self) -> None:
        """Start again what was killed, and what ended by itself; the latter is a fault."""
        for name, kind, principal in CLIENTS:
            child = self.talking[name]
            silent = time.monotonic() - self.heard[name] > _SILENCE
            if child.code is None and not silent:
                continue
            if silent:
                child.signal_group(signal.SIGUSR1)  # it writes where each thread is into its log
                time.sleep(2)
                child.signal_group(signal.SIGKILL)
            outcome = "lost" if silent else "crashed"
            self.tally.job(name, {"job": "all", "error": "\n".join(child.tail())}, outcome=outcome)
            self._client(name, kind, principal)
        for name in ("bare", "shaken", "steady"):
            if self.cluster.children[name].code is not None:
                if name == "steady":
                    self.tally.job(name, {"job": "all"}, outcome="crashed")
                self.tally.chaos[f"restarted {name}"] += 1
                self.cluster.worker(name)
        if self.cluster.children["scheduler"].code is not None:
            self.tally.job("scheduler", {"job": "all"}, outcome="crashed")
            self.stopped = True
        if self.stock:
            return
        if self.cluster.children["rogue"].code is not None:
            self.tally.chaos["restarted rogue"] += 1
            self.cluster.rogue()
        if self.cluster.children["mallory"].code is not None:
            self.tally.note(chaos="mallory", error="ended and was started again")

    def _sample(self) -> None:
        pids = {name: child.pid for name, child in self.cluster.children.items()}
        pids["steady nanny"] = pids.pop("steady")
        pids["shaken nanny"] = pids.pop("shaken")
        for name in ("steady", "shaken"):
            if (pid := self.cluster.worker_process(name)) is not None:
                pids[name] = pid
        now = time.monotonic() - self.begun
        for name, pid in pids.items():
            trends = self.trends.setdefault(name, [])
            if not trends or trends[-1].pid != pid:
                trends.append(Trend(pid))
            if (sample := sample_of(pid, now)) is not None:
                trends[-1].samples.append(sample)

    def _figures(self) -> dict[str, Any]:
        sizes = [path.stat().st_size for path in self.cluster.audit.glob("*")]
        return {
            "seconds": round(self.tally.seconds, 1),
            "outcomes": dict(self.tally.outcomes()),
            "tasks": dict(self.tally.tasks),
            "chaos": dict(sorted(self.tally.chaos.items())),
            "audit": {"files": len(sizes), "mib": round(sum(sizes) / (1 << 20), 1)},
        }

    def _growth(self) -> dict[str, Any]:
        """Return what the scheduler holds more for its jobs: of memory, and of what it counted."""
        done = self.tally.outcomes()["done"] - self.done_before
        hours = (self.tally.seconds - self.before) / 3600
        slope = max(self.trends["scheduler"], key=lambda trend: len(trend.samples)).shown()
        grown = (slope.get("memory_mib_per_hour") or 0) * hours / max(done, 1) * 1000
        first, last = self.inventories[:1] or [{}], self.inventories[-1:] or [{}]
        more = {name: count - first[0].get(name, 0) for name, count in last[0].items()}
        most = sorted(more.items(), key=lambda item: -item[1])[:20]
        return {"mib_per_1000_jobs": round(grown, 2), "more_at_the_end": dict(most)}

    def _write(self) -> None:
        self.tally.write(self.state / "tally.json")
        last = {name: trends[-1].samples[-1:] for name, trends in self.trends.items()}
        latest = {
            name: {"memory_mib": round(each.memory, 1), "files": each.files}
            for name, samples in last.items()
            for each in samples
        }
        line = {**self._figures(), "processes": latest}
        _append(self.state / "minutes.jsonl", line)
        print(json.dumps(line), flush=True)

    def _summary(self) -> int:
        faults = self.tally.faults
        verified: dict[str, Any] = {}
        if not self.stock:
            report = audit.verify(self.cluster.audit, key=self.cluster.keys / "audit.key")
            verified = {"verifies": report.ok, "records": report.records}
            verified["problems"] = [str(problem) for problem in report.problems[:20]]
            faults |= {} if report.ok else {"audit": len(report.problems)}
        summary = {
            **self._figures(),
            "faults": faults,
            "jobs": dict(sorted(self.tally.jobs.items())),
            "audit": {**self._figures()["audit"], **verified},
            # The longest-lived process of each name; a slope over ten seconds says nothing.
            "trends": {
                name: max(trends, key=lambda trend: len(trend.samples)).shown()
                for name, trends in sorted(self.trends.items())
            },
            "scheduler": self._growth(),
            "commit": _commit(),
        }
        text = json.dumps(summary, indent=1)
        (self.state / "summary.json").write_text(text + "\n")
        print(text)
        return bool(faults)


def _append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _commit() -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return described.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="of all runs together")
    parser.add_argument("--state", type=Path, required=True, help="folder for logs and figures")
    parser.add_argument(
        "--stock", action="store_true", help="on tcp:// without attacks: what Dask keeps by itself"
    )
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    return Soak(options.state.resolve(), seconds=options.seconds, stock=options.stock).run()


if __name__ == "__main__":
    sys.exit(main())
