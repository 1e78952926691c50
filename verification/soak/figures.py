"""What the soak counts, and what its figures say: no process is touched here.

The one rule: a leak is a slope, not a size. What a process holds is fitted over the time after its
warm-up, and the summary names the slope beside the first and the last value.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import linear_regression
from typing import Any

import psutil

#: What can become of one job of a client. Only the first two may happen.
OUTCOMES = ("done", "disturbed", "wrong", "lost", "failed", "crashed")

#: Share of a process's time that counts as its warm-up: imports, caches, first connections.
WARM_UP = 0.25

#: Samples below which a slope says nothing.
ENOUGH = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """What one process holds: resident memory in MiB, open files, threads."""

    seconds: float
    memory: float
    files: int
    threads: int


def sample_of(pid: int, seconds: float) -> Sample | None:
    """Return what *pid* holds now, or None if it is gone."""
    try:
        held = psutil.Process(pid)
        with held.oneshot():
            memory = held.memory_info().rss / (1 << 20)
            return Sample(seconds, memory, held.num_fds(), held.num_threads())
    except psutil.Error:
        return None


@dataclass(slots=True)
class Trend:
    """The samples of one process, as long as it is the same process."""

    pid: int
    samples: list[Sample] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        """Return first and last values after the warm-up, the peak, and slopes for an hour."""
        settled = _after_warm_up(self.samples)
        if not settled:
            return {"samples": 0}
        found: dict[str, Any] = {
            "samples": len(self.samples),
            "minutes": round((self.samples[-1].seconds - self.samples[0].seconds) / 60, 1),
        }
        for name, shown in (("memory", "memory_mib"), ("files", "files"), ("threads", "threads")):
            values = [getattr(sample, name) for sample in settled]
            found[shown] = [round(values[0], 1), round(values[-1], 1)]
            found[f"{shown}_peak"] = round(max(getattr(each, name) for each in self.samples), 1)
            found[f"{shown}_per_hour"] = _per_hour(settled, values)
        return found


def _after_warm_up(samples: Sequence[Sample]) -> Sequence[Sample]:
    if not samples:
        return samples
    begun, ended = samples[0].seconds, samples[-1].seconds
    settled = [s for s in samples if s.seconds >= begun + WARM_UP * (ended - begun)]
    return settled if len(settled) >= ENOUGH else samples


def _per_hour(samples: Sequence[Sample], values: Sequence[float]) -> float | None:
    if len(samples) < ENOUGH or samples[0].seconds == samples[-1].seconds:
        return None
    slope = linear_regression([sample.seconds for sample in samples], values).slope
    return round(slope * 3600, 1)


@dataclass(slots=True)
class Tally:
    """Everything that was counted. It can be written, and read again by a later run."""

    jobs: Counter[str] = field(default_factory=Counter)  # "client job outcome"
    tasks: Counter[str] = field(default_factory=Counter)  # of each client
    chaos: Counter[str] = field(default_factory=Counter)  # kills, cuts, garbage, attacks
    notes: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    #: More notes than anybody reads; the counts go on.
    MOST_NOTES = 500

    def job(self, client: str, said: Mapping[str, Any], *, outcome: str | None = None) -> None:
        """Count what *client* said of one job; *outcome* overrules the client's own word."""
        outcome = outcome or str(said["outcome"])
        if outcome not in OUTCOMES:
            raise ValueError(f"no outcome: {outcome}")
        self.jobs[f"{client} {said['job']} {outcome}"] += 1
        self.tasks[client] += int(said.get("tasks", 0)) if outcome == "done" else 0
        if outcome != "done":
            self.note(client=client, outcome=outcome, job=said["job"], error=said.get("error", ""))

    def note(self, **what: Any) -> None:
        if len(self.notes) < self.MOST_NOTES:
            self.notes.append({"at": round(self.seconds, 1), **what})

    def outcomes(self) -> Counter[str]:
        counted: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        for name, number in self.jobs.items():
            counted[name.rsplit(" ", 1)[1]] += number
        return counted

    @property
    def faults(self) -> dict[str, int]:
        """What must not have happened, with how often it did."""
        found = {name: self.outcomes()[name] for name in OUTCOMES[2:]}
        found["ran"] = self.chaos["ran"]  # hostile code that was executed
        return {name: number for name, number in found.items() if number}

    def write(self, path: Path) -> None:
        held = {each.name: getattr(self, each.name) for each in fields(self)}
        path.write_text(json.dumps(held, indent=1))

    @classmethod
    def read(cls, path: Path) -> Tally:
        """Return what an earlier run wrote, or nothing yet."""
        said = json.loads(path.read_text()) if path.exists() else {}
        return cls(**{k: Counter(v) if type(v) is dict else v for k, v in said.items()})


def was_disturbed(begun: float, ended: float, blows: Iterable[float], *, grace: float) -> bool:
    """Tell whether a blow fell while a job ran, or so shortly before that it still felt it."""
    return any(begun - grace <= blow <= ended for blow in blows)
