"""Numbered cases in child processes, which a crash ends: a run stops, and goes on behind the last.

The one rule: a case follows from the seed and its number alone, and the parent knows which one
runs before it runs. What was found is kept with its bytes in ``FOLDER/state.json``. ``--case N``
runs one here, and ``--again`` what was found before.
"""

from __future__ import annotations

import argparse
import base64
import faulthandler
import io
import json
import os
import resource
import select
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NoReturn

__all__ = ["Case", "Runs", "Tool", "main"]

#: Times the patience that a case may take by the clock, which runs on while others compute.
_STALLED = 20
_SHOWN_EVERY = 10.0
#: How an outcome begins that is a finding; what ended or stopped a child is one as well.
_FINDINGS = ("exhausted", "broken", "disagreement")


@dataclass(frozen=True)
class Case:
    """What is read, and in words what it is."""

    data: bytes
    buffers: Sequence[Any]
    what: str


@dataclass(frozen=True)
class Tool:
    """What makes a case of a number, and what runs it and says in a word or two what came of it.

    :param each: cases of one child: what they leave behind goes with it.
    :param patience: seconds of processor time that a case may take.
    :param memory: bytes of address space that a forked child may have.
    :param command: runs a child that must not be forked. It is given the seed, the first number,
        the one behind the last, and the descriptor to which it writes ``number outcome`` lines.
    """

    make: Callable[[int, Random], Case]
    run: Callable[[bytes, Sequence[Any]], str] = lambda data, buffers: ""
    each: int = 2_000
    patience: float = 20.0
    memory: int = 6 << 30
    command: Sequence[str] = ()


class Runs:
    """What all runs of a tool and a seed came to, read and written where it is kept."""

    def __init__(self, tool: Tool, folder: Path, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.tool, self.seed, self.path = tool, seed, folder / "state.json"
        said: dict[str, Any] = {"seed": seed}
        if self.path.exists():
            said = json.loads(self.path.read_text())
        if said["seed"] != seed:
            raise SystemExit(f"{self.path} belongs to seed {said['seed']}")
        self.next: int = said.get("next", 0)
        self.seconds: float = said.get("seconds", 0.0)
        self.totals = Counter[str](said.get("totals", {}))
        self.findings: list[dict[str, Any]] = said.get("findings", [])

    def case(self, number: int) -> Case:
        return self.tool.make(number, Random(self.seed << 40 | number))  # noqa: S311 - no secret

    def go_on(self, seconds: float, last: int) -> None:
        """Run cases for so many seconds, or up to the last."""
        begun, before, shown = time.monotonic(), self.seconds, 0.0
        while self.next < last and (taken := time.monotonic() - begun) < seconds:
            self._one_child(begun + seconds, last)
            self.seconds = before + time.monotonic() - begun
            self.save()
            if taken - shown > _SHOWN_EVERY:
                shown = taken
                print(f"{self.next:,} cases, {self.next / self.seconds:,.0f} a second", flush=True)

    def save(self) -> None:
        names = ("seed", "next", "seconds", "totals", "findings")
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps({name: getattr(self, name) for name in names}, indent=1))
        beside.replace(self.path)

    def _found(self, number: int, ended: str) -> None:
        case = self.case(number)
        kept = {"case": number, "ended": ended, "what": case.what[:2000]}
        kept["pickle"] = base64.b64encode(case.data).decode()
        kept["buffers"] = [base64.b64encode(held).decode() for held in case.buffers]
        self.findings.append(kept)
        print(f"{ended}: case {number}, {case.what[:300]}", flush=True)

    def _one_child(self, end: float, last: int) -> None:
        """Run cases in a child until it ends, and note how it did."""
        reading, writing = os.pipe()
        first, last = self.next, min(last, self.next + self.tool.each)
        if self.tool.command:
            os.set_inheritable(writing, True)
            command = [*self.tool.command, *map(str, (self.seed, first, last, writing))]
            child = os.posix_spawn(command[0], command, {**os.environ, "PYTHONHASHSEED": "0"})
        elif not (child := os.fork()):
            os.close(reading)
            self._run_in_child(writing, end, last)
        os.close(writing)
        hung = self._heard(reading, child)
        if hung:
            os.kill(child, signal.SIGKILL)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        if hung or os.WIFSIGNALED(status):
            ended = "hung" if hung else signal.Signals(os.WTERMSIG(status)).name
            number, self.next = self.next, self.next + 1
            self.totals[ended] += 1
            self.save()  # to make the case again may end this process as well
            self._found(number, ended)
        elif status or self.next == first:
            raise SystemExit(f"a child ended with status {status} behind case {self.next}")

    def _heard(self, reading: int, child: int) -> bool:
        """Count what the child says until it ends; tell whether it fell silent before."""
        left = b""
        while True:
            if not self._has_said(reading, child):
                return True
            got = os.read(reading, 1 << 16)
            if not got:
                return False
            *lines, left = (left + got).split(b"\n")
            for line in lines:
                text, _, what = line.decode().partition(" ")
                self.next = int(text) + 1
                self.totals[what] += 1
                if what.startswith(_FINDINGS):
                    self._found(int(text), what)

    def _has_said(self, reading: int, child: int) -> bool:
        """Wait until the child says something or ends, for as long as one case may take."""
        spent = _processor_seconds(child)
        for _ in range(_STALLED):
            ready, _, _ = select.select([reading], [], [], self.tool.patience)
            if ready or _processor_seconds(child) - spent > self.tool.patience:
                return bool(ready)
        return False

    def _run_in_child(self, writing: int, end: float, last: int) -> NoReturn:
        resource.setrlimit(resource.RLIMIT_AS, (self.tool.memory, self.tool.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable()
        sys.stdout = io.StringIO()
        for number in range(self.next, last):
            os.write(writing, f"{number} {self._outcome(number)}\n".encode())
            if time.monotonic() > end:
                break
        os._exit(0)

    def _outcome(self, number: int) -> str:
        try:
            case = self.case(number)
        except Exception:  # what cannot be written is no case
            return "unwritable"
        try:
            return self.tool.run(case.data, case.buffers).replace("\n", " ")
        except Exception as error:  # loading raised something that is no SafeserError
            print(f"case {number}: {type(error).__name__}: {error}", file=sys.stderr)
            return "broken"


def _processor_seconds(process: int) -> float:
    """Return the processor time of a process, of all its threads together."""
    return time.clock_gettime(~process << 3 | 2)  # Linux' CPUCLOCK_SCHED


def main(
    description: str | None,
    prepare: Callable[[argparse.Namespace], Tool],
    *,
    state: str,
    seconds: float = 3600,
    **more: float,
) -> int:
    """Take the command line; return 1 if this run, or one before in the folder, found something.

    :param prepare: imports and makes all that cases need, before the first child.
    :param more: options of this tool, with their defaults.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", nargs="?", type=Path, help="the same as --state")
    parser.add_argument("--state", type=Path, default=Path(state), help="folder of what is kept")
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="stop behind so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this one here, without a child")
    parser.add_argument("--again", action="store_true", help="run what was found before, here")
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = Runs(prepare(options), options.folder or options.state, options.seed)
    if options.case is not None or options.again:
        faulthandler.enable()
    if options.case is not None:
        print(runs.case(options.case).what, flush=True)
        print(runs._outcome(options.case))
        return 0
    for found in runs.findings if options.again else ():
        print(found["case"], found["what"][:300], flush=True)
        buffers = [bytearray(base64.b64decode(held)) for held in found["buffers"]]
        print("   ", runs.tool.run(base64.b64decode(found["pickle"]), buffers), flush=True)
    if options.again:
        return 0
    print(f"from case {runs.next:,} on", flush=True)
    with suppress(KeyboardInterrupt):
        runs.go_on(options.seconds, options.cases)
    runs.save()
    for name, count in runs.totals.most_common():
        print(f"{count:>12,}  {name}")
    return int(bool(runs.findings))
