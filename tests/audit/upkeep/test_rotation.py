"""Rotation: one log in many files, each of which names the end of the one before."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from safeser.audit import AuditFiles, read
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
