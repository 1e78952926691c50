"""Coverage is measured where safeser works: in the children of the test run, stopped or spawned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import coverage
import pytest

PROJECT = Path(__file__).parents[2]

MEASURED = """
def in_child():
    return 1

def in_spawned():
    return 2

def in_stopped():
    return 3

def in_worker():
    return 4
"""

CHILDREN = """
import multiprocessing, signal, subprocess, sys
import measured

if __name__ == "__main__":
    code = "import measured; measured.in_child()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")
    process = multiprocessing.get_context("spawn").Process(target=measured.in_spawned)
    process.start()
    process.join()
    code = "import measured, time; measured.in_stopped(); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as stopped:
        stopped.stdout.readline()
        stopped.terminate()
    assert stopped.returncode == -signal.SIGTERM
"""

CLUSTER = """
import os, signal, subprocess, sys, time
import measured
from distributed import Client

def start(*arguments):
    command = [sys.executable, "-m", "dask", *arguments]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

if __name__ == "__main__":
    scheduler = start(
        "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show",
        "--scheduler-file", "scheduler.json",
    )
    worker = start(
        "worker", "--scheduler-file", "scheduler.json", "--nthreads", "1", "--no-dashboard",
        "--host", "127.0.0.1", "--local-directory", os.getcwd(), "--death-timeout", "60",
    )
    try:
        while not os.path.exists("scheduler.json"):
            assert scheduler.poll() is None
            time.sleep(0.02)
        with Client(scheduler_file="scheduler.json") as client:
            assert client.submit(measured.in_worker, pure=False).result(timeout=60) == 4
    finally:
        for process in (worker, scheduler):
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
"""


def lines_measured(folder, script):
    """Run *script* under this project's settings of coverage; return the lines of ``measured``."""
    (folder / "measured.py").write_text(MEASURED)
    (folder / "script.py").write_text(script)
    settings = (
        (PROJECT / "pyproject.toml")
        .read_text()
        .replace('source = ["safeser"]', 'source = ["measured"]')
    )
    (folder / "pyproject.toml").write_text(settings)
    # The coverage that measures this test must not reach into the one that it runs.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    env["PYTHONPATH"] = str(folder)
    run = [sys.executable, "-m", "coverage", "run", "script.py"]
    ended = subprocess.run(
        run, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    combine = [sys.executable, "-m", "coverage", "combine", "--quiet"]
    subprocess.run(combine, cwd=folder, env=env, check=True, timeout=60)
    data = coverage.CoverageData(str(folder / ".coverage"))
    data.read()
    [path] = data.measured_files()
    lines = {line for arc in data.arcs(path) or () for line in arc}
    source = MEASURED.splitlines()
    return {source[line - 1].strip() for line in lines if line > 0}


def test_children_are_measured_however_they_end(tmp_path):
    assert {"return 1", "return 2", "return 3"} <= lines_measured(tmp_path, CHILDREN)


@pytest.mark.cluster
def test_workers_that_a_nanny_spawned_are_measured(tmp_path):
    assert "return 4" in lines_measured(tmp_path, CLUSTER)
