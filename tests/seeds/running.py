"""Programs of users, each in a Python of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import Ended

__all__ = ["run"]


def run(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    code: int = 0,
) -> Ended:
    """Run Python with *arguments* until it ends with *code*."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    return Ended(ended.returncode, ended.stdout, ended.stderr)
