"""A disk that does not answer: records are written, and a rotation ends when it answers again."""

from __future__ import annotations

import os
import threading

from safeser.audit import AuditFiles, read, verify
from tests.audit.upkeep.conftest import ADMIT, FULL

SMALL = AuditFiles(rotate_size=64 << 10, compress=False)


class Disk:
    """A disk whose flushes wait until it answers; one that the thread of records makes fails."""

    def __init__(self, monkeypatch) -> None:
        self.answers = threading.Event()
        self.asked = threading.Event()
        self.writer = threading.get_ident()
        for name in ("fdatasync", "fsync"):
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, flush):
        def flushed(handle: int) -> None:
            assert threading.get_ident() != self.writer, "the thread of records waits for the disk"
            self.asked.set()
            assert self.answers.wait(60)
            flush(handle)

        return flushed


def numbers(place) -> list[int]:
    return [each.number("bytes") for each in read(place) if each.type == "event"]


def write(log, count: int, start: int) -> int:
    for n in range(start, start + count):
        log.record({**ADMIT, "bytes": n, "task": "t" * 80})
    return start + count


def test_no_record_waits_for_a_rotation(make, place, key, clock, clean, monkeypatch):
    log = make(files=SMALL)
    first = log.path
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        n = write(log, 2 * FULL, 0)
        assert disk.asked.wait(60)
        n = write(log, FULL, n)  # while the disk does not answer
        assert log.path == first
        assert verify(place, key=key).ok
        disk.answers.set()
        while log.path == first:  # the thread that keeps the files goes on
            clock.tick(1)
            n = write(log, 1, n)
    log.close()
    assert sorted(numbers(place)) == list(range(n))
    clean(place, key)


def test_a_policy_that_changes_meanwhile_is_named_by_the_next_file(small, place, key, fill, clean):
    with small() as log:
        fill(log, FULL)
        begin = log._begun

        def changed(*given, **options):
            begun = begin(*given, **options)
            log._begun = begin
            log.use_policy(("next", 2, "b" * 64))
            return begun

        log._begun = changed
        first = log.path
        assert not log.rotate_if_due()
        assert log.path == first
        assert log.rotate_if_due()
        second = log.path
        fill(log, 50, start=FULL)
    genesis = next(iter(read(second)))
    assert genesis.text("policy_name") == "next"
    clean(place, key)


def test_a_file_whose_end_was_removed_before_the_next_is_found(small, place, key, fill, found):
    """The end is in no index: its process was killed after it had gone on in the next file."""
    log = small()
    fill(log, FULL)
    log._register = lambda chain, **options: None
    path = log.path
    whole = {}
    for each in (path, path.removesuffix(".log") + ".head"):
        with open(each, "rb") as file:
            whole[each] = file.read()
    assert log.rotate_if_due()
    log.record(ADMIT)
    log.close()
    assert verify(place, key=key).ok
    for each, data in whole.items():
        with open(each, "wb") as file:
            file.write(data)
    problems = found(verify(place, key=key))
    assert (os.path.basename(log.path), 1, 0, "missing records") in problems
