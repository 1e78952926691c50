"""A system call that fails, is cut short, is interrupted or is the last, at each place of one.

The one rule: what a call acknowledged is in the log once, and the folder verifies and goes on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from safeser.audit import AuditFiles, AuditLog, read, verify
from safeser.audit.files import Directory
from safeser.audit.key import source
from safeser.audit.upkeep.closed_files import tidy
from safeser.errors import AuditError, ConfigError
from tests.audit.upkeep.conftest import ADMIT, FULL

# A process that is killed loses nothing that it had given to the system: what waits for the disk
# changes nothing here.
pytestmark = pytest.mark.usefixtures("no_disk")

CALLS = (
    *("makedirs", "open", "fstat", "stat", "listdir", "pread", "write", "pwrite", "ftruncate"),
    *("fdatasync", "fsync", "close", "flock"),
)

#: Those after which something is on the disk, or in the file of a key.
WITH_A_FILE = ("open", "write", "pwrite", "fdatasync", "fsync")

#: Those after which something is different on the disk.
CHANGES = ("write", "pwrite", "ftruncate", "rename", "unlink", "open")

#: The system never cuts a smaller write to a file short.
PAGE = 4_096


class Fault:
    """Lets this thread's system call *at* go wrong; the others are made.

    Threads that earlier tests left, such as the watcher of policy files, are not counted.

    :param how: ``error``, also after half of a write (``torn``); half of a write alone (``short``);
        KeyboardInterrupt ``before`` or ``after`` it; SIGKILL before it (``kill``), or in the middle
        of a large write (``cut``).
    """

    def __init__(self, patch: pytest.MonkeyPatch, at: int, how: str, calls=CALLS) -> None:
        self.left = at
        self.how = how
        self.name = ""
        self.thread = threading.get_ident()
        for name in calls:
            module = fcntl if name == "flock" else os
            patch.setattr(module, name, self.wrapped(getattr(module, name), name))

    def wrapped(self, call, name: str):
        def made(*args, **options):
            small = self.how == "cut" and (name != "write" or len(args[1]) <= PAGE)
            if small or threading.get_ident() != self.thread:
                return call(*args, **options)
            self.left -= 1
            if self.left != -1:
                return call(*args, **options)
            self.name = name
            return self.fail(call, *args, **options)

        return made

    def fail(self, call, *args, **options):
        if self.how in {"before", "after"}:
            if self.how == "after":
                call(*args, **options)
            raise KeyboardInterrupt
        if self.how in {"short", "torn", "cut"} and self.name in {"write", "pwrite"}:
            handle, data, *place = args
            count = call(handle, data[: len(data) // 2], *place)
            if self.how == "short":
                return count
        if self.how in {"kill", "cut"}:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC if self.name in {"write", "pwrite"} else errno.EIO, "fault")


def numbers(path: str | Path) -> list[int]:
    return [each.number("bytes") for each in read(path) if each.type == "event"]


@pytest.mark.parametrize("durability", ["kernel", "fsync"])
@pytest.mark.parametrize("how", ["error", "short", "torn", "before", "after"])
def test_each_call_of_a_record(place, key, clock, monkeypatch, how, durability):
    place.mkdir()
    for at in itertools.count():
        home = place / str(at)
        log = AuditLog.open(home, key=key, principal="alice", clock=clock, durability=durability)
        log.record({**ADMIT, "bytes": 1})
        clock.tick(1)
        written = {1}
        with monkeypatch.context() as patch:
            fault = Fault(patch, at, how)
            try:
                log.record_all([{**ADMIT, "bytes": 2}, {**ADMIT, "bytes": 3}])
                written |= {2, 3}
            except (AuditError, KeyboardInterrupt):
                assert fault.name
        report = verify(home, key=key)
        assert (report.ok, report.notes) == (True, ()), str(report)
        if fault.name != "fdatasync" or how in {"before", "after"}:
            log.record({**ADMIT, "bytes": 4})
            written.add(4)
        else:
            with pytest.raises(AuditError, match="nothing more is written"):
                log.record({**ADMIT, "bytes": 4})
        found = numbers(log.path)
        assert found == sorted(set(found))
        assert written <= set(found) <= {1, 2, 3, 4}
        both = {2, 3} & set(found)
        assert len(both) != 1
        if fault.name == "write" and how in {"error", "torn"}:  # the call refused both
            assert not both
        with contextlib.suppress(AuditError):
            log.close()
        assert verify(home, key=key).ok
        if not fault.name:
            break
    assert at > 2


@pytest.mark.parametrize(
    ("how", "moving"),
    [*((how, False) for how in ("error", "short", "torn", "before", "after")), ("error", True)],
)
def test_each_call_of_opening_and_closing(place, key, clock, monkeypatch, how, moving):
    place.mkdir()
    for at in itertools.count():
        home, own = place / str(at), key
        if moving:
            own = home.with_suffix(".key")
            key.save(own, moving=True)
            AuditLog.open(home, key=own, principal="first", clock=clock).close()
        with monkeypatch.context() as patch:
            fault = Fault(patch, at, how, WITH_A_FILE if moving else CALLS)
            with (
                contextlib.suppress(AuditError, ConfigError, KeyboardInterrupt),
                AuditLog.open(home, key=own, principal="alice", clock=clock) as log,
            ):
                log.record({**ADMIT, "bytes": 1})
        with AuditLog.open(home, key=own, principal="bob", clock=clock) as log:
            log.record({**ADMIT, "bytes": 2})
        report = verify(home, key=key)
        assert report.ok, str(report)
        if not fault.name:
            assert report.notes == ()
            break
    assert at > (20 if moving else 40)


@pytest.mark.slow
def test_each_call_of_a_rotation(small, place, key, clock, fill, clean, monkeypatch):
    """Which the thread that keeps the files makes; no failure of it loses a record."""
    for at in itertools.count():
        with small(f"p{at}") as log:
            fill(log, FULL)
            clock.tick(2)
            written = set(range(FULL))
            with monkeypatch.context() as patch:
                fault = Fault(patch, at, "error", ("open", "write", "pwrite", "fdatasync"))
                with contextlib.suppress(AuditError):
                    fill(log, 50, start=FULL)
                    written |= set(range(FULL, FULL + 50))
            clock.tick(2)
            fill(log, 50, start=2_000)
        found = Counter(n for path in place.glob(f"p{at}-*.log") for n in numbers(path))
        assert set(found) >= written | {*range(2_000, 2_050)}
        assert set(found.values()) == {1}
        if not fault.name:
            break
    clean(place, key)
    assert at > 12


# --- kill -9 --------------------------------------------------------------------------------------

FILES = AuditFiles(rotate_size=64 << 10, keep_age=86_400)

kills = pytest.mark.parametrize("how", ["kill", "cut"])


def killed_in(work, at: int, how: str) -> bool:
    """Do *work* in another process that is killed; return whether it was."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            Fault(pytest.MonkeyPatch(), at, how, CHANGES)
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


@pytest.mark.slow
@pytest.mark.unmeasured
@kills
def test_a_kill_during_a_rotation(tmp_path, key, clock, machine_key, fill, how):
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

        killed = killed_in(work, at, how)
        with AuditLog.open(place, key=own, principal="bob", clock=clock) as log:
            log.record(ADMIT)
        report = verify(place, key=key)
        assert report.ok, f"{how} {at}: {report}"
        found = Counter(numbers(place))
        assert all(times == 1 for n, times in found.items() if n >= 0)
        shutil.rmtree(home)
        if not killed:
            assert report.notes == ()
            break
    assert at > (25 if how == "kill" else 2)


@pytest.mark.slow
@pytest.mark.unmeasured
@kills
def test_a_kill_during_compression_and_retention(tmp_path, key, clock, machine_key, fill, how):
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
    whole = set(numbers(place))
    for at in itertools.count():
        home = tmp_path / str(at)
        shutil.copytree(origin, home)
        here = home / "audit"
        mine = own if own is key else home / "audit.key"
        killed = killed_in(lambda here=here, mine=mine: tend(here, mine, now), at, how)
        report = verify(here, key=key)
        assert report.ok, f"{how} {at}: {report}"
        tend(here, mine, now)  # the next process goes on
        report = verify(here, key=key)
        assert report.ok, f"{how} {at}: {report}"
        names = sorted(p.name for p in here.iterdir())
        assert not [n for n in names if n.endswith(".part")]
        assert {n.split("-")[0] for n in names if n.endswith((".log", ".gz"))} == {"new"}
        assert [n for n in names if n.startswith("new") and n.endswith(".gz")]
        assert set(numbers(here)) == whole
        shutil.rmtree(home)
        if not killed:
            break
    assert at > (15 if how == "kill" else 0)
