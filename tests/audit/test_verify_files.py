"""Files and indexes that are missing, swapped, foreign or cut, and what verification names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from safeser.audit import AuditLog, verify
from safeser.audit import index as index_module
from safeser.audit import record as records
from safeser.audit.chain import ZERO
from safeser.errors import AuditError

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True, "bytes": 5}


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_missing_file_is_found(logs, place, key, which, found):
    logs[which].unlink()
    report = verify(place, key=key)
    assert (logs[which].name, 0, -1, "missing file") in found(report)
    logs[which].with_suffix(".head").unlink()
    assert found(verify(place, key=key)) == [(logs[which].name, 0, -1, "missing file")]


def test_swapped_files_are_found(logs, place, key, found):
    one, two = logs[1], logs[2]
    for suffix in (".log", ".head"):
        a, b = one.with_suffix(suffix), two.with_suffix(suffix)
        content = a.read_bytes()
        a.write_bytes(b.read_bytes())
        b.write_bytes(content)
    kinds = found(verify(place, key=key))
    assert (one.name, 1, 0, "swapped file") in kinds
    assert (two.name, 1, 0, "swapped file") in kinds


def test_a_copied_and_a_renamed_file_are_found(logs, place, key):
    shutil.copy(logs[1], place / "eve-1.log")
    (problem,) = verify(place, key=key).problems
    assert (problem.file, problem.kind) == ("eve-1.log", "unregistered file")
    assert logs[1].name in problem.text
    logs[1].unlink()
    assert "missing file" in {each.kind for each in verify(place, key=key).problems}


def test_one_file_in_the_place_of_another_is_found(logs, key):
    """By its name, and under any name by the head of that file or of its folder."""
    heads = [verify(path, key=key).head for path in logs[:2]]
    for old, new in (
        (logs[0], logs[1]),
        (logs[0].with_suffix(".head"), logs[1].with_suffix(".head")),
    ):
        shutil.copy(old, new)
    (problem,) = verify(logs[1], key=key).problems
    assert problem.kind == "swapped file"
    moved = logs[1].rename(logs[1].with_name("evidence.log"))
    logs[1].with_suffix(".head").rename(moved.with_suffix(".head"))
    assert verify(moved, key=key).ok
    assert verify(moved, key=key, expect=heads[0]).ok
    (problem,) = verify(moved, key=key, expect=heads[1]).problems
    assert problem.kind == "rolled back"


def test_a_file_of_another_directory_with_the_same_key_is_found(
    logs, place, key, tmp_path, clock, found
):
    other = tmp_path / "other"
    with AuditLog.open(other, key=key, principal="eve", clock=clock) as log:
        log.record(ADMIT)
    assert verify(other, key=key).ok
    (source,) = other.glob("*.log")
    shutil.copy(source, place)
    (problem,) = verify(place, key=key).problems
    assert (problem.file, problem.kind) == (source.name, "unregistered file")
    assert "another directory" in problem.text
    # Put in the place of a registered file:
    (place / source.name).unlink()
    shutil.copy(source, logs[1])
    assert found(verify(place, key=key)) == [(logs[1].name, 1, 0, "swapped file")]


@pytest.mark.parametrize("content", [b"hello\n", b'{"mac":"' + b"0" * 300_000, b"\0" * 100_000])
def test_a_foreign_file_is_found(logs, place, key, content, found):
    (place / "x.log").write_bytes(content)
    report = verify(place, key=key)
    assert found(report) == [("x.log", 0, -1, "unregistered file")] or content[0] == 0


def test_a_foreign_file_with_a_foreign_record_is_found(logs, place, key):
    body = records.encode(
        {"seq": 0, "time": 1, "type": "genesis", "directory": "0" * 32, "file": "1" * 32}
    )
    (place / "x.log").write_bytes(records.line(ZERO, body))
    (problem,) = verify(place, key=key).problems
    assert "nothing in it verifies" in problem.text


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_file_is_found_and_not_followed_or_waited_for(logs, place, key, kind, found):
    path = logs[1]
    path.rename(place.parent / "kept")
    if kind == "link":
        path.symlink_to(place.parent / "kept")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert (path.name, 0, -1, "unreadable file") in found(verify(place, key=key))
    assert not verify(path, key=key).ok
    extra = place / "x.log"
    os.mkfifo(extra)
    assert ("x.log", 0, -1, "unreadable file") in found(verify(place, key=key))


def test_other_files_are_mentioned_safely(logs, place, key):
    (place / "a\n\x1b[2J\u202e").write_text("")
    report = verify(place, key=key)
    assert report.ok
    assert (
        str(report).splitlines()[1] == "note: a??[2J? does not belong to the log and was not read"
    )


# --- the index ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["index", "index.head"])
def test_a_missing_index_is_found(logs, place, key, name, found):
    (place / name).unlink()
    report = verify(place, key=key)
    kind = "missing index" if name == "index" else "missing head"
    assert found(report)[0] == (name, 0, -1, kind)
    with pytest.raises(AuditError) as caught:
        AuditLog.open(place, key=key, principal="dora")
    assert caught.value.rule == "audit.tampered"


def test_an_emptied_and_a_missing_directory_are_found(logs, place, key, found):
    for each in place.iterdir():
        each.unlink()
    assert found(verify(place, key=key)) == [("index", 0, -1, "missing index")]
    place.rmdir()
    report = verify(place, key=key)
    assert [each.kind for each in report.problems] == ["missing directory"] or [
        each.kind for each in report.problems
    ] == ["missing file"]
    report = verify(place / "below", key=key)
    assert [each.kind for each in report.problems] == ["missing directory"]


def test_a_deleted_tail_of_the_index_is_found(logs, place, key, found, edit):
    edit(place / "index", lambda lines: lines[:-1])
    report = verify(place, key=key)
    assert found(report)[0] == ("index", 5, 4, "index changed")
    assert "missing tail" in report.problems[0].text
    assert (logs[2].name, 0, -1, "unregistered file") in found(report)
    with pytest.raises(AuditError, match="end of its index"):
        AuditLog.open(place, key=key, principal="dora")


def test_a_changed_index_is_found_and_not_continued(logs, place, key, found):
    good = (place / "index").read_bytes()
    for offset in (3, 20, 90, 400, 700, len(good) - 1):
        (place / "index").write_bytes(
            good[:offset] + bytes([good[offset] ^ 1]) + good[offset + 1 :]
        )
        report = verify(place, key=key)
        line = good[:offset].count(b"\n") + 1
        assert ("index", line) == found(report)[0][:2]
        assert report.problems[0].kind == "index changed"
    (place / "index").write_bytes(b"x" * 300)
    with pytest.raises(AuditError, match="tampered"):
        AuditLog.open(place, key=key, principal="dora")
    assert found(verify(place, key=key))[0] == ("index", 1, 0, "index changed")


def test_an_index_put_back_together_with_its_head_is_found_by_the_files(make, place, key):
    make("alice").close()
    old = {name: (place / name).read_bytes() for name in ("index", "index.head")}
    log = make("bob")
    log.record(ADMIT)
    for name, content in old.items():
        (place / name).write_bytes(content)
    (problem,) = verify(place, key=key).problems
    assert (problem.file, problem.kind) == (Path(log.path).name, "unregistered file")
    assert "older state" in problem.text


def test_a_file_begun_after_an_index_that_is_no_more_is_found(make, place, key):
    make("alice").close()
    old = {name: (place / name).read_bytes() for name in ("index", "index.head")}
    make("bob").record(ADMIT)
    for name, content in old.items():
        (place / name).write_bytes(content)
    make("carol").close()  # the process goes on after an index that was put back
    report = verify(place, key=key)
    assert [each.kind for each in report.problems] == ["unregistered file"]


@pytest.mark.parametrize("name", ["index", "index.head"])
def test_an_index_that_is_no_file_is_found(logs, place, key, name, found):
    (place / name).unlink()
    (place / name).mkdir()
    assert (name, 0) == found(verify(place, key=key))[0][:2]


def test_an_index_head_with_more_or_less_is_not_continued(logs, place, key):
    head = place / "index.head"
    good = head.read_bytes()
    for content in (good[:-1], good + b"x", good.replace(b"0", b"1", 1)):
        head.write_bytes(content)
        with pytest.raises(AuditError, match="head of its index"):
            AuditLog.open(place, key=key, principal="dora")
    head.write_bytes(b"")
    with pytest.raises(AuditError, match="removed"):
        AuditLog.open(place, key=key, principal="dora")


def test_a_folder_of_other_logs_is_not_taken_for_an_audit_log(tmp_path, key):
    (tmp_path / "scheduler.log").write_text("INFO - State start")
    with pytest.raises(AuditError, match="no index of safeser's") as caught:
        AuditLog.open(tmp_path, key=key, principal="dora")
    assert caught.value.rule == "audit.tampered"
    assert "use a directory for audit logs alone" in str(caught.value)


@pytest.mark.parametrize("extra", [b'{"mac":"00', b"\0" * 4096, b'{"mac":"0' + b"\0" * 9])
def test_a_torn_index_is_mended(logs, make, place, key, extra):
    with (place / "index").open("ab") as file:
        file.write(extra)
    report = verify(place, key=key)
    assert report.ok
    assert report.notes
    make("dora").close()
    report = verify(place, key=key)
    assert (report.ok, report.notes) == (True, ())


@pytest.mark.parametrize("extra", [b"x", b"{}\n", b"\n", b"x" * 300_000])
def test_an_index_with_other_bytes_after_its_end_is_not_continued(logs, place, key, extra):
    with (place / "index").open("ab") as file:
        file.write(extra)
    assert not verify(place, key=key).ok
    with pytest.raises(AuditError, match="tampered"):
        AuditLog.open(place, key=key, principal="dora")


def test_an_index_ahead_of_its_head_is_continued(logs, make, place, key):
    head = (place / "index.head").read_bytes()
    make("dora")
    (place / "index.head").write_bytes(head)  # killed between the record and its head
    assert verify(place, key=key).ok
    make("emil").close()
    assert verify(place, key=key).ok


@pytest.mark.parametrize("left", [b"", "genesis"])
def test_a_kill_while_the_index_was_made_is_mended(make, place, key, left):
    make("alice").close()
    genesis = (place / "index").read_bytes().splitlines(keepends=True)[0]
    for each in place.iterdir():
        each.unlink()
    (place / "index").write_bytes(genesis if left == "genesis" else left)
    (place / "index.head").write_bytes(b"")
    make("alice").close()
    assert verify(place, key=key).ok


def test_a_held_lock_does_not_keep_anybody_from_verifying(logs, place, key, monkeypatch):
    def held(*_, **__):
        raise AuditError("another process holds the index of the log")

    monkeypatch.setattr(index_module, "lock", held)
    report = verify(place, key=key)
    assert report.ok
    assert "another process holds" in report.notes[0]


def test_a_wrong_key_says_so(logs, place):
    report = verify(place, key=b"x" * 32)
    assert not report.ok
    assert "this is not the key of this log" in report.problems[0].text
    assert not verify(logs[0], key=b"x" * 32).ok
    assert report.head == ""


def test_several_processes_find_what_one_finds(logs, place, key, edit):
    edit(logs[0], lambda lines: [*lines[:3], *lines[4:]])
    edit(logs[2], lambda lines: lines[:-1])
    alone = verify(place, key=key)
    assert len(alone.problems) == 2
    seen: list[tuple[int, int]] = []
    together = verify(place, key=key, processes=3, progress=lambda *at: seen.append(at))
    assert together == alone
    assert together.head == alone.head
    assert seen == [(0, 3), (1, 3), (2, 3)]
