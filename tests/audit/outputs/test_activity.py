"""What metrics and dashboards read of a log: true to what it decided, and bounded."""

from __future__ import annotations

import os

import pytest

from safeser.audit.outputs.activity import LAST, SECONDS, Activity, Seen, see
from safeser.errors import AuditError


def admitted(**more):
    said = {"event": "admit", "sender": "alice", "recipient": "scheduler", "kind": "data"}
    return {**said, "family": "dask", "rule": "permit", "permitted": True, **more}


def refused(**more):
    return admitted(**{"event": "refuse", "rule": "context.none", "permitted": False, **more})


def test_records_are_counted_by_outcome_rule_kind_and_family(make):
    log = make()
    log.record_all([admitted(), admitted(), refused(family="pickle")])
    log.record({"event": "note", "text": "no decision"})
    assert log.activity.decisions == {
        (True, "permit", "data", "dask"): 2,
        (False, "context.none", "data", "pickle"): 1,
    }


def test_counts_are_counted_with_their_kind(make):
    log = make()
    log.count("alice", "scheduler", "identity", "permit", True, times=5)
    log.count("alice", "scheduler", "gather", "operation.none", False, kind="data")
    assert log.activity.decisions == {
        (True, "permit", "admin", ""): 5,
        (False, "operation.none", "data", ""): 1,
    }
    assert log.activity.handshakes == {}


def test_peers_without_a_session_are_counted_however_they_are_recorded(make):
    log = make()
    log.count("unknown", "scheduler", "handshake", "authentication", False, times=3)
    log.record(refused(operation="handshake", rule="authentication.key"))
    log.count("alice", "scheduler", "handshake", "suite.encrypt", True)
    assert log.activity.handshakes == {"authentication": 3, "authentication.key": 1}


def test_a_flood_that_the_file_only_counts_is_counted_whole(make, records):
    log = make()
    for _ in range(250):
        log.record(refused())
    assert log.activity.decisions == {(False, "context.none", "data", "dask"): 250}
    assert len(records(log)) == 100


def test_labels_of_peers_are_bounded(make):
    log = make()
    for n in range(300):
        log.record(refused(rule=f"evil{n}", kind=f"k{n}", family=f"f{n}", sender=f"s{n}"))
    assert log.activity.decisions == {(False, "other", "other", "other"): 300}
    log.record(refused())
    assert log.activity.decisions[False, "context.none", "data", "dask"] == 1
    assert len(log.activity._labels) == 1


def test_the_number_of_combinations_is_bounded(monkeypatch):
    monkeypatch.setattr("safeser.audit.outputs.activity.MAX_DECISIONS", 10)
    activity = Activity()
    for n in range(100):
        seen: Seen = ({}, [])
        see(seen, refused(rule=f"raw.field-{n}"))
        activity.add(seen, 0)
    assert len(activity.decisions) <= 11
    assert sum(activity.decisions.values()) == 100
    assert activity.decisions[False, "other", "other", "other"] == 90


def test_fields_of_other_types_are_no_labels(make):
    log = make()
    log.record({"event": "x", "permitted": False, "rule": 7, "kind": ["a"], "family": None})
    assert log.activity.decisions == {(False, "other", "other", ""): 1}


def test_families_that_a_policy_declares_are_labels(make):
    log = make()
    log.record(admitted(family="own"))
    log.activity.declare({"own"})
    log.record(admitted(family="own"))
    assert log.activity.decisions == {
        (True, "permit", "data", "other"): 1,
        (True, "permit", "data", "own"): 1,
    }


def test_the_last_refusals_are_printable_and_bounded(make, clock):
    log = make()
    for n in range(LAST + 20):
        hostile = f"<script>{n}\x1b[2J\n\u202e{'x' * 10_000}"
        log.record(refused(where=hostile, operation=hostile, rule=hostile, reason=hostile))
    kept = log.activity.refusals
    assert len(kept) == LAST
    assert kept[0].where.startswith(f"<script>{LAST + 19}?[2J??xxx")
    assert kept[0].time == clock.now // 1_000
    for each in kept:
        for text in each[1:]:
            assert text.isprintable()
            assert text.isascii()
            assert len(text) <= 123


def test_decisions_per_second(make, clock):
    log = make()
    now = clock.now // 1_000_000_000
    log.record_all([admitted(), admitted(), refused()])
    clock.tick(2)
    log.count("alice", "scheduler", "identity", "permit", True, times=4)
    log.count("alice", "scheduler", "identity", "operation.none", False)
    clock.tick(-1)  # a clock that goes back loses nothing
    log.record(admitted())
    rates = log.activity.rates(now + 3)
    assert rates[-3:] == [(now, 2, 1), (now + 1, 0, 0), (now + 2, 5, 1)]
    assert len(rates) == SECONDS
    assert log.activity.rates(now + 10_000)[-1] == (now + 9_999, 0, 0)


def test_a_log_that_cannot_write_counts_its_failures_and_no_decision(make):
    log = make()
    log.close()
    with pytest.raises(AuditError):
        log.record(admitted())
    with pytest.raises(AuditError):
        log.count("alice", "scheduler", "identity", "permit", True)
    assert log.activity.failures == 2
    assert log.activity.decisions == {}


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
    assert os.read(ours, 10_000) == repr({(False, "context.none", "data", "dask"): 1}).encode()
    assert log.activity.decisions == {(True, "permit", "data", "dask"): 1}
