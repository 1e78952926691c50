"""A disk that takes no record: what waits, what is lost, and what the log says of both."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from safeser.audit import AuditLog, read
from safeser.audit.upkeep.settings import AuditFiles
from safeser.audit.writing import open_logs, waiting
from safeser.errors import AuditError
from safeser.values import AuditFailure

GO_ON = AuditFailure(2)


def queue(most: int) -> AuditFailure:
    return AuditFailure(1, most)


def admit(number: int, **more: object) -> dict:
    said = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True}
    return {**said, "bytes": number, **more}


def kept(log: AuditLog, *numbers: int, answer: AuditFailure = GO_ON) -> None:
    log.record_or_keep([admit(n) for n in numbers], [answer] * len(numbers))


def written(log: AuditLog) -> list[tuple[str, int]]:
    """Return the types of a log's records after the first, with their number, or what is lost."""
    return [
        (each.type, each.number("lost" if each.type == "gap" else "bytes"))
        for each in list(read(log.path))[1:]
    ]


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
    assert written(log) == [("gap", 0), ("event", 1), ("event", 2), ("event", 3), ("event", 4)]
    _, gap, *events = read(log.path)
    assert gap.fields["kept"] == 3
    assert gap.time - gap.number("since") == 7_000_000
    assert gap.text("reason").startswith("a record cannot be written (")
    assert [each.number("delayed") for each in events] == [7_000_000, 7_000_000, 5_000_000, -1]
    log.record(admit(5))  # and the gap is said once
    log.close()
    assert [each[0] for each in written(log)].count("gap") == 1
    clean(os.path.dirname(log.path), key)


def test_a_queue_that_is_full_refuses_and_keeps_what_it_has(make, fails):
    log = make()
    with fails():
        kept(log, 1, 2, answer=queue(3))
        with pytest.raises(AuditError, match="No space"):
            kept(log, 3, 4, answer=queue(3))  # both or neither
        kept(log, 5, answer=queue(3))
        with pytest.raises(AuditError):
            kept(log, 6, answer=queue(3))
        kept(log, 7, answer=queue(4))
    log.flush()
    assert written(log) == [("gap", 0), *[("event", n) for n in (1, 2, 5, 7)]]
    assert log.activity.failures == 5
    assert sum(log.activity.decisions.values()) == 4
    with fails():
        kept(log, 8, 9, 10, answer=queue(3))  # there is room again


def test_what_goes_on_is_lost_beyond_its_bound_and_counted(make, fails, monkeypatch):
    monkeypatch.setattr(waiting, "MAX_GOING_ON", 2)
    log = make()
    with fails():
        for number in range(5):
            kept(log, number)
        kept(log, 5, answer=queue(9))  # which has room of its own
    log.record(admit(6))
    assert written(log) == [("gap", 3), *[("event", n) for n in (0, 1, 5, 6)]]
    assert sum(log.activity.decisions.values()) == 7


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
    assert [each for each in written(log) if each[0] == "gap"] == [("gap", 6)]
    assert log._waiting._bytes == 0


@pytest.mark.parametrize(
    ("end", "rule"),
    [
        (lambda log: log.close(), "audit.closed"),
        (lambda log: os.remove(log.path), "audit.replaced"),
    ],
)
def test_a_log_that_is_not_written_again_refuses(make, clock, end, rule):
    log = make()
    end(log)
    clock.tick(2)
    with pytest.raises(AuditError) as caught:
        kept(log, 1)
    assert caught.value.rule == rule


def test_an_event_that_the_log_does_not_know_is_refused(make, fails):
    log = make()
    with fails(), pytest.raises(AuditError, match="cannot be recorded"):
        log.record_or_keep([admit(1, delayed=7)], [GO_ON])


def test_a_file_that_cannot_be_looked_at_may_get_a_record_twice(make, fails):
    log = make()
    with fails("pwrite"), fails("fstat"):
        kept(log, 1)
    log.flush()
    assert [n for kind, n in written(log) if kind == "event"] == [1, 1]


def test_records_that_the_file_took_before_its_head_failed_are_there_once(make, fails):
    log = make()
    with fails("pwrite"):
        kept(log, 1)
        kept(log, 2)  # while it is in doubt where the file ends
    log.record(admit(3))
    assert sorted(n for kind, n in written(log) if kind == "event") == [1, 2, 3]


def test_what_the_file_took_counts_as_recorded(make, monkeypatch):
    log = make()
    calls = []

    def once(*arguments: object) -> int:
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError(errno.EIO, "")
        return real(*arguments)

    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", once)
    kept(log, 1)
    assert written(log) == [("event", 1)]
    assert log._waiting.kept == 0


def test_many_records_that_wait_are_written_in_parts(make, fails, monkeypatch):
    monkeypatch.setattr(waiting, "AT_ONCE", 3)
    log = make()
    with fails():
        kept(log, *range(8))
    log.record(admit(8))
    assert [n for kind, n in written(log) if kind == "event"] == [0, 1, 2, 8]
    log.close()
    assert [n for kind, n in written(log) if kind == "event"] == [0, 1, 2, 8, 3, 4, 5, 6, 7]


def test_a_second_failure_while_it_is_written_loses_nothing(make, fails, monkeypatch):
    monkeypatch.setattr(waiting, "AT_ONCE", 2)
    log = make()
    with fails():
        kept(log, 1, 2, 3)
    log.record(admit(4))
    with fails():
        kept(log, 5)
        with pytest.raises(AuditError):
            log.flush()
    log.flush()
    assert [n for kind, n in written(log) if kind == "event"] == [1, 2, 4, 3, 5]
    assert [kind for kind, _ in written(log)].count("gap") == 2


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
        log.count_anyway("bob", "alice", "heartbeat", "permit", True, times=3)
    log.record(admit(2))
    assert ("gap", 3) in written(log)


def test_counts_of_a_closed_log_are_refused(make, place):
    log = make()
    log.close()
    with pytest.raises(AuditError, match="closed"):
        log.count_anyway("bob", "alice", "heartbeat", "permit", True)
    log = make()
    os.remove(log.path)
    with pytest.raises(AuditError, match="removed"):
        log.count_anyway("bob", "alice", "heartbeat", "permit", True, times=1_000)


def test_refusals_wait_as_well_and_a_flood_of_them_is_counted(make, fails):
    log = make()
    refused = {**admit(0), "event": "refuse", "permitted": False, "rule": "context.family"}
    with fails():
        log.record_or_keep([refused] * 200, [GO_ON] * 200)
    log.close()
    types = [kind for kind, _ in written(log)]
    assert types.count("event") == 100
    assert types.count("suppressed") == 1


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


def test_logs_that_are_left_open_are_closed_at_the_end(make, fails):
    one, other = make(), make("bob")
    os.remove(one.path)
    open_logs._close_all()
    for log in (one, other):
        with pytest.raises(AuditError, match="closed"):
            log.record(admit(1))
    assert list(read(other.path))[-1].type == "close"


def test_refusals_fill_no_queue(make, fails, monkeypatch):
    monkeypatch.setattr(waiting, "MAX_REFUSALS", 2)
    log = make()
    refused = [admit(n, permitted=False, rule="floor.admin") for n in range(5)]
    with fails():
        for each in refused:
            log.record_or_keep([each], [queue(2)])
        kept(log, 6, 7, answer=queue(2))
    log.record(admit(8))
    assert written(log) == [("gap", 3), *[("event", n) for n in (0, 1, 6, 7, 8)]]


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
    assert sorted(n for kind, n in written(log) if kind == "event") == list(range(103))


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
