"""The bookkeeping of ``make dask-suite``: what counts as a failure, and what the lists hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.dask_suite.clusters import SUBMITTING, exceptions_in, faults, table
from tests.dask_suite.exceptions import CHANCE, EXCEPTIONS, WHY
from tests.dask_suite.sealed_exceptions import SEALED
from tests.dask_suite.sealed_exceptions import WHY as WHY_SEALED
from tests.dask_suite.stock import NOT_COUNTED, PASSED


@pytest.fixture
def outcomes():
    """Return a run in which everything is as it should be."""
    ran = dict.fromkeys(EXCEPTIONS, "failed") | dict.fromkeys(NOT_COUNTED, "skipped")
    for file, number in PASSED.items():
        listed = sum(test.startswith(f"{file}::") for test in EXCEPTIONS)
        ran |= {f"{file}::passing_{index}": "passed" for index in range(number - listed)}
    return ran


def test_a_run_as_it_should_be_has_no_faults(outcomes):
    assert faults(outcomes) == []
    assert table(outcomes).splitlines()[-1].startswith("| together | 1007 | ")


@pytest.mark.parametrize("outcome", ["failed", "skipped", "xfailed"])
def test_whatever_does_not_pass_is_a_failure(outcomes, outcome):
    outcomes["tests/test_client.py::passing_0"] = outcome
    assert faults(outcomes) == [f"tests/test_client.py::passing_0: {outcome}"]


def test_so_is_what_did_not_run(outcomes):
    del outcomes["tests/test_client.py::passing_0"]
    assert faults(outcomes) == ["tests/test_client.py: 456 tests ran and 457 pass on tcp://"]
    gone = min(EXCEPTIONS)
    del outcomes[gone]
    assert f"{gone} did not run" in faults(outcomes)


def test_an_exception_that_passes_is_one_no_more(outcomes):
    listed = min(EXCEPTIONS.keys() - CHANCE)
    outcomes[listed] = "passed"
    assert faults(outcomes) == [f"{listed} passes and is listed as an exception"]


def test_what_chance_decides_is_an_exception_also_when_it_passes(outcomes):
    (raced,) = CHANCE
    before = table(outcomes)
    outcomes[raced] = "passed"
    assert faults(outcomes) == []
    assert table(outcomes) == before
    del outcomes[raced]
    assert f"{raced} did not run" in faults(outcomes)


def test_at_most_three_in_a_hundred_are_exceptions_each_for_a_reason():
    assert set(EXCEPTIONS.values()) == set(WHY)
    assert not EXCEPTIONS.keys() & NOT_COUNTED
    assert {test.partition("::")[0] for test in EXCEPTIONS} <= PASSED.keys()
    for room in ("tests/", "shuffle/"):
        counted = sum(number for file, number in PASSED.items() if file.startswith(room))
        assert sum(test.startswith(room) for test in EXCEPTIONS) <= 0.03 * counted


def test_with_sealed_submission_more_may_fail_in_two_files_and_nothing_else():
    listed = exceptions_in(SUBMITTING, sealed=True)
    ran = dict.fromkeys(listed, "failed")
    for file in SUBMITTING:
        passing = PASSED[file] - sum(test.startswith(f"{file}::") for test in listed)
        ran |= {f"{file}::passing_{index}": "passed" for index in range(passing)}
    assert faults(ran, files=SUBMITTING, sealed=True) == []
    assert table(ran, files=SUBMITTING).splitlines()[-1].startswith("| together | 502 | ")
    sealed = min(SEALED)
    assert f"{sealed}: failed" in faults(ran, files=SUBMITTING)
    ran[sealed] = "passed"
    assert faults(ran, files=SUBMITTING, sealed=True) == [
        f"{sealed} passes and is listed as an exception"
    ]


def test_the_page_states_what_passes_with_sealed_submission():
    page = (Path(__file__).parents[1] / "docs/explanation/dask-suite.md").read_text()
    tests = sum(PASSED[file] for file in SUBMITTING)
    sealed = exceptions_in(SUBMITTING, sealed=True)
    counts = Counter(why if why in WHY_SEALED else "above" for why in sealed.values())
    code = counts["client"] + counts["above"]
    for name, failing in (("code", code), ("sealed", len(sealed))):
        share = f"{100 * (1 - failing / tests):.1f} %"
        assert f"| `{name}` | {tests - failing} ({share}) | {failing} |" in page
    assert f"{tests} tests are counted" in page
    for reason, number in counts.items():
        outcome = "fail too" if reason in ("client", "above") else "pass"
        assert f"\n| {number} | {outcome} | " in page


def test_those_of_sealed_submission_have_a_reason_too():
    assert set(SEALED.values()) == set(WHY_SEALED)
    assert not SEALED.keys() & (EXCEPTIONS.keys() | NOT_COUNTED)
