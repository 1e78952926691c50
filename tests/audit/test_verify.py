"""Each way to damage a log's folder: what verification names, and whether a process goes on there.

The folder has the closed log of alice, that of bob, who was killed, and that of carol, who runs.
"""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from safeser.audit import AuditKey, AuditLog, Report, verify
from safeser.audit import index as index_module
from safeser.audit import record as records
from safeser.audit.key import file_keys
from safeser.audit.report import limited
from safeser.audit.verification import scan as scan_module
from safeser.errors import AuditError
from safeser.gate.chain import ZERO, step
from safeser.gate.event import encode
from tests.audit.conftest import ADMIT
from tests.draws import draws

LOGS = ("alice", "bob", "carol")


class Files:
    """The folder's files by short names, such as ``bob.log``; others by their own."""

    def __init__(self, place: Path, logs: tuple[Path, ...]) -> None:
        self.place = place
        paths = {f"{name}.log": path for name, path in zip(LOGS, logs, strict=True)}
        heads = {f"{name[:-4]}.head": path.with_suffix(".head") for name, path in paths.items()}
        self._paths = {**paths, **heads}

    def __getitem__(self, name: str) -> Path:
        return self._paths.get(name, self.place / name)

    def shortened(self, text: str) -> str:
        for name, path in self._paths.items():
            text = text.replace(path.name, name)
        return text

    def found(self, report: Report) -> list[str]:
        found = (f"{p.file}:{p.line}:{p.sequence} {p.kind}" for p in report.problems)
        return [self.shortened(each) for each in found]


Damage = Callable[[Files], object]
Lines = list[bytes]


@pytest.fixture
def files(place, logs) -> Files:
    return Files(place, logs)


# --- what can be done to a file -------------------------------------------------------------------


def lines(name: str, change: Callable[[Lines], Lines]) -> Damage:
    def damage(files: Files) -> None:
        data = files[name].read_bytes().splitlines(keepends=True)
        files[name].write_bytes(b"".join(change(data)))

    return damage


def put(name: str, data: bytes) -> Damage:
    return lambda files: files[name].write_bytes(data)


def add(name: str, data: bytes) -> Damage:
    return lambda files: files[name].write_bytes(files[name].read_bytes() + data)


def cut(name: str, kept: int) -> Damage:
    return lines(name, lambda data: data[:kept])


def shorten(name: str, size: int) -> Damage:
    return lambda files: os.truncate(files[name], files[name].stat().st_size - size)


def flip(name: str, at: int) -> Damage:
    def damage(files: Files) -> None:
        data = bytearray(files[name].read_bytes())
        data[at] ^= 1
        files[name].write_bytes(data)

    return damage


def gone(*names: str) -> Damage:
    return lambda files: [files[name].unlink() for name in names]


def copy(old: str, new: str) -> Damage:
    return lambda files: shutil.copy(files[old], files[new])


def swap(one: str, other: str) -> Damage:
    def damage(files: Files) -> None:
        for suffix in (".log", ".head"):
            a, b = files[one + suffix], files[other + suffix]
            data = a.read_bytes()
            a.write_bytes(b.read_bytes())
            b.write_bytes(data)

    return damage


def no_file(name: str, kind: str) -> Damage:
    """Put a link, a pipe or a folder in place of a file, which is kept elsewhere."""

    def damage(files: Files) -> None:
        path, kept = files[name], files.place.parent / "kept"
        if path.exists():
            path.rename(kept)
        {"link": lambda: path.symlink_to(kept), "fifo": lambda: os.mkfifo(path)}.get(
            kind, path.mkdir
        )()

    return damage


def both(*damages: Damage) -> Damage:
    return lambda files: [damage(files) for damage in damages]


def changed(number: int, old: bytes, new: bytes) -> Callable[[Lines], Lines]:
    """Return what replaces bytes in one line."""

    def change(data: Lines) -> Lines:
        line = data[number - 1]
        data[number - 1] = line.replace(old, new)
        assert data[number - 1] != line
        return data

    return change


def other_mac(number: int) -> Callable[[Lines], Lines]:
    def change(data: Lines) -> Lines:
        line = data[number - 1]
        data[number - 1] = line[:71] + (b"2" if line[71:72] == b"1" else b"1") + line[72:]
        return data

    return change


def rewritten(first: int, secret: bytes, *, own: str = "") -> Callable[[Lines], Lines]:
    """Return what writes a chain anew, from a line on, with all that is known but the key."""

    def change(data: Lines) -> Lines:
        genesis = records.parse(data[0][:-1])
        directory, file = (own or genesis.text(name) for name in ("directory", "file"))
        keys = file_keys(AuditKey(secret), directory=directory, file=file)
        previous = records.parse(data[first - 1][:-1]).mac if first else ZERO
        for number in range(first, len(data)):
            body = records.split(data[number][:-1])[1].replace(b"bob", b"eve")
            previous = step(keys.chain, previous, number, body)
            data[number] = records.line(previous, body)
        return data

    return change


GENESIS = {"seq": 0, "time": 1, "type": "genesis", "directory": "0" * 32, "file": "1" * 32}
FOREIGN = records.line(ZERO, encode(GENESIS))


class Row(NamedTuple):
    """A damage, and each problem as ``FILE:LINE:RECORD KIND``; ``...`` where others follow."""

    damage: Damage
    found: str
    says: str = ""


def of_bob(change: Callable[[Lines], Lines], found: str, says: str = "") -> Row:
    return Row(lines("bob.log", change), f"bob.log:{found}", says)


PARTS = (
    other_mac,
    lambda n: changed(n, b'"time":179', b'"time":178'),
    lambda n: changed(n, b'"seq":%d' % (n - 1), b'"seq":%d' % (n + 2)),
    lambda n: changed(n, b'"record":', b'"recorD":'),
)

RECORDS = [
    *(
        Row(lines(f"{who}.log", part(n)), f"{who}.log:{n}:{n - 1} changed record", f"(line {n})")
        for part in PARTS
        for who in LOGS
        for n in (1, 3, 6)
    ),
    *(
        of_bob(rewritten(3, secret), "4:3 broken chain", "3 to 6 (lines 4 to 7, up to the end)")
        for secret in (b"x" * 32, bytes(32))
    ),
    of_bob(rewritten(0, bytes(32), own="0" * 32), "1:0 broken chain"),
    of_bob(lambda x: x[:3] + x[4:], "4:3 missing records", "record 3 missing before line 4"),
    of_bob(lambda x: x[:2] + x[5:], "3:2 missing records", "records 2 to 4 missing"),
    of_bob(lambda x: [*x[:3], x[2], *x[3:]], "4:3 inserted record", "line 4 is not what"),
    of_bob(lambda x: x[:3] + [b"{}\n"] * 2 + x[3:], "4:3 inserted record", "lines 4 to 5"),
    of_bob(lambda x: [b"\n", *x], "1:0 inserted record", "line 1 is not what"),
    of_bob(lambda x: [*x[:2], x[3], x[2], *x[4:]], "3:2 inserted record...", "moved"),
    of_bob(lambda x: [*x[:2], *x[4:1:-1], *x[5:]], "3:2 inserted record...", "lines 3 to 4"),
    # The MACs of two are lost: nothing after them can be placed.
    of_bob(lambda x: [*x[:2], b"\n", b"x\n", *x[4:]], "3:2 broken chain"),
    of_bob(lambda x: [*x[:3], x[3].rstrip() + b"\r\n", *x[4:]], "4:3 changed record"),
    of_bob(lambda x: [*x[:3], b"x" * 200_000 + b"\n", *x[3:]], "4:3 inserted record"),
    Row(
        both(
            lines("bob.log", changed(3, b'"bytes":1', b'"bytes":7')),
            lines("carol.log", changed(5, b'"bytes":3', b'"bytes":7')),
        ),
        "bob.log:3:2 changed record, carol.log:5:4 changed record",
    ),
]

ENDS = [
    *(
        Row(cut(f"{who}.log", kept), f"{who}.log:{kept + 1}:{kept} missing tail", "from the end")
        for who in LOGS
        for kept in (1, 3, 6)
    ),
    *(Row(shorten("alice.log", size), "alice.log:8:7 missing tail...") for size in (1, 30, 100)),
    *(Row(shorten("bob.log", size), "bob.log:7:6 missing tail...") for size in (1, 30, 100)),
    *(Row(put(f"{who}.log", b""), f"{who}.log:1:0 missing tail") for who in LOGS),
    Row(both(cut("bob.log", 3), gone("bob.head")), "bob.head:0:-1 missing head"),
    Row(
        both(cut("alice.log", 3), gone("alice.head")),
        "alice.head:0:-1 missing head, alice.log:4:3 missing tail",
    ),
    *(
        Row(both(cut("bob.log", kept), put("bob.head", b"")), "bob.head:1:-1 changed head...")
        for kept in (0, 1)
    ),
    *(Row(put("bob.head", data), "bob.head:1:-1 changed head") for data in (b"", b"x", b"x" * 999)),
    Row(copy("carol.head", "bob.head"), "bob.head:1:-1 changed head"),
    Row(no_file("bob.head", "folder"), "bob.head:0:-1 changed head"),
    *(
        Row(add(f"{who}.log", extra), f"{who}.log:{end}:...")
        for extra in (b"x", b'{"mac":"zz', b"{}\n", b"\x1b[2J\n", b"\0" * 5 + b"x")
        for who, end in (("alice", 9), ("bob", 8))
    ),
    Row(
        both(add("alice.log", b'{"mac":"00'), add("bob.log", b'{"mac":"00')),
        "alice.log:9:8 after close",
        "bob.log: an interrupted write left a torn last line, which says nothing",
    ),
]

FILES = [
    *(Row(gone(f"{who}.log"), f"{who}.log:0:-1 missing file...") for who in LOGS),
    *(Row(gone(f"{who}.log", f"{who}.head"), f"{who}.log:0:-1 missing file") for who in LOGS),
    Row(
        swap("bob", "carol"),
        "bob.head:1:-1 changed head, bob.log:1:0 swapped file, carol.head:1:-1 changed head,"
        " carol.log:1:0 swapped file",
    ),
    Row(copy("bob.log", "eve-1.log"), "eve-1.log:0:-1 unregistered file"),
    Row(
        both(copy("bob.log", "eve-1.log"), gone("bob.log", "bob.head")),
        "bob.log:0:-1 missing file, eve-1.log:0:-1 unregistered file",
    ),
    Row(put("x.log", b"hello\n"), "x.log:0:-1 unregistered file"),
    Row(put("x.log", b'{"mac":"' + b"0" * 300_000), "x.log:0:-1 unregistered file"),
    Row(put("x.log", FOREIGN), "x.log:0:-1 unregistered file", "nothing in it verifies"),
    Row(both(put("x.log", b""), no_file("x.head", "folder")), "x.log:0:-1 unregistered file..."),
    Row(both(put("x.log", b"{"), no_file("x.head", "folder")), "x.log:0:-1 unregistered file..."),
    *(
        Row(no_file("bob.log", kind), "bob.log:0:-1 unreadable file...")
        for kind in ("link", "fifo", "folder")
    ),
    Row(no_file("x.log", "fifo"), "x.log:0:-1 unreadable file"),
    Row(both(no_file("alice.log", "link"), put("alice.head", b"")), "alice.head:..."),
    Row(no_file("index", "link"), "index:0:-1 index changed..."),
    *(Row(flip("index", at), "index:...") for at in (*range(3, 1_200, 31), -1)),
    Row(lambda f: [each.unlink() for each in f.place.iterdir()], "index:0:-1 missing index"),
    Row(lambda f: shutil.rmtree(f.place), "audit:0:-1 missing file"),
]

#: No other process begins a file there.
INDEX = [
    Row(gone("index"), "index:0:-1 missing index..."),
    Row(gone("index.head"), "index.head:0:-1 missing head"),
    Row(cut("index", 4), "index:5:4 index changed...", "missing tail"),
    Row(put("index", b"x" * 300), "index:1:0 index changed..."),
    *(Row(no_file(name, "folder"), f"{name}:0...") for name in ("index", "index.head")),
    Row(both(no_file("index", "link"), put("index.head", b"")), "index:0:-1 index changed..."),
    Row(shorten("index.head", 1), "index.head:..."),
    Row(add("index.head", b"x"), "index.head:..."),
    Row(flip("index.head", 50), "index.head:..."),
    Row(put("index.head", b""), "index.head:..."),
    *(Row(add("index", x), "index:6:...") for x in (b"x", b"{}\n", b"\n", b"x" * 300_000)),
]


def check(files: Files, key: AuditKey, row: Row) -> Report:
    row.damage(files)
    report = verify(files.place, key=key)
    found = ", ".join(files.found(report))
    start = row.found.removesuffix("...")
    assert found.startswith(start), found
    assert row.found.endswith("...") or found == start, found
    text = files.shortened(str(report))
    assert row.says in text
    assert all(each.isprintable() for each in text.splitlines())
    return report


@pytest.mark.parametrize("row", [*RECORDS, *ENDS, *FILES], ids=lambda row: row.found)
def test_a_damage_is_named(files, place, key, row):
    report = check(files, key, row)
    # A file alone shows what it lost, but neither that it is gone nor whose it is.
    named = [each for each in report.problems if each.line and each.file.endswith(".log")]
    for name in {each.file for each in named if each.kind not in {"swapped file", "after close"}}:
        assert not verify(place / name, key=key).ok


@pytest.mark.parametrize("row", INDEX, ids=lambda row: row.found)
def test_a_damaged_index_is_named_and_not_gone_on_with(files, place, key, row):
    check(files, key, row)
    with pytest.raises(AuditError) as caught:
        AuditLog.open(place, key=key, principal="dora")
    assert caught.value.rule in {"audit.tampered", "audit.file", "audit.index"}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a\n\x1b[2J\u202e", b""),
        ("x.log", b"\0" * 100_000),
        ("index", b'{"mac":"00'),
        ("index", b"\0" * 4096),
        ("index", b'{"mac":"0' + b"\0" * 9),
    ],
)
def test_what_is_no_damage(files, make, place, key, name, data):
    with files[name].open("ab") as file:
        file.write(data)
    report = verify(place, key=key)
    assert report.ok
    (note,) = report.notes
    assert name[0] != "a" or note == "a??[2J? does not belong to the log and was not read"
    make("dora").close()
    report = verify(place, key=key)
    assert (report.ok, len(report.notes)) == (True, name != "index")


def test_a_log_that_nobody_touched_verifies(files, place, key, monkeypatch):
    report = verify(place, key=key)
    assert (report.files, report.records) == (3, (6 + 2) + 7 + 7 + 5)
    assert report.first == report.last
    with pytest.raises(TypeError, match="truth value"):
        bool(report)
    for name in LOGS:
        report = verify(files[f"{name}.log"], key=key)
        assert (report.ok, report.files) == (True, 1)
    monkeypatch.chdir(place)
    assert verify(files["bob.log"].name, key=key).ok


# --- one file alone, or under another name --------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 100_000, b"{}\n"])
def test_one_file_that_is_none(key, content, tmp_path, found):
    path = tmp_path / "x.log"
    path.write_bytes(content)
    assert found(verify(path, key=key)) == [("x.log", 1, 0, "changed record")]
    assert found(verify(tmp_path / "y.log", key=key)) == [("y.log", 0, -1, "missing file")]
    (problem,) = verify(tmp_path / "none" / "y.log", key=key).problems
    assert problem.kind == "missing directory"


def test_one_file_in_the_place_of_another_is_found(files, place, key):
    """By its name, and under any name by the head of that file or of its folder."""
    heads = [verify(files[name], key=key).head for name in ("alice.log", "bob.log")]
    swap("alice", "bob")(files)
    assert files.found(verify(files["bob.log"], key=key)) == ["bob.log:1:0 swapped file"]
    for suffix in (".log", ".head"):
        files[f"bob{suffix}"].rename(place / f"evidence{suffix}")
    assert verify(files["evidence.log"], key=key, expect=heads[0]).ok
    (problem,) = verify(files["evidence.log"], key=key, expect=heads[1]).problems
    assert problem.kind == "rolled back"


def test_a_file_of_another_directory_with_the_same_key_is_found(files, place, key, tmp_path, clock):
    other = tmp_path / "other"
    with AuditLog.open(other, key=key, principal="eve", clock=clock) as log:
        log.record(ADMIT)
    assert verify(other, key=key).ok
    copied = Path(shutil.copy(log.path, place))
    (problem,) = verify(place, key=key).problems
    assert (problem.file, problem.kind) == (copied.name, "unregistered file")
    assert "another directory" in problem.text
    copied.rename(files["bob.log"])
    assert files.found(verify(place, key=key)) == ["bob.log:1:0 swapped file"]


# --- an index that goes on ------------------------------------------------------------------------


@pytest.mark.parametrize("goes_on", [False, True])
def test_an_index_put_back_together_with_its_head_is_found_by_the_files(make, place, key, goes_on):
    make("alice").close()
    old = {name: (place / name).read_bytes() for name in ("index", "index.head")}
    log = make("bob")
    log.record(ADMIT)
    for name, content in old.items():
        (place / name).write_bytes(content)
    if goes_on:
        make("carol").close()
    (problem,) = verify(place, key=key).problems
    assert (problem.file, problem.kind) == (Path(log.path).name, "unregistered file")
    assert goes_on or "older state" in problem.text


def test_a_held_lock_does_not_keep_anybody_from_verifying(logs, place, key, monkeypatch):
    def held(*_, **__):
        raise AuditError("another process holds the index of the log")

    monkeypatch.setattr(index_module, "lock", held)
    report = verify(place, key=key)
    assert report.ok
    assert "another process holds" in report.notes[0]


def test_a_wrong_key_says_so(logs, place):
    report = verify(place, key=b"x" * 32)
    assert "this is not the key of this log" in report.problems[0].text
    assert not verify(logs[0], key=b"x" * 32).ok
    assert report.head == ""


def test_several_processes_find_what_one_finds(files, place, key):
    lines("alice.log", lambda x: [*x[:3], *x[4:]])(files)
    lines("carol.log", lambda x: x[:-1])(files)
    alone = verify(place, key=key)
    assert len(alone.problems) == 2
    seen: list[tuple[int, int]] = []
    together = verify(place, key=key, processes=3, progress=lambda *at: seen.append(at))
    assert (together, together.head) == (alone, alone.head)
    assert seen == [(0, 3), (1, 3), (2, 3)]


# --- bounds ---------------------------------------------------------------------------------------


def test_problems_are_bounded(make, place, key):
    log = make("alice")
    for _ in range(300):
        log.record(ADMIT)
    odd, even = (Path(log.path).read_bytes().splitlines(keepends=True)[at::2] for at in (0, 1))
    changed = (each.replace(b'"bytes":5', b'"bytes":6') for each in even)
    Path(log.path).write_bytes(b"".join(a + b for a, b in zip(odd, changed, strict=False)))
    report = verify(place, key=key)
    assert len(report.problems) == scan_module.MAX_PROBLEMS + 1
    assert report.problems[-1].kind == "more problems"
    assert len(limited(report.problems, 10)) == 10
    assert limited(report.problems, 10)[-1].text == "42 more problems are not listed"


def test_an_endless_line_is_given_up(files, place, key, monkeypatch):
    monkeypatch.setattr(scan_module, "_MAX_JUNK", 1 << 18)
    with files["bob.log"].open("ab") as file:
        file.truncate(1 << 30)  # a hole: no disk is taken
    assert files.found(verify(place, key=key))[0].startswith("bob.log:")
    files["bob.log"].write_bytes(b"x" * 150_000)
    assert "missing tail" in {each.kind for each in verify(place, key=key).problems}


@pytest.mark.parametrize("line", [b"", b"x" * 300, b'{"mac":"%b","record":{}}' % (b"0" * 64)])
def test_lines_that_do_not_verify_are_given_up(files, place, key, monkeypatch, line):
    """A megabyte that is compressed holds a billion of empty lines, which would take hours."""
    monkeypatch.setattr(scan_module, "_MAX_FAILED", 1 << 18)
    first = files["bob.log"].read_bytes().partition(b"\n")[0]
    path = place / "eve-1.log.gz"
    path.write_bytes(gzip.compress(b"\n".join([first, *[line] * 20_000, b""]), 9))
    add("bob.log", (line + b"\n") * 20_000)(files)
    report = verify(place, key=key)
    for name in (files["bob.log"].name, path.name):
        (found,) = [p for p in report.problems if (p.file, p.kind) == (name, "more problems")]
        assert found.line <= 1_100
    assert {"after close", "unregistered file"} & {each.kind for each in report.problems}


def test_a_disk_that_fails_is_a_problem(logs, place, key, monkeypatch):
    def broken(handle, size, offset):
        raise OSError(5, "broken")

    monkeypatch.setattr(os, "pread", broken)
    for path in (place, logs[0]):
        (problem,) = verify(path, key=key).problems
        assert problem.kind == "unreadable file"
        assert "Input/output error" in problem.text


# --- any edit -------------------------------------------------------------------------------------

EDITS = ("flip", "cut", "insert", "remove", "delete", "swap")


def apply(place: Path, what: str, which: int, where: float, size: int) -> None:
    """Change one file."""
    names = sorted(path.name for path in place.iterdir())
    path, other = (place / names[at % len(names)] for at in (which, which + size))
    data = path.read_bytes()
    at = int(where * max(len(data) - 1, 0))
    before, after = data[:at], data[at:]
    edited = {
        "flip": before + bytes(each ^ (1 + size % 255) for each in after[:1]) + after[1:],
        "cut": before,
        "insert": before + random.Random(size).randbytes(size) + after,
        "remove": before + after[size:],
        "swap": other.read_bytes(),
    }
    if what == "swap":
        other.write_bytes(data)
    if what == "delete":
        path.unlink()
    else:
        path.write_bytes(edited[what])


@draws(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(EDITS), st.integers(0, 7), st.floats(0, 1), st.integers(1, 400)),
        min_size=1,
        max_size=3,
    )
)
def test_any_edit_is_found_or_changes_nothing(logs, place, key, tmp_path, changes):
    copied = tmp_path / "copy"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(place, copied)
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    for change in changes:
        if list(copied.iterdir()):
            apply(copied, *change)
    after = {path.name: path.read_bytes() for path in copied.iterdir()}
    report = verify(copied, key=key)
    assert all(each.isprintable() for each in str(report).splitlines())
    for name in after:
        if name.endswith(".log"):
            assert isinstance(verify(copied / name, key=key), Report)
    if after == before:
        assert report.ok
    elif report.ok:
        # The one edit that says nothing: a line that a kill could have torn, after a file's end.
        assert report.notes
        for name, data in after.items():
            assert data.startswith(before[name])
            assert records.begins_like_a_line(data[len(before[name]) :])
