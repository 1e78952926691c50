"""Disks that fail or fill, and somebody at the files of a running process."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from safeser.audit import log as log_module
from safeser.audit import verify
from safeser.errors import AuditError

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True, "bytes": 5}
REFUSE = {"event": "refuse", "sender": "bob", "rule": "policy.family", "permitted": False}


# --- faults ---------------------------------------------------------------------------------------


def test_partial_writes_are_finished(make, place, key, monkeypatch, records, clean):
    log = make()
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    log.record(ADMIT)
    monkeypatch.undo()
    assert len(records(log)) == 1
    clean(place, key)


@pytest.mark.parametrize("after", [0, 1])
def test_a_full_disk_refuses_and_leaves_whole_records_only(
    make, place, key, monkeypatch, after, records, clean
):
    log = make()
    write = os.write
    calls = []

    def full(handle, data):
        calls.append(data)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, "full")
        return write(handle, data[:20])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AuditError, match="No space left"):
        log.record(ADMIT)
    monkeypatch.undo()
    clean(place, key)
    log.record(ADMIT)
    assert len(records(log)) == 1
    clean(place, key)


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


@pytest.mark.parametrize("kept", [0, 20, 400])
def test_of_several_records_none_is_left_where_one_does_not_fit(
    make, place, key, monkeypatch, kept, records, clean
):
    log = make()
    log.record(ADMIT)
    write, calls = os.write, []

    def full(handle, data):
        calls.append(data)
        if len(calls) > 1 or not kept:
            raise OSError(errno.ENOSPC, "full")
        return write(handle, data[:kept])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AuditError, match="No space left"):
        log.record_all([ADMIT, REFUSE, ADMIT])
    monkeypatch.undo()
    assert len(records(log)) == 1
    log.record_all([ADMIT, REFUSE])
    assert [record.text("event") for record in records(log)] == ["admit", "admit", "refuse"]
    clean(place, key)


def test_refusals_beyond_the_burst_are_counted_among_several_too(make, records):
    log = make()
    log.record_all([REFUSE, ADMIT] * 150)
    found = [record.text("event") for record in records(log)]
    assert found.count("refuse") == 100
    assert found.count("admit") == 150


def test_a_write_of_nothing_is_a_full_disk(make, monkeypatch):
    log = make()
    monkeypatch.setattr(os, "write", lambda handle, data: 0)
    with pytest.raises(AuditError, match="No space left"):
        log.record(ADMIT)


def test_nothing_is_written_after_a_torn_record_until_it_is_taken_back(
    make, place, key, monkeypatch, records, clean, count
):
    log = make()
    log.record(ADMIT)
    write = os.write
    calls = []

    def full(handle, data):
        calls.append(data)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return write(handle, data[:20])

    def refused(*_):
        raise OSError(errno.EPERM, "append only")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(os, "ftruncate", refused)
    with pytest.raises(AuditError, match="No space left"):
        log.record(ADMIT)
    monkeypatch.setattr(os, "write", write)
    for call in (lambda: log.record(ADMIT), lambda: count(log), log.flush):
        with pytest.raises(AuditError, match="taken back"):
            call()
    report = clean(place, key)
    assert any("torn" in note for note in report.notes)
    monkeypatch.undo()
    log.record(ADMIT)
    assert len(records(log)) == 2
    assert clean(place, key).notes == ()


@pytest.mark.parametrize("short", [True, False])
def test_a_head_that_cannot_be_written_refuses_the_record(
    make, place, key, monkeypatch, short, records, clean
):
    log = make()

    def failing(handle, data, offset):
        if short:
            return 5
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "pwrite", failing)
    with pytest.raises(AuditError, match="head"):
        log.record(ADMIT)
    monkeypatch.undo()
    clean(place, key)
    log.record(ADMIT)
    assert len(records(log)) == 2  # the first was not acted on; the chain still has it
    clean(place, key)


def test_a_failed_sync_ends_the_log(make, place, key, monkeypatch, clean):
    log = make(durability="fsync")
    log.record(ADMIT)
    log.flush()

    def broken(handle):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(AuditError, match="Input/output"):
        log.record(ADMIT)
    monkeypatch.undo()
    with pytest.raises(AuditError, match="did not take"):
        log.record(ADMIT)
    clean(place, key)


def test_counts_that_cannot_be_written_are_kept(make, clock, monkeypatch, records, count):
    log = make()
    count(log)
    clock.tick(1)

    def full(handle, data):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AuditError):
        count(log)
    monkeypatch.undo()
    log.flush()
    (record,) = records(log, "counts")
    assert record.fields["counts"][0][-1] == 2  # type: ignore[index]


def test_opening_on_a_full_disk_is_refused_and_the_next_one_works(make, place, key, monkeypatch):
    make().close()
    write = os.write
    for fails_at in (1, 2):
        calls = []

        def full(handle, data, calls=calls, fails_at=fails_at):
            calls.append(data)
            if len(calls) == fails_at:
                raise OSError(errno.ENOSPC, "full")
            return write(handle, data)

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(AuditError, match="No space left"):
            make()
        monkeypatch.undo()
    make().record(ADMIT)
    report = verify(place, key=key)
    # The files of both were removed: nothing was decided there.
    assert report.ok, str(report)
    assert report.notes == ()


def test_opening_without_descriptors_is_refused(make, monkeypatch):
    make().close()
    real = os.open

    def limited(path, flags, *args, **options):
        if str(path).endswith(".head") and str(path) != "index.head":
            raise OSError(errno.EMFILE, "too many")
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", limited)
    with pytest.raises(AuditError, match="Too many open files"):
        make()


def test_a_directory_that_cannot_be_synced_is_refused(make, monkeypatch):
    def broken(handle):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(AuditError, match="cannot be synced"):
        make()


def test_an_index_removed_while_opening(make, monkeypatch, place):
    monkeypatch.setattr(log_module.Directory, "open_own", lambda self, name, **_: None)
    monkeypatch.setattr(log_module.Directory, "create_if_absent", lambda self, name, **_: None)
    with pytest.raises(AuditError, match="removed while it was opened"):
        make()


# --- exceptions in the middle of a call -----------------------------------------------------------


@pytest.mark.parametrize("present", [b"", b"the start", b"something else", b"all and more"])
def test_only_bytes_that_were_on_their_way_are_taken_back(make, monkeypatch, present):
    log = make()
    size = os.path.getsize(log.path)
    write = os.write

    def interrupted(handle, data):
        left = {b"": b"", b"the start": data[:50], b"all and more": data + data[:9]}
        write(handle, left.get(present, present))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.record(ADMIT)
    monkeypatch.undo()
    if present in {b"", b"the start"}:
        assert os.path.getsize(log.path) == size
        log.record(ADMIT)
        return
    left = Path(log.path).read_bytes()
    assert len(left) > size
    for call in (lambda: log.record(ADMIT), log.flush, log.close):
        with pytest.raises(AuditError, match="another end"):
            call()
    assert Path(log.path).read_bytes() == left


def test_an_end_that_was_cut_further_than_the_interrupted_record_stops_the_process(
    make, monkeypatch
):
    log = make()

    def interrupted(handle, data):
        os.ftruncate(handle, 10)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.record(ADMIT)
    monkeypatch.undo()
    with pytest.raises(AuditError, match="another end"):
        log.record(ADMIT)


@pytest.mark.parametrize("durability", ["kernel", "fsync"])
def test_a_record_that_was_written_before_an_exception_is_one_of_the_log(
    make, place, key, monkeypatch, records, clean, durability
):
    log = make(durability=durability)
    write = os.write

    def interrupted(handle, data):
        write(handle, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.record(ADMIT)
    monkeypatch.undo()
    assert len(records(log)) == 1
    clean(place, key)
    log.record(ADMIT)
    assert len(records(log)) == 2
    log.close()
    clean(place, key)


def test_an_interrupted_close_is_finished_by_the_next_one(make, place, key, monkeypatch, clean):
    log = make()

    def interrupted(handle, how):
        raise KeyboardInterrupt

    monkeypatch.setattr(fcntl, "flock", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.close()
    monkeypatch.undo()
    with pytest.raises(AuditError, match="closed"):
        log.record(ADMIT)
    assert (place / "index").read_bytes().count(b'"type":"close"') == 0
    log.close()
    log.close()
    assert (place / "index").read_bytes().count(b'"type":"close"') == 1
    assert clean(place, key).notes == ()


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
    with pytest.raises(AuditError, match=how) as caught:
        log.record(ADMIT)
    assert caught.value.rule == "audit.replaced"
    with pytest.raises(AuditError, match=how):
        log.record(ADMIT)


def test_a_cut_file_stops_the_process_within_64_records(make):
    log = make()
    log.record(ADMIT)
    os.truncate(log.path, 100)

    def go_on():
        for _ in range(64):
            log.record(ADMIT)

    with pytest.raises(AuditError, match="another size"):
        go_on()
