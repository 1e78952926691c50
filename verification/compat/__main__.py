"""Run safeser on several releases of Dask, and print what works on which.

``python -m verification.compat [RELEASE ...]``, which is what ``make compat`` does, makes an
environment for each release, runs tests and :mod:`verification.compat.smoke` in it, one after the
other, prints a table, and exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from verification.compat import smoke
from verification.compat.environments import PROJECT, environment, python_of, releases

#: By the line of the table, the tests that have to pass.
TESTS: Mapping[str, str] = {
    "table of operations": "tests/operations/test_registered.py",
    "list of patches": "tests/dask/test_patches.py::test_the_file_has_the_installed_release",
    "attacks on servers": "tests/dask/live/test_servers.py",
    "attacks on clients": "tests/dask/live/test_clients.py",
    "sealed calls": "tests/dask/sealed/test_live.py",
}

LINES = (*TESTS, *smoke.LINES)

#: Longer than all of one release takes on a busy machine, in seconds.
_PATIENCE = 1800

OK = "ok"


def results_of(release: str) -> dict[str, str]:
    """Return the outcome of each of :data:`LINES` on *release*: :data:`OK`, or what went wrong."""
    python = str(python_of(release))
    ended = _ended(python, "-m", "verification.compat.smoke")
    try:
        said = json.loads(ended.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = {}
    used = {line: said.get(line, _last(ended) or "it said nothing") for line in smoke.LINES}
    return {**_tested(python), **used}


def _tested(python: str) -> dict[str, str]:
    """Return the outcome of each of :data:`TESTS` by pytest's report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ("-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1")
        ended = _ended(python, "-m", "pytest", *options, f"--junitxml={report}", *TESTS.values())
        if not report.exists():
            return dict.fromkeys(TESTS, _last(ended) or "pytest reported nothing")
        cases = list(ElementTree.parse(report).iter("testcase"))
    found = dict.fromkeys(TESTS, "no test ran")
    for case in cases:
        wrong = [each for each in case if each.tag in ("failure", "error", "skipped")]
        outcome = (wrong[0].get("message") or wrong[0].tag).splitlines()[0] if wrong else OK
        for line, target in TESTS.items():
            if target.partition("::")[0] == case.get("file") and found[line] in ("no test ran", OK):
                found[line] = outcome
    return found


def _ended(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=PROJECT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )


def _last(ended: subprocess.CompletedProcess[str]) -> str:
    lines = (ended.stderr or ended.stdout).strip().splitlines()
    return lines[-1] if lines else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("release", nargs="*", choices=[*releases(), []], help="default: all")
    results = {}
    for release in parser.parse_args().release or releases():
        began = time.monotonic()
        results[release] = results_of(release)
        wrong = sum(each != OK for each in results[release].values())
        took = round(time.monotonic() - began)
        print(f"distributed {release}: {wrong} failed, {took} s", file=sys.stderr, flush=True)
    width = max(map(len, LINES))
    print(" " * width + "".join(f"  {release:>9}" for release in results))
    for line in LINES:
        said = (OK if each[line] == OK else "FAILED" for each in results.values())
        print(line.ljust(width) + "".join(f"  {each:>9}" for each in said))
    failures = [
        f"{release}, {line}: {outcome}"
        for release, lines in results.items()
        for line, outcome in lines.items()
        if outcome != OK
    ]
    print(*failures, sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
