"""The demo's child processes: start them, talk to them, end them.

Every child leads a process group of its own. Leaving :class:`Processes` ends each group and waits
until no process of it is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar

from examples.demo.errors import StepFailed

__all__ = ["Child", "Processes"]

_T = TypeVar("_T")

#: Seconds after SIGTERM, in which Dask's processes close their connections, until SIGKILL.
_GRACE = 4.0

#: Seconds after SIGKILL in which a process disappears.
_KILLED = 5.0

_POLL = 0.02
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TAIL = 12  # lines of a log that fit on a screen beside the reason


class Child:
    """One process, its group and its log.

    :param talks: whether it is a program that uses :mod:`examples.demo.pipe`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        talks: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - this package writes the commands
                list(command),
                env=dict(environment),
                cwd=log.parent,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else output,
                stderr=output,
                start_new_session=True,
                text=True,
                encoding="utf-8",
            )
        if talks:
            threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        """The process's id, which is its group's too."""
        return self._process.pid

    def _listen(self) -> None:
        output = self._process.stdout
        assert output is not None
        with contextlib.suppress(ValueError):  # hang_up() closed it: the demo is ending
            for line in output:
                self._events.put(json.loads(line))
        self._events.put(None)

    def tell(self, command: Mapping[str, Any]) -> None:
        """Send *command*; :meth:`answer` returns its result."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # answer() reports that it ended
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    def answer(
        self,
        *,
        timeout: float,
        meanwhile: Callable[[dict[str, Any]], None] = lambda event: None,
        check: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Return the answer to a command; *meanwhile* receives the events before it.

        :raises StepFailed: if the process reports a failure, ends, or takes longer.
        """
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            check()
            try:
                event = self._events.get(timeout=min(left, 0.5))
            except queue.Empty:
                continue
            if event is None:
                raise self.failed("ended unexpectedly")
            if event["event"] == "failed":
                raise self.failed(f"reported: {event['reason']}")
            if event["event"] == "done":
                return event
            meanwhile(event)
        raise self.failed(f"did not answer within {timeout:.0f} s")

    def ask(
        self,
        command: Mapping[str, Any],
        *,
        timeout: float,
        check: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Send *command* and return the answer."""
        self.tell(command)
        return self.answer(timeout=timeout, check=check)

    def failed(self, how: str) -> StepFailed:
        """Return an error with *how* it failed and the end of this process's log."""
        return StepFailed(f"{self.name} {how}", lines=[f"{self.log}:", *self.tail()])

    def tail(self) -> list[str]:
        """Return the last lines of the log, printable."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            return ["".join(c if c.isprintable() else " " for c in line) for line in lines[-_TAIL:]]
        return []

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    def signal_group(self, number: int) -> None:
        """Send a signal to all that is left of the group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    @property
    def group_is_gone(self) -> bool:
        """Whether no process of the group is left; reaps the leader if it has ended."""
        if self._process.poll() is None:
            return False
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        return _only_zombies(self.pid)

    def hang_up(self) -> None:
        """Close this side of the pipes."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _only_zombies(group: int) -> bool:
    """Return whether *group* holds only ended processes that their new parent has not reaped.

    In a container whose first process reaps no children they remain, and they run nothing.
    """
    states = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = entry.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                states.append(fields[0])
    return bool(states) and set(states) <= {"Z", "X"}


class Processes:
    """All child processes of one demo; leaving the context ends them."""

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self._logs = logs
        self._environment = dict(environment)
        self._children: list[Child] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end_all()

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        talks: bool = False,
    ) -> Child:
        """Start *command*; *name* names its log."""
        with _signals_deferred():  # every running child must be in the list
            child = Child(
                name,
                command,
                environment={**self._environment, **(environment or {})},
                log=self._logs / f"{name.replace(' ', '-')}.log",
                talks=talks,
            )
            self._children.append(child)
        return child

    def check(self) -> None:
        """Raise :class:`StepFailed` if a child has ended by itself."""
        for child in self._children:
            if child.code is not None:
                raise child.failed(f"ended with code {child.code}")

    def wait_for(self, what: str, poll: Callable[[], _T | None], *, timeout: float) -> _T:
        """Return the first result of *poll* that is not None; no child may end meanwhile."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.check()
            found = poll()
            if found is not None:
                return found
            time.sleep(_POLL)
        raise StepFailed(f"{what} did not happen within {timeout:.0f} s")

    def end_all(self) -> None:
        """End every child that is left."""
        self.end(self._children)

    def end(self, children: Iterable[Child]) -> None:
        """End *children* and all that they started; those started last end first."""
        ending = list(reversed(list(children)))
        # A second Ctrl-C must not leave half of them running.
        with _signals_deferred():
            for child in ending:
                child.hang_up()
                child.signal_group(signal.SIGTERM)
            _await(ending, _GRACE)
            for child in ending:
                if not child.group_is_gone:
                    child.signal_group(signal.SIGKILL)
            _await(ending, _KILLED)
        self._children = [child for child in self._children if child not in ending]


def _await(children: Sequence[Child], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not all(child.group_is_gone for child in children):
        time.sleep(_POLL)


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Defer the signals that end the demo until the block is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        del frame
        held.append(number)

    # A handler, not SIG_IGN, which children that are started meanwhile would inherit.
    previous = {each: signal.signal(each, hold) for each in _ENDING}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for first in held[:1]:
            signal.raise_signal(first)
