from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from safeser.audit import AuditKey, AuditLog
from safeser.errors import AuditError

SECRET = bytes(range(32))
POLICY = ("production", 7, "ab" * 32)


class Clock:
    """A clock that stands still until it is moved; nanoseconds."""

    def __init__(self) -> None:
        self.now = 1_795_000_000_000_000_000

    def __call__(self) -> int:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def key() -> AuditKey:
    return AuditKey(SECRET)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "audit"


@pytest.fixture
def make(place: Path, key: AuditKey, clock: Clock):
    """Open logs in one directory; the test's end closes those that it left open."""
    opened = []

    def open_log(principal: str = "alice", **options) -> AuditLog:
        options = {"key": key, "policy": POLICY, "clock": clock, **options}
        log = AuditLog.open(place, principal=principal, **options)
        opened.append(log)
        return log

    yield open_log
    for log in opened:
        # Tests remove and replace files under a log on purpose.
        with contextlib.suppress(AuditError, OSError):
            log.close()
