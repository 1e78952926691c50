"""``safeser audit``: verification's exit codes, and reading what peers wrote without harm."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from safeser.audit import AuditKey, AuditLog


@pytest.fixture
def log(tmp_path):
    AuditKey.new().save(tmp_path / "audit.key")
    opened = AuditLog.open(
        tmp_path / "audit",
        key=tmp_path / "audit.key",
        principal="worker",
        policy=("p", 1, "0" * 64),
    )
    for number in range(30):
        opened.record({"event": "load", "sender": "alice", "where": f"field-{number}"})
    opened.close()
    return opened


def test_verify_of_a_whole_log(safeser, log, tmp_path):
    ended = safeser("audit", "verify", tmp_path / "audit", "--key", tmp_path / "audit.key")
    assert (ended.code, ended.err) == (0, "")
    assert "no problem found" in ended.out


def test_verify_names_the_place_of_a_changed_byte(safeser, log, tmp_path):
    path = Path(log.path)
    path.write_bytes(path.read_bytes().replace(b"field-7", b"field-6"))
    ended = safeser("audit", "verify", tmp_path / "audit", f"--key={tmp_path / 'audit.key'}")
    assert ended.code == 1
    assert ".log:" in ended.out


def test_verify_with_a_saved_head_finds_a_log_that_was_begun_anew(safeser, log, tmp_path):
    key, head = f"--key={tmp_path / 'audit.key'}", tmp_path / "head"
    assert safeser("audit", "verify", tmp_path / "audit", key, "--save-head", head).code == 0
    assert safeser("audit", "verify", tmp_path / "audit", key, "--expect", head).code == 0
    AuditLog.open(
        tmp_path / "other",
        key=tmp_path / "audit.key",
        principal="worker",
        policy=("p", 1, "0" * 64),
    ).close()
    ended = safeser("audit", "verify", tmp_path / "other", key, "--expect", head)
    assert ended.code == 1
    assert "rolled back" in ended.out


@pytest.mark.parametrize("text", [None, "nonsense", "\N{SNOWMAN}"])
def test_verify_refuses_what_is_not_a_head(safeser, log, tmp_path, text):
    if text is not None:
        (tmp_path / "head").write_text(text)
    key, head = f"--key={tmp_path / 'audit.key'}", tmp_path / "head"
    ended = safeser("audit", "verify", tmp_path / "audit", key, "--expect", head)
    assert ended.code == 2
    assert ended.err.count("\n") == 1


def test_a_head_never_replaces_a_file(safeser, log, tmp_path):
    (tmp_path / "head").write_text("mine")
    key, head = f"--key={tmp_path / 'audit.key'}", tmp_path / "head"
    ended = safeser("audit", "verify", tmp_path / "audit", key, "--save-head", head)
    assert ended.code == 2
    assert (tmp_path / "head").read_text() == "mine"


def test_a_head_that_could_not_be_written_leaves_no_part_of_it(safeser, log, tmp_path, monkeypatch):
    class Full(io.StringIO):
        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    def full(path, mode="r", **_):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        return Full()

    key, head = f"--key={tmp_path / 'audit.key'}", tmp_path / "head"
    monkeypatch.setattr(Path, "open", full)
    ended = safeser("audit", "verify", tmp_path / "audit", key, "--save-head", head)
    assert ended.code == 2
    assert "No space left" in ended.err
    assert not head.exists()


def test_verify_without_a_log_or_a_key_could_not_run(safeser, log, tmp_path):
    key = f"--key={tmp_path / 'audit.key'}"
    assert safeser("audit", "verify", tmp_path / "nowhere", key).code == 2
    ended = safeser("audit", "verify", tmp_path / "audit", f"--key={tmp_path / 'nokey'}")
    assert ended.code == 2
    assert ended.err.startswith("safeser: ")


def test_tail_shows_the_newest_last(safeser, log, tmp_path):
    ended = safeser("audit", "tail", tmp_path / "audit", "-n", "3")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert len(lines) == 3
    assert "field-28" in lines[0]
    assert "field-29" in lines[1]


def _opened(folder: Path, principal: str) -> AuditLog:
    """Begin a log in *folder*, where its key is."""
    return AuditLog.open(
        folder / "audit",
        key=folder / "audit.key",
        principal=principal,
        policy=("p", 1, "0" * 64),
    )


def test_tail_shows_what_was_refused_alone_when_asked(safeser, log, tmp_path):
    with _opened(tmp_path, "scheduler") as opened:
        opened.record({"event": "refuse", "where": "no-1", "permitted": False})
        opened.record({"event": "load", "where": "yes", "permitted": True})
        opened.count("alice", "scheduler", "ping", "permit", True)
        opened.flush()
        opened.count("mallory", "scheduler", "run", "operation.not-granted", False)
    shown = safeser("audit", "tail", tmp_path / "audit", "--refused").out.splitlines()
    assert len(shown) == 2
    assert shown[0].startswith("scheduler: ")
    assert "no-1" in shown[0]
    assert "mallory" in shown[1]
    alone = safeser("audit", "tail", opened.path, "--refused").out
    assert alone.startswith("2")
    assert safeser("audit", "tail", log.path, "--refused").out == ""


def test_tail_of_a_folder_says_whose_records_it_shows(safeser, log, tmp_path):
    (tmp_path / "audit" / "a\n-b.log").write_bytes(b"")
    with _opened(tmp_path, "team-1.scheduler"):
        pass
    shown = safeser("audit", "tail", tmp_path / "audit").out.splitlines()
    assert {each.partition(": ")[0] for each in shown} == {"worker", "team-1.scheduler"}


def test_tail_of_a_changed_file_says_to_verify(safeser, log):
    with open(log.path, "ab") as file:
        file.write(b"nonsense\n")
    ended = safeser("audit", "tail", log.path)
    assert ended.code == 1
    assert "safeser audit verify" in ended.err


def test_tail_prints_what_peers_wrote_as_plain_text(safeser, tmp_path):
    AuditKey.new().save(tmp_path / "audit.key")
    with _opened(tmp_path, "worker") as opened:
        opened.record({"event": "load", "operation": "\x1b[2J[red]x[/red]\n:boom:"})
    out = safeser("audit", "tail", tmp_path / "audit").out
    assert "\x1b" not in out
    assert "[red]x[/red]" in out


def test_follow_needs_one_file(safeser, log, tmp_path):
    ended = safeser("audit", "tail", tmp_path / "audit", "--follow")
    assert ended.code == 2
    assert ".log files" in ended.err


def test_follow_shows_the_end_then_what_is_new_and_ends_cleanly(tmp_path):
    AuditKey.new().save(tmp_path / "audit.key")
    opened = AuditLog.open(
        tmp_path / "audit",
        key=tmp_path / "audit.key",
        principal="worker",
        policy=("p", 1, "0" * 64),
    )
    for number in range(5):
        opened.record({"event": "load", "where": f"old-{number}"})
    opened.flush()
    # A shell ignores SIGINT in what it runs in the background, and children inherit that.
    command = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from safeser.cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", command, "audit", "tail", opened.path, "-n", "2", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert "old-3" in tail.stdout.readline()
        assert "old-4" in tail.stdout.readline()
        opened.record({"event": "load", "where": "new"})
        opened.flush()
        assert "new" in tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        assert tail.stderr.read() == ""
        assert tail.wait(timeout=30) == 130
    opened.close()
