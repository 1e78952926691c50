"""The benchmark of families runs and says what it should; how fast anything is, no test asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT))
    from benchmarks import families

    monkeypatch.setattr(families, "SLICE", 0)
    return families


def test_a_tiny_run_compares_everybody(benchmark, tmp_path):
    typer = benchmark.typer.Typer()
    typer.command()(benchmark.main)
    file = tmp_path / "table.md"
    run = CliRunner().invoke(
        typer,
        ["--rounds", "1", "--only", "frame", "--largest", "2000", "--markdown", str(file)],
        catch_exceptions=False,
    )
    assert run.exit_code == 0
    (line,) = [line for line in file.read_text().splitlines() if line.startswith("| mixed frame")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == "1 KiB"
    assert all(cells[2:6])
    assert cells[6] == ""  # too small to speak of copies
    assert "pandas, at most 1 times distributed's own: " in file.read_text()
    assert "CPython" in run.stdout


def test_every_type_is_made_in_its_size(benchmark):
    for kind in benchmark.TYPES:
        run = benchmark.Run(kind, 1 << 16)
        sent = benchmark._pickle_dumps(run.object)
        # Types of the standard library and their metadata aside, they are what they say.
        assert 0.25 < sum(memoryview(frame).nbytes for frame in sent.frames) / (1 << 16) < 2
        for who in run.contenders:
            who.loads(who.dumps(run.object).received())


def test_what_is_refused_is_said(benchmark):
    run = benchmark.Run(benchmark.Type("functions", "builtins", lambda size: [print] * size), 3)
    run.round(0)
    assert run.cells()[2] == "refused"
    assert run.cells()[7] == "families.cannot-serialize"
    assert run.against("dumps", "distributed") is None
    assert benchmark.aims([run])[0].endswith("0 of 0")


def test_copies_are_seen_on_either_side(benchmark):
    array = np.ones(1 << 16)
    assert benchmark._extra(lambda: array[:], array.nbytes) < benchmark.NO_COPY
    assert benchmark._extra(lambda: array.copy(), array.nbytes) > 0.99
    arrow = pytest.importorskip("pyarrow")
    whole = arrow.array(array)
    assert benchmark._extra(lambda: whole[1:], array.nbytes) < benchmark.NO_COPY
    assert benchmark._extra(lambda: arrow.concat_arrays([whole, whole]), array.nbytes) > 1.9


def test_what_misses_an_aim_is_named_the_worst_first(benchmark):
    run = benchmark.Run(benchmark.Type("array", "numpy", np.ones), 1 << 20)
    run.seconds = {
        (step, who): [taken]
        for step in ("dumps", "loads")
        for who, taken in (("safeser", 3.0 if step == "loads" else 1.0), ("distributed", 1.0))
    }
    run.extra = {("dumps", "safeser"): 0.0, ("loads", "safeser"): 1.0}
    numpy, pandas, copied = benchmark.aims([run] * 6)
    assert numpy.startswith("numpy, at most 1.1 times distributed's own: 6 of 12; not array 1 MiB")
    assert numpy.endswith("loads (3.00) and 2 more")
    assert pandas.endswith("0 of 0")
    assert "no copy: 6 of 12" in copied
