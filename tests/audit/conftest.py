from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import safeser.audit
from safeser.audit import AuditKey, AuditLog, Record, Report, read, verify
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


@pytest.fixture
def records() -> Callable[..., list[Record]]:
    """Return what gives a log's own records of one type."""

    def written(log: AuditLog, kind: str = "event") -> list[Record]:
        return [record for record in read(log.path) if record.type == kind]

    return written


@pytest.fixture
def clean() -> Callable[[Path, AuditKey], Report]:
    """Return what verifies a directory that must have no problem."""

    def verified(place: Path, key: AuditKey) -> Report:
        report = verify(place, key=key)
        assert report.ok, str(report)
        return report

    return verified


@pytest.fixture
def found() -> Callable[[Report], list[tuple[str, int, int, str]]]:
    """Return what names the place and kind of each problem."""

    def places(report: Report) -> list[tuple[str, int, int, str]]:
        return [(each.file, each.line, each.sequence, each.kind) for each in report.problems]

    return places


@pytest.fixture
def logs(make, place: Path) -> tuple[Path, Path, Path]:
    """Three files: one closed, one killed, one of a process that still runs."""

    def written(principal: str, *, close: bool = False) -> Path:
        log = make(principal)
        for n in range(6):
            log.record(
                {"event": "admit", "sender": "bob", "family": "dask", "permitted": True, "bytes": n}
            )
        if close:
            log.close()
        return Path(log.path)

    return written("alice", close=True), written("bob"), written("carol")


@pytest.fixture
def edit() -> Callable[[Path, Callable[[list[bytes]], list[bytes]]], None]:
    """Return what rewrites the lines of a file."""

    def edited(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(change(lines)))

    return edited


@pytest.fixture
def count() -> Callable[..., None]:
    """Return what counts one administrative decision."""

    def counted(log: AuditLog, operation: str = "heartbeat", *, permitted: bool = True) -> None:
        log.count("worker", "scheduler", operation, "permit", permitted)

    return counted


#: What keeps state, locks or files: here an exception can arrive before each instruction.
STATEFUL = frozenset(
    str(Path(safeser.audit.__file__).parent / f"{name}.py")
    for name in (
        *("call_lock", "chain_file", "files", "index", "log", "state", "tally"),
        *("writing/log_files", "writing/waiting"),
    )
)


class Interrupt:
    """Raises one exception in the middle of a call: before its instruction number *at*.

    In functions that only compute, of this package or another, before each of their lines: they
    leave the same behind wherever they end.
    """

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.left = at
        self.error = error

    def during(self, call: Callable[[], object]) -> bool:
        """Make the call; return whether it was long enough to be interrupted."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        except self.error:
            sys.settrace(before)
            return True
        finally:
            sys.settrace(before)
        assert self.left >= 0, "the exception was swallowed"
        return False

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace = self._step  # Python 3.13 asks for it before it traces instructions
        frame.f_trace_opcodes = frame.f_code.co_filename in STATEFUL
        frame.f_trace_lines = not frame.f_trace_opcodes
        return self._step

    def _step(self, frame: FrameType, event: str, arg: object) -> Any:
        if event in {"opcode", "line"}:
            self.left -= 1
            if self.left < 0:
                raise self.error
        return self._step


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that interrupt at instructions in a thread of their own.

    CPython leaves an exception as the one that is being handled where a trace function raises at
    the end of an except clause: every later error of that thread would have it as its context.
    """
    if "interrupt" not in pyfuncitem.fixturenames:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    test = functools.partial(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names})
    with ThreadPoolExecutor(max_workers=1) as own:
        own.submit(test).result()
    return True


@pytest.fixture
def interrupt() -> Callable[..., bool]:
    """Return what makes a call and interrupts it at one of its instructions, if it has so many."""

    def interrupted(
        call: Callable[[], object], at: int, error: type[BaseException] = KeyboardInterrupt
    ) -> bool:
        return Interrupt(at, error).during(call)

    return interrupted


@pytest.fixture
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing wait for a disk: thousands of files are made and thrown away."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(f"os.{name}", lambda handle: None)
