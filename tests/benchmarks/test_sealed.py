"""The benchmark of sealed calls runs and says what it should; no test asks how fast it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def test_a_tiny_run_measures_every_graph(tmp_path):
    file = tmp_path / "table.md"
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.sealed", "--rounds", "1", "--tasks", "8",
         "--chunks", "4", "--markdown", str(file)],
        cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    text = file.read_text()
    for graph in ("8 closures of 3 kB", "one closure of 3 kB", "sum of an array of 4 chunks"):
        assert graph in text
        assert graph in run.stdout
    assert len(re.findall(r"worker verifies \(µs a task\) \| [\d.,]+ \|", text)) == 3
    assert len(re.findall(r"to workers \(bytes a task\)( \| [\d.,]+){3} \|", text)) == 2
    assert "CPython" in text
