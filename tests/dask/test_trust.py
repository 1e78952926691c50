"""What a reviewer must trust does not grow: each number of ``make trust`` is within its bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import base_environment


@pytest.mark.cluster
def test_nobody_must_trust_more_than_before():
    ended = subprocess.run(
        [sys.executable, "-m", "verification.trust"],
        cwd=Path(__file__).parents[2],
        env=base_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "an array arrives at a client" in ended.stdout
