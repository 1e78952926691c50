"""What a log writes, what it counts, and how it ends."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from safeser.audit import read
from safeser.audit import tally as tally_module
from safeser.audit.writing import open_logs
from safeser.errors import AuditError, ConfigError
from tests.audit.conftest import ADMIT, REFUSE

# --- what is written ------------------------------------------------------------------------------


def test_a_record_stands_in_the_file_before_record_returns(make, place, key, records, clean):
    log = make()
    log.record(ADMIT)
    (record,) = records(log)
    assert record.fields == {**ADMIT, "policy": "production/7/abababababababab"}
    assert record.time == 1_795_000_000_000_000
    assert clean(place, key).records == 2 + 2  # the index has two as well


def test_the_genesis_says_who_and_under_which_policy(make, place, records):
    log = make("scheduler")
    (genesis,) = records(log, "genesis")
    assert (genesis.sequence, genesis.number("pid")) == (0, os.getpid())
    assert genesis.text("host")
    names = ("principal", "policy_name", "policy_sha256", "parent")
    assert [genesis.text(name) for name in names] == ["scheduler", "production", "ab" * 32, ""]
    assert genesis.number("policy_revision") == 7
    assert Path(log.path).name.startswith("scheduler-20261118T110640Z-")
    assert place.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in place.iterdir()} == {0o600}


def test_a_new_policy_is_recorded_and_named_from_there_on(make, place, key, records, clean):
    log = make()
    log.record(ADMIT)
    log.use_policy(("production", 8, "cd" * 32))
    log.record(ADMIT)
    (change,) = records(log, "policy")
    assert change.text("policy_sha256") == "cd" * 32
    assert [each.text("policy") for each in records(log)] == [
        "production/7/abababababababab",
        "production/8/cdcdcdcdcdcdcdcd",
    ]
    clean(place, key)


@pytest.mark.parametrize(
    ("principal", "options"),
    [
        *(
            ("alice", {"policy": policy})
            for policy in (
                *(("p", -1, "a" * 64), ("p", 1, "A" * 64), ("p", 1, "a"), (1, 1, "a" * 64)),
                ("p", True, "a" * 64),
            )
        ),
        ("alice", {"durability": "none"}),
        ("../../etc/x", {}),
    ],
)
def test_what_is_no_setting_is_refused(make, principal, options):
    with pytest.raises(ConfigError):
        make(principal, **options)


# --- counts ---------------------------------------------------------------------------------------


def test_counts_become_one_record_after_a_second(make, clock, place, key, records, clean, count):
    log = make()
    log.write_counts()
    for _ in range(5):
        count(log)
    log.count("worker", "scheduler", "release", "permit", True, times=99)
    log.count("worker", "scheduler", "release", "context.none", False, times=2)
    log.write_counts()
    assert records(log, "counts") == []
    clock.tick(1)
    log.write_counts()  # of an idle process, too
    (record,) = records(log, "counts")
    assert record.fields["counts"] == [
        ["worker", "scheduler", "heartbeat", "permit", True, 5],
        ["worker", "scheduler", "release", "context.none", False, 2],
        ["worker", "scheduler", "release", "permit", True, 99],
    ]
    count(log)
    clock.tick(1)
    count(log)
    assert records(log, "counts")[1].fields["counts"][0][-1] == 2
    clean(place, key)


def test_counts_are_written_after_a_thousand_and_before_the_next_event(make, clock, records, count):
    log = make()
    for _ in range(1_000):
        count(log)
    assert len(records(log, "counts")) == 1
    count(log)
    clock.tick(1)
    log.record(ADMIT)
    assert [each.type for each in read(log.path)] == ["genesis", "counts", "counts", "event"]


def test_a_clock_that_goes_back_does_not_keep_counts_for_ever(make, clock, records, count):
    log = make()
    count(log)
    clock.tick(-3600)
    count(log)
    assert len(records(log, "counts")) == 1


def test_labels_that_a_peer_invents_share_one_bucket(make, place, key, records, clean, count):
    log = make()
    for n in range(900):
        count(log, f"operation-{n}\n" + "\U0001f4a3" * 10_000)
    log.flush()
    (record,) = records(log, "counts")
    counts = record.fields["counts"]
    assert len(counts) <= 129  # type: ignore[arg-type]
    assert sum(each[-1] for each in counts) == 900  # type: ignore[union-attr]
    assert ["other", "other", "other", "other", True, 772] in counts  # type: ignore[operator]
    clean(place, key)


# --- floods of refusals ---------------------------------------------------------------------------


def test_a_flood_of_refusals_is_counted_and_nothing_is_lost(
    make, clock, place, key, records, clean
):
    log = make()
    for _ in range(5_000):
        log.record(REFUSE)
        clock.tick(0.001)
    log.record({**REFUSE, "sender": "carol"})
    log.flush()
    events = records(log)
    mine = [each for each in events if each.text("sender") == "bob"]
    assert len(mine) == 100
    assert [each.text("then") for each in mine] == [""] * 99 + ["counted"]
    assert len(events) == 101
    summary = [entry for each in records(log, "suppressed") for entry in each.fields["suppressed"]]  # type: ignore[attr-defined]
    assert [entry[:3] for entry in summary] == [["bob", "policy.family", 4_900]]
    clean(place, key)


def test_the_flood_is_summed_up_every_ten_seconds_and_the_burst_comes_back(make, clock, records):
    log = make()
    for _ in range(101):
        log.record(REFUSE)
    assert records(log, "suppressed") == []
    clock.tick(10)
    log.record(REFUSE)
    assert len(records(log, "suppressed")) == 1
    assert len(records(log)) == 101  # one token came back
    clock.tick(10_000)
    log.record(REFUSE)
    clock.tick(-5_000)
    log.record(REFUSE)
    assert len(records(log)) == 103


@pytest.mark.parametrize("at_once", [False, True])
def test_permitted_loads_are_written_one_by_one_in_any_flood(make, records, at_once):
    log = make()
    for events in [[REFUSE, ADMIT] * 150] if at_once else [[REFUSE], [ADMIT]] * 150:
        log.record_all(events)
    found = [each.fields["permitted"] for each in records(log)]
    assert (found.count(True), found.count(False)) == (150, 100)


@pytest.mark.slow
@pytest.mark.unmeasured
def test_invented_senders_and_rules_cannot_fill_memory_or_split_the_summary(make, clock, records):
    log = make()
    for n in range(2_000):
        log.record({**REFUSE, "sender": f"s{n}"})
    # 1,024 first refusals, then what the shared bucket lets through.
    assert len(records(log)) == 1_024 + 100
    clock.tick(1)
    for n in range(300):
        for _ in range(101):
            log.record({**REFUSE, "sender": f"s{n}"})
    log.flush()
    summary = [entry for each in records(log, "suppressed") for entry in each.fields["suppressed"]]  # type: ignore[attr-defined]
    assert len(records(log)) + sum(entry[2] for entry in summary) == 2_000 + 300 * 101
    assert len(records(log, "suppressed")) > 1
    clock.tick(100_000)
    log.record({**REFUSE, "sender": "new"})  # buckets that are full again are forgotten
    assert records(log)[-1].text("sender") == "new"


# --- the end of a log -----------------------------------------------------------------------------


def test_a_closed_log_refuses_everything_and_closing_twice_does_nothing(
    make, place, key, clean, count
):
    log = make()
    log.close()
    log.close()
    for call in (lambda: log.record(ADMIT), lambda: count(log), log.flush):
        with pytest.raises(AuditError, match="closed"):
            call()
    clean(place, key)


@pytest.mark.parametrize("end", ["close", "context", "process"])
def test_each_end_writes_the_counts_and_closes(make, place, key, clean, count, end):
    log = make()
    with pytest.raises(TypeError, match="opens its own"):
        pickle.dumps(log)
    assert repr(log) == f"AuditLog({log.path!r})"
    count(log)
    log.flush()
    count(log, permitted=False)
    {"close": log.close, "context": log.__exit__, "process": open_logs._close_all}[end](
        *([None] * 3 if end == "context" else [])
    )
    assert [each.type for each in read(log.path)] == ["genesis", "counts", "counts", "close"]
    clean(place, key)


def test_a_call_from_a_signal_handler_in_the_middle_is_refused(
    make,
    monkeypatch,
    place,
    key,
    records,
    clean,
    count,
):
    log = make()
    refused = []
    write = os.write

    def interrupted(handle, data):
        monkeypatch.setattr(os, "write", write)
        for call in (lambda: log.record(ADMIT), lambda: count(log), log.flush):
            with pytest.raises(AuditError) as caught:
                call()
            refused.append(caught.value.rule)
        log.close()  # best effort: does nothing now
        return write(handle, data)

    monkeypatch.setattr(os, "write", interrupted)
    log.record(ADMIT)
    assert refused == ["audit.reentered"] * 3
    assert len(records(log)) == 1
    clean(place, key)


@pytest.mark.parametrize("now", [-1, 1 << 80])
def test_a_clock_out_of_range_is_refused(make, clock, now: int):
    log = make()
    before, clock.now = clock.now, now
    with pytest.raises(AuditError, match="clock"):
        log.record(ADMIT)
    clock.now = before
    log.record(ADMIT)


# --- what was refused -----------------------------------------------------------------------------


def test_a_log_knows_what_it_refused_whether_written_or_counted(make):
    log = make()
    assert log.refusals == {}
    log.record(ADMIT)
    for _ in range(150):  # beyond what one sender can write
        log.record(REFUSE)
    log.count("bob", "alice", "run", "operation.not-granted", permitted=False)
    log.count("bob", "alice", "run", "permit", permitted=True)
    assert log.refusals == {"policy.family": 150, "operation.not-granted": 1}
    log.refusals.clear()
    assert log.refusals["policy.family"] == 150


def test_rules_that_a_peer_invents_take_no_memory_of_it(make):
    log = make()
    for number in range(3 * tally_module.MAX_RULES):
        log.count("bob", "alice", "run", f"{number}\x1b" + "x" * 1_000, permitted=False)
    assert len(log.refusals) == tally_module.MAX_RULES + 1
    assert log.refusals["other"] == 2 * tally_module.MAX_RULES
    assert all(name.isprintable() and len(name) <= 64 for name in log.refusals)
