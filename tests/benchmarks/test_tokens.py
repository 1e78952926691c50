"""The benchmark of tokens runs and says what it should; how fast anything is, no test asks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def test_a_tiny_run_compares_both(tmp_path):
    file = tmp_path / "table.md"
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.tokens", "--rounds", "1", "--only", "small dict",
         "--markdown", str(file)],
        cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    lines = file.read_text().splitlines()
    for name in ("small dict", "mixed"):
        line = next(line for line in lines if line.startswith(f"| {name} "))
        assert re.fullmatch(r"\| [\w ]+ \|( [\d.,]+ \|){3}", line)
    assert "Mixed, at most 1.5 times dask.tokenize: " in file.read_text()
    assert "CPython" in run.stdout
