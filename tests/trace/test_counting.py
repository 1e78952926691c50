"""A server counts while a trace asks for it, and no longer."""

from __future__ import annotations

import threading

import pytest

from safeser import pickles
from safeser.trace import counting as module
from safeser.trace import probe
from safeser.trace.counting import LONGEST, Counting


@pytest.fixture
def counting(monkeypatch):
    """Counts of a process whose clock a test sets."""
    made = Counting()
    made.now = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: made.now)
    yield made
    probe.remove(made)


def numbers(told):
    return {(action, family): number for action, family, number, _, _ in told}


def test_it_counts_from_the_first_question_to_the_last(counting):
    pickles.dumps(1)
    assert counting.ask("ann", "a", 60) == []
    written = pickles.dumps([1])
    [[action, family, number, size, seconds]] = counting.ask("ann", "a", 0)
    assert (action, family, number, size) == ("serialize", "pickle", 1, len(written))
    assert seconds > 0
    pickles.dumps(1)
    assert numbers(counting.ask("ann", "a", 0)) == {("serialize", "pickle"): 1}
    assert not probe.is_traced()


def test_a_trace_that_is_forgotten_ends_by_itself(counting):
    counting.ask("ann", "a", 60)
    counting.now += 61
    pickles.dumps(1)
    assert not probe.is_traced()
    assert counting.ask("ann", "b", 0) == []


def test_nobody_counts_for_longer_than_an_hour(counting):
    counting.ask("ann", "a", 1e12)
    counting.now += LONGEST + 1
    pickles.dumps(1)
    assert not probe.is_traced()


def test_names_of_traces_are_bounded(counting):
    for at in range(1000):
        counting.ask("ann", f"{at}", 10 + at)
    assert len(counting._until) == 8
    pickles.dumps(1)
    assert numbers(counting.ask("ann", "x", 0)) == {("serialize", "pickle"): 1}


def test_no_principal_ends_the_trace_of_another(counting):
    counting.ask("ann", "a", 60)
    for at in range(100):
        counting.ask("bob", f"{at}", 3600)
    for at in range(100):
        counting.ask("bob", f"{at}", 0)
    pickles.dumps(1)
    assert numbers(counting.ask("ann", "a", 0)) == {("serialize", "pickle"): 1}


def test_no_count_is_lost_between_threads(counting):
    counting.ask("ann", "a", 60)
    threads = [
        threading.Thread(target=lambda: [pickles.dumps(1) for _ in range(500)]) for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert numbers(counting.ask("ann", "a", 0)) == {("serialize", "pickle"): 2000}
