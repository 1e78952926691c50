"""A disk that takes no record: what waits, what is lost, and what the log says of both."""

from __future__ import annotations

import contextlib
import errno
import logging
import os

import pytest

from safeser.audit import AuditLog, read
from safeser.audit.upkeep.settings import AuditFiles
from safeser.audit.writing import waiting
from safeser.errors import AuditError
from safeser.gate.values import AuditFailure
from tests.refusal import refusal

GO_ON = AuditFailure(2)


def queue(most: int) -> AuditFailure:
    return AuditFailure(1, most)


def admit(number: int, **more: object) -> dict:
    said = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True}
    return {**said, "bytes": number, **more}


def kept(log: AuditLog, *numbers: int, answer: AuditFailure = GO_ON) -> None:
    log.record_or_keep([admit(n) for n in numbers], [answer] * len(numbers))


def written(log: AuditLog) -> str:
    """Return what a log has after its first record: numbers of events, gaps with what is lost."""
    said = []
    for each in list(read(log.path))[1:]:
        if each.type == "gap":
            said.append(f"gap:{each.number('lost')}")
        else:
            said.append(str(each.number("bytes")) if each.type == "event" else each.type)
    return " ".join(said)


#: Calls that fail on a full disk, where no head can be written, and where nothing can be looked at.
FAILURES = {"full": ["write"], "head": ["pwrite"], "blind": ["pwrite", "fstat"]}


def follow(log: AuditLog, fails, steps: str) -> None:
    """Take steps such as ``full 1 r2 /3 no``.

    That is, keep event 1 and refusal 2 while the disk is full, in a queue of three; the log refuses
    both. Without a failure the event is recorded.
    """
    for step in steps.split(", "):
        word, *more = step.split()
        numbers = [each for each in (word, *more) if each.strip("r").isdigit()]
        denied = {"permitted": False, "rule": "floor.admin"}
        events = [admit(int(n.strip("r")), **(denied if n[0] == "r" else {})) for n in numbers]
        answer = next((queue(int(each[1:])) for each in more if each[0] == "/"), GO_ON)
        with contextlib.ExitStack() as stack:
            if "no" in more:
                stack.enter_context(pytest.raises(AuditError))
            for name in FAILURES.get(word, ()):
                stack.enter_context(fails(name))
            if not events:
                getattr(log, step.split()[-1 - ("no" in more)])()
            elif word in FAILURES:
                log.record_or_keep(events, [answer] * len(events))
            else:
                log.record_all(events)


#: Bounds that are changed, steps, and what the log has then.
HISTORIES = [
    # A queue that is full refuses and keeps what it has; a batch goes as a whole.
    ({}, "full 1 2 /3, full 3 4 /3 no, full 5 /3, full 6 /3 no, full 7 /4, flush", "gap:0 1 2 5 7"),
    # What goes on is lost beyond its bound; a queue has room of its own.
    ({"MAX_GOING_ON": 2}, "full 0, full 1, full 2 3 4, full 5 /9, 6", "gap:3 0 1 5 6"),
    # Refusals fill no queue.
    ({"MAX_REFUSALS": 2}, "full r0 r1 /2, full r2 r3 r4 /2, full 6 7 /2, 8", "gap:3 0 1 6 7 8"),
    # Many that wait are written in parts, and a second failure meanwhile loses nothing.
    ({"AT_ONCE": 3}, "full 0 1 2 3 4 5 6 7, 8, close", "gap:0 0 1 2 8 3 4 5 6 7 close"),
    ({"AT_ONCE": 2}, "full 1 2 3, 4, full 5, full flush no, flush", "gap:0 1 2 4 gap:0 3 5"),
    # What the file took before its head failed is there once; unseen, it may be there twice.
    ({}, "head 1, head 2, 3", "1 gap:0 2 3"),
    ({}, "blind 1, flush", "1 gap:0 1"),
]


@pytest.mark.parametrize(
    ("bounds", "steps", "has"), HISTORIES, ids=[steps for _, steps, _ in HISTORIES]
)
def test_a_history(make, fails, monkeypatch, bounds, steps, has):
    for name, value in bounds.items():
        monkeypatch.setattr(waiting, name, value)
    log = make()
    follow(log, fails, steps)
    assert written(log) == has
    taken = sum(each.isdigit() for each in has.split()) + int(has.partition("gap:")[2][0])
    assert sum(log.activity.decisions.values()) == taken - ("blind" in steps)


@pytest.mark.parametrize("answer", [queue(3), GO_ON], ids=str)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EFBIG])
def test_what_waits_is_written_before_the_next_record(make, fails, clock, answer, code, clean, key):
    log = make()
    with fails(code=code):
        kept(log, 1, 2, answer=answer)
        clock.tick(2)
        kept(log, 3, answer=answer)
    clock.tick(5)
    log.record(admit(4))
    assert written(log) == "gap:0 1 2 3 4"
    _, gap, *events = read(log.path)
    assert gap.fields["kept"] == 3
    assert gap.time - gap.number("since") == 7_000_000
    assert gap.text("reason").startswith("a record cannot be written (")
    assert [each.number("delayed") for each in events] == [7_000_000, 7_000_000, 5_000_000, -1]
    log.record(admit(5))  # and the gap is said once
    log.close()
    assert written(log) == "gap:0 1 2 3 4 5 close"
    clean(os.path.dirname(log.path), key)


def test_bytes_are_bounded(make, fails, monkeypatch):
    monkeypatch.setattr(waiting, "MAX_BYTES", 8_192)
    log = make()
    long = admit(0, task="x" * 250)
    with fails():
        for _ in range(9):
            log.record_or_keep([long], [GO_ON])  # three take half
        for _ in range(3):
            log.record_or_keep([long], [queue(100)])
        with pytest.raises(AuditError):
            log.record_or_keep([long], [queue(100)])
    log.flush()
    assert written(log).count("gap:") == written(log).count("gap:6") == 1
    assert log._waiting._bytes == 0


def counted(log: AuditLog, times: int = 1) -> None:
    log.count_anyway("bob", "alice", "heartbeat", "permit", True, times=times)


@pytest.mark.parametrize("call", [lambda log: kept(log, 1), lambda log: counted(log, 1_000)])
@pytest.mark.parametrize(
    ("end", "rule"),
    [
        (lambda log: log.close(), "audit.closed"),
        (lambda log: os.remove(log.path), "audit.replaced"),
    ],
)
def test_a_log_that_is_not_written_again_refuses(make, clock, end, rule, call):
    log = make()
    end(log)
    clock.tick(2)
    with refusal(AuditError, rule):
        call(log)


def test_an_event_that_the_log_does_not_know_is_refused(make, fails):
    log = make()
    with fails(), pytest.raises(AuditError, match="cannot be recorded"):
        log.record_or_keep([admit(1, delayed=7)], [GO_ON])


def test_counts_pass_and_become_a_later_record(make, fails, clock):
    log = make()
    decision = ("bob", "alice", "heartbeat", "permit", True)
    with fails():
        for _ in range(3):
            clock.tick(2)
            log.count_anyway(*decision, times=2)
        with pytest.raises(AuditError):
            log.count(*decision)
    log.flush()
    rows = [row for each in read(log.path) for row in each.fields.get("counts", ())]
    assert rows == [[*decision, 7]]  # of the refused one, too, as before


def test_counts_whose_file_is_in_doubt_are_lost_and_counted(make, fails):
    log = make()
    with fails("pwrite"):
        kept(log, 1)
        counted(log, 3)
    log.record(admit(2))
    assert "gap:3" in written(log)


def test_refusals_wait_as_well_and_a_flood_of_them_is_counted(make, fails):
    log = make()
    refused = {**admit(0), "event": "refuse", "permitted": False, "rule": "context.family"}
    with fails():
        log.record_or_keep([refused] * 200, [GO_ON] * 200)
    log.close()
    types = written(log).split()
    assert (types.count("0"), types.count("suppressed")) == (100, 1)


def test_the_process_says_once_that_the_log_fails_and_once_that_it_is_written(make, fails, caplog):
    log = make()
    with caplog.at_level(logging.WARNING, "safeser.audit"):
        with fails():
            for number in range(3):
                kept(log, number)
        log.record(admit(3))
    first, second = caplog.messages
    assert "is not written" in first
    assert "No space left" in first
    assert "is written again" in second


def test_a_child_does_not_write_what_waits_in_its_parent(make, fails):
    log = make()
    with fails():
        kept(log, 1)
    log._after_fork()
    assert log._waiting.kept == 0


def test_each_message_of_a_log_that_fails_tries_few_records_again(make, fails, monkeypatch):
    log, real, tried = make(), waiting.Waiting.next, []

    def noted(self, told):
        found = list(real(self, told))
        tried.append(len(found))
        return iter(found)

    monkeypatch.setattr(waiting.Waiting, "next", noted)
    with fails():
        for number in range(100):
            kept(log, number)
    assert max(tried) == waiting.AGAIN
    tried.clear()
    for number in range(100, 103):
        log.record(admit(number))
    assert tried[0] == waiting.AGAIN
    assert sorted(map(int, written(log).split()[1:])) == list(range(103))


def test_a_file_that_ends_meanwhile_does_not_stand_for_the_record(make, monkeypatch):
    """Its closing record is one more than before, and not the one that is to be kept."""
    log = make(files=AuditFiles(rotate_size=1 << 16, compress=False))
    while log._present[1].end.size < 1 << 16:
        log.record(admit(1, digest="d" * 200))
    real, looks = AuditLog._ready, []

    def fail(*_: object, **options: object) -> None:
        raise AuditError("the disk is full", rule="audit.write")

    def later(self):
        looks.append(1)
        if len(looks) == 1:  # a rotation that failed is not tried at once
            return self._present[1]
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(AuditLog, "_register_end", fail)
        patch.setattr(AuditLog, "_ready", later)
        kept(log, 77)
    found = [each.number("bytes") for name in log_files(log) for each in read(name)]
    assert found.count(77) + log._waiting.kept == 1


def log_files(log: AuditLog) -> list[str]:
    folder = os.path.dirname(log.path)
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".log")]
