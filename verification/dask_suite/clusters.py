"""Run distributed's own tests of clients, actors, queues, variables, security and shuffles.

``python -m verification.dask_suite.clusters PATH`` takes a checkout of dask/distributed and runs
them with ``safeser://`` as the default scheme; ``--stock`` runs them on ``tcp://``, and
``--sealed`` those of clients and actors with safeser's client under ``submission: sealed``. What
does not pass on ``tcp://`` either is not counted; of the rest a skipped test, an expected failure,
one that hangs and one that did not run at all are failures like any other. What fails is run once
more by itself, since distributed's tests wait seconds for what takes longer on a busy machine. It
exits with 1 if a test fails that ``listings.toml`` does not list, or passes
that it lists. The one that chance decides, on ``tcp://`` too, counts as an exception however it
ends.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from verification.dask_suite.listings import CHANCE, EXCEPTIONS, NOT_COUNTED, PASSED, SEALED, WHY
from verification.dask_suite.overlay import configure, lay_out

__all__ = ["Outcomes", "faults", "table"]

FILES = (
    *(f"tests/test_{name}.py" for name in ("client", "actor", "queues", "variable", "security")),
    "shuffle/tests",
)

#: Those that run with sealed submission.
SUBMITTING = FILES[:2]

_ROOT = Path(__file__).parents[2]

#: What became of each test, by its id without ``distributed/``.
Outcomes = Mapping[str, str]


def run(
    folder: Path,
    *,
    stock: bool,
    processes: int,
    patience: int,
    chosen: Iterable[str],
    sealed: bool = False,
) -> dict[str, str]:
    """Run the tests in *folder*, where they were laid out, and return what became of each."""
    outcomes = folder / "outcomes.jsonl"
    outcomes.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder), str(_ROOT))),
        "SAFESER_SUITE_OUTCOMES": str(outcomes),
        "SAFESER_SUITE_PATIENCE": str(patience),
    }
    if not stock:
        environment["DASK_CONFIG"] = str(folder / "configuration")
    if sealed:
        environment["SAFESER_SUITE_CLIENT"] = "1"
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "verification.dask_suite.plugin"),
        # Reading the source of a test that failed by too deep a recursion crashes CPython 3.11.
        *("-p", "no:cacheprovider", "--tb=native", "--no-header"),
        *(("-n", str(processes), "--dist=worksteal") if processes > 1 else ()),
        *(f"distributed/{each}" for each in chosen),
    ]
    subprocess.run(command, cwd=folder, env=environment, check=False)
    return _read(outcomes)


def _read(outcomes: Path) -> dict[str, str]:
    """Return the worst that was reported of each test: a fixture may fail after the test passed."""
    worst: dict[str, str] = {}
    for line in outcomes.read_text().splitlines() if outcomes.exists() else ():
        told = json.loads(line)
        test = told["test"].removeprefix("distributed/")
        if worst.get(test) in (None, "passed"):
            worst[test] = told["outcome"]
    return worst


def counted(outcomes: Outcomes) -> dict[str, str]:
    """Return the outcomes of the tests that pass on ``tcp://``."""
    return {test: outcome for test, outcome in outcomes.items() if test not in NOT_COUNTED}


def file_of(test: str) -> str:
    return test.partition("::")[0]


def exceptions_in(files: Collection[str], *, sealed: bool) -> dict[str, str]:
    """Return the tests of *files* that may fail, and why."""
    listed = {**EXCEPTIONS, **SEALED} if sealed else EXCEPTIONS
    return {test: reason for test, reason in listed.items() if file_of(test) in files}


def faults(
    outcomes: Outcomes, *, files: Collection[str] = PASSED, sealed: bool = False
) -> list[str]:
    """Return what is wrong with *outcomes*: who fails and may not, who passes and should not."""
    found = []
    listed = exceptions_in(files, sealed=sealed)
    for test, outcome in sorted(counted(outcomes).items()):
        if outcome == "passed" and test in listed.keys() - CHANCE:
            found.append(f"{test} passes and is listed as an exception")
        elif outcome != "passed" and test not in listed:
            found.append(f"{test}: {outcome}")
    found += [f"{test} did not run" for test in sorted(listed.keys() - outcomes.keys())]
    for file, number in PASSED.items():
        if file not in files:
            continue
        ran = sum(file_of(test) == file for test in counted(outcomes))
        if ran != number:
            found.append(f"{file}: {ran} tests ran and {number} pass on tcp://")
    return found


def table(outcomes: Outcomes, *, files: Collection[str] = PASSED) -> str:
    """Return, for each file, how many tests pass on ``tcp://`` and how many here."""
    lines = ["| file | tcp:// | safeser:// | exceptions | |", "| --- | --- | --- | --- | --- |"]
    totals = [0, 0]
    for file, number in PASSED.items():
        if file not in files:
            continue
        passed = sum(
            outcome == "passed" and file_of(test) == file and test not in CHANCE
            for test, outcome in counted(outcomes).items()
        )
        totals = [totals[0] + number, totals[1] + passed]
        lines.append(_row(file, number, passed))
    return "\n".join([*lines, _row("together", *totals)])


def _row(name: str, number: int, passed: int) -> str:
    share = (number - passed) / number if number else 0
    return f"| {name} | {number} | {passed} | {number - passed} | {share:.1%} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m verification.dask_suite.clusters", description=__doc__
    )
    parser.add_argument("checkout", type=Path, help="a checkout of dask/distributed")
    parser.add_argument("--stock", action="store_true", help="on tcp://")
    parser.add_argument("--sealed", action="store_true", help="with sealed submission")
    parser.add_argument("--processes", type=int, default=2, help="how many run tests at a time")
    parser.add_argument(
        "--patience", type=int, default=1, help="how many times longer a test may take than usual"
    )
    chosen = parser.parse_args()
    if not (chosen.checkout / "distributed" / "tests").is_dir():
        print(f"{chosen.checkout} is no checkout of dask/distributed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(chosen.checkout, folder)
        configure(folder / "configuration", "sealed.yaml" if chosen.sealed else "suite.yaml")
        files = SUBMITTING if chosen.sealed else FILES
        how = {"stock": chosen.stock, "patience": chosen.patience, "sealed": chosen.sealed}
        outcomes = run(folder, processes=chosen.processes, chosen=files, **how)
        asked = files if chosen.sealed else PASSED
        listed = exceptions_in(asked, sealed=chosen.sealed)
        again = [
            test
            for test, outcome in counted(outcomes).items()
            if outcome != "passed" and (chosen.stock or test not in listed)
        ]
        if again:
            print(f"{len(again)} failed and are run once more:", *sorted(again), sep="\n")
            outcomes |= run(folder, processes=1, chosen=again, **how)
    if chosen.stock:
        wrong = [test for test, outcome in counted(outcomes).items() if outcome != "passed"]
    else:
        wrong = faults(outcomes, files=asked, sealed=chosen.sealed)
    print("", table(outcomes, files=asked), "", sep="\n")
    if not chosen.stock:
        for reason, text in {**WHY["clusters"], **WHY["sealed"]}.items():
            number = sum(why == reason for why in listed.values())
            if number:
                print(f"{number}: {text}")
    for line in wrong:
        print("unexpected:", line)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
