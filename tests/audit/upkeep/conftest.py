from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from safeser.audit import AuditFiles, AuditKey, AuditLog
from safeser.audit.files import Directory
from safeser.audit.index import new_id
from safeser.audit.key import source
from safeser.audit.upkeep.closed_files import tidy
from safeser.errors import AuditError

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True}

#: Events that fill a file of 64 KiB: the next goes into another one.
FULL = 400


@pytest.fixture
def small(make) -> Callable[..., AuditLog]:
    """Return what opens a log that rotates at 64 KiB, and whose files no thread touches."""

    def opened(principal: str = "alice", **options) -> AuditLog:
        files = options.pop("files", AuditFiles(rotate_size=64 << 10, compress=False))
        log = make(principal, files=files, **options)
        log._keep = lambda: None
        return log

    return opened


@pytest.fixture
def fill() -> Callable[..., None]:
    """Return what writes so many events, numbered from *start*; it rotates where that is due."""

    def filled(log: AuditLog, count: int = FULL, *, start: int = 0) -> None:
        for n in range(start, start + count, 50):
            with contextlib.suppress(AuditError):  # as the thread that keeps the files
                log.rotate_if_due()
            log.record_all([{**ADMIT, "bytes": at, "task": new_id()} for at in range(n, n + 50)])

    return filled


@pytest.fixture
def tended(place: Path, key: AuditKey, clock) -> Callable[..., None]:
    """Return what makes one pass over the directory, now."""

    def tend(files: AuditFiles, *, key=key) -> None:
        directory = Directory(place, create=False)
        try:
            tidy(directory, source(key), files, now=clock() // 1_000)
        finally:
            directory.close()

    return tend
