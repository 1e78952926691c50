"""What the soak's counts and slopes say."""

from __future__ import annotations

import json
import os

import pytest

from tests.soak.figures import (
    MARKED_EVERY,
    OUTCOMES,
    Sample,
    Tally,
    Trend,
    compared,
    sample_of,
    was_disturbed,
)


def trend(memory, files=lambda n: 10):
    return Trend(1, [Sample(60.0 * n, memory(n), files(n), 3) for n in range(60)])


def test_a_leak_is_a_slope_after_the_warm_up():
    shown = trend(lambda n: 500 if n < 15 else 100 + n).shown()
    assert shown["memory_mib_per_hour"] == pytest.approx(60, abs=0.1)
    assert shown["memory_peak_mib"] == 500
    assert shown["memory_mib"] == [115, 159]
    assert shown["files_per_hour"] == 0
    assert shown["minutes"] == 59


def test_imports_and_caches_of_the_beginning_are_no_leak():
    assert trend(lambda n: 50 if n < 10 else 300).shown()["memory_mib_per_hour"] == 0


def test_a_process_that_did_not_live_long_enough_has_no_slope():
    shown = Trend(1, [Sample(1.0, 10, 5, 1), Sample(2.0, 90, 5, 1)]).shown()
    assert shown["memory_mib_per_hour"] is None
    assert Trend(1).shown() == {"samples": 0}


def test_a_process_is_sampled_as_the_kernel_sees_it():
    before = sample_of(os.getpid(), 1.0)
    with open(os.devnull) as _:
        during = sample_of(os.getpid(), 2.0)
    assert during.files == before.files + 1
    assert 1 < during.memory < 1 << 20
    assert during.threads >= 1
    assert sample_of(1 << 30, 0.0) is None


def test_what_was_counted_is_read_again_and_added_to(tmp_path):
    tally = Tally()
    for outcome in OUTCOMES:
        tally.job("coder", {"job": "maps", "outcome": outcome, "tasks": 5})
    tally.chaos["cut"] += 2
    tally.seconds = 12.5
    tally.write(tmp_path / "tally.json")
    again = Tally.read(tmp_path / "tally.json")
    again.job("coder", {"job": "maps", "outcome": "done", "tasks": 7})
    assert again.tasks == {"coder": 12}
    assert again.outcomes() == {**dict.fromkeys(OUTCOMES, 1), "done": 2}
    assert again.faults == {"wrong": 1, "lost": 1, "failed": 1, "crashed": 1}
    assert (again.chaos["cut"], again.seconds) == (2, 12.5)
    assert json.dumps(again.notes)
    assert Tally.read(tmp_path / "none.json").outcomes() == dict.fromkeys(OUTCOMES, 0)


def test_code_of_an_attacker_that_ran_is_a_fault():
    tally = Tally()
    assert not tally.faults
    tally.chaos["ran"] += 1
    assert tally.faults == {"ran": 1}


def test_an_outcome_that_there_is_not_is_no_outcome():
    with pytest.raises(ValueError, match="no outcome"):
        Tally().job("coder", {"job": "maps", "outcome": "fine"})


def test_the_notes_of_a_soak_that_goes_wrong_have_an_end():
    tally = Tally()
    for _ in range(Tally.MOST_NOTES + 10):
        tally.job("coder", {"job": "maps", "outcome": "wrong"})
    assert len(tally.notes) == Tally.MOST_NOTES
    assert tally.faults == {"wrong": Tally.MOST_NOTES + 10}


@pytest.mark.parametrize(
    ("begun", "ended", "felt"),
    [(100, 110, True), (95, 99, False), (129, 140, True), (131, 140, False), (90, 300, True)],
)
def test_only_a_blow_that_fell_at_the_time_excuses_a_failure(begun, ended, felt):
    assert was_disturbed(begun, ended, [100.0], grace=30) is felt
    assert not was_disturbed(begun, ended, [], grace=30)


def marks(jobs, memory):
    return [{"jobs": n, "by": {"coder": n}, "memory": memory(n)} for n in jobs]


def test_schedulers_are_compared_at_equal_numbers_of_jobs():
    every = MARKED_EVERY
    lines = compared(
        {
            "safe": marks(range(3, 30 * every, every), lambda n: 300 + n / 100),
            "stock": marks(range(7, 40 * every, 2 * every), lambda n: 200.0),
        }
    )
    assert lines[0] == "jobs   safe: MiB (by clients)   stock: MiB (by clients)"
    assert lines[2] == "1000      310.0 (coder 1003)      200.0 (coder 1007)"
    assert [int(line.split()[0]) for line in lines[1:-2]] == list(range(0, 30 * every, 2 * every))
    assert lines[-2:] == [
        "safe: 10.00 MiB for 1000 jobs after the warm-up",
        "stock: 0.00 MiB for 1000 jobs after the warm-up",
    ]


def test_too_few_marks_have_no_slope():
    assert len(compared({"a": marks([0, MARKED_EVERY], float)})) == 3


def test_jobs_are_counted_for_each_client():
    tally = Tally()
    for client, outcome in (("coder", "done"), ("coder", "lost"), ("reader", "done")):
        tally.job(client, {"job": "maps", "outcome": outcome})
    assert tally.done() == {"coder": 1, "reader": 1}
