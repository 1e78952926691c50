"""Each way to tamper with records and tails, and the place that verification must name."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from safeser.audit import AuditKey, Report, verify
from safeser.audit import record as records
from safeser.audit.chain import ZERO, file_keys, step
from safeser.audit.report import limited
from safeser.audit.verification import scan as scan_module
from tests.draws import draws

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True, "bytes": 5}


# --- an untouched log -----------------------------------------------------------------------------


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
def test_a_changed_byte_is_found_in_its_line(logs, place, key, which, number, part, found, edit):
    path = logs[which]

    def change(lines):
        line = lines[number - 1]
        old, new = {
            "mac": (line[8:72], line[8:71] + (b"1" if line[71:72] != b"1" else b"2")),
            "body": (b'"time":179', b'"time":178'),
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


@pytest.mark.unmeasured
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
def test_a_chain_written_anew_without_the_key_is_found_where_it_begins(
    logs, place, key, secret, found, edit
):
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


def test_a_file_written_anew_from_its_genesis_is_found(logs, place, key, found, edit):
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
def test_records_taken_out_put_in_or_moved(
    logs, place, key, change, line, sequence, kind, text, edit
):
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


def test_two_changes_are_two_problems(logs, place, key, edit):
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
def test_a_deleted_tail_is_found(logs, place, key, which, kept, found, edit):
    path = logs[which]
    edit(path, lambda lines: lines[:kept])
    report = verify(place, key=key)
    assert found(report) == [(path.name, kept + 1, kept, "missing tail")]
    assert "missing from the end" in report.problems[0].text
    assert found(verify(path, key=key)) == found(report)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_tail_cut_in_the_middle_of_a_line_is_found(logs, place, key, which, cut):
    path = logs[which]
    count = path.read_bytes().count(b"\n")
    os.truncate(path, path.stat().st_size - cut)
    (problem, *_) = verify(place, key=key).problems
    assert (problem.line, problem.kind) == (count, "missing tail")


@pytest.mark.parametrize("which", [0, 1])
def test_an_emptied_file_is_found(logs, place, key, which, found):
    logs[which].write_bytes(b"")
    report = verify(place, key=key)
    assert found(report) == [(logs[which].name, 1, 0, "missing tail")]


def test_a_deleted_tail_is_found_when_the_head_is_deleted_too(logs, place, key, found, edit):
    edit(logs[1], lambda lines: lines[:3])
    logs[1].with_suffix(".head").unlink()
    report = verify(place, key=key)
    assert found(report) == [(logs[1].with_suffix(".head").name, 0, -1, "missing head")]
    assert not verify(logs[1], key=key).ok


def test_a_closed_file_keeps_its_end_without_its_head(logs, place, key, edit):
    edit(logs[0], lambda lines: lines[:3])
    logs[0].with_suffix(".head").unlink()
    assert "missing tail" in {each.kind for each in verify(place, key=key).problems}


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 1000])
def test_a_changed_head_is_found(logs, place, key, content, found):
    head = logs[1].with_suffix(".head")
    head.write_bytes(content)
    assert found(verify(place, key=key)) == [(head.name, 1, -1, "changed head")]


def test_the_head_of_another_file_is_found(logs, place, key, found):
    head = logs[1].with_suffix(".head")
    head.write_bytes(logs[2].with_suffix(".head").read_bytes())
    assert found(verify(place, key=key)) == [(head.name, 1, -1, "changed head")]


def test_a_head_that_is_no_file_is_found(logs, place, key, found):
    head = logs[1].with_suffix(".head")
    head.unlink()
    head.mkdir()
    assert found(verify(place, key=key)) == [(head.name, 0, -1, "changed head")]


@pytest.mark.parametrize("extra", [b"x", b'{"mac":"zz', b"{}\n", b"\x1b[2J\n", b"\0" * 5 + b"x"])
@pytest.mark.parametrize("which", [0, 1])
def test_bytes_after_the_end_are_found(logs, place, key, which, extra, found):
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
    assert report.notes == (
        f"{logs[1].name}: an interrupted write left a torn last line, which says nothing",
    )
    assert verify(logs[1], key=key).notes


# --- one file -------------------------------------------------------------------------------------


def test_one_file_alone_verifies(logs, key, monkeypatch):
    for path in logs:
        report = verify(path, key=key)
        assert report.ok, str(report)
        assert report.files == 1
    monkeypatch.chdir(logs[0].parent)
    assert verify(logs[0].name, key=key).ok


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 100_000, b"{}\n"])
def test_one_file_that_is_none(place, key, content, tmp_path, found):
    path = tmp_path / "x.log"
    path.write_bytes(content)
    assert found(verify(path, key=key)) == [("x.log", 1, 0, "changed record")]
    assert found(verify(tmp_path / "y.log", key=key)) == [("y.log", 0, -1, "missing file")]


# --- bounds ---------------------------------------------------------------------------------------


def test_problems_are_bounded(make, place, key, edit):
    log = make("alice")
    for _ in range(300):
        log.record(ADMIT)
    edit(
        Path(log.path),
        lambda x: [
            line.replace(b'"bytes":5', b'"bytes":6') if n % 2 else line for n, line in enumerate(x)
        ],
    )
    report = verify(place, key=key)
    assert len(report.problems) == scan_module.MAX_PROBLEMS + 1
    assert report.problems[-1].kind == "more problems"
    assert len(limited(report.problems, 10)) == 10
    assert limited(report.problems, 10)[-1].text == "42 more problems are not listed"


def test_an_endless_line_is_given_up(logs, place, key, monkeypatch, found):
    monkeypatch.setattr(scan_module, "_MAX_JUNK", 1 << 18)
    with logs[1].open("ab") as file:
        file.truncate(1 << 30)  # a hole: no disk is taken
    report = verify(place, key=key)
    assert found(report)[0][0] == logs[1].name
    with logs[1].open("r+b") as file:
        file.truncate(0)
        file.write(b"x" * 150_000)
    assert "missing tail" in {each.kind for each in verify(place, key=key).problems}


@pytest.mark.parametrize("line", [b"", b"x" * 300, b'{"mac":"%b","record":{}}' % (b"0" * 64)])
def test_lines_that_do_not_verify_are_given_up(logs, place, key, monkeypatch, line):
    """A megabyte that is compressed holds a billion of empty lines, which would take hours."""
    monkeypatch.setattr(scan_module, "_MAX_FAILED", 1 << 18)
    first = logs[1].read_bytes().partition(b"\n")[0]
    path = place / "eve-1.log.gz"
    path.write_bytes(gzip.compress(b"\n".join([first, *[line] * 20_000, b""]), 9))
    with logs[1].open("ab") as file:
        file.write((line + b"\n") * 20_000)
    report = verify(place, key=key)
    for name in (logs[1].name, path.name):
        (found,) = [p for p in report.problems if (p.file, p.kind) == (name, "more problems")]
        assert found.line <= 1_100
    assert {"after close", "unregistered file"} & {each.kind for each in report.problems}


def test_a_disk_that_fails_while_reading_is_a_problem(logs, place, key, monkeypatch):
    def broken(handle, size, offset):
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "pread", broken)
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


@draws(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
