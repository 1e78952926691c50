"""Disks that fail or fill, and somebody at the files of a running process.

The one rule: what a call acknowledged is in the file once, and the folder verifies.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from safeser.audit import log as log_module
from safeser.errors import AuditError
from tests.audit.conftest import ADMIT

# --- faults ---------------------------------------------------------------------------------------


def test_several_records_are_one_write_and_one_head(make, place, key, monkeypatch, records, clean):
    log = make()
    write, calls = os.write, []
    monkeypatch.setattr(os, "write", lambda handle, data: calls.append(data) or write(handle, data))
    log.record_all([{**ADMIT, "bytes": size} for size in (1, 2, 3)])
    monkeypatch.undo()
    assert len(calls) == 1
    assert [record.number("bytes") for record in records(log)] == [1, 2, 3]
    log.record_all([])
    log.record(ADMIT)
    assert len(records(log)) == 4
    clean(place, key)


@pytest.mark.parametrize(("name", "says"), [("write", "No space left"), ("pwrite", "head")])
def test_a_write_of_nothing_or_little_is_a_failure(make, monkeypatch, name, says):
    log = make()
    monkeypatch.setattr(os, name, lambda *given: 0 if name == "write" else 5)
    with pytest.raises(AuditError, match=says):
        log.record(ADMIT)


def test_nothing_is_written_after_a_torn_record_until_it_is_taken_back(
    make, place, key, fails, records, clean, count
):
    log = make()
    log.record(ADMIT)
    with fails("ftruncate", errno.EPERM):
        with fails(after=1, part=20), pytest.raises(AuditError, match="No space left"):
            log.record(ADMIT)
        for call in (lambda: log.record(ADMIT), lambda: count(log), log.flush):
            with pytest.raises(AuditError, match="taken back"):
                call()
        assert any("torn" in note for note in clean(place, key).notes)
    log.record(ADMIT)
    assert len(records(log)) == 2
    assert clean(place, key).notes == ()


def test_opening_on_a_full_disk_is_refused_and_the_next_one_works(make, place, key, fails, clean):
    make().close()
    for succeed in (0, 1):
        with fails(after=succeed), pytest.raises(AuditError, match="No space left"):
            make()
    make().record(ADMIT)
    # The files of both were removed: nothing was decided there.
    assert clean(place, key).notes == ()


def test_an_index_removed_while_opening(make, monkeypatch):
    monkeypatch.setattr(log_module.Directory, "open_own", lambda self, name, **_: None)
    monkeypatch.setattr(log_module.Directory, "create_if_absent", lambda self, name, **_: None)
    with pytest.raises(AuditError, match="removed while it was opened"):
        make()


# --- exceptions in the middle of a call -----------------------------------------------------------


@pytest.mark.parametrize("durability", ["kernel", "fsync"])
@pytest.mark.parametrize("left", ["nothing", "the start", "other bytes", "more", "all", "less"])
def test_only_bytes_that_were_on_their_way_are_taken_back(
    make, monkeypatch, place, key, records, clean, durability, left
):
    log = make(durability=durability)
    size, write = os.path.getsize(log.path), os.write

    def interrupted(handle, data):
        if left == "less":
            os.ftruncate(handle, 10)
        else:
            done = {"nothing": b"", "the start": data[:50], "all": data, "more": data + data[:9]}
            write(handle, done.get(left, b"something else"))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.record(ADMIT)
    monkeypatch.undo()
    if left in {"nothing", "the start", "all"}:
        assert (os.path.getsize(log.path) == size) is (left != "all")
        clean(place, key)
        log.record(ADMIT)
        assert len(records(log)) == 1 + (left == "all")
        log.close()
        clean(place, key)
        return
    found = Path(log.path).read_bytes()
    for call in (lambda: log.record(ADMIT), log.flush, log.close):
        with pytest.raises(AuditError, match="another end"):
            call()
    assert Path(log.path).read_bytes() == found


# --- somebody at the files of a running process ---------------------------------------------------


@pytest.mark.parametrize("which", ["log", "head"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_taken_away_stops_the_process(make, clock, which, how):
    log = make()
    target = Path(log.path).with_suffix(f".{which}")
    content = target.read_bytes()
    target.rename(target.with_suffix(".away"))
    if how == "replaced":
        target.write_bytes(content)
    clock.tick(1)
    for rule in ("audit.replaced", "audit.closed"):
        with pytest.raises(AuditError, match=how) as caught:
            log.record(ADMIT)
        assert caught.value.rule == rule


def test_a_cut_file_stops_the_process_within_64_records(make):
    log = make()
    log.record(ADMIT)
    os.truncate(log.path, 100)

    def go_on():
        for _ in range(64):
            log.record(ADMIT)

    with pytest.raises(AuditError, match="another size"):
        go_on()
