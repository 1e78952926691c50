"""What the lists of exceptions of ``make dask-suite`` hold, and what its page says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.dask_suite.clusters import SUBMITTING, exceptions_in
from tests.dask_suite.exceptions import EXCEPTIONS, WHY
from tests.dask_suite.sealed_exceptions import SEALED
from tests.dask_suite.sealed_exceptions import WHY as WHY_SEALED
from tests.dask_suite.stock import NOT_COUNTED, PASSED


def test_at_most_three_in_a_hundred_are_exceptions_each_for_a_reason():
    assert set(EXCEPTIONS.values()) == set(WHY)
    assert not EXCEPTIONS.keys() & NOT_COUNTED
    assert {test.partition("::")[0] for test in EXCEPTIONS} <= PASSED.keys()
    for room in ("tests/", "shuffle/"):
        counted = sum(number for file, number in PASSED.items() if file.startswith(room))
        assert sum(test.startswith(room) for test in EXCEPTIONS) <= 0.03 * counted


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
