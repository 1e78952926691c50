"""The search finds exactly what reading everything would, and nothing stops it."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from safeser.audit import AuditKey, AuditLog, SessionFacts, names, read
from safeser.audit.reading.alike import Forms
from safeser.audit.reading.search import Question, follow, search
from safeser.audit.reading.show import counted
from safeser.audit.reading.summary import summarize
from safeser.audit.record import MAX_LINE, Record
from tests.draws import draws

WORDS = ["alice", "bob", 'a"case":0,', "x\\", "os:system\x7f\u00e9\U0001f4a3", ""]
PEERS = [SessionFacts(f"{n:012x}", {"peer": word}) for n, word in enumerate(WORDS[:3])]
EVENTS = st.fixed_dictionaries(
    {"event": st.sampled_from(["admit", "refuse"])},
    optional={
        **dict.fromkeys(
            [
                *("sender", "recipient", "author", "task_author", "rule", "family"),
                *("operation", "global", "task", "where"),
            ],
            st.sampled_from(WORDS),
        ),
        **{"permitted": st.booleans(), "session": st.sampled_from(PEERS)},
    },
)
SETS = st.frozensets(st.sampled_from(WORDS), max_size=2)
COUNTED_BY = ["rule", "user", "task", "permitted", "session", "type", "log", "policy", "none"]
QUESTIONS = st.builds(
    Question,
    since=st.integers(0, 20),
    until=st.integers(10, 40),
    **dict.fromkeys(
        ("principal", "author", "peer", "rule", "operation", "family", "refers_to", "task"), SETS
    ),
    permitted=st.sampled_from([None, True, False]),
)


@draws(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS, max_size=20), QUESTIONS)
def test_nothing_that_matches_is_skipped_unread(tmp_path, no_disk, monkeypatch, events, question):
    monkeypatch.setattr(names, "MAX_CASES", 6)  # so that some events are written in full
    now = [0]

    def clock():
        now[0] += 1_000
        return now[0]

    folder = tmp_path / os.urandom(8).hex()
    with AuditLog.open(folder, key=AuditKey(bytes(32)), principal="a", clock=clock) as log:
        for event in events:
            log.record(event)
    kept = [each for each in read(log.path) if each.type == "event"]
    wanted = [each.sequence for each in kept if question.matches(each)]
    found = search([folder], question, skipped=pytest.fail)
    assert [each.record.sequence for each in found if each.record.type == "event"] == wanted


@draws(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS, max_size=20), QUESTIONS)
def test_sums_are_those_of_records_that_are_parsed(tmp_path, no_disk, events, question):
    folder = tmp_path / os.urandom(8).hex()
    with AuditLog.open(folder, key=AuditKey(bytes(32)), principal="a") as log:
        for event in events + events:
            log.record(event)
    question = replace(question, since=0, until=1 << 62)

    def sums() -> tuple[object, object]:
        rows = counted(search([folder], question, skipped=pytest.fail), COUNTED_BY)
        return rows, summarize(search([folder], question, skipped=pytest.fail))

    fast = sums()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forms, "read", lambda forms, raw: forms._resolver.read(raw))
        assert sums() == fast


def named(place: Path, question: Question = Question()) -> tuple[int, list[str]]:  # noqa: B008
    skipped: list[str] = []
    found = list(search([place], question, skipped=lambda place, why: skipped.append(why)))
    return len(found), skipped


def foreign(content: bytes):
    return lambda log, place: (place / "x.log").write_bytes(content)


def begins(old: bytes, new: bytes):
    """Return what changes the first record of a log."""

    def change(log: AuditLog, place: Path) -> None:
        path = Path(log.path)
        path.write_bytes(path.read_bytes().replace(old, new))

    return change


def nonsense(log: AuditLog, place: Path) -> None:
    with open(log.path, "ab") as file:
        file.write(b"nonsense\n" * 100)


def no_files(log: AuditLog, place: Path) -> None:
    os.symlink("/etc/passwd", place / "b.log")
    os.mkfifo(place / "c.log")


@pytest.mark.parametrize(
    ("change", "found", "skipped", "why"),
    [
        (foreign(b"no log\n"), 1, 1, "first line"),
        (foreign(b"{}\n"), 1, 1, "first line"),
        (foreign(b"x" * (MAX_LINE + 300_000)), 1, 1, "longer than any record"),
        (foreign(b"half"), 1, 1, "not whole"),
        (no_files, 1, 2, ""),  # neither followed nor waited for
        (nonsense, 1, 11, ""),
        (begins(b'"type":"genesis"', b'"type":"geneses"'), 0, 1, "not that of a log file"),
        (begins(b'"version":2', b'"version":3'), 0, 1, "it has version 3"),
        (begins(b'"version":2', b'"version":0'), 0, 1, "it has version 0"),
        (begins(b'{"mac"', b"{"), 0, 1, ""),
        (lambda log, place: os.truncate(log.path, 0), 0, 0, ""),  # so a log begins
        (lambda log, place: shutil.rmtree(place), 0, 1, "it is not there"),
    ],
)
def test_what_is_no_record_is_named_up_to_a_bound(make, place, change, found, skipped, why):
    log = make()
    log.record({"event": "admit", "permitted": True})
    change(log, place)
    count, texts = named(place)
    assert (count, len(texts)) == (found, skipped)
    assert why in "".join(texts)


DIGITS = ("9" * 17, "9" * 4_300, "9" * 5_000)


@pytest.mark.parametrize(
    ("records", "question", "found"),
    [
        # Python converts no text of more than 4,300 digits, and prints no such sum.
        *(
            ([record % digits], question, 0)
            for record in (
                '{"case":%s,"seq":1,"time":1}',
                '{"case":1,"seq":1,"time":%s}',
                '{"event":"x","seq":1,"time":1,"times":%s}',
            )
            for digits in DIGITS
            for question in ({}, {"rule": ("x",)}, {"since": 1})
        ),
        # Writing what is nested deep as text would exceed the stack.
        *(
            ([f'{{"event":"x","seq":1,"task":{"[" * n}{"]" * n},"time":1}}'], {}, int(n == 7))
            for n in (7, 8, 900)
        ),
        # A case that is defined anew, and a session that has a task.
        (
            [
                '{"case":0,"event":"admit","rule":"other","seq":1,"time":1}',
                '{"case":0,"seq":2,"time":2}',
                '{"case":0,"event":"admit","rule":"asked","seq":3,"time":3}',
                '{"case":0,"seq":4,"time":4}',
            ],
            {"rule": frozenset({"asked"})},
            2,
        ),
        (
            [
                '{"case":0,"event":"admit","seq":1,"time":1}',
                '{"id":"a","s":0,"seq":2,"task":"asked","time":2,"type":"session"}',
                '{"case":0,"s":0,"seq":3,"time":3}',
            ],
            {"task": frozenset({"asked"})},
            1,
        ),
    ],
)
def test_lines_that_somebody_adds(make, place, records, question, found):
    with open(make().path, "ab") as file:
        for record in records:
            file.write(b'{"mac":"%s","record":%s}\n' % (b"0" * 64, record.encode()))
    assert named(place, Question(**question))[0] == found


def test_a_file_of_version_1_is_searched(make, place, edit):
    log = make()
    log.record({"event": "admit", "sender": "bob", "permitted": True})

    def older(lines):
        genesis, event = lines
        whole = event.replace(b'"case":0,', b"").replace(b"}}", b',"type":"event"}}')
        return [genesis.replace(b'"version":2', b'"version":1'), whole]

    edit(Path(log.path), older)
    assert named(place, Question(principal=frozenset({"bob"}))) == (1, [])


def test_more_files_than_may_be_open_are_searched(make, monkeypatch, place):
    for number in range(40):
        make(f"p{number}").record({"event": "admit", "permitted": True})
    before = len(os.listdir("/proc/self/fd"))
    most = 0
    for _ in search([place], Question(), skipped=pytest.fail):
        most = max(most, len(os.listdir("/proc/self/fd")))
    assert most <= before + 3


def test_following_takes_a_line_when_it_is_whole_and_files_that_are_new(make, place):
    log = make()
    steps = []

    def wait():
        steps.append(1)
        if len(steps) == 1:
            log.record({"event": "one", "permitted": True})
            make("other").record({"event": "two", "permitted": True})
        elif len(steps) == 2:
            with open(log.path, "ab") as file:
                file.write(b'{"mac":"00')
        elif len(steps) == 3:
            os.truncate(log.path, os.path.getsize(log.path) - 10)
            log.record({"event": "three", "permitted": True})
        return len(steps) < 5

    parts = follow([place], Question(), skipped=pytest.fail, wait=wait)
    found = [[each.record.text("event") for each in part] for part in parts]
    assert found == [[], ["one", "two"], [], ["three"], []]


def test_a_folder_that_cannot_be_read_is_named(place, make, monkeypatch):
    make()

    def refused(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.listdir", refused)
    assert named(place) == (0, ["it cannot be read (Permission denied)"])


def test_what_cannot_match_is_not_parsed(make, place, monkeypatch):
    log, parsed, real = make(), [], Forms.read
    for number in range(20):
        log.record({"event": "admit", "sender": "bob", "permitted": True, "task": f"t-{number}"})
    monkeypatch.setattr(Forms, "read", lambda forms, raw: parsed.append(raw) or real(forms, raw))
    # The first record, and the one that defines the case, are.
    assert named(place, Question(principal=frozenset({"eve"}))) == (0, [])
    assert named(place, Question(task=frozenset({"t-7"}))) == (1, [])
    assert named(place, Question(since=1 << 60)) == (0, [])
    assert len(parsed) == 2 + 3 + 2


def test_rows_of_counts_that_are_none_are_left_out(make, place, edit):
    log = make()
    log.count("bob", "alice", "x", "context.none", False)
    log.flush()

    def hostile(lines):
        rows = b'[["a","b"],"x",7,["s","r","o","rule",false,3]]'
        return [re.sub(rb'"counts":\[.*\]\]', b'"counts":' + rows, line) for line in lines]

    edit(Path(log.path), hostile)
    assert named(place) == (1, [])


def test_a_disk_that_fails_is_named_and_ends_the_file_alone(make, place, monkeypatch):
    make("alice")

    def broken(handle, size, offset):
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "pread", broken)
    count, [text] = named(place)
    assert count == 0
    assert "Input/output error" in text


@pytest.mark.parametrize("name", ["rule", "operation", "family", "task", "global"])
@pytest.mark.parametrize("value", [["x"], {"x": 1}, 7, None])
def test_a_value_that_is_no_text_matches_nothing_and_stops_nothing(name, value):
    asked = "refers_to" if name == "global" else name
    record = Record(1, 5, "event", {name: value}, b"")
    assert not Question(**{asked: frozenset({"x"})}).matches(record)
