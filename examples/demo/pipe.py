"""JSON lines between the demo and the programs that it starts: commands in, events out.

A program's standard output carries only these lines; what libraries print goes to its log. When the
demo ends, the pipe ends, and so does the program.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from io import TextIOWrapper
from typing import Any, TextIO

__all__ = ["Pipe"]


class Pipe:
    """The program's end: reads commands, writes events."""

    def __init__(self, commands: TextIO, events: TextIO) -> None:
        self._commands = commands
        self._events = events

    @classmethod
    def of_this_process(cls) -> Pipe:
        """Take over standard input and output; what libraries print goes to standard error."""
        events = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        # Output to a pipe is buffered: without this, prints of libraries reach the log at exit.
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        return cls(sys.stdin, events)

    def tell(self, event: str, **details: Any) -> None:
        """Write one event."""
        self._events.write(json.dumps({"event": event, **details}) + "\n")
        self._events.flush()

    def commands(self) -> Iterator[dict[str, Any]]:
        """Yield each command, until ``end`` or the end of the pipe."""
        for line in iter(self._commands.readline, ""):
            command = json.loads(line)
            if command["do"] == "end":
                return
            yield command

    def serve(self, answer: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        """Call *answer* with each command; write its result as ``done``, an error as ``failed``."""
        for command in self.commands():
            try:
                self.tell("done", **answer(command))
            except Exception as error:  # whatever it is, the demo must be told
                self.tell("failed", reason=f"{type(error).__name__}: {error}")
