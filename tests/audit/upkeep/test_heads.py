"""Heads in a second place: without them a log that was cut together with its heads looks whole."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from safeser.audit import AuditFiles, read, verify
from tests.audit.registry.forging import Folder
from tests.audit.upkeep.conftest import ADMIT, FULL


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_heads_are_written_at_each_rotation_and_at_the_end(make, place, key, tmp_path, fill, clean):
    kept = tmp_path / "heads"
    files = AuditFiles(rotate_size=64 << 10, heads=(f"file:{kept}",), compress=False)
    with make(files=files) as log:
        fill(log, 3 * FULL)
    assert lines(kept)
    last = lines(kept)[-1]
    assert last == log.head()
    end = list(read(log.path))[-1]
    assert f"{end.sequence}:{end.mac.hex()}" in last
    assert kept.stat().st_mode & 0o777 == 0o600
    assert verify(place, key=key, heads=["Nov 26 host safeser: " + each for each in lines(kept)]).ok


def test_a_file_that_a_holder_of_the_key_wrote_anew_contradicts_its_heads(tmp_path, key, found):
    """Both histories verify, and only one can have been there when its head was kept."""
    folder = Folder(tmp_path / "home", initial=key, moving=False)
    log = folder.log("alice")
    log.record_all([{**ADMIT, "bytes": n} for n in range(3)])
    head = log.head()
    folder.rewritten(Path(log.path), lambda f: {**f, "bytes": 2} if f.get("bytes") == 1 else f)
    assert verify(folder.place, key=key).ok
    problems = found(verify(folder.place, key=key, heads=[head]))
    assert {kind for *_, kind in problems} == {"rolled back"}


def test_the_system_log(make, tmp_path, place, key):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        port = server.getsockname()[1]
        with make(files=AuditFiles(heads=(f"syslog:127.0.0.1:{port}",))) as log:
            log.record(ADMIT)
        received = []
        while not received or log.head() not in received[-1]:
            received.append(server.recv(4_096).decode().rstrip("\0"))
    assert received[-1].startswith("<38>safeser: safeser-audit-head-v1 ")
    assert verify(place, key=key, heads=received).ok


def test_a_command(make, tmp_path, place, key):
    kept = tmp_path / "with space"
    program = tmp_path / "keep.py"
    program.write_text("import sys; open(sys.argv[1], 'a').write(sys.stdin.read())")
    command = f"command:{sys.executable} {program} '{kept}'"
    with make(files=AuditFiles(heads=(command,))) as log:
        log.record(ADMIT)
    assert lines(kept)[-1] == log.head()


@pytest.mark.parametrize(
    "kept",
    [
        *("file:/nowhere/heads", "command:/nowhere/program", "command:false"),
        *("file:HOME/link", "file:HOME/pipe", "file:HOME/pipe that is read"),
    ],
)
def test_a_place_that_takes_none_stops_nothing(make, place, key, tmp_path, clean, caplog, kept):
    """A link is not followed, and a pipe not waited for, which might have no reader."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    pipe = tmp_path / kept.rpartition("/")[2]
    if "pipe" in kept:
        os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) if "read" in kept else None
    with make(files=AuditFiles(heads=(kept.replace("HOME", str(tmp_path)),))) as log:
        log.record(ADMIT)
    if reader is not None:
        os.close(reader)
    clean(place, key)
    assert "head of the audit log was not written" in caplog.text
    assert "/nowhere/program" not in caplog.text
    assert not (tmp_path / "target").exists()
