"""How the demo's processes talk to the one that started them: a line of JSON each way.

The one rule: a process's standard output carries lines of this kind only; what libraries print
goes to its log. When the starter is gone, its pipe ends, and so does the process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import Any, TextIO

__all__ = ["Speech"]


class Speech:
    """The child's end: tells events, hears commands."""

    def __init__(self, commands: TextIO, events: TextIO) -> None:
        self._commands = commands
        self._events = events

    @classmethod
    def of_this_process(cls) -> Speech:
        """Take over standard input and output; prints of libraries go to standard error."""
        events = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        # It was a pipe: without this, what a library prints would wait for the process's end.
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        return cls(sys.stdin, events)

    def tell(self, event: str, **details: Any) -> None:
        """Say one thing."""
        self._events.write(json.dumps({"event": event, **details}) + "\n")
        self._events.flush()

    def commands(self) -> Iterator[dict[str, Any]]:
        """Yield what the starter asks, until it asks for nothing more."""
        for line in iter(self._commands.readline, ""):
            command = json.loads(line)
            if command["do"] == "end":
                return
            yield command
