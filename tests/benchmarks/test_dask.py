"""The benchmark runs and says what it should; how fast anything is, no test asks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

PROJECT = Path(__file__).parents[2]
TINY = (
    "--rounds",
    "1",
    "--tasks",
    "8",
    "--calls",
    "2",
    "--chunks",
    "4",
    "--size",
    "0.1",
    "--shuffle",
    "0.1",
)


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT))
    from benchmarks import report

    return report


def start(*arguments, **settings):
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.dask", *arguments],
        cwd=PROJECT,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.cluster
def test_a_tiny_run_measures_everything_on_every_transport(tmp_path):
    file = tmp_path / "table.md"
    with start(*TINY, "--workers", "1", "--markdown", str(file)) as run:
        out, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    text = file.read_text()
    transports = ("safeser://", "safeser:// encrypt", "safeser:// sealed", "tcp://", "tls://")
    for transport in transports:
        assert text.count(f"| {transport} |") == 9
        assert transport in out
    # One run compared with itself.
    tcp = [line for line in text.splitlines() if "| tcp:// |" in line]
    assert all(line.split("|")[5].strip() == "1.00" for line in tcp)
    assert re.search(r"audit log of [\d.]+ MB that verified", text)
    assert "distributed 2026" in text
    assert str(tmp_path) not in text


class Counted:
    """A cluster that notes what is measured."""

    def __init__(self):
        self.measured = []

    def measure(self, measure, amount):
        self.measured.append((measure, amount))
        return [0.1, 0.2]

    def cpu_seconds(self):
        return 1.0

    scheduler_seconds = client_seconds = cpu_seconds


def test_one_measure_alone(report, tmp_path, monkeypatch):
    import typer
    from typer.testing import CliRunner

    from benchmarks import dask

    up = {scheme: Counted() for scheme in ("safeser", "tcp", "tls")}
    monkeypatch.setattr(dask, "running", lambda folder, workers: contextlib.nullcontext(up))
    monkeypatch.setattr(dask, "notes", lambda *_, **__: ["a note"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    app = typer.Typer()
    app.command()(dask.main)
    file = tmp_path / "table.md"
    only = ("--only", "transfer", "--workers", "1", "--markdown", str(file))
    ran = CliRunner().invoke(app, [*TINY, *only], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    text = file.read_text()
    assert "| scatter 0.1 MB (MB/s) |" in text
    assert "| gather 0.1 MB (MB/s) |" in text
    assert text.count("| tls:// |") == 2
    assert {measure for each in up.values() for measure in each.measured} == {("transfer", 100_000)}


@pytest.mark.cluster
def test_a_run_that_is_told_to_stop_leaves_nothing_behind(tmp_path):
    with start("--rounds", "1000", TMPDIR=str(tmp_path)) as run:
        below = psutil.Process(run.pid)
        while run.poll() is None and len(below.children()) < 3:
            time.sleep(0.02)
        children = below.children()
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=120)
    assert run.returncode == 128 + signal.SIGTERM
    assert children
    assert not [child.cmdline() for child in children if child.is_running()]
    assert not list(tmp_path.iterdir())


def test_a_ratio_is_the_median_of_the_rounds(report):
    # Two slow rounds for both: medians of each would say 10.
    assert report.ratio([1, 20, 20], [1, 2, 10]) == 2
    assert report.ratio([3], [2]) == 1.5


def test_an_interval_is_of_order_statistics(report):
    # The ranks that tables of the sign test have for 95 %.
    ranks = {1: None, 5: None, 6: (1, 6), 8: (1, 8), 9: (2, 8), 15: (4, 12), 20: (6, 15)}
    for number, expected in ranks.items():
        assert report.interval(range(number, 0, -1)) == expected


def test_rows_show_intervals_where_there_are_enough_rounds(report):
    taken = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    rate = report.Quantity("map", "s", 1, rate=False, scale=1)
    tcp, tls = report.rows(rate, {"tcp": taken, "tls": [3 * each for each in taken]})
    assert (tcp.against_tcp, tls.against_tcp) == ("1.00", "3.00 (3.00 to 3.00)")
    slower = [each * by for each, by in zip(taken, [4, 2, 3, 3, 3, 2], strict=True)]
    _, tls = report.rows(rate, {"tcp": taken, "tls": slower})
    assert tls.against_tcp == "3.00 (2.00 to 4.00)"


def test_rows_show_rates_and_times(report):
    rate = report.Quantity("map", "tasks/s", 100, rate=True, scale=1)
    first, second = report.rows(rate, {"tcp": [1.0, 2.0, 4.0], "tls": [2.0, 4.0, 8.0]})
    assert (first.quantity, second.quantity) == ("map (tasks/s)", "")
    assert (first.median, first.against_tcp, first.against_tls) == ("50.0", "1.00", "0.50")
    assert second.against_tcp == "2.00"
    time = report.Quantity("call", "ms", 1, rate=False, scale=1e-3)
    row, _ = report.rows(time, {"tcp": [0.0123], "tls": [0.0123]})
    assert (row.median, row.spread) == ("12.3", "12.3 to 12.3")


def test_numbers_keep_what_matters(report):
    assert [report.number(n) for n in (1234.5, 99.94, 1.234)] == ["1,234", "99.9", "1.23"]


def test_markdown_has_one_line_for_each_row(report):
    row = report.Row("a", "tcp://", "1", "1 to 1", "1.00", "1.00")
    lines = report.markdown([row], ["note"]).splitlines()
    assert lines[2] == "| a | tcp:// | 1 | 1 to 1 | 1.00 | 1.00 |"
    assert lines[-1] == "- note"
