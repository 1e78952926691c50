"""Rotation: one log in many files, each of which names the end of the one before.

And what happens beside it: another failure, a disk that does not answer, a fork, a verification.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from safeser.audit import AuditFiles, read, verify
from safeser.audit.files import head_name
from safeser.audit.upkeep import keeper
from safeser.audit.writing import log_files
from safeser.errors import AuditError
from tests.audit.upkeep.conftest import ADMIT, FULL
from tests.conftest import until

SMALL = AuditFiles(rotate_size=64 << 10, compress=False)


def numbers(place: Path) -> list[int]:
    return [each.number("bytes") for each in read(place) if each.type == "event"]


def write(log, count: int, start: int) -> int:
    for n in range(start, start + count):
        log.record({**ADMIT, "bytes": n, "task": "t" * 80})
    return start + count


def copies(path: str) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in (Path(path), Path(head_name(path)))}


def test_a_full_file_is_closed_and_the_next_names_its_end(small, place, key, clean, fill, found):
    with small() as log:
        fill(log, 3 * FULL)
    paths = sorted(place.glob("*.log"), key=lambda p: next(iter(read(p))).time)
    assert len(paths) > 2
    assert clean(place, key).files == len(paths)
    assert sorted(numbers(place)) == list(range(3 * FULL))
    by_file = {next(iter(read(p))).text("file"): list(read(p)) for p in paths}
    previous = {file: each[0].text("previous") for file, each in by_file.items()}
    assert list(previous.values()).count("") == 1
    for file, before in previous.items():
        if before:
            genesis, end = by_file[file][0], by_file[before][-1]
            assert genesis.time <= end.time
            assert (end.type, end.text("then")) == ("close", "rotated")
    (last,) = [each[-1] for each in by_file.values() if each[-1].text("then") == ""]
    assert last.type == "close"
    os.remove(paths[1])  # which the next one names
    assert {kind for *_, kind in found(verify(place, key=key))} == {"missing file"}


def test_rotation_by_age(small, place, clock, fill, clean, key):
    log = small(files=AuditFiles(rotate_age=3_600, compress=False))
    try:
        assert not log.rotate_if_due()
        log.record(ADMIT)
        first = log.path
        clock.tick(3_599)
        log.record(ADMIT)
        assert log.path == first
        clock.tick(1)
        assert log.rotate_if_due()
        second = log.path
        assert second != first
        clock.tick(7_200)
        assert not log.rotate_if_due()  # nothing was written into it
        log.record(ADMIT)
        assert log.path == second
        clock.tick(-50_000)
        assert log.rotate_if_due()  # a clock that went back counts as time that passed, once
        third = log.path
        assert third != second
        log.record(ADMIT)
        assert not log.rotate_if_due()
        assert log.path == third
    finally:
        log.close()
    assert clean(place, key).files == 3


def test_counts_and_refusals_go_on_in_the_next_file(small, place, fill, count):
    with small() as log:
        count(log)
        log.record_all([{"event": "refuse", "sender": "x", "rule": "r", "permitted": False}] * 120)
        first = log.path
        fill(log, 2 * FULL)
        assert log.path != first
        assert log.refusals == {"r": 120}
    rows = [row for each in read(place) if each.type == "counts" for row in each.fields["counts"]]
    assert sum(row[-1] for row in rows) == 1
    suppressed = [each for each in read(place) if each.type == "suppressed"]
    assert sum(row[2] for each in suppressed for row in each.fields["suppressed"]) == 20


def test_where_no_new_file_can_be_made_the_present_one_goes_on(
    small, place, key, fill, clean, monkeypatch
):
    """The index is held by another process: the record is written all the same."""
    monkeypatch.setattr(log_files, "_ROTATION_WAIT", 0.01)
    with small() as log:
        fill(log, FULL)
        first = log.path
        with (place / "index").open("rb") as index:
            fcntl.flock(index, fcntl.LOCK_EX)
            fill(log, 400, start=FULL)
            assert log.path == first
        fill(log, 50, start=FULL + 400)
        assert log.path != first
    clean(place, key)
    assert sorted(numbers(place)) == list(range(FULL + 450))


# --- the thread that keeps the files --------------------------------------------------------------


def test_an_error_that_was_not_foreseen_ends_no_rotation(make, monkeypatch, caplog):
    def failing(*given, **options):
        raise MemoryError

    monkeypatch.setattr(keeper, "tidy", failing)
    log = make(files=AuditFiles(rotate_size=64 << 10))
    for _ in range(2):
        before = log.path
        write(log, 2 * FULL, 0)
        # The next file is there before the log goes on in it.
        until("a rotation", lambda before=before: log.path != before)
    assert log._keeper.lives
    until("the error", lambda: "stay as they are: MemoryError" in caplog.text)


def test_a_thread_that_ended_is_started_again(make, place, monkeypatch):
    log = make(files=SMALL)
    log._keep()
    log._keeper.stop(60)
    assert not log._keeper.lives
    write(log, 2 * FULL, 0)
    until("a rotation", lambda: len(list(place.glob("*.log"))) >= 2)


def test_tries_that_fail_become_rare(make, monkeypatch):
    log = make(files=SMALL)
    tries = []

    def failing() -> bool:
        tries.append(len(tries))
        raise AuditError("no", rule="audit.write")

    now = [1_000.0]
    monkeypatch.setattr(keeper.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(keeper.threading.Thread, "start", lambda self: None)
    monkeypatch.setattr(log, "rotate_if_due", failing)
    kept = keeper.Keeper(log, path="", key=log._key, files=SMALL, clock=time.time_ns)
    monkeypatch.setattr(kept, "_write_heads", lambda: None)
    for _ in range(3_600):
        kept._tick()
        now[0] += 1
    assert 60 < len(tries) < 75


# --- what fails -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fdatasync", "fsync", "write", "open"])
def test_what_was_not_registered_is_removed(small, place, fill, monkeypatch, name):
    log = small()
    fill(log, FULL)
    real, before = getattr(os, name), sorted(os.listdir(place))

    def failing(target, *given, **options):
        if name == "open":
            fails = str(target).endswith(".head") and given[0] & os.O_CREAT
        else:
            fails = name != "write" or os.readlink(f"/proc/self/fd/{target}").endswith("index")
        if fails:
            raise OSError(28, "full")
        return real(target, *given, **options)

    monkeypatch.setattr(os, name, failing)
    for _ in range(3):
        with pytest.raises(AuditError):
            log.rotate_if_due()
    assert sorted(os.listdir(place)) == before


def test_a_prepared_file_that_was_removed_is_not_gone_on_in(small, place, key, fill, found):
    log = small()
    fill(log, FULL)
    go_on, first = log._go_on, log.path

    def removed(chain) -> bool:
        log._go_on = go_on
        os.remove(log._next.chain.place)
        return go_on(chain)

    log._go_on = removed
    with pytest.raises(AuditError, match="was removed"):
        log.rotate_if_due()
    log.record(ADMIT)
    assert log.path == first
    assert log.rotate_if_due()
    log.close()
    assert {kind for *_, kind in found(verify(place, key=key))} == {"missing file"}


# --- a fork ---------------------------------------------------------------------------------------


def test_a_child_holds_no_lock_of_a_rotation(small, place, fill, monkeypatch):
    log = small()
    fill(log, FULL)
    asked, go = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(handle: int) -> None:
        asked.set()
        assert go.wait(60)
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", slow)
        thread = threading.Thread(target=log.rotate_if_due)
        thread.start()
        assert asked.wait(60)
        child = os.fork()
        if child == 0:
            paths = [os.readlink(f"/proc/self/fd/{n}") for n in _descriptors()]
            os._exit(any(path.startswith(f"{place}/") for path in paths))
        assert os.waitpid(child, 0)[1] == 0
        go.set()
        thread.join()


def _descriptors() -> list[str]:
    return [n for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]


# --- verification of a log in use -----------------------------------------------------------------


def test_a_file_that_is_compressed_meanwhile_is_read_again(small, place, key, fill, tended):
    files = AuditFiles(rotate_size=64 << 10)
    log = small(files=files)
    fill(log, FULL)
    calls = []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))
        if len(calls) == 1:  # the names are read, and no file is
            log.rotate_if_due()
            fill(log, 50, start=FULL)
            tended(files)

    report = verify(place, key=key, progress=progress)
    assert report.ok, str(report)
    assert report.files == 2
    assert list(place.glob("*.gz"))


def test_a_file_that_ends_meanwhile_is_read_again(small, place, key, fill):
    log = small()
    fill(log, FULL)
    asked, go = threading.Event(), threading.Event()
    go_on = log._go_on

    def waiting(chain) -> bool:
        asked.set()
        assert go.wait(60)
        return go_on(chain)

    log._go_on = waiting
    thread = threading.Thread(target=log.rotate_if_due)
    thread.start()
    assert asked.wait(60)

    def progress(done: int, total: int) -> None:
        if (done, total) == (1, 2):  # the file before was read, and had no end
            go.set()
            thread.join()
            log.record(ADMIT)

    report = verify(place, key=key, progress=progress)
    assert report.ok, str(report)


def test_what_is_wrong_stays_wrong_in_a_directory_that_changes(small, place, key, fill, found):
    log = small()
    fill(log, FULL)
    log.rotate_if_due()
    path = min(place.glob("*.log"), key=lambda p: next(iter(read(p))).time)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    def progress(done: int, total: int) -> None:
        fill(log, FULL)

    problems = found(verify(place, key=key, progress=progress))
    assert {name for name, *_ in problems} == {path.name}


# --- ends that are in no index yet ----------------------------------------------------------------


def test_a_head_names_the_end_that_the_index_does_not_have(small, place, key, fill):
    log = small()
    fill(log, FULL - 50)
    old = copies(log.path)
    heads = [log.head()]
    fill(log, 50, start=FULL - 50)
    log._register = lambda chain, **options: _raise()
    with pytest.raises(AuditError, match="held"):
        log.rotate_if_due()
    fresh = copies(log.path)
    heads.append(log.head())
    log.record(ADMIT)
    log._closed = True  # as a kill would end it, for the files
    log._close_files()
    assert verify(place, key=key, heads=heads).ok
    for path, data in (old | fresh).items():
        path.write_bytes(data)
    assert verify(place, key=key).ok  # without the heads it looks like a log that was killed before
    assert not verify(place, key=key, heads=heads).ok


def _raise() -> None:
    raise AuditError("held", rule="audit.locked")


def test_the_end_of_a_file_that_the_disk_did_not_flush_is_registered(
    small, place, fill, monkeypatch
):
    """What the disk lost is then missing, and not unknown."""
    log = small()
    fill(log, FULL)
    path, real = log.path, os.fdatasync

    def failing(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}") == path:
            raise OSError(5, "no")
        real(handle)

    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(AuditError, match="cannot be synced"):
        log.rotate_if_due()
    assert log.path != path
    assert [each.type for each in read(place / "index")].count("close") == 1


# --- a disk that does not answer ------------------------------------------------------------------


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


def test_an_end_that_another_process_keeps_from_the_index_is_registered_later(
    small, place, key, fill, clean, monkeypatch
):
    monkeypatch.setattr(log_files, "_ROTATION_WAIT", 0.01)

    with small() as log, (place / "index").open("rb") as index:
        fill(log, FULL)
        switch = log._go_on

        def locked(chain) -> bool:
            fcntl.flock(index, fcntl.LOCK_EX)
            return switch(chain)

        log._go_on = locked
        first = log.path
        with pytest.raises(AuditError, match="holds the index"):
            log.rotate_if_due()
        assert log.path != first
        log.record({**ADMIT, "bytes": FULL})
        assert verify(place, key=key).ok
        fcntl.flock(index, fcntl.LOCK_UN)
        assert not log.rotate_if_due()  # nothing is due but that
        assert log._ended is None
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
    whole = copies(log.path)
    assert log.rotate_if_due()
    log.record(ADMIT)
    log.close()
    assert verify(place, key=key).ok
    for path, data in whole.items():
        path.write_bytes(data)
    problems = found(verify(place, key=key))
    assert (os.path.basename(log.path), 1, 0, "missing records") in problems
