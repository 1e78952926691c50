"""Retention: old files are removed, and verification says which, and where they ended.

A history is what happens to a folder, under a key that moves or not; the one rule: it verifies
afterwards unless somebody changed it, and each entry is in the index once.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from safeser.audit import AuditLog, index, read, verify
from safeser.audit.files import Directory
from safeser.audit.key import KeyFile, source
from tests.audit.conftest import ADMIT
from tests.audit.registry.forging import DAY, FILES, Folder

AGE = replace(FILES, keep_age=7 * DAY)
SETTINGS = {
    "age": AGE,
    "pack": replace(FILES, compress=True),
    "both": replace(FILES, compress=True, keep_age=7 * DAY),
    "128k": replace(FILES, keep_size=128 << 10),
    "1m": replace(FILES, keep_size=1 << 20),
}
SECONDS = {"s": 1, "d": DAY}


@pytest.fixture(params=[False, True], ids=["static", "moving"])
def folder(request, tmp_path, key) -> Folder:
    return Folder(tmp_path / "home", initial=key, moving=request.param)


class History:
    """Steps that are told by words, such as ``large alice`` or ``+7d``."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.logs: dict[str, AuditLog] = {}

    def path(self, principal: str) -> Path:
        (found,) = self.folder.place.glob(f"{principal}-*.log*")
        return found

    def follow(self, steps: str) -> None:
        for step in steps.split(", "):
            word, *given = step.split()
            if word[0] in "+-":
                self.folder.now += int(word[:-1]) * SECONDS[word[-1]]
            else:
                getattr(self, word)(*given)

    def large(self, principal: str) -> None:
        self.folder.large(principal)

    def closed(self, principal: str) -> None:
        self.folder.closed(principal)

    def begun(self, principal: str) -> None:
        self.logs[principal] = self.folder.log(principal)

    def written(self, principal: str) -> None:
        self.logs[principal].record_all([{**ADMIT, "task": index.new_id()} for _ in range(1_500)])

    def ended(self, principal: str) -> None:
        self.logs[principal].close()

    def killed(self, principal: str) -> None:
        self.logs[principal]._closed = True
        self.logs[principal]._close_files()
        os.utime(self.path(principal), (0, 0))

    def tidied(self, settings: str) -> None:
        self.folder.tidy(SETTINGS[settings])

    # --- what others do ---

    def lost(self, principal: str) -> None:
        self.path(principal).unlink()

    def changed(self, principal: str) -> None:
        path = self.path(principal)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    def sparse(self, principal: str) -> None:
        if principal == "unknown":
            (self.folder.place / f"unknown-20261127T000000Z-{'0' * 32}.log").touch()
        os.truncate(self.path(principal), 1 << 40)

    def exchanged(self, principal: str, kind: str) -> None:
        path = self.path(principal)
        away = path.rename(self.folder.place.parent / "away")
        if kind == "link":
            path.symlink_to(away)
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            path.mkdir()

    def blocked(self, principal: str) -> None:
        path = self.path(principal)
        path.with_name(f"{path.name}.gz.part").mkdir()


#: Steps, whose files are left, whether the log verifies, and what is told.
HISTORIES = [
    ("large a, +6d, tidied age", "a", True, ""),
    ("large a, +7d, closed b, tidied age", "b", True, ""),
    # Clocks that jump between the start and the end of a file.
    *(
        (
            f"begun a, {jump}, ended a, large b, tidied both, +500d, tidied both, large c,"
            " tidied both",
            "c",
            True,
            "",
        )
        for jump in ("+0d", "+400d", "-400d")
    ),
    # The oldest go above a size, compressed or not; a file that lives pushes no other out.
    (
        "large a, +60s, large b, +60s, large c, tidied pack, large d, +60s, large e, +60s,"
        " large f, tidied 128k",
        "f",
        True,
        "",
    ),
    ("large a, +60s, begun b, written b, begun c, written c, tidied 128k", "a b c", True, ""),
    (
        "large a, +60s, begun b, written b, begun c, written c, tidied 128k, ended b, ended c,"
        " tidied 128k",
        "",
        True,
        "",
    ),
    # A process that lives keeps its file; of one that was killed the last record counts.
    ("begun a, begun b, written b, killed b, +8d, tidied age", "a", True, ""),
    ("begun a, written a, killed a, closed b, tidied pack, +91d, tidied both", "", True, ""),
    # What retention did not remove is missing, and no entry hides it.
    ("large a, lost a, +8d, tidied age", "", False, ""),
    # What is not what was written stays.
    ("large a, changed a, +8d, tidied age", "a", False, "so it is not removed"),
    ("large a, tidied pack, changed a, +8d, tidied age", "a", False, "so it is not removed"),
    ("large a, +9s, large b, sparse b, tidied 1m", "a b", False, ""),
    ("large a, +9s, large b, sparse unknown, tidied 1m", "a b unknown", True, ""),
    # One file keeps no other.
    *(
        (
            f"begun a, killed a, exchanged a {kind}, closed b, +8d, tidied age",
            "a",
            False,
            "is not removed",
        )
        for kind in ("link", "fifo", "folder")
    ),
    ("large a, large b, blocked a, +8d, tidied both", "a", True, "is not compressed"),
]


#: With a key that moved on no record of a plain file can be verified: what else is left then.
MOVED = {
    "begun a, begun b, written b, killed b, +8d, tidied age": "a b",
    "large a, changed a, +8d, tidied age": "",
}


@pytest.mark.parametrize(
    ("steps", "left", "ok", "told"), HISTORIES, ids=[steps for steps, *_ in HISTORIES]
)
def test_a_history(folder, key, caplog, steps, left, ok, told):
    if steps in MOVED and isinstance(source(folder.key), KeyFile):
        left, ok, told = MOVED[steps], True, ""
    history = History(folder)
    history.follow(steps)
    names = {
        path.name.split("-")[0] for path in folder.place.glob("*.log*") if "part" not in path.name
    }
    assert names == set(left.split())
    report = verify(folder.place, key=key)
    assert report.ok is ok, str(report)
    assert told in caplog.text
    entries = Counter((entry.get("file"), entry["type"]) for entry in folder.entries())
    entries.pop((None, "key"), None)
    assert set(entries.values()) == {1}


def test_what_was_removed_is_named_with_its_end(folder, key):
    path = folder.large("alice")
    end = list(read(path))[-1]
    folder.now += 8 * DAY
    folder.tidy(AGE)
    (note,) = verify(folder.place, key=key).notes
    assert note.startswith(path.name)
    assert f"record {end.sequence}, MAC {end.mac.hex()}" in note
    assert "removed by retention (older than 604800 s)" in note
    assert not path.with_suffix(".head").exists()


def test_the_end_of_a_killed_process_is_named_where_it_can_be_verified(folder, key):
    path = folder.killed("alice")
    end = list(read(path))[-1]
    folder.closed("bob")
    folder.tidy(SETTINGS["pack"])
    folder.now += 8 * DAY
    folder.tidy(SETTINGS["both"])
    (note,) = [each for each in verify(folder.place, key=key).notes if each.startswith("alice")]
    unknown = "its process had been killed, and where it ended was not verified"
    known = f"record {end.sequence}, MAC {end.mac.hex()}"
    assert note.endswith(unknown) if isinstance(source(folder.key), KeyFile) else known in note


def test_a_removed_file_that_is_put_back_is_verified(folder, key):
    path = folder.large("alice")
    data, head = path.read_bytes(), path.with_suffix(".head").read_bytes()
    folder.now += 8 * DAY
    folder.tidy(AGE)
    path.write_bytes(data)
    path.with_suffix(".head").write_bytes(head)
    report = verify(folder.place, key=key)
    assert report.ok
    assert any("interrupted while it removed" in note for note in report.notes)
    path.write_bytes(data[:-40] + b"x" + data[-39:])
    assert not verify(folder.place, key=key).ok
    folder.tidy(AGE)
    assert not path.exists()
    assert verify(folder.place, key=key).ok


def test_a_name_that_is_none_of_a_log_is_never_removed(small, place, key, clock, tended, tmp_path):
    """A holder of the key may write any name into the index."""
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
    tended(AGE)
    assert victim.exists()
    assert (place / "notes.txt").exists()
    assert (place / "index").exists()


@pytest.mark.parametrize("change", ["count", "mac"])
def test_a_head_that_was_kept_is_compared_with_what_was_removed(folder, key, change):
    log = folder.log("alice")
    log.record_all([ADMIT] * 3)
    head = log.head()
    log.close()
    folder.now += 8 * DAY
    folder.tidy(AGE)
    directory, *ends = head.split()[1:]
    file = Path(log.path).stem[-32:]
    (end,) = [each.partition("=")[2] for each in ends if each.startswith(file)]
    sequence, mac = end.split(":")
    last = int(sequence) + 1  # the closing record
    forged = f"{last + 5}:{mac}" if change == "count" else f"{last}:{'0' * 64}"
    report = verify(
        folder.place, key=key, expect=f"safeser-audit-head-v1 {directory} {file}={forged}"
    )
    assert [problem.kind for problem in report.problems] == ["rolled back"]


def test_many_removed_files_are_counted(folder, key):
    for _ in range(25):
        folder.closed("alice", 1)
    folder.now += 8 * DAY
    folder.tidy(AGE)
    report = verify(folder.place, key=key)
    assert (report.ok, len(report.notes)) == (True, 21)
    assert report.notes[-1] == "5 more files were removed by retention"
