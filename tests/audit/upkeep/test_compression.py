"""Compressed files: read like others, verified before they are unpacked, bounded."""

from __future__ import annotations

import fcntl
import gzip
import os
import zlib
from pathlib import Path

import pytest

from safeser.audit import AuditFiles, read, verify
from safeser.audit import compressed as compressed_module
from safeser.audit.files import Directory
from safeser.audit.reading.search import Question, follow, search
from safeser.errors import AuditError
from tests.audit.upkeep.conftest import FULL

COMPRESS = AuditFiles(rotate_size=64 << 10)


@pytest.fixture
def packed(small, place, fill, tended):
    """Give the directory of a closed log whose large files are compressed."""
    with small() as log:
        fill(log, 3 * FULL)
    before = [each.fields for each in read(place)]
    tended(COMPRESS)
    assert list(place.glob("*.log.gz"))
    return place, before


def test_verification_and_readers_take_both(packed, key, clean):
    place, before = packed
    report = clean(place, key)
    assert report.notes == ()
    assert report.records > 600
    assert [each.fields for each in read(place)] == before
    found = search([place], Question(everything=True), skipped=pytest.fail)
    assert sum(1 for each in found if each.record.type == "event") == 3 * FULL
    for path in place.glob("*.log.gz"):
        assert verify(path, key=key).ok
        assert gzip.decompress(path.read_bytes()).startswith(b'{"mac":"')
        assert sum(1 for _ in read(path)) > 100
        assert path.stat().st_size < 64 << 10


def test_each_changed_byte_is_found(packed, key):
    place, _ = packed
    path = min(place.glob("*.log.gz"))
    data = path.read_bytes()
    for at in [*range(24), len(data) // 2, *range(len(data) - 12, len(data))]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        (problem,) = verify(place, key=key).problems
        assert problem.kind == "changed file"
    for changed in (
        b"",
        data[:-1],
        data + b"\0",
        data + data,
        gzip.compress(gzip.decompress(data)),
    ):
        if changed != data:
            path.write_bytes(changed)
            assert not verify(place, key=key).ok


def test_a_file_that_was_compressed_by_another_is_not_unpacked(
    small, place, fill, key, monkeypatch
):
    with small() as log:
        fill(log, 3 * FULL)
    path = min(place.glob("*.log"))
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    report = verify(place, key=key)
    assert report.ok  # the plain file is read
    assert any("the plain file is there" in note for note in report.notes)
    path.unlink()
    (problem,) = verify(place, key=key).problems
    assert (problem.kind, "not unpacked" in problem.text) == ("changed file", True)


def bomb(line: bytes) -> bytes:
    deflate = zlib.compressobj(9, wbits=31)
    return b"".join(deflate.compress(line) for _ in range(30_000)) + deflate.flush()


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\x1f\x8b", b"plain", gzip.compress(b"x", mtime=0) + b"y", bomb(b"\0" * 1_000)),
        bomb(b'{"mac":"' + b"0" * 64 + b'","record":{"seq":0,"time":1}}\n'),
    ],
    ids=lambda data: repr(data[:9]) + str(len(data)),
)
def test_what_is_not_compressed_by_the_log_is_named(tmp_path, monkeypatch, key, data):
    monkeypatch.setattr(compressed_module, "MAX_PLAIN", 1 << 20)
    (tmp_path / "a.log.gz").write_bytes(data)
    skipped: list[str] = []
    list(search([tmp_path], Question(), skipped=lambda _, why: skipped.append(why)))
    assert skipped
    with pytest.raises(AuditError):
        list(read(tmp_path / "a.log.gz"))
    assert not verify(tmp_path / "a.log.gz", key=key).ok


def test_following_goes_on_in_a_file_that_is_compressed_meanwhile(small, place, fill, tended):
    log = small()
    fill(log, 100)
    parts = follow([place], Question(), skipped=pytest.fail, wait=lambda: True)
    seen = [each.record.number("bytes") for each in next(parts)]
    fill(log, 1_100, start=100)
    log.close()
    tended(COMPRESS)
    seen += [each.record.number("bytes") for each in next(parts)]
    assert sorted(seen) == list(range(3 * FULL))
    assert list(next(parts)) == []


def test_a_file_that_a_process_writes_is_left(small, place, fill, tended, key, clean):
    log = small(files=AuditFiles(compress=False))
    fill(log, 3 * FULL)
    tended(COMPRESS)
    assert not list(place.glob("*.gz"))
    fill(log, 50, start=3 * FULL)
    log._present[1].close()  # as the end of its process does
    tended(COMPRESS)
    assert len(list(place.glob("*.gz"))) == 1
    assert clean(place, key).records > 650


def test_a_file_that_another_process_compresses_is_left(small, place, fill, tended):
    with small() as log:
        fill(log, 3 * FULL)
    held = [path.open("rb") for path in place.glob("*.log")]
    for each in held:
        fcntl.flock(each, fcntl.LOCK_EX)
    tended(COMPRESS)
    assert not list(place.glob("*.gz"))
    for each in held:
        each.close()
    tended(COMPRESS)
    assert list(place.glob("*.gz"))


def test_an_index_that_was_changed_compresses_and_removes_nothing(small, place, fill, tended, edit):
    with small() as log:
        fill(log, 3 * FULL)
    edit(
        place / "index", lambda lines: [lines[0], lines[1].replace(b"alice", b"malic"), *lines[2:]]
    )
    before = sorted(p.name for p in place.iterdir())
    with pytest.raises(AuditError, match="index was changed"):
        tended(AuditFiles(rotate_size=64 << 10, keep_age=1))
    assert sorted(p.name for p in place.iterdir()) == before


def test_a_full_disk_leaves_the_plain_file(
    small, place, fill, tended, monkeypatch, key, clean, caplog
):
    with small() as log:
        fill(log, 3 * FULL)
    real = os.write

    def full(handle: int, data: bytes) -> int:
        if data[:2] == b"\x1f\x8b" or not data.startswith(b'{"mac"'):
            raise OSError(28, "No space left on device")
        return real(handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        tended(COMPRESS)
    closed = len(list(place.glob("*.log"))) - 1
    assert closed > 1
    assert caplog.text.count("is not compressed: a record cannot be written (No space") >= closed
    assert not list(place.glob("*.gz*"))
    assert clean(place, key).notes == ()


def test_the_thread_of_a_log_compresses_what_it_closed(make, place, fill, key, clean):
    with make("alice", files=COMPRESS) as log:
        fill(log, 3 * FULL)
        keeper = log._keeper
        assert keeper is not None
        directory = Directory(place, create=False)
        try:
            keeper._tidy()  # beside its thread: both see the locks of files
        finally:
            directory.close()
    assert list(Path(place).glob("*.log.gz"))
    clean(place, key)
