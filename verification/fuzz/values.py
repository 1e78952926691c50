"""Forged values of NumPy, pandas, Arrow, SciPy and the standard library: loaded, and then used.

The one rule it checks: whatever the parts of a value are, restricted pickle gives a value or a
SafeserError, and no use of that value ends the process, hangs it, or breaks Python's own rules.

    python -m verification.fuzz.values --state FOLDER [--seconds 3600] [--case NUMBER]

Each case is a number, from which it can be made again: a value, one to three of whose parts are
others. Cases run in a child, which a crash ends; what the parent keeps in the folder lets the next
run go on behind it, until the children of all runs took the seconds of processor time.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import faulthandler
import itertools
import json
import os
import pickle
import random
import resource
import time
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

# A forked child hangs in OpenMP if its parent has used threads of it.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", ARROW_IO_THREADS="1")

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings

from safeser import pickles
from safeser.errors import SafeserError
from safeser.values import Limits
from tests.samples import seeds
from tests.samples.uses import BROKEN, uses
from tests.types import strategies
from verification.fuzz.children import Runner
from verification.fuzz.forging import brief, forged
from verification.fuzz.mutations import mutated

PROFILE = pickles.Profile.named(*pickles.DATA_PROFILES)
#: Small, so that what they let through is quick to use.
LIMITS = Limits(max_array=1 << 20, max_refs=20_000, max_bytes=1 << 20)
GENERATED = 2500
PATIENCE = 20.0
#: Bytes of memory that the uses of a value may take; the limits above let 1 MiB of it in.
GROWTH = 1 << 30
_LARGE = 6000
_UNCHANGED = (str, bytes, type(None), bool, int, float)


def known() -> list[Any]:
    """Return values of every type that restricted pickle loads, few of them large."""
    held = [part for value in _stated() for part in (value if type(value) is tuple else [value])]
    made = [value for value in (*held, *_generated()) if not isinstance(value, _UNCHANGED)]
    return [value for value in made if _is_small(value)]


def _stated() -> Iterator[Any]:
    yield from (*seeds.plain(), *seeds.rarer(), *seeds.arrays(), *seeds.frames(), *seeds.tables())
    yield from seeds.models()


def _generated() -> list[Any]:
    found: list[Any] = []

    @settings(
        max_examples=GENERATED,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategies.values())
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


def _is_small(value: Any) -> bool:
    if "scipy.sparse" in type(value).__module__ and max(value.shape) > _LARGE:
        return False
    try:
        return len(pickle.dumps(value)) < _LARGE
    except Exception:  # what pickle cannot write, or would never end with
        return False


def _is_own(value: Any) -> bool:
    """Whether the parts of *value* may be others: whatever is made by a call, but no function."""
    return not hasattr(value, "__qualname__")


class Case:
    """What one number stands for: a value, how it is pickled, and one to three changes of it."""

    def __init__(self, number: int, values: list[Any]) -> None:
        chance = random.Random(number)
        self.value = values[number % len(values)]
        self.changes: list[str] = []
        self.buffers: list[bytes | bytearray] = []
        strangers = [*chance.sample(values, 4), *_strangers(chance)]

        def change(path: Any) -> Any:
            def made(value: Any) -> Any:
                new = ... if chance.random() < 0.04 else mutated(value, chance, strangers)
                self.changes.append(f"{path}: {brief(value)} -> {brief(new)}")
                return new

            return made

        options: dict[str, Any] = {"protocol": chance.choice((2, 4, 5, 5)), "deep": 5}
        _, places = forged(self.value, {}, _is_own, **options)
        count = chance.choice((1, 1, 1, 2, 2, 3))
        chosen = {path: change(path) for path in chance.sample(places, min(count, len(places)))}
        if options["protocol"] == 5 and chance.random() < 0.5:
            options["buffer_callback"] = lambda held: self.buffers.append(bytearray(held.raw()))
        self.data, _ = forged(self.value, chosen, _is_own, **options)
        if self.buffers and chance.random() < 0.2:
            at = chance.randrange(len(self.buffers))
            self.changes.append(f"buffer {at} cut")
            self.buffers[at] = self.buffers[at][: chance.randint(0, len(self.buffers[at]))]
        elif self.buffers and chance.random() < 0.2:
            self.changes.append("buffers read-only")
            self.buffers = [bytes(held) for held in self.buffers]

    def __str__(self) -> str:
        return f"{type(self.value).__name__}: {'; '.join(self.changes)}"


def _strangers(chance: random.Random) -> list[Any]:
    import pandas as pd

    kinds = (np.ndarray, np.matrix, np.recarray, np.char.chararray, np.void, np.float64, dict, list)
    return [
        chance.choice(kinds),
        chance.choice((pd.Timestamp("2026"), pd.NaT, pd.NA, pd.Timedelta(1), pd.RangeIndex(3))),
        chance.choice((np.arange(4), np.zeros((2, 2), "?"), np.array(["a"]), np.array([[None]]))),
        chance.choice((np.dtype("i4"), np.dtype("O"), np.dtype([("a", "f8")]))),
    ]


def run(number: int, values: list[Any]) -> str:
    """Run one case, and return what became of it."""
    try:
        case = Case(number, values)
    except Exception:  # what cannot even be pickled is no case
        return "unpicklable"
    return used(case.data, case.buffers)


def used(data: bytes, buffers: list[Any]) -> str:
    """Load a pickle, do with the value what people do, and return what became of it."""
    try:
        found = pickles.loads(data, buffers=buffers, profile=PROFILE, limits=LIMITS)
    except SafeserError as error:
        return "refused" if error.rule else "broken: no rule"
    before = _peak()
    for use in uses(found):
        try:
            use()
        except MemoryError:  # an answer, where the memory was asked for and never had
            continue
        except BROKEN as error:
            return f"broken: {type(error).__name__} {str(error)[:80]!r}"
        except Exception:  # whatever else Python answers is an answer
            continue
    return "used" if _peak() - before < GROWTH or _stands_for_more(found) else "exhausted"


def _stands_for_more(value: Any) -> bool:
    """Whether *value* is or holds a sparse matrix, which may stand for more than any memory."""
    items = value.values() if isinstance(value, dict) else getattr(value, "flat", value)
    held = itertools.islice(items, 50) if isinstance(value, Collection) else ()
    parts = (getattr(value, name, None) for name in ("start", "stop", "step"))
    return any("scipy.sparse" in type(part).__module__ for part in (value, *held, *parts))


def _processor_seconds() -> float:
    """Return the processor time of all children that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _peak() -> int:
    """Return the most bytes of memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class Kept:
    """What a run leaves for the next one, and for who mends what it found."""

    def __init__(self, folder: Path, name: str = "values") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.json"
        state = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.next: int = state.get("next", 0)
        self.totals: dict[str, int] = state.get("totals", {})
        self.seconds: float = state.get("seconds", 0.0)
        self.findings: list[dict[str, Any]] = state.get("findings", [])

    def find(self, number: int, ended: str, case: Any) -> None:
        finding = {"case": number, "ended": ended, "what": str(case)[:2000]}
        finding["pickle"] = base64.b64encode(case.data).decode()
        finding["buffers"] = [base64.b64encode(held).decode() for held in case.buffers]
        self.findings.append(finding)
        print(f"{ended}: case {number}, {finding['what'][:300]}", flush=True)

    def save(self, runner: Runner, seconds: float) -> None:
        totals = {key: self.totals.get(key, 0) for key in {*self.totals, *runner.totals}}
        totals = {key: count + runner.totals[key] for key, count in totals.items()}
        state = {"next": runner.number, "seconds": self.seconds + seconds, "totals": totals}
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps({**state, "findings": self.findings}, indent=1))
        beside.replace(self.path)


def fuzz(folder: Path, seconds: int) -> int:
    """Return 1 if this run, or one before in *folder*, found something."""
    kept, values = Kept(folder), known()
    for value in values:  # here, so that no child imports what another has imported
        with contextlib.suppress(SafeserError):
            pickles.loads(pickle.dumps(value), profile=PROFILE, limits=LIMITS)
    print(f"{len(values)} values, from case {kept.next} on", flush=True)
    runner = Runner(
        run=lambda number: run(number, values),
        found=lambda number, ended: kept.find(number, ended, Case(number, values)),
        number=kept.next,
        end=time.monotonic() + seconds,
        patience=PATIENCE,
    )
    while (left := seconds - kept.seconds - _processor_seconds()) > 0:
        runner.end = time.monotonic() + left
        runner.one_child()
        kept.save(runner, _processor_seconds())
    print(dict(runner.totals), flush=True)
    return bool(kept.findings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=Path(".fuzz/values"))
    parser.add_argument(
        "--seconds", type=int, default=3600, help="processor time, with that of earlier runs"
    )
    parser.add_argument("--case", type=int, help="run this one here, without a child")
    parser.add_argument("--again", action="store_true", help="run what was found before, here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.case is not None:
        values = known()
        faulthandler.enable()
        print(Case(options.case, values), flush=True)
        print(run(options.case, values))
    elif options.again:
        faulthandler.enable()
        for finding in Kept(options.state).findings:
            print(finding["case"], finding["what"][:300], flush=True)
            buffers = [bytearray(base64.b64decode(held)) for held in finding["buffers"]]
            print("   ", used(base64.b64decode(finding["pickle"]), buffers), flush=True)
    else:
        return fuzz(options.state, options.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
