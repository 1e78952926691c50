"""What a file states once: sessions and cases, in the writer, on the disk and in the reader."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.audit import SessionFacts, names, read
from safeser.audit.names import CASE_FIELDS, Names, Resolver
from safeser.audit.record import Record
from safeser.errors import AuditError
from safeser.gate.event import clean

ADMIT = {
    **{"event": "admit", "sender": "scheduler", "recipient": "worker", "kind": "task"},
    **{"operation": "compute-task", "family": "cloudpickle", "author": "alice"},
    **{"where": "run_spec", "bytes": 812, "rule": "permit", "permitted": True},
    **{"context": "scheduler-workers", "message": 4711},
    "task": "('random_sample-sum-0123456789abcdef0123456789abcdef', 12, 3)",
    "digest": "0123456789abcdef01234567",
}


def facts(number: int = 0) -> SessionFacts:
    return SessionFacts(
        f"{number:012x}",
        {
            "address": "192.168.100.200:54321",
            "key": "abcd-efgh-ijkl-mnop",
            "peer": "scheduler",
            "suite": "authenticate",
        },
    )


REASON = "builtins:print is called, and profile data does not allow that: it is not"
REFUSE = {**ADMIT, "event": "refuse", "permitted": False, "rule": "pickle.global"}


@pytest.mark.parametrize(
    "event",
    [ADMIT, {**REFUSE, "reason": REASON, "global": "builtins:print"}],
    ids=str,
)
def test_a_record_has_at_most_300_bytes_once_its_case_is_stated(make, records, event):
    log, here = make(), facts()
    for _ in range(3):
        log.record({**event, "session": here})
    lines = Path(log.path).read_bytes().splitlines(keepends=True)
    assert [len(line) <= 300 for line in lines] == [False, True, False, True, True]
    assert b"scheduler-workers" not in lines[-1]
    assert {each.fields.get("reason") for each in records(log)} == {event.get("reason")}


def test_reading_gives_each_record_all_of_its_fields(make):
    log = make()
    one, two = facts(1), facts(2)
    for here in (one, two, one):
        log.record({**ADMIT, "session": here})
    _, _, first, _, second, third = read(log.path)
    assert first.fields == {
        **ADMIT,
        **one.fields,
        "session": one.id,
        "decision": f"{one.id}-4711",
        "policy": "production/7/abababababababab",
    }
    assert second.fields == {**first.fields, "session": two.id, "decision": f"{two.id}-4711"}
    assert third.fields == first.fields


def test_a_field_of_an_event_comes_before_one_of_its_session(make, records):
    log = make()
    log.record({**ADMIT, "session": facts(), "address": "elsewhere"})
    assert records(log)[0].text("address") == "elsewhere"


def test_places_inside_of_values_take_no_numbers(make, records):
    log = make()
    places = ["data", *(f"data.key-{n}" for n in range(5)), "x" * 33, "keys[3]", "data"]
    for where in places:
        log.record({**ADMIT, "where": where})
    assert [each.text("where") for each in records(log)] == places
    assert Path(log.path).read_bytes().count(b'"event":') == 2


def test_a_peer_that_chooses_rules_takes_no_numbers_of_permissions(make, records, monkeypatch):
    monkeypatch.setattr(names, "MAX_CASES", 4)
    log = make()
    for number in range(8):
        log.record({"event": "refuse", "sender": f"s{number}", "rule": "r", "permitted": False})
    for _ in range(2):
        log.record(ADMIT)
    *refused, one, two = records(log)
    assert [each.text("sender") for each in refused] == [f"s{number}" for number in range(8)]
    assert one.fields == two.fields
    assert b'"event"' not in Path(log.path).read_bytes().splitlines()[-1]


def test_the_oldest_session_gives_way_and_may_come_again(make, records, monkeypatch):
    monkeypatch.setattr(names, "MAX_SESSIONS", 2)
    log = make()
    here = [facts(number) for number in range(3)]
    order = [0, 1, 2, 1, 0]
    for number in order:
        log.record({**ADMIT, "session": here[number]})
    assert [each.text("session") for each in records(log)] == [here[n].id for n in order]
    assert len(records(log, "session")) == 4


@pytest.mark.parametrize("name", ["session", "case", "decision", "s", "n"])
def test_no_event_chooses_a_number_itself(make, name):
    for value in (3, "3", ["3"], None):
        with pytest.raises(AuditError):
            make().record({**ADMIT, name: value})
    with pytest.raises(AuditError):
        make().record({**ADMIT, "other": facts()})


def record(fields: dict[str, object], kind: str = "event") -> Record:
    return Record(1, 2, kind, fields, b"")


@pytest.mark.parametrize(
    "fields",
    [{"case": 3}, {"s": 0}, {"case": True}, {"case": "0"}, {"s": 1, "case": [1]}],
)
def test_a_number_that_nothing_defines_is_an_error(fields):
    resolver = Resolver()
    resolver.resolve(record({"event": "admit", "case": 1}))
    resolver.resolve(record({"s": 1, "id": "a"}, "session"))
    with pytest.raises(AuditError, match="does not define"):
        resolver.resolve(record(fields))


def test_a_file_that_defines_without_end_takes_bounded_memory():
    resolver = Resolver()
    for number in range(10_000):
        resolver.resolve(record({"event": "admit", "case": number}))
        resolver.resolve(record({"s": number, "id": "a"}, "session"))
    resolver.resolve(record({"s": "x", "id": "a"}, "session"))
    assert len(resolver._cases) <= 2 * names.MAX_CASES
    assert len(resolver._sessions) <= names.MAX_SESSIONS


def test_a_file_of_version_1_keeps_its_fields_as_they_are():
    resolver = Resolver()
    resolver.resolve(record({"version": 1, "policy": "p/1/aa"}, "genesis"))
    said = {"event": "admit", "case": 7, "session": "mine", "policy": "p/1/aa"}
    assert resolver.resolve(record(said)).fields == said


FIELDS = st.dictionaries(
    st.sampled_from([*CASE_FIELDS, "bytes", "task"]),
    st.sampled_from(["", "a", "b.c", "d" * 40, True, False, None, 0, 1, ("x", "y")]),
)


@given(st.lists(FIELDS, max_size=30))
def test_whatever_is_written_is_read_again(events):
    writer, reader = Names(), Resolver()
    for event in map(clean, events):
        written = dict(event)
        writer = writer.named(written)
        raw = json.loads(json.dumps(written))
        got = reader.resolve(record(raw)).fields
        assert got == {**json.loads(json.dumps(event)), "policy": ""}
        assert {k: type(v) for k, v in got.items() if k in event} == {
            k: type(v) for k, v in event.items()
        }


def test_invented_reasons_take_half_of_the_cases(make, records, monkeypatch):
    monkeypatch.setattr(names, "MAX_CASES", 8)
    log = make()
    reasons = [f"reason {n}" for n in range(40)]
    for reason in reasons:
        log.record({**REFUSE, "reason": reason})
    assert [each.text("reason") for each in records(log)] == reasons
    # Those beyond have a case in common, and state their reasons.
    lines = Path(log.path).read_bytes().splitlines()[1:]
    assert sum(b'"event":' in each for each in lines) == 5
    assert all(b'"reason":' in each for each in lines)
    log.record({**REFUSE, "rule": "context.none", "reason": "the first of its kind"})
    log.record({**REFUSE, "rule": "context.none", "reason": "another"})
    assert b'"event":' not in Path(log.path).read_bytes().splitlines()[-1]
