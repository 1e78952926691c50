from __future__ import annotations

import os
from pathlib import Path

import pytest

from safeser.audit import read
from safeser.audit.query import render
from safeser.audit.record import MAX_LINE, Record
from safeser.errors import AuditError

ADMIT = {"event": "admit", "sender": "bob", "permitted": True}


def test_a_directory_is_read_file_by_file(make, place: Path):
    for principal in ("bob", "alice"):
        make(principal).record(ADMIT)
    found = list(read(place))
    assert [each.type for each in found] == ["genesis", "event"] * 2
    assert [found[0].text("principal"), found[2].text("principal")] == ["alice", "bob"]


def test_a_growing_file_is_followed(make, monkeypatch):
    log = make()
    log.record(ADMIT)
    monkeypatch.chdir(Path(log.path).parent)
    grown = []

    def wait() -> bool:
        if len(grown) == 3:
            return False
        grown.append(1)
        log.record({**ADMIT, "bytes": len(grown)})
        return True

    found = list(read(Path(log.path).name, wait=wait))
    assert [each.fields.get("bytes") for each in found] == [None, None, 1, 2, 3]


def test_a_torn_line_that_its_process_takes_back_is_not_followed(make):
    log = make()
    size = os.path.getsize(log.path)
    steps = []

    def wait() -> bool:
        steps.append(len(steps))
        if len(steps) == 1:
            with open(log.path, "ab") as file:
                file.write(b'{"mac":"' + b"0" * 20)
        elif len(steps) == 2:
            os.truncate(log.path, size)
            log.record(ADMIT)
        return len(steps) < 3

    assert [each.type for each in read(log.path, wait=wait)] == ["genesis", "event"]


def test_a_disk_that_fails_is_an_error_of_the_log(make, monkeypatch):
    log = make()

    def broken(handle, size, offset):
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(AuditError, match="Input/output error"):
        list(read(log.path))


@pytest.mark.parametrize("extra", [b"\x1b[2J\n", b"x" * (MAX_LINE + 70_000), b"{}\n"])
def test_a_line_that_is_no_record_is_named(make, extra: bytes):
    log = make()
    with open(log.path, "ab") as file:
        file.write(extra)
    with pytest.raises(AuditError, match="line 2") as caught:
        list(read(log.path))
    assert all(line.isprintable() for line in str(caught.value).split("\n"))


def test_what_is_no_file_is_refused(tmp_path: Path):
    with pytest.raises(AuditError, match="no such file"):
        list(read(tmp_path / "missing.log"))
    os.mkfifo(tmp_path / "fifo.log")
    with pytest.raises(AuditError, match="regular"):
        list(read(tmp_path / "fifo.log"))


def test_lists_in_lists_are_shown():
    assert "a=[[-,2]]" in render(Record(1, 1, "event", {"a": [[None, 2]]}, b""))
