"""The benchmark of many workers takes turns, shows progress anywhere, and says what it should."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def scale(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT))
    from benchmarks import scale

    return scale


class Started:
    """A cluster without processes, whose worker takes more on safeser:// by what a test knows."""

    made: list[Started] = []  # noqa: RUF012 - of the whole run

    def __init__(self, transport, place, workers, *, nannies):
        assert nannies
        self.own = transport.scheme == "safeser"
        self.workers = workers
        self.steps = []
        self.made.append(self)

    def __getattr__(self, step):
        if step not in ("prepare", "start_scheduler", "start_workers", "start_client", "stop"):
            raise AttributeError(step)
        return lambda: self.steps.append(step)

    def worker_processes(self):
        cpu = (1.0 + 0.5 * self.own, 0.5, 0.0)
        memory = SimpleNamespace(rss=66e6 + 12e6 * self.own)
        return [SimpleNamespace(cpu_times=lambda: cpu, memory_info=lambda: memory)] * self.workers

    def scheduler_seconds(self):
        self.steps.append("scheduler")
        return 1.0 * self.steps.count("scheduler")

    def measure(self, measure, amount):
        return {"tasks": [2.0], "modules": [700.0 + 460 * self.own] * amount}[measure]


def test_a_run_over_both_transports(scale, monkeypatch, tmp_path):
    monkeypatch.setattr(Started, "made", [])
    monkeypatch.setattr(scale, "Cluster", Started)
    monkeypatch.setattr(scale.time, "sleep", lambda _: None)
    app = typer.Typer()
    app.command()(scale.main)
    file = tmp_path / "table.md"
    options = ["--workers", "3", "--rounds", "2", "--markdown", str(file)]
    ran = CliRunner().invoke(app, options, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    turns = [line for line in ran.output.splitlines() if line.startswith("Round ")]
    assert turns == [
        "Round 1 of 2: safeser://",
        "Round 1 of 2: tcp://",
        "Round 2 of 2: tcp://",
        "Round 2 of 2: safeser://",
    ]
    assert [each.own for each in Started.made] == [True, False, False, True]
    assert all(each.steps[-1] == "stop" for each in Started.made)
    text = file.read_text()
    for line in (
        "| CPU of a worker until then (s) | 2.00 | 1.50 | +0.50 | 1.33 | 1.33 to 1.33 |",
        "| memory of a worker then (MB) | 78.0 | 66.0 | +12.0 | 1.18 | 1.18 to 1.18 |",
        "| modules of a worker then (count) | 1,160 | 700 | +460 | 1.66 | 1.66 to 1.66 |",
    ):
        assert line in text
    assert "2 rounds in turns" in text


def test_less_than_on_tcp_is_shown_as_less(scale):
    quantity = scale.quantities(workers=1, tasks=1, idle=1)["memory"]
    [_, *_, more, ratio, _] = scale.line(quantity, {"safeser": [50e6], "tcp": [66e6]})
    assert (more, ratio) == ("-16.0", "0.76")
