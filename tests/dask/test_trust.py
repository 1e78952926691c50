"""What a reviewer must trust does not grow: each number of ``make trust`` is within its bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.cluster
def test_nobody_must_trust_more_than_before():
    command = [sys.executable, "-m", "verification.trust"]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
