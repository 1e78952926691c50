"""Processes that are attacked: each does what it is told, line by line, and says what came of it.

The one rule: what runs in them is Dask or safeser as it comes, and the one that was attacked is the
one that has to go on working.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Told"]


class Told:
    """One such process, which runs *program*; what it logs goes to *log*."""

    def __init__(
        self, program: Path, *arguments: str, environment: Mapping[str, str], log: Path
    ) -> None:
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(program), *arguments],
                env=dict(environment),
                cwd=log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def tell(self, told: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()

    def hear(self, patience: float = 120.0) -> Any:
        assert self.process.stdout is not None
        late = threading.Timer(patience, self.process.kill)
        late.start()
        try:
            line = self.process.stdout.readline()
        finally:
            late.cancel()
        assert line, f"the process ended, or hung for {patience:.0f} s"
        return json.loads(line)

    def ask(self, told: dict[str, Any], patience: float = 120.0) -> Any:
        self.tell(told)
        return self.hear(patience)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
