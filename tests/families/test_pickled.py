"""A pickle in a payload is parsed once, from finding its family to loading it."""

from __future__ import annotations

import pickle

import pytest

from safeser import families, pickles
from safeser.families import pickled
from safeser.gate.values import Grant, Limits
from safeser.pickles import Budget

HEADER = {"serializer": "pickle", "writeable": []}
LIMITS = Limits(max_memory=1000 << 7)
GRANT = Grant("test", ("pickle",))
DATA = pickle.dumps(list(range(300)), 5)


@pytest.fixture
def parsed(monkeypatch):
    """Return the pickles that were parsed, each as often as it was."""
    seen, real = [], pickles.parse

    def noted(data, **options):
        seen.append(bytes(data))
        return real(data, **options)

    monkeypatch.setattr(pickles, "parse", noted)
    return seen


def received(data):
    """Find the family of a payload, judge it and load it, as a channel does."""
    budgets = [Budget(LIMITS) for _ in range(3)]
    reading = families.read(HEADER, [data], limits=LIMITS, budget=budgets[0])
    assert reading.family == "pickle"
    checked = families.check_reading(reading, GRANT, limits=LIMITS, budget=budgets[1])
    value = families.build(checked, budget=budgets[2])
    return value, [(budget.refs, budget.calls) for budget in budgets]


def test_a_payload_is_parsed_once_and_charged_at_each_step(parsed):
    value, left = received(DATA)
    assert value == list(range(300))
    assert parsed == [DATA]
    deriving, judging, loading = left
    assert deriving == judging == loading
    assert judging[0] < LIMITS.elements - 300


def test_bypass_of_memory_no_more_is_kept_of_a_message_than_so_many_elements(parsed, monkeypatch):
    monkeypatch.setattr(pickled, "_KEPT_REFS", 700)
    budget = Budget(LIMITS)
    kept = []
    for _ in range(3):
        reading = families.read(HEADER, [DATA], limits=LIMITS, budget=budget)
        [node] = reading.nodes
        kept.append(node.parsed is not None)
    assert kept == [True, True, False]
    monkeypatch.setattr(pickled, "_KEPT_REFS", 0)
    assert received(DATA)[0] == list(range(300))
