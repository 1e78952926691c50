"""``safeser policy drift``: one row for each process, and code 1 if they do not decide alike."""

from __future__ import annotations

import pytest

from safeser.dask.drift import Statement
from safeser.errors import PolicyDenied

ONE = Statement("scheduler", "team", 4, "a" * 64, "b" * 64)
ADDRESS = "safeser://127.0.0.1:8786"


@pytest.fixture
def answers(monkeypatch):
    def say(*found):
        monkeypatch.setattr("safeser.dask.drift_question.question", lambda address: list(found))

    return say


def test_all_alike_is_code_0(safeser, answers):
    answers(ONE, ONE._replace(process="3 clients", roster=""), ONE._replace(process="worker w"))
    ended = safeser("policy", "drift", ADDRESS)
    assert (ended.code, ended.err) == (0, "")
    rows = [line.split() for line in ended.out.splitlines()[2:-1]]
    assert rows[0] == ["scheduler", "team", "4", "a" * 12, "b" * 12]
    assert rows[1][:2] == ["3", "clients"]


@pytest.mark.parametrize("other", [{"sha256": "c" * 64, "revision": 3}, {"roster": "c" * 64}])
def test_another_policy_or_roster_is_code_1(safeser, answers, other):
    answers(ONE, ONE._replace(process="worker safeser://127.0.0.1:44444", **other))
    ended = safeser("policy", "drift", ADDRESS)
    assert ended.code == 1
    assert "1 rows differ" in ended.out
    assert "worker safeser://127.0.0.1:44444" in ended.out  # whole, to be copied


def test_a_process_that_says_nothing_is_a_row_and_code_1(safeser, answers):
    answers(ONE, Statement("worker safeser://127.0.0.1:44444", "", 0, "", ""))
    ended = safeser("policy", "drift", ADDRESS)
    assert ended.code == 1
    assert "says nothing" in ended.out


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:8786", "127.0.0.1:8786", "safeser://x", "nowhere"]
)
def test_another_address_is_one_line(safeser, address):
    ended = safeser("policy", "drift", address)
    assert ended.code == 2
    assert ended.err.count("\n") == 1


def test_who_may_not_ask_is_told_so(safeser, monkeypatch):
    def denied(address):
        raise PolicyDenied("operation broadcast is not granted", rule="operation.not-granted")

    monkeypatch.setattr("safeser.dask.drift_question.question", denied)
    ended = safeser("policy", "drift", ADDRESS)
    assert ended.code == 1
    assert "rule: operation.not-granted" in ended.err
