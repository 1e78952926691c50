"""Rotation: one log in many files, each of which names the end of the one before."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from safeser.audit import AuditFiles, AuditLog, read, verify
from safeser.audit.writing import log_files
from safeser.errors import AuditError
from tests.audit.upkeep.conftest import ADMIT, FULL


def numbers(place: Path) -> list[int]:
    return [each.number("bytes") for each in read(place) if each.type == "event"]


def test_a_full_file_is_closed_and_the_next_names_its_end(small, place, key, clean, fill):
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
    assert (
        next(each for each in by_file.values() if each[-1].text("then") == "")[-1].type == "close"
    )


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


def test_the_file_before_cannot_be_taken_away_or_exchanged(small, place, key, fill, found):
    with small() as log:
        fill(log, 3 * FULL)
    paths = sorted(place.glob("*.log"))
    data = paths[1].read_bytes()
    os.remove(paths[1])
    assert (paths[1].name, 0, -1, "missing file") in found(verify(place, key=key))
    paths[1].write_bytes(data)
    paths[0].write_bytes(data)
    assert "swapped file" in {kind for *_, kind in found(verify(place, key=key))}


def test_where_no_new_file_can_be_made_the_present_one_goes_on(
    small, place, key, fill, clean, monkeypatch
):
    """The index is held by another process: the record is written all the same."""
    import fcntl

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


@pytest.mark.parametrize("name", ["write", "pwrite", "open", "fdatasync"])
def test_a_failure_at_each_place_loses_nothing(
    small, place, key, clock, fill, clean, monkeypatch, name
):
    real = getattr(os, name)
    for at in range(60):
        left = [at]

        def failing(*args, left=left, **options):
            left[0] -= 1
            if left[0] == -1:
                raise OSError(28, "no space")
            return real(*args, **options)

        with small(f"p{at}") as log:
            fill(log, FULL)
            clock.tick(2)
            written = FULL
            with monkeypatch.context() as patch:
                patch.setattr(os, name, failing)
                try:
                    fill(log, 50, start=written)
                except AuditError:
                    failed = True
                else:
                    failed = False
                    written += 50
            clock.tick(2)
            fill(log, 50, start=2_000)
        found = Counter(
            each.number("bytes")
            for p in place.glob(f"p{at}-*.log")
            for each in read(p)
            if each.type == "event"
        )
        assert set(found) >= {*range(written), *range(2_000, 2_050)}
        assert set(found.values()) == {1}
        if left[0] >= 0:
            assert not failed
            break
    clean(place, key)
    assert at > 3


@pytest.mark.slow
@pytest.mark.unmeasured
def test_an_interruption_at_each_instruction_of_a_rotation(
    place, key, clock, interrupt, clean, fill, no_disk
):
    import shutil

    place.mkdir()
    for at in interrupt.rounds(1_000):
        home = place / str(at)
        files = AuditFiles(rotate_size=64 << 10, compress=False)
        log = AuditLog.open(home, key=key, principal="alice", clock=clock, files=files)
        log._keep = lambda: None  # no thread is started in the middle of this
        fill(log, FULL)
        assert log._present[1].end.size >= 64 << 10
        interrupt(log.rotate_if_due, every=13)
        log.record({**ADMIT, "bytes": FULL})
        clock.tick(2)
        log.record({**ADMIT, "bytes": FULL + 1})
        log.close()
        report = clean(home, key)
        assert len(report.notes) <= 1
        found = Counter(numbers(home))
        assert set(found) == set(range(FULL + 2))
        assert set(found.values()) == {1}
        shutil.rmtree(home)


def test_a_forked_child_of_a_rotated_log(small, place, key, clean, fill, monkeypatch):
    log = small()
    fill(log, 2 * FULL)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    fill(log, 2 * FULL, start=2 * FULL)
    log.close()
    clean(place, key)
    parents = [
        each.text("parent")
        for p in place.glob("*.log")
        for each in read(p)
        if each.type == "genesis"
    ]
    assert sum(bool(each) for each in parents) == 1
