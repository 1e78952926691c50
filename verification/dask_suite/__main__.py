"""Run distributed's own protocol tests with safeser's functions in place of distributed's.

``python -m verification.dask_suite PATH`` takes a checkout of dask/distributed. It prints how
many of the tests that call the functions pass, and why others do not; it exits with 1 if one fails
that ``listings.toml`` does not explain.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from distributed import utils_test

from verification.dask_suite.listings import NOT_RUN, REASONS, WHY
from verification.dask_suite.substitutes import CALLS, in_place


class Suite:
    """Collects with safeser's names in place, and notes what became of each test."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.called: set[str] = set()

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        parser.addoption("--runslow", action="store_true")

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        with in_place():
            return (yield)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow"))
            elif name_of(item.nodeid) in NOT_RUN:
                self.outcomes[item.nodeid] = "failed"
                self.called.add(item.nodeid)
                item.add_marker(pytest.mark.skip(reason="its failure crashes CPython"))

    def pytest_runtest_setup(self) -> None:
        CALLS.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if CALLS:
            self.called.add(report.nodeid)
        worse = self.outcomes.get(report.nodeid) in ("failed", "skipped")
        if not worse and (report.when == "call" or report.outcome != "passed"):
            expected = hasattr(report, "wasxfail")
            self.outcomes[report.nodeid] = "expected" if expected else report.outcome


def run(tests: Path) -> Suite:
    suite = Suite()
    arguments = [
        *("-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-W", "ignore"),
        *("--import-mode=importlib", "-c", str(tests / "pytest.ini"), "--rootdir", str(tests)),
        str(tests),
    ]
    (tests / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    gpu\n")
    pytest.main(arguments, plugins=[suite, utils_test])
    return suite


def name_of(nodeid: str) -> str:
    """Return ``file::test`` without its parameters."""
    path, _, test = nodeid.partition("::")
    return f"{Path(path).name}::{test.partition('[')[0]}"


def report(suite: Suite) -> bool:
    """Print the result; return whether each failure is explained."""
    counted = {node: outcome for node, outcome in suite.outcomes.items() if node in suite.called}
    ran = [node for node, outcome in counted.items() if outcome in ("passed", "failed")]
    passed = [node for node in ran if counted[node] == "passed"]
    print(
        f"\n{len(ran)} tests call the functions; {len(passed)} pass ({len(passed) / len(ran):.0%})"
    )
    others = Counter(outcome for node, outcome in suite.outcomes.items() if node not in counted)
    print("the others call none of them:", dict(sorted(others.items())))
    reasons: Counter[str] = Counter()
    unexplained = []
    for node, outcome in suite.outcomes.items():
        if outcome == "failed":
            reason = REASONS.get(name_of(node))
            reasons[reason or "unexplained"] += 1
            if reason is None:
                unexplained.append(node)
    print("\n| fail | reason |\n| --- | --- |")
    for reason, count in reasons.most_common():
        print(f"| {count} | {WHY['protocol'].get(reason, reason)} |")
    for node in unexplained:
        print("unexplained:", node)
    return not unexplained


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verification.dask_suite", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of dask/distributed")
    tests = parser.parse_args().checkout / "distributed" / "protocol" / "tests"
    if not tests.is_dir():
        print(f"no {tests}: this needs a checkout of dask/distributed", file=sys.stderr)
        return 2
    # Elsewhere, or Python would import distributed itself from the checkout.
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "protocol_tests"
        shutil.copytree(tests, copied, ignore=shutil.ignore_patterns("__init__.py", "__pycache__"))
        return 0 if report(run(copied)) else 1


if __name__ == "__main__":
    sys.exit(main())
