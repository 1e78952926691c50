"""The benchmark of pickles runs and says what it should; how fast anything is, no test asks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT))
    from benchmarks import pickles

    monkeypatch.setattr(pickles, "SLICE", 0)
    return pickles


def test_a_tiny_run_compares_everybody(tmp_path):
    file = tmp_path / "table.md"
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.pickles", "--rounds", "1", "--only", "small dict",
         "--markdown", str(file)],
        cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    line = next(line for line in file.read_text().splitlines() if "a small dict" in line)
    assert re.fullmatch(r"\| a small dict \| 42 \|  \| [\d.]+ \|( [\d.,]+x \|){2}.*", line)
    assert "Below 4 KiB, at most 12 times pickle.loads: " in file.read_text()
    assert "CPython" in run.stdout
    assert str(tmp_path) not in file.read_text()


def test_every_kind_is_loaded_by_safeser(benchmark):
    for kind in benchmark.KINDS:
        run = benchmark.Run(kind)
        assert not run.refused, (kind.name, run.refused)
        sizes = {len(sent.data) for sent in run.sent}
        assert max(sizes) - min(sizes) < 100 + max(sizes) // 10
        assert len({sent.data for sent in run.sent}) > 1 or run.sent[0].buffers


def test_what_is_refused_or_absent_is_said(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark.importlib.util, "find_spec", lambda _: None)
    run = benchmark.Run(benchmark.Kind("a function", lambda at: [print, at], 2))
    run.round(0)
    cells = run.cells()
    assert run.refused == "pickle.global"
    assert cells[-3:] == ["refused", "not installed", "not installed"]
    assert benchmark.targets([run])[0].endswith("0 of 0")


def test_the_naive_unpickler_refuses_what_it_was_not_told(benchmark):
    (sent,) = benchmark.Kind("a function", lambda _: print, 1).sent()
    assert benchmark.naive(frozenset({("builtins", "print")}))(sent) is print
    with pytest.raises(benchmark.pickle.UnpicklingError):
        benchmark.naive(frozenset())(sent)
