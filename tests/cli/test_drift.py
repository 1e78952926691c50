"""``safeser policy drift``: one row for each process, and code 1 if they do not decide alike."""

from __future__ import annotations

import pytest

from safeser.dask.drift import Statement
from safeser.errors import PolicyDenied

ONE = Statement("scheduler", "team", 4, "a" * 64, "b" * 64)
ADDRESS = "safeser://127.0.0.1:8786"
WORKER = "worker safeser://127.0.0.1:44444"


@pytest.mark.parametrize(
    ("others", "code", "says"),
    [
        ([ONE._replace(process="3 clients", roster=""), ONE._replace(process="w")], 0, "3 clients"),
        ([ONE._replace(process=WORKER, sha256="c" * 64, revision=3)], 1, "1 rows differ"),
        ([ONE._replace(process=WORKER, roster="c" * 64)], 1, WORKER),  # whole, to be copied
        ([Statement(WORKER, "", 0, "", "")], 1, "says nothing"),
    ],
)
def test_one_row_for_each_process(safeser, monkeypatch, others, code, says):
    answers = [ONE, *others]
    monkeypatch.setattr("safeser.dask.diagnosis.ask_drift", lambda address: answers)
    ended = safeser("policy", "drift", ADDRESS)
    assert (ended.code, ended.err) == (code, "")
    assert says in ended.out
    row = next(line.split() for line in ended.out.splitlines() if line.startswith("scheduler"))
    assert row == ["scheduler", "team", "4", "a" * 12, "b" * 12]


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:8786", "127.0.0.1:8786", "safeser://x", "nowhere"]
)
def test_another_address_is_one_line(safeser, address):
    ended = safeser("policy", "drift", address)
    assert (ended.code, ended.err.count("\n")) == (2, 1)


def test_who_may_not_ask_is_told_so(safeser, monkeypatch):
    def denied(address):
        raise PolicyDenied("operation broadcast is not granted", rule="operation.not-granted")

    monkeypatch.setattr("safeser.dask.diagnosis.ask_drift", denied)
    ended = safeser("policy", "drift", ADDRESS)
    assert (ended.code, "rule: operation.not-granted" in ended.err) == (1, True)
