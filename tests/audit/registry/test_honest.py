"""Folders that no attacker touched verify, and each entry is there once."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from safeser.audit import index, verify, vouched
from safeser.audit.files import Directory
from safeser.audit.upkeep import closed_files
from safeser.errors import AuditError
from tests.audit.registry.forging import DAY, FILES, Folder

COMPRESS = replace(FILES, compress=True)
KEEP = replace(COMPRESS, keep_age=90 * DAY)


@pytest.fixture
def folder(tmp_path, key) -> Folder:
    return Folder(tmp_path / "home", initial=key)


def each_once(folder: Folder) -> None:
    steps = Counter((entry.get("file"), entry["type"]) for entry in folder.entries())
    steps.pop((None, "key"), None)
    assert set(steps.values()) == {1}, steps


@pytest.mark.parametrize("step", ["rename", "unlink"])
def test_a_compression_that_was_interrupted_is_entered_once(folder, key, monkeypatch, step):
    folder.large("alice")
    real = getattr(os, step)

    def failing(name, *given, **options):
        if str(name).endswith((".part", ".log")):
            raise OSError(5, "no")
        return real(name, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, step, failing)
        folder.tidy(COMPRESS)
    assert list(folder.place.glob("*.log"))
    assert verify(folder.place, key=key).ok
    folder.tidy(COMPRESS)
    assert [path.suffix for path in folder.place.glob("alice-*.log*")] == [".gz"]
    assert verify(folder.place, key=key).ok
    each_once(folder)


def test_a_part_that_was_lost_leaves_the_plain_file(folder, key, monkeypatch):
    folder.large("alice")
    with monkeypatch.context() as patch:
        patch.setattr(Directory, "rename", lambda self, old, new: None)
        patch.setattr(Directory, "remove", lambda self, name: None)
        folder.tidy(COMPRESS)
    (part,) = folder.place.glob("*.part")
    part.write_bytes(b"x" * 100)
    folder.tidy(COMPRESS)
    assert [path.suffix for path in folder.place.glob("alice-*.log*")] == [".log"]
    report = verify(folder.place, key=key)
    assert (report.ok, report.notes) == (True, ())
    each_once(folder)


class Race:
    """Has another process work on the folder right before the entry of the first one."""

    def __init__(self, monkeypatch, other) -> None:
        self.left, self.other = 1, other
        self.real = closed_files._Index.enter
        race = self

        def enter(known, *entries, then=None) -> bool:
            if race.left:
                race.left -= 1
                race.other()
            return race.real(known, *entries, then=then)

        monkeypatch.setattr(closed_files._Index, "enter", enter)


@pytest.mark.parametrize("other", ["removes", "opens"])
@pytest.mark.parametrize("work", ["removal", "compression"])
def test_two_processes_at_once(folder, key, monkeypatch, work, other):
    folder.large("alice")
    folder.large("bob")
    folder.now += 91 * DAY
    files = KEEP if work == "compression" else replace(KEEP, compress=False)
    meanwhile = {
        "removes": lambda: folder.tidy(replace(KEEP, compress=False)),
        "opens": lambda: folder.closed("carol"),
    }
    race = Race(monkeypatch, meanwhile[other])
    folder.tidy(files)
    assert race.left == 0
    assert not [path for path in folder.place.iterdir() if path.name.startswith(("alice", "bob"))]
    report = verify(folder.place, key=key)
    assert report.ok, str(report)
    each_once(folder)


def test_an_end_is_looked_for_in_verified_entries(folder, key, monkeypatch):
    """A forged end between two tries would leave the file without one."""
    folder.closed("bob")
    log = folder.log("alice")
    real = index.Entries.add

    def add(self, fields) -> None:
        if fields["type"] == "close":
            raise AuditError("no", rule="audit.write")
        real(self, fields)

    with monkeypatch.context() as patch:
        patch.setattr(index.Entries, "add", add)
        with pytest.raises(AuditError):
            log._register(log._present[1])
    file = log._present[1].end.file.encode()
    (entry,) = [e for e in folder.entries() if e["type"] == "close"]
    undo = folder.edit(
        b'"file":"%b","mac"' % str(entry["file"]).encode(), b'"file":"%b","mac"' % file
    )
    with pytest.raises(AuditError, match="index was changed"):
        log._register(log._present[1])
    undo()
    log._register(log._present[1])
    log._closed = True
    log._close_files()
    assert folder.entry("close", next(folder.place.glob("alice-*.log")))
    assert verify(folder.place, key=key).ok


# --- of older releases ----------------------------------------------------------------------------


@contextlib.contextmanager
def older_release(monkeypatch) -> Iterator[None]:
    """Write entries as the release before did: without version, tag and sizes."""
    real = index.Entries.add

    def add(self, fields) -> None:
        for name in ("version", "total", *(["size"] if fields["type"] == "compress" else [])):
            fields.pop(name, None)
        real(self, fields)

    with monkeypatch.context() as patch:
        patch.setattr(index.Entries, "add", add)
        patch.setattr(vouched, "vouching", lambda *given: {})
        yield


def test_a_folder_of_an_older_release_is_verified_and_not_acted_on(
    folder, key, monkeypatch, caplog
):
    with older_release(monkeypatch):
        folder.large("old")
        folder.closed("older")
    folder.tidy(COMPRESS)
    assert "older release moved the key" in caplog.text
    assert not list(folder.place.glob("*.gz"))
    folder.large("alice")
    folder.closed("bob")
    folder.now += 91 * DAY
    folder.closed("carol")
    folder.tidy(KEEP)
    assert {path.name.split("-")[0] for path in folder.place.glob("*.log*")} == {
        *("old", "older", "carol")
    }
    report = verify(folder.place, key=key)
    assert report.ok, str(report)


def test_what_an_older_release_could_enter_twice(folder, key, monkeypatch):
    """It was killed between the entry and the name of a file, or two of its processes removed."""
    with older_release(monkeypatch):
        folder.large("alice")
        folder.large("bob")
        close = {
            name: folder.entry("close", next(folder.place.glob(f"{name}-*.log")))
            for name in ("alice", "bob")
        }
        twice = {"type": "compress", "file": close["alice"]["file"], "sha256": "0" * 64}
        folder.add(twice, twice)
        end = {name: close["bob"][name] for name in ("file", "count", "mac")}
        late = int(str(close["bob"]["time"])) + 90 * DAY * 1_000_000
        gone = {"type": "remove", "time": late, "why": "more than 131072 bytes", **end}
        folder.add(gone, gone, {**twice, "file": close["bob"]["file"]})
        for path in folder.place.glob("bob-*"):
            path.unlink()
    assert verify(folder.place, key=key).ok
    # From the first entry of this release on, the rule holds.
    folder.closed("carol")
    assert verify(folder.place, key=key).ok
    folder.add(twice)
    (problem,) = verify(folder.place, key=key).problems
    assert problem.kind == "index changed"


def test_a_compressed_file_of_an_older_release_counts_with_its_bytes(folder, key, monkeypatch):
    """Its entry does not state them: they are those whose SHA-256 it states."""
    real = index.Entries.add

    def add(self, fields) -> None:
        if fields["type"] == "compress":
            fields.pop("size")
        real(self, fields)

    folder.large("alice")
    folder.now += 60
    with monkeypatch.context() as patch:
        patch.setattr(index.Entries, "add", add)
        folder.tidy(COMPRESS)
    folder.large("bob")
    (packed,) = folder.place.glob("*.gz")
    keep = replace(FILES, keep_size=200 << 10)
    folder.tidy(keep)
    assert packed.exists()
    folder.large("carol")
    folder.tidy(keep)
    assert not packed.exists()
    assert verify(folder.place, key=key).ok


def test_an_index_of_many_entries(folder, key):
    """The record that moved the key is found, however many entries there are after it."""
    folder.large("alice")
    close = folder.entry("close", next(folder.place.glob("*.log")))
    unknown = {"type": "note", "text": "x" * 200}
    folder.add(*({**unknown, "n": n} for n in range(600)))
    folder.move_key()
    folder.now += 91 * DAY
    folder.tidy(KEEP)
    removed = [entry["file"] for entry in folder.entries() if entry["type"] == "remove"]
    assert removed == [close["file"]]
    assert verify(folder.place, key=key).ok
    path = folder.place / "index"
    first, *lines, moved, last = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, b" ".join(lines), moved, last, b""]))
    with pytest.raises(AuditError, match="index was changed"):
        folder.tidy(KEEP)
