"""Retention: old files are removed, and verification says which, and where they ended."""

from __future__ import annotations

import os

import pytest

from safeser.audit import AuditFiles, read, verify
from tests.audit.upkeep.conftest import ADMIT, FULL

DAY = 86_400
KEEP = AuditFiles(rotate_size=64 << 10, compress=False, keep_age=7 * DAY)


def test_old_files_are_removed_and_named(small, place, clock, fill, tended, key, clean, logs_of):
    with small() as log:
        fill(log, 3 * FULL)
    ends = {p.name: list(read(p))[-1] for p in place.glob("*.log")}
    clock.tick(6 * DAY)
    tended(KEEP)
    assert logs_of() == sorted(ends)
    clock.tick(DAY)
    with small("bob") as log:
        log.record(ADMIT)
    tended(KEEP)
    assert [name.split("-")[0] for name in logs_of()] == ["bob"]
    report = clean(place, key)
    assert len(report.notes) == len(ends)
    for name, end in ends.items():
        (note,) = [each for each in report.notes if each.startswith(name)]
        assert f"record {end.sequence}, MAC {end.mac.hex()}" in note
        assert "removed by retention (older than 604800 s)" in note
        assert not place.joinpath(name.replace(".log", ".head")).exists()


def test_a_removal_that_retention_did_not_make_is_missing(
    small, place, fill, key, found, clock, tended
):
    with small() as log:
        fill(log, 3 * FULL)
    path = min(place.glob("*.log"))
    path.unlink()
    assert (path.name, 0, -1, "missing file") in found(verify(place, key=key))
    clock.tick(8 * DAY)
    tended(KEEP)  # it is not there: no entry hides that it was missing
    assert (path.name, 0, -1, "missing file") in found(verify(place, key=key))


def test_a_removed_file_that_is_put_back_is_verified(small, place, fill, clock, tended, key, clean):
    with small() as log:
        fill(log, 3 * FULL)
    path = min(place.glob("*.log"))
    data, head = path.read_bytes(), path.with_suffix(".head").read_bytes()
    clock.tick(8 * DAY)
    tended(KEEP)
    path.write_bytes(data)
    path.with_suffix(".head").write_bytes(head)
    assert any("interrupted while it removed" in note for note in clean(place, key).notes)
    path.write_bytes(data[:-40] + b"x" + data[-39:])
    assert not verify(place, key=key).ok
    tended(KEEP)
    assert not path.exists()
    clean(place, key)


def test_a_process_that_lives_keeps_its_file_and_a_dead_one_does_not(
    small, place, clock, fill, tended, key, clean, logs_of
):
    alive, dead = small("alive"), small("dead")
    fill(alive, 50)
    fill(dead, 50)
    end = dead._present[1].end
    dead._present[1].close()
    old = clock() / 1e9
    for name in logs_of():
        os.utime(place / name, (old, old))
    clock.tick(8 * DAY)
    tended(KEEP)
    assert [name.split("-")[0] for name in logs_of()] == ["alive"]
    (note,) = clean(place, key).notes
    assert f"record {end.count - 1}, MAC {end.mac.hex()}" in note


def test_a_name_that_is_none_of_a_log_is_never_removed(small, place, key, clock, tended, tmp_path):
    """A holder of the key may write any name into the index."""
    from safeser.audit import index
    from safeser.audit.files import Directory

    with small() as log:
        log.record(ADMIT)
    victim = tmp_path / "victim-20260101T000000Z-0123.log"
    victim.write_bytes(b"x" * 100)
    directory = Directory(place, create=False)

    def register(entries: index.Entries) -> None:
        for n, name in enumerate(("../" + victim.name, "index", "notes.txt")):
            file = f"{n:032x}"
            entries.add({"type": "open", "time": 1, "file": file, "name": name, "genesis": "00"})
            entries.add({"type": "close", "time": 1, "file": file, "count": 1, "mac": "00"})
            removed = {"count": 1, "mac": "00", "why": "older than 0 s"}
            entries.add({"type": "remove", "time": 1, "file": file, **removed})

    index.update(directory, key, now=1, write=register)
    directory.close()
    (place / "notes.txt").write_text("mine")
    clock.tick(8 * DAY)
    tended(KEEP)
    assert victim.exists()
    assert (place / "notes.txt").exists()
    assert (place / "index").exists()


@pytest.mark.parametrize("change", ["count", "mac"])
def test_a_head_that_was_kept_is_compared_with_what_was_removed(
    small, place, fill, clock, tended, key, change
):
    with small() as log:
        fill(log, 3 * FULL)
        head = log.head()
    file = next(e.text("file") for e in read(log.path))
    clock.tick(8 * DAY)
    tended(KEEP)
    directory, *ends = head.split()[1:]
    sequence, mac = next(e for e in ends if e.startswith(file)).split("=")[1].split(":")
    last = int(sequence) + 1  # the closing record
    forged = f"{last + 5}:{mac}" if change == "count" else f"{last}:{'0' * 64}"
    report = verify(place, key=key, expect=f"safeser-audit-head-v1 {directory} {file}={forged}")
    assert [problem.kind for problem in report.problems] == ["rolled back"]


def test_many_removed_files_are_counted(small, place, fill, clock, tended, key, clean):
    for _ in range(25):
        with small() as log:
            log.record(ADMIT)
    clock.tick(8 * DAY)
    tended(KEEP)
    report = clean(place, key)
    assert len(report.notes) == 21
    assert report.notes[-1] == "5 more files were removed by retention"


@pytest.mark.parametrize("registered", [True, False])
def test_a_sparse_file_pushes_no_other_out(
    small, place, fill, tended, key, clock, logs_of, registered
):
    for principal in ("first", "second", "third"):
        with small(principal) as log:
            fill(log, 100)
        clock.tick(10)
    if registered:
        os.truncate(next(place.glob("third-*.log")), 1 << 40)
    else:
        name = f"fourth-20261127T000000Z-{'0' * 32}.log"
        (place / name).touch()
        os.truncate(place / name, 1 << 40)
    before = logs_of()
    tended(AuditFiles(rotate_size=64 << 10, compress=False, keep_size=1 << 20))
    assert logs_of() == before
    assert verify(place, key=key).ok is not registered


@pytest.mark.parametrize("compress", [False, True])
def test_a_changed_file_is_not_removed(small, place, fill, tended, key, clock, caplog, compress):
    with small() as log:
        fill(log, 3 * FULL)
    if compress:
        tended(AuditFiles(rotate_size=64 << 10))
    path = min([*place.glob("*.log"), *place.glob("*.log.gz")])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    clock.tick(8 * DAY)
    tended(KEEP)
    assert path.exists()
    assert "is not what was written, so it is not removed" in caplog.text
    assert not verify(place, key=key).ok


def test_the_time_of_a_dead_processes_file_is_that_of_its_last_record(
    small, place, fill, tended, clock, logs_of
):
    dead = small("dead")
    clock.tick(8 * DAY)
    fill(dead, 50)
    dead._present[1].close()
    for name in logs_of():
        os.utime(place / name, (0, 0))
    tended(KEEP)
    assert len(logs_of()) == 1
    clock.tick(8 * DAY)
    tended(KEEP)
    assert logs_of() == []


def test_one_file_that_cannot_be_compressed_keeps_no_other(
    small, place, fill, tended, clock, logs_of, caplog
):
    with small() as log:
        fill(log, 3 * FULL)
    first = min(place.glob("*.log"))
    (place / f"{first.name}.gz.part").mkdir()
    clock.tick(8 * DAY)
    tended(AuditFiles(rotate_size=64 << 10, keep_age=7 * DAY))
    assert f"{first.name} is not compressed" in caplog.text
    assert [name for name in logs_of() if not name.startswith(first.name)] == []


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_file_keeps_no_other(
    small, place, fill, tended, clock, logs_of, caplog, tmp_path, kind
):
    dead = small("dead")
    fill(dead, 5)
    dead._present[1].close()
    (path,) = place.glob("dead-*.log")
    path.rename(tmp_path / "away")
    if kind == "link":
        path.symlink_to(tmp_path / "away")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with small() as log:
        fill(log, 5)
    clock.tick(8 * DAY)
    tended(KEEP)
    assert f"{path.name} is not removed" in caplog.text
    assert logs_of() == [path.name]
    assert (tmp_path / "away").exists()
