"""A system call that fails, is cut short or is interrupted, at each place where one is made."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import threading

import pytest

from safeser.audit import AuditLog, read, verify
from safeser.errors import AuditError, ConfigError

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True}

pytestmark = pytest.mark.usefixtures("no_disk")

CALLS = (
    (os, "makedirs"),
    (os, "open"),
    (os, "fstat"),
    (os, "stat"),
    (os, "listdir"),
    (os, "pread"),
    (os, "write"),
    (os, "pwrite"),
    (os, "ftruncate"),
    (os, "fdatasync"),
    (os, "fsync"),
    (os, "close"),
    (fcntl, "flock"),
)

#: Those after which something is on the disk, or in the file of a key.
WITH_A_FILE = [(os, name) for name in ("open", "write", "pwrite", "fdatasync", "fsync")]


class Faulty:
    """Lets this thread's system call *at* go wrong, in one of several ways; the others are made.

    Threads that earlier tests left, such as the watcher of policy files, are not counted.
    """

    def __init__(self, monkeypatch, at: int, how: str, calls=CALLS) -> None:
        self.left = at
        self.how = how
        self.name = ""
        self.thread = threading.get_ident()
        for module, name in calls:
            monkeypatch.setattr(module, name, self.wrapped(getattr(module, name), name))

    def wrapped(self, call, name: str):
        def made(*args, **options):
            if threading.get_ident() != self.thread:
                return call(*args, **options)
            self.left -= 1
            if self.left != -1:
                return call(*args, **options)
            self.name = name
            return self.fail(call, *args, **options)

        return made

    def fail(self, call, *args, **options):
        if self.how == "before":
            raise KeyboardInterrupt
        if self.how == "after":
            call(*args, **options)
            raise KeyboardInterrupt
        short = self.how in {"short", "torn"} and self.name in {"write", "pwrite"}
        if short:
            handle, data, *place = args
            count = call(handle, data[: len(data) // 2], *place)
            if self.how == "short":
                return count
        raise OSError(errno.ENOSPC if self.name in {"write", "pwrite"} else errno.EIO, "fault")


def numbers(path: str) -> list[int]:
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
            fault = Faulty(patch, at, how)
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
        assert len({2, 3} & set(found)) != 1
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
            fault = Faulty(patch, at, how, WITH_A_FILE if moving else CALLS)
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
