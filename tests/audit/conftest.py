from __future__ import annotations

import contextlib
import dis
import errno
import functools
import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import safeser.audit
from safeser.audit import AuditKey, AuditLog, Record, Report, read, verify
from safeser.errors import AuditError

SECRET = bytes(range(32))
POLICY = ("production", 7, "ab" * 32)
ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True, "bytes": 5}
REFUSE = {"event": "refuse", "sender": "bob", "rule": "policy.family", "permitted": False}


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
            log.record({**ADMIT, "bytes": n})
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


@pytest.fixture
def fails(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., contextlib.AbstractContextManager[None]]:
    """Return what makes a call of the system fail while it is used.

    The call succeeds *after* times before; it then writes no more than *part* of its bytes.
    """

    @contextlib.contextmanager
    def failing(
        name: str = "write", code: int = errno.ENOSPC, *, after: int = 0, part: int | None = None
    ) -> Iterator[None]:
        real, left = getattr(os, name), [after]

        def call(*given: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(code, os.strerror(code))
            return real(*given, **options) if part is None else real(given[0], given[1][:part])

        with monkeypatch.context() as patch:
            patch.setattr(os, name, call)
            yield

    return failing


#: What keeps state, locks or files: here an exception can arrive before each instruction.
STATEFUL = frozenset(
    str(Path(safeser.audit.__file__).parent / f"{name}.py")
    for name in (
        *("call_lock", "chain_file", "files", "index", "log", "state", "tally"),
        *("writing/log_files", "writing/waiting"),
    )
)


#: Instructions that change nothing but the stack of values, which an exception throws away.
_PURE = frozenset(
    [
        *("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD"),
        *("PUSH_NULL", "PRECALL", "KW_NAMES", "RESUME", "COPY", "SWAP", "NOP", "EXTENDED_ARG"),
        *("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_STRING", "BUILD_CONST_KEY_MAP"),
        *("IS_OP", "JUMP_FORWARD", "COPY_FREE_VARS", "MAKE_CELL", "LOAD_CLOSURE"),
        *("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE"),
        *("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE"),
    ]
)


@functools.cache
def _pure_and_handlers(code: CodeType) -> tuple[frozenset[int], dict[int, int]]:
    """Return where *code* has pure instructions, and where each leads to when it raises."""
    shown = dis.Bytecode(code)
    pure = frozenset(each.offset for each in shown if each.opname in _PURE)
    handlers = {
        at: each.target for each in shown.exception_entries for at in range(each.start, each.end, 2)
    }
    return pure, handlers


class Interrupt:
    """Raises one exception in the middle of each call: where it raised in none before.

    Points are the instructions of what keeps state, apart for each place that calls it, so that a
    loop is interrupted in its first round alone. An instruction behind a pure one that has the same
    handler is no point of its own: an exception before either leaves the same. In functions that
    only compute, points are their lines: they leave the same behind wherever they end.
    """

    def __init__(self) -> None:
        self._met: set[object] = set()
        self._left = 0
        self._came = True
        self._error: type[BaseException] = KeyboardInterrupt

    def __call__(
        self,
        call: Callable[[], object],
        error: type[BaseException] = KeyboardInterrupt,
        *,
        every: int = 1,
    ) -> bool:
        """Make the call; return whether it was interrupted, at the last of *every* new points."""
        self._left, self._error = every, error
        # What others have called at a collection of garbage can raise nothing to anyone, and comes
        # at another point each time.
        collects = gc.isenabled()
        gc.disable()
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        except error:
            sys.settrace(before)
            self._came = True
            return True
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()
        assert self._left > 0, "the exception was swallowed"
        self._came = False
        return False

    def rounds(self, least: int) -> Iterator[int]:
        """Count rounds of one call each, until one is not interrupted after so many points."""
        for at in itertools.count():
            yield at
            if not self._came:
                break
        assert len(self._met) > least

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename not in STATEFUL:
            frame.f_trace = self._line  # Python 3.13 asks for it before it traces instructions
            return self._line
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        frame.f_trace = self._opcodes(frame)
        return frame.f_trace

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self._meet((frame.f_code, frame.f_lasti))
        return self._line

    def _opcodes(self, called: FrameType) -> Any:
        """Return what is told of the instructions of one call."""
        caller, code = called.f_back, called.f_code
        assert caller is not None
        way = (caller.f_code, caller.f_lasti, code)
        pure, handlers = _pure_and_handlers(code)
        last = -1

        def step(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal last
            if event == "opcode":
                before, last = last, frame.f_lasti
                if before not in pure or handlers.get(before) != handlers.get(last):
                    self._meet((*way, last))
            return step

        return step

    def _meet(self, point: object) -> None:
        if point not in self._met:
            self._met.add(point)
            self._left -= 1
            if self._left == 0:
                raise self._error


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
def interrupt() -> Interrupt:
    """Return what makes calls and interrupts each at another point, while there is one left."""
    return Interrupt()


@pytest.fixture
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing wait for a disk: thousands of files are made and thrown away."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(f"os.{name}", lambda handle: None)
