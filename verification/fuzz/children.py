"""Numbered cases in a child process, which a crash ends; the parent notes it and goes on behind it.

The one rule: which case runs is known to the parent before it runs.
"""

from __future__ import annotations

import faulthandler
import io
import os
import resource
import select
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

__all__ = ["Runner"]

_CASES = 2000  # of one child: what they leave behind goes with it
_FINDINGS = ("exhausted", "broken")
#: Times the patience that a case may take by the clock, which runs on while others compute.
_STALLED = 20


@dataclass
class Runner:
    """Runs cases from *number* on until *end*.

    :param run: runs a case, and says in a word or two what became of it.
    :param found: is told of each case that ended its process, did not end, or broke a rule.
    :param memory: bytes of address space that a child may have.
    :param patience: seconds of processor time that a case may take.
    """

    run: Callable[[int], str]
    found: Callable[[int, str], None]
    number: int
    end: float
    memory: int = 6 << 30
    patience: float = 12.0
    totals: Counter[str] = field(default_factory=Counter)

    def one_child(self) -> None:
        """Run cases in a child until it ends, and note how it did."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            self._cases(writing)
        os.close(writing)
        hung = self._heard(reading, child)
        if hung:
            os.kill(child, signal.SIGKILL)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        if hung or os.WIFSIGNALED(status):
            ended = "hung" if hung else signal.Signals(os.WTERMSIG(status)).name
            self.totals[ended] += 1
            self.found(self.number, ended)
            self.number += 1

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
                self.number = int(text) + 1
                self.totals[what] += 1
                if what.startswith(_FINDINGS):
                    self.found(int(text), what)

    def _has_said(self, reading: int, child: int) -> bool:
        """Wait until the child says something or ends, for as long as one case may take."""
        spent = _processor_seconds(child)
        for _ in range(_STALLED):
            ready, _, _ = select.select([reading], [], [], self.patience)
            if ready or _processor_seconds(child) - spent > self.patience:
                return bool(ready)
        return False

    def _cases(self, writing: int) -> NoReturn:
        resource.setrlimit(resource.RLIMIT_AS, (self.memory, self.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable()
        warnings.simplefilter("ignore")
        np.seterr(all="ignore")
        sys.stdout = io.StringIO()
        for number in range(self.number, self.number + _CASES):
            try:
                what = self.run(number)
            except Exception as error:  # loading raised something that is no SafeserError
                print(f"case {number}: {type(error).__name__}: {error}", file=sys.stderr)
                what = "broken"
            os.write(writing, f"{number} {what}\n".encode())
            if time.monotonic() > self.end:
                break
        os._exit(0)


def _processor_seconds(process: int) -> float:
    """Return the processor time of a process, of all its threads together."""
    return time.clock_gettime(~process << 3 | 2)  # Linux' CPUCLOCK_SCHED
