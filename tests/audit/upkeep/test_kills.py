"""kill -9 at each system call of a rotation, a compression, a removal and a move of the key."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from safeser.audit import AuditFiles, AuditLog, read, verify
from safeser.audit.files import Directory
from safeser.audit.key import source
from safeser.audit.upkeep.closed_files import tidy
from tests.audit.upkeep.conftest import ADMIT, FULL

# A process that is killed loses nothing that it had given to the system: what waits for the disk
# changes nothing here.
pytestmark = [pytest.mark.slow, pytest.mark.unmeasured, pytest.mark.usefixtures("no_disk")]

#: Calls after which something is different on the disk.
CHANGES = ("write", "pwrite", "ftruncate", "rename", "unlink", "open")

#: The system never cuts a smaller write to a file short.
PAGE = 4_096

FILES = AuditFiles(rotate_size=64 << 10, keep_age=86_400)


class Killed:
    """Ends this process by SIGKILL before its system call *at*, or in large write number *at*.

    After a call is before the next.
    """

    def __init__(self, at: int, half: bool) -> None:
        self.left = at
        self.half = half
        for name in CHANGES:
            setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, call):
        def made(*args, **options):
            cuts = self.half and name == "write" and len(args[1]) > PAGE
            self.left -= not self.half or cuts
            if self.left != -1:
                return call(*args, **options)
            try:
                if cuts:
                    call(args[0], args[1][: len(args[1]) // 2])
            finally:
                os.kill(os.getpid(), signal.SIGKILL)

        return made


def in_child(work, at: int, half: bool) -> bool:
    """Do *work* in another process that is killed; return whether it was."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            Killed(at, half)
            work()
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def tend(place: Path, key, now: int) -> None:
    directory = Directory(place, create=False)
    try:
        tidy(directory, source(key), FILES, now=now)
    finally:
        directory.close()


@pytest.fixture(params=["static", "moving"])
def machine_key(request, tmp_path, key):
    """Return what makes the key of a directory, static or one that moves."""

    def made(home: Path):
        if request.param == "static":
            return key
        path = home / "audit.key"
        key.save(path, moving=True)
        return path

    return made


@pytest.mark.parametrize("half", [False, True])
def test_during_a_rotation(tmp_path, key, clock, machine_key, fill, half):
    for at in itertools.count():
        home = tmp_path / str(at)
        home.mkdir()
        place, own = home / "audit", machine_key(home)

        def work(place=place, own=own) -> None:
            files = AuditFiles(rotate_size=64 << 10, compress=False)
            log = AuditLog.open(place, key=own, principal="alice", clock=clock, files=files)
            fill(log, FULL)
            fill(log, 50, start=FULL)  # in the next file
            log.close()

        killed = in_child(work, at, half)
        with AuditLog.open(place, key=own, principal="bob", clock=clock) as log:
            log.record(ADMIT)
        report = verify(place, key=key)
        assert report.ok, f"{half} {at}: {report}"
        found = Counter(e.number("bytes") for e in read(place) if e.type == "event")
        assert all(times == 1 for n, times in found.items() if n >= 0)
        shutil.rmtree(home)
        if not killed:
            assert report.notes == ()
            break
    assert at > (2 if half else 25)


@pytest.mark.parametrize("half", [False, True])
def test_during_compression_and_retention(tmp_path, key, clock, machine_key, fill, half):
    origin = tmp_path / "origin"
    origin.mkdir()
    place, own = origin / "audit", machine_key(origin)
    files = AuditFiles(rotate_size=64 << 10, compress=False)
    with AuditLog.open(place, key=own, principal="old", clock=clock, files=files) as log:
        fill(log, FULL)
    clock.tick(90_000)
    with AuditLog.open(place, key=own, principal="new", clock=clock, files=files) as log:
        fill(log, FULL)
    now = clock() // 1_000
    whole = {e.number("bytes") for e in read(place) if e.type == "event"}
    for at in itertools.count():
        home = tmp_path / str(at)
        shutil.copytree(origin, home)
        here = home / "audit"
        mine = own if own is key else home / "audit.key"
        killed = in_child(lambda here=here, mine=mine: tend(here, mine, now), at, half)
        report = verify(here, key=key)
        assert report.ok, f"{half} {at}: {report}"
        tend(here, mine, now)  # the next process goes on
        report = verify(here, key=key)
        assert report.ok, f"{half} {at}: {report}"
        names = sorted(p.name for p in here.iterdir())
        assert not [n for n in names if n.endswith(".part")]
        assert {n.split("-")[0] for n in names if n.endswith((".log", ".gz"))} == {"new"}
        assert [n for n in names if n.startswith("new") and n.endswith(".gz")]
        assert {e.number("bytes") for e in read(here) if e.type == "event"} == whole
        shutil.rmtree(home)
        if not killed:
            break
    assert at > (0 if half else 15)
