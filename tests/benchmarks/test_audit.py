"""The benchmark of the audit log runs and says what it should; how fast it is, no test asks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def test_a_tiny_run_measures_each_step(tmp_path):
    file = tmp_path / "table.md"
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.audit", "--records", "1000", "--rounds", "1",
         "--markdown", str(file)],
        cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    lines = [line for line in file.read_text().splitlines() if line.startswith("|")][2:]
    assert len(lines) == 10
    for line in lines:
        assert re.fullmatch(r"\| [^|]+ \|( [\d.,]+ \|){3}", line)
    assert lines[0].startswith("| logging.FileHandler")
    assert "CPython" in run.stdout
