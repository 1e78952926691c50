"""What metrics read of a log: true to what it decided, and bounded."""

from __future__ import annotations

import os

import pytest

from safeser.audit.outputs.activity import Activity, Seen, see
from safeser.errors import AuditError


def admitted(**more):
    said = {"event": "admit", "sender": "alice", "recipient": "scheduler", "kind": "data"}
    return {**said, "family": "dask", "rule": "permit", "permitted": True, **more}


def refused(**more):
    return admitted(**{"event": "refuse", "rule": "context.none", "permitted": False, **more})


def counted(log, operation, rule, permitted, sender="alice", **more):
    log.count(sender, "scheduler", operation, rule, permitted, **more)


PERMIT = (True, "permit", "data", "dask")
REFUSE = (False, "context.none", "data", "dask")
EVIL = [refused(rule=f"e{n}", kind=f"k{n}", family=f"f{n}", sender=f"s{n}") for n in range(300)]


@pytest.mark.parametrize(
    ("events", "decisions"),
    [
        ([], {}),
        ([{"event": "note", "text": "no decision"}], {}),
        ([admitted(), admitted(), refused(family="pickle")],
         {PERMIT: 2, (False, "context.none", "data", "pickle"): 1}),
        # A flood that the file only counts.
        ([refused()] * 250, {REFUSE: 250}),
        # Labels that peers invent, and values that are none.
        ([*EVIL, refused()], {(False, "other", "other", "other"): 300, REFUSE: 1}),
        ([{"event": "x", "permitted": False, "rule": 7, "kind": ["a"], "family": None}],
         {(False, "other", "other", ""): 1}),
        ([admitted(family="own")], {(True, "permit", "data", "other"): 1}),
    ],
)  # fmt: skip
def test_decisions_by_outcome_rule_kind_and_family(make, events, decisions):
    log = make()
    for event in events:
        log.record(event)
    assert log.activity.decisions == decisions
    assert len(log.activity._labels) <= sum("other" not in each for each in decisions)
    log.activity.declare({"own"})  # by a policy
    log.record(admitted(family="own"))
    assert log.activity.decisions[True, "permit", "data", "own"] == 1


def test_counts_are_counted_with_their_kind_and_handshakes_apart(make):
    log = make()
    counted(log, "identity", "permit", True, times=5)
    counted(log, "gather", "operation.none", False, kind="data")
    assert log.activity.decisions == {
        (True, "permit", "admin", ""): 5,
        (False, "operation.none", "data", ""): 1,
    }
    assert log.activity.handshakes == {}
    counted(log, "handshake", "authentication", False, sender="unknown", times=3)
    log.record(refused(operation="handshake", rule="authentication.key"))
    counted(log, "handshake", "suite.encrypt", True)
    assert log.activity.handshakes == {"authentication": 3, "authentication.key": 1}


def test_the_number_of_combinations_is_bounded(monkeypatch):
    monkeypatch.setattr("safeser.audit.outputs.activity.MAX_DECISIONS", 10)
    activity = Activity()
    for n in range(100):
        seen: Seen = ({}, [])
        see(seen, refused(rule=f"raw.field-{n}"))
        activity.add(seen)
    assert len(activity.decisions) <= 11
    assert sum(activity.decisions.values()) == 100
    assert activity.decisions[False, "other", "other", "other"] == 90


def test_a_log_that_cannot_write_counts_its_failures_and_no_decision(make):
    log = make()
    log.close()
    with pytest.raises(AuditError):
        log.record(admitted())
    with pytest.raises(AuditError):
        counted(log, "identity", "permit", True)
    assert (log.activity.failures, log.activity.decisions) == (2, {})


def test_a_forked_process_counts_its_own(make):
    log = make()
    log.record(admitted())
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        log.record(refused())
        os.write(theirs, repr(log.activity.decisions).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(ours, 10_000) == repr({REFUSE: 1}).encode()
    assert log.activity.decisions == {PERMIT: 1}
