"""Each way to tamper with a log, and the place that verification must name."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safeser.audit import AuditKey, AuditLog, Report, verify
from safeser.audit import index as index_module
from safeser.audit import record as records
from safeser.audit import scan as scan_module
from safeser.audit.chain import ZERO, file_keys, step
from safeser.audit.files import ChainFile, Directory
from safeser.audit.report import Expected, limited
from safeser.errors import AuditError, ConfigError

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True, "bytes": 5}


def found(report: Report) -> list[tuple[str, int, int, str]]:
    return [(each.file, each.line, each.sequence, each.kind) for each in report.problems]


@pytest.fixture
def logs(make, place: Path):
    """Three files: one closed, one killed, one of a process that still runs."""

    def written(principal: str, *, close: bool = False) -> Path:
        log = make(principal)
        for n in range(6):
            log.record({**ADMIT, "bytes": n})
        if close:
            log.close()
        return Path(log.path)

    return written("alice", close=True), written("bob"), written("carol")


def edit(path: Path, change) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(lines)))


def test_a_log_that_nobody_touched_verifies(logs, place, key):
    report = verify(place, key=key)
    assert report.ok
    assert (report.files, report.notes) == (3, ())
    assert report.records == (6 + 2) + 7 + 7 + 5
    assert report.first == report.last
    assert str(report) == "27 records in 3 files verified, no problem found"
    with pytest.raises(TypeError, match="truth value"):
        bool(report)


# --- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("number", [1, 3, 6])
@pytest.mark.parametrize("part", ["mac", "body", "sequence", "shape"])
def test_a_changed_byte_is_found_in_its_line(logs, place, key, which, number, part):
    path = logs[which]

    def change(lines):
        line = lines[number - 1]
        old, new = {
            "mac": (line[8:72], line[8:71] + (b"1" if line[71:72] != b"1" else b"2")),
            "body": (b'"policy":"production', b'"policy":"productioN'),
            "sequence": (b'"seq":%d' % (number - 1), b'"seq":%d' % (number + 2)),
            "shape": (b'"record":', b'"recorD":'),
        }[part]
        assert line.count(old) == 1
        lines[number - 1] = line.replace(old, new)
        return lines

    edit(path, change)
    report = verify(place, key=key)
    assert found(report) == [(path.name, number, number - 1, "changed record")]
    assert f"record {number - 1} (line {number})" in report.problems[0].text
    assert found(verify(path, key=key)) == found(report) or number == 1


@pytest.mark.parametrize("which", [0, 1])
def test_every_byte_of_a_directory_is_covered(logs, place, key, which):
    names = [logs[which].name, logs[which].with_suffix(".head").name, "index", "index.head"]
    for name in names:
        path = place / name
        good = path.read_bytes()
        for offset in range(len(good)):
            if len(good) > 800 and offset % 7:
                continue
            path.write_bytes(good[:offset] + bytes([good[offset] ^ 1]) + good[offset + 1 :])
            report = verify(place, key=key)
            assert not report.ok, (name, offset)
            assert name in {each.file for each in report.problems}, (name, offset)
            if name == logs[which].name:
                assert report.problems[0].line == good[:offset].count(b"\n") + 1
        path.write_bytes(good)
    assert verify(place, key=key).ok


@pytest.mark.parametrize("secret", [b"x" * 32, bytes(32)])
def test_a_chain_written_anew_without_the_key_is_found_where_it_begins(logs, place, key, secret):
    path = logs[1]
    # The attacker knows everything but the key.
    genesis = records.parse(path.read_bytes().splitlines()[0])
    keys = file_keys(
        AuditKey(secret), directory=genesis.text("directory"), file=genesis.text("file")
    )

    def rewrite(lines):
        kept, previous = lines[:3], records.parse(lines[2][:-1]).mac
        for number in range(3, 7):
            body = records.split(lines[number][:-1])[1].replace(b"bob", b"eve")
            previous = step(keys.chain, previous, number, body)
            kept.append(records.line(previous, body))
        return kept

    edit(path, rewrite)
    report = verify(place, key=key)
    assert found(report) == [(path.name, 4, 3, "broken chain")]
    assert "records 3 to 6 (lines 4 to 7, up to the end)" in report.problems[0].text


def test_a_file_written_anew_from_its_genesis_is_found(logs, place, key):
    path = logs[0]
    keys = file_keys(AuditKey(bytes(32)), directory="0" * 32, file="0" * 32)

    def rewrite(lines):
        previous, kept = ZERO, []
        for number, line in enumerate(lines):
            body = records.split(line[:-1])[1]
            previous = step(keys.chain, previous, number, body)
            kept.append(records.line(previous, body))
        return kept

    edit(path, rewrite)
    assert found(verify(place, key=key)) == [(path.name, 1, 0, "broken chain")]
    assert found(verify(path, key=key)) == [(path.name, 1, 0, "broken chain")]


@pytest.mark.parametrize(
    ("change", "line", "sequence", "kind", "text"),
    [
        (lambda x: x[:3] + x[4:], 4, 3, "missing records", "record 3 missing before line 4"),
        (lambda x: x[:2] + x[5:], 3, 2, "missing records", "records 2 to 4 missing"),
        (lambda x: [*x[:3], x[2], *x[3:]], 4, 3, "inserted record", "line 4 is not what"),
        (lambda x: x[:3] + [b"{}\n"] * 2 + x[3:], 4, 3, "inserted record", "lines 4 to 5"),
        (lambda x: [b"\n", *x], 1, 0, "inserted record", "line 1 is not what"),
        (lambda x: [*x[:2], x[3], x[2], *x[4:]], 3, 2, "inserted record", "moved"),
        (lambda x: [*x[:2], x[4], x[3], x[2], *x[5:]], 3, 2, "inserted record", "lines 3 to 4"),
        (lambda x: [*x[:2], b"\n", b"x\n", *x[4:]], 3, 2, "missing tail", ""),
        (lambda x: [*x[:3], x[3].rstrip() + b"\r\n", *x[4:]], 4, 3, "changed record", ""),
        (lambda x: [*x[:3], b"x" * 200000 + b"\n", *x[3:]], 4, 3, "inserted record", ""),
    ],
)
def test_records_taken_out_put_in_or_moved(logs, place, key, change, line, sequence, kind, text):
    path = logs[1]
    edit(path, change)
    report = verify(place, key=key)
    assert not report.ok
    first = report.problems[0]
    if kind == "missing tail":  # two lines whose MACs are lost: nothing after them can be placed
        assert (first.line, first.sequence, first.kind) == (3, 2, "broken chain")
        return
    assert (first.file, first.line, first.sequence, first.kind) == (path.name, line, sequence, kind)
    assert text in first.text
    moved = "moved" in first.text and len(path.read_bytes().splitlines()) == 7
    assert [each.kind for each in report.problems[1:]] == ["missing records"] * moved


def test_two_changes_are_two_problems(logs, place, key):
    edit(logs[1], lambda x: [line.replace(b'"bytes":1', b'"bytes":7') for line in x])
    edit(logs[2], lambda x: [line.replace(b'"bytes":3', b'"bytes":7') for line in x])
    kinds = {(each.file, each.line, each.kind) for each in verify(place, key=key).problems}
    assert kinds == {
        (logs[1].name, 3, "changed record"),
        (logs[2].name, 5, "changed record"),
    }


# --- tails ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("kept", [1, 3, 6])
def test_a_deleted_tail_is_found(logs, place, key, which, kept):
    path = logs[which]
    edit(path, lambda lines: lines[:kept])
    report = verify(place, key=key)
    assert found(report) == [(path.name, kept + 1, kept, "missing tail")]
    assert "missing from the end" in report.problems[0].text
    assert found(verify(path, key=key)) == found(report)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("cut", [1, 30, 150])
def test_a_tail_cut_in_the_middle_of_a_line_is_found(logs, place, key, which, cut):
    path = logs[which]
    count = path.read_bytes().count(b"\n")
    os.truncate(path, path.stat().st_size - cut)
    (problem, *_) = verify(place, key=key).problems
    assert (problem.line, problem.kind) == (count, "missing tail")


@pytest.mark.parametrize("which", [0, 1])
def test_an_emptied_file_is_found(logs, place, key, which):
    logs[which].write_bytes(b"")
    report = verify(place, key=key)
    assert found(report) == [(logs[which].name, 1, 0, "missing tail")]


def test_a_deleted_tail_is_found_when_the_head_is_deleted_too(logs, place, key):
    edit(logs[1], lambda lines: lines[:3])
    logs[1].with_suffix(".head").unlink()
    report = verify(place, key=key)
    assert found(report) == [(logs[1].with_suffix(".head").name, 0, -1, "missing head")]
    assert not verify(logs[1], key=key).ok


def test_a_closed_file_keeps_its_end_without_its_head(logs, place, key):
    edit(logs[0], lambda lines: lines[:3])
    logs[0].with_suffix(".head").unlink()
    assert "missing tail" in {each.kind for each in verify(place, key=key).problems}


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 1000])
def test_a_changed_head_is_found(logs, place, key, content):
    head = logs[1].with_suffix(".head")
    head.write_bytes(content)
    assert found(verify(place, key=key)) == [(head.name, 1, -1, "changed head")]


def test_the_head_of_another_file_is_found(logs, place, key):
    head = logs[1].with_suffix(".head")
    head.write_bytes(logs[2].with_suffix(".head").read_bytes())
    assert found(verify(place, key=key)) == [(head.name, 1, -1, "changed head")]


def test_a_head_that_is_no_file_is_found(logs, place, key):
    head = logs[1].with_suffix(".head")
    head.unlink()
    head.mkdir()
    assert found(verify(place, key=key)) == [(head.name, 0, -1, "changed head")]


@pytest.mark.parametrize("extra", [b"x", b'{"mac":"zz', b"{}\n", b"\x1b[2J\n", b"\0" * 5 + b"x"])
@pytest.mark.parametrize("which", [0, 1])
def test_bytes_after_the_end_are_found(logs, place, key, which, extra):
    path = logs[which]
    count = path.read_bytes().count(b"\n")
    with path.open("ab") as file:
        file.write(extra)
    report = verify(place, key=key)
    assert (path.name, count + 1) == found(report)[0][:2]
    assert "\x1b" not in str(report)


def test_a_torn_line_after_a_kill_is_no_problem_and_after_a_close_is_one(logs, place, key):
    for path in logs[:2]:
        with path.open("ab") as file:
            file.write(b'{"mac":"00')
    report = verify(place, key=key)
    assert [each.kind for each in report.problems] == ["after close"]
    assert report.notes == (f"{logs[1].name}: a kill left a torn last line, which says nothing",)
    assert verify(logs[1], key=key).notes


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_missing_file_is_found(logs, place, key, which):
    logs[which].unlink()
    report = verify(place, key=key)
    assert (logs[which].name, 0, -1, "missing file") in found(report)
    logs[which].with_suffix(".head").unlink()
    assert found(verify(place, key=key)) == [(logs[which].name, 0, -1, "missing file")]


def test_swapped_files_are_found(logs, place, key):
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


def test_a_file_of_another_directory_with_the_same_key_is_found(logs, place, key, tmp_path, clock):
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
def test_a_foreign_file_is_found(logs, place, key, content):
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
def test_what_is_no_file_is_found_and_not_followed_or_waited_for(logs, place, key, kind):
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
def test_a_missing_index_is_found(logs, place, key, name):
    (place / name).unlink()
    report = verify(place, key=key)
    kind = "missing index" if name == "index" else "missing head"
    assert found(report)[0] == (name, 0, -1, kind)
    with pytest.raises(AuditError) as caught:
        AuditLog.open(place, key=key, principal="dora")
    assert caught.value.rule == "audit.tampered"


def test_an_emptied_and_a_missing_directory_are_found(logs, place, key):
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


def test_a_deleted_tail_of_the_index_is_found(logs, place, key):
    edit(place / "index", lambda lines: lines[:-1])
    report = verify(place, key=key)
    assert found(report)[0] == ("index", 5, 4, "index changed")
    assert "missing tail" in report.problems[0].text
    assert (logs[2].name, 0, -1, "unregistered file") in found(report)
    with pytest.raises(AuditError, match="end of its index"):
        AuditLog.open(place, key=key, principal="dora")


def test_a_changed_index_is_found_and_not_continued(logs, place, key):
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
def test_an_index_that_is_no_file_is_found(logs, place, key, name):
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


@pytest.mark.parametrize("left", [b"", b'{"mac":"0', "genesis"])
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


# --- one file -------------------------------------------------------------------------------------


def test_one_file_alone_verifies(logs, key, monkeypatch):
    for path in logs:
        report = verify(path, key=key)
        assert report.ok, str(report)
        assert report.files == 1
    monkeypatch.chdir(logs[0].parent)
    assert verify(logs[0].name, key=key).ok


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 100_000, b"{}\n"])
def test_one_file_that_is_none(place, key, content, tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(content)
    assert found(verify(path, key=key)) == [("x.log", 1, 0, "changed record")]
    assert found(verify(tmp_path / "y.log", key=key)) == [("y.log", 0, -1, "missing file")]


# --- what only a head that was kept elsewhere shows -----------------------------------------------


def test_a_directory_put_back_to_an_older_state_is_found_by_its_expected_head(
    make, place, key, tmp_path
):
    log = make("alice")
    log.record(ADMIT)
    old = tmp_path / "old"
    shutil.copytree(place, old)
    early = verify(place, key=key).head
    log.record(ADMIT)
    make("bob").record(ADMIT)
    late = verify(place, key=key).head
    assert verify(place, key=key, expect=early).ok
    assert verify(place, key=key, expect=late).ok
    shutil.rmtree(place)
    shutil.copytree(old, place)
    assert verify(place, key=key).ok  # nothing in the directory can show it
    report = verify(place, key=key, expect=late)
    assert not report.ok
    kinds = [(each.file, each.kind) for each in report.problems]
    assert ("index", "index changed") in kinds or ("index", "rolled back") in kinds
    assert (Path(log.path).name, "missing tail") in kinds


def test_another_log_is_not_the_expected_one(make, place, key, tmp_path, clock):
    make("alice").record(ADMIT)
    expect = verify(place, key=key).head
    other = tmp_path / "other"
    AuditLog.open(other, key=key, principal="alice", clock=clock).close()
    report = verify(other, key=key, expect=expect)
    assert {each.kind for each in report.problems} == {"rolled back"}


def test_a_file_closed_since_is_as_expected(make, place, key):
    log = make("alice")
    log.record(ADMIT)
    expect = verify(place, key=key).head
    assert verify(log.path, key=key, expect=expect).ok
    log.record(ADMIT)
    log.close()
    assert verify(place, key=key, expect=expect).ok


def test_an_expected_end_with_another_mac_is_found(make, place, key):
    log = make("alice")
    log.record(ADMIT)
    expected = Expected.parse(verify(place, key=key).head)
    ends = {chain: (n, bytes(32)) for chain, (n, _) in expected.ends.items()}
    report = verify(place, key=key, expect=Expected(expected.directory, ends).encode())
    assert [(each.file, each.kind) for each in report.problems] == [
        ("index", "rolled back"),
        (Path(log.path).name, "rolled back"),
    ]


@pytest.mark.parametrize(
    "text",
    ["x", "safeser-audit-head-v1", "safeser-audit-head-v2 " + "0" * 32, "x" * (17 << 20)],
)
def test_an_expected_head_that_is_none_is_refused(logs, place, key, text):
    with pytest.raises(ConfigError):
        verify(place, key=key, expect=text)


# --- bounds ---------------------------------------------------------------------------------------


def test_problems_are_bounded(make, place, key):
    log = make("alice")
    for _ in range(300):
        log.record(ADMIT)
    edit(
        Path(log.path),
        lambda x: [line.replace(b"bob", b"eve") if n % 2 else line for n, line in enumerate(x)],
    )
    report = verify(place, key=key)
    assert len(report.problems) == scan_module.MAX_PROBLEMS + 1
    assert report.problems[-1].kind == "more problems"
    assert len(limited(report.problems, 10)) == 10
    assert limited(report.problems, 10)[-1].text == "42 more problems are not listed"


def test_an_endless_line_is_given_up(logs, place, key, monkeypatch):
    monkeypatch.setattr(scan_module, "_MAX_JUNK", 1 << 18)
    with logs[1].open("ab") as file:
        file.truncate(1 << 30)  # a hole: no disk is taken
    report = verify(place, key=key)
    assert found(report)[0][0] == logs[1].name
    with logs[1].open("r+b") as file:
        file.truncate(0)
        file.write(b"x" * 150_000)
    assert "missing tail" in {each.kind for each in verify(place, key=key).problems}


def test_a_disk_that_fails_while_reading_is_a_problem(logs, place, key, monkeypatch):
    def broken(handle, size):
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "read", broken)
    kinds = {each.kind for each in verify(place, key=key).problems}
    assert "unreadable file" in kinds


def test_a_disk_that_fails_before_reading_is_a_problem(logs, place, key, monkeypatch):
    def broken(handle, size, offset):
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "pread", broken)
    for path in (place, logs[0]):
        (problem,) = verify(path, key=key).problems
        assert problem.kind == "unreadable file"
        assert "Input/output error" in problem.text


def test_an_unregistered_file_with_a_head_that_is_none_is_a_problem(logs, place, key):
    for name, content in (("x", b""), ("y", b'{"mac":"0')):
        (place / f"{name}.log").write_bytes(content)
        (place / f"{name}.head").mkdir()
    kinds = {(each.file, each.kind) for each in verify(place, key=key).problems}
    assert {("x.log", "unregistered file"), ("y.log", "unregistered file")} <= kinds


# --- any edit -------------------------------------------------------------------------------------


@st.composite
def edits(draw):
    """One change of one file: (what, which file, where, how much)."""
    return (
        draw(st.sampled_from(["flip", "cut", "insert", "remove", "delete", "swap", "repeat"])),
        draw(st.integers(0, 7)),
        draw(st.floats(0, 1)),
        draw(st.integers(1, 400)),
    )


def apply(place: Path, change) -> None:
    what, which, where, size = change
    names = sorted(path.name for path in place.iterdir())
    path = place / names[which % len(names)]
    data = path.read_bytes()
    at = int(where * (len(data) - 1)) if data else 0
    rng = random.Random(size)
    if what == "flip" and data:
        data = data[:at] + bytes([data[at] ^ (1 + size % 255)]) + data[at + 1 :]
    elif what == "cut":
        data = data[:at]
    elif what == "insert":
        data = data[:at] + rng.randbytes(size) + data[at:]
    elif what == "remove":
        data = data[:at] + data[at + size :]
    elif what == "repeat":
        data = data[:at] + data[at : at + size] + data[at:]
    elif what == "swap":
        other = place / names[(which + size) % len(names)]
        data, old = other.read_bytes(), data
        other.write_bytes(old)
    if what == "delete":
        path.unlink()
    else:
        path.write_bytes(data)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(edits(), min_size=1, max_size=3))
def test_any_edit_is_found_or_changes_nothing(logs, place, key, tmp_path, changes):
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place, copy)
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    for change in changes:
        if list(copy.iterdir()):
            apply(copy, change)
    after = {path.name: path.read_bytes() for path in copy.iterdir()}
    report = verify(copy, key=key)
    assert all(each.isprintable() for each in str(report).splitlines())
    for name in set(before) | set(after):
        path = copy / name
        if path.exists() and name.endswith(".log"):
            assert isinstance(verify(path, key=key), Report)
    if after == before:
        assert report.ok
    elif report.ok:
        # The one edit that says nothing: a line that a kill could have torn, after a file's end.
        assert report.notes
        for name, data in after.items():
            assert data.startswith(before[name])
            assert records.begins_like_a_line(data[len(before[name]) :])


# --- heads that are empty -------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1])
def test_a_file_cut_to_its_start_is_found_though_its_head_was_emptied(make, place, key, keep):
    # Before its first record a process leaves an empty head; afterwards nobody but a forger does.
    log = make("alice")
    for number in range(5):
        log.record({"event": "admit", "where": str(number)})
    (path,) = place.glob("alice-*.log")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))
    path.with_suffix(".head").write_bytes(b"")
    assert (path.with_suffix(".head").name, 1, -1, "changed head") in found(verify(place, key=key))
    assert not verify(path, key=key).ok


@pytest.mark.parametrize("name", ["index", "alice"])
def test_a_link_whose_head_is_empty_gives_a_report(logs, place, key, name):
    path = place / "index" if name == "index" else logs[0]
    path.rename(place.parent / "kept")
    path.symlink_to(place.parent / "kept")
    head = place / "index.head" if name == "index" else path.with_suffix(".head")
    head.write_bytes(b"")
    assert not verify(place, key=key).ok
    assert not verify(path, key=key).ok


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "open", "genesis": "not hexadecimal", "name": "x.log", "file": "1" * 32},
        {"type": "close", "mac": "0", "count": -5},
    ],
)
def test_what_another_holder_of_the_key_wrote_gives_a_report(logs, place, key, clock, fields):
    directory = Directory(place, create=False)
    try:
        with index_module.locked(directory, key, now=1) as entries:
            registered = logs[0].stem.rpartition("-")[2]
            entries.chain.append({"time": 1, "file": registered, **fields})
    finally:
        directory.close()
    assert not verify(place, key=key).ok


@pytest.mark.parametrize("count", [0, -7, 99])
def test_a_genesis_that_names_no_record_of_the_index_gives_a_report(place, key, make, count):
    make("alice").close()
    directory = Directory(place, create=False)
    try:
        with index_module.locked(directory, key, now=1) as entries:
            file, name = index_module.new_id(), "x.log"
            keys = file_keys(key, directory=entries.directory_id, file=file)
            chain = ChainFile.create(directory, name, file=file, keys=keys, fsync=False)
            home = {"directory": entries.directory_id, "file": file, "index_count": count}
            chain.append({"time": 1, "type": "genesis", "index_mac": "", **home})
            opened = {"type": "open", "genesis": chain.mac.hex(), "name": name, "file": file}
            entries.chain.append({"time": 1, **opened})
            chain.close()
    finally:
        directory.close()
    assert (name, 1, 0, "index changed") in found(verify(place, key=key))
