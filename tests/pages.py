"""Pages of the documentation as tests: their files, their commands, and what these print.

The one rule: a command of a page runs as it stands there, and each line that it prints is compared,
with numbers, hashes and dates taken as equal, unless the page leaves it out with ``...``.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Command", "Page", "Shell", "follow", "matches", "normalised"]

DOCS = Path(__file__).parents[1] / "docs"

#: What a page prints of one run and another prints otherwise.
_VARYING = (
    (re.compile(r"\b[a-z2-7]{4}(-[a-z2-7]{4}){3}\b"), "KEY"),  # fingerprints
    (re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{12,64}\b"), "HASH"),
    (re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d( to (\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d)?"), "TIME"),
    (re.compile(r"(?<!exit code )\d[\d,]*"), "0"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"\s+"), " "),
)


class Command(NamedTuple):
    """One command of a page.

    :param printed: the lines below it.
    """

    text: str
    printed: tuple[str, ...]


class Page:
    """A page's blocks of console sessions, and of files that say their name in the first line."""

    def __init__(self, name: str) -> None:
        self.text = (DOCS / name).read_text("utf-8")

    @property
    def commands(self) -> list[Command]:
        """All commands, those that go on after a backslash as one."""
        found: list[tuple[str, list[str]]] = []
        for block in re.findall(r"^```console\n(.*?)^```", self.text, re.M | re.S):
            for line in block.splitlines():
                if line.startswith("$ "):
                    found.append((line[2:], []))
                elif found[-1][0].endswith("\\") and not found[-1][1]:
                    found[-1] = (f"{found[-1][0]}\n{line}", [])
                else:
                    found[-1][1].append(line)
        return [Command(text, tuple(printed)) for text, printed in found]

    @property
    def files(self) -> dict[str, str]:
        """The text of each file that the page shows."""
        blocks = re.findall(r"^```(?:py|yaml)\n# (\S+\.\w+)\n(.*?)^```", self.text, re.M | re.S)
        return dict(blocks)


def follow(page: Page, folder: Path, opened: Shell, patience: float) -> None:
    """Write the files of *page* once their folders are there, and run its commands, in order."""
    files = page.files
    for command in page.commands:
        for name in [*files]:
            if (folder / name).parent.exists():  # some are made by a command
                (folder / name).write_text(files.pop(name), "utf-8")
        printed, code = opened.run(command.text, patience)
        assert matches(printed, command.printed), "\n".join([command.text, *printed])
        assert code == 0, command.text


def normalised(line: str) -> str:
    """Return *line* with what differs from run to run taken as equal."""
    for pattern, text in _VARYING:
        line = pattern.sub(text, line)
    return line.strip()


def matches(printed: list[str], expected: tuple[str, ...]) -> bool:
    """Tell whether *printed* is what the page says; a line ``...`` stands for any lines."""
    wanted = [normalised(line) for line in expected]
    pattern = "".join("(?:.*\n)*?" if each == "..." else re.escape(each) + "\n" for each in wanted)
    text = "".join(normalised(line) + "\n" for line in printed)
    return re.fullmatch(pattern, text) is not None


_END = "--- end of command "


class Shell:
    """One shell in which the commands of a page run one after the other, background ones too."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        scripts = Path(sys.executable).parent
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env={
                **environment,
                **{"PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "80", "NO_COLOR": "1"},
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._number = 0
        self.run("umask 077", 10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def run(self, command: str, patience: float) -> tuple[list[str], int]:
        """Return what *command* prints on both outputs, and its exit code."""
        assert self._process.stdin is not None
        self._number += 1
        end = f"{_END}{self._number} "
        # Nothing that runs may read the commands that follow.
        self._process.stdin.write(f'{{ {command}\n}} </dev/null\necho "\n{end}$?"\n')
        self._process.stdin.flush()
        deadline = time.monotonic() + patience
        found: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{command} did not end; it printed {found}") from None
            if line.startswith(end):
                break
            found.append(line.rstrip())
        # The line that keeps the mark apart is no output.
        return (found[:-1] if found[-1:] == [""] else found), int(line.removeprefix(end))

    def close(self) -> None:
        """End all that was started, gently first, so that logs and coverage are written."""
        for number, patience in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 15.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        self._reader.join(15)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


@contextlib.contextmanager
def shell(folder: Path, environment: Mapping[str, str]) -> Iterator[Shell]:
    """Yield a shell in *folder* that ends with all that it started."""
    opened = Shell(folder, environment)
    try:
        yield opened
    finally:
        opened.close()
