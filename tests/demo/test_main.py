"""The demo's command line: options, exit codes, and a start from anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo import __main__, steps
from safeser import ConfigError


@pytest.mark.parametrize("code", [0, 1])
def test_options_reach_the_demo_and_its_exit_code_is_returned(monkeypatch, tmp_path, code) -> None:
    asked = {}

    def run(**options):
        asked.update(options)
        return code

    monkeypatch.setattr(steps, "run", run)
    assert __main__.main(["--directory", str(tmp_path), "--policy", "./p.yaml"]) == code
    assert asked == {"directory": Path(tmp_path), "policy": "./p.yaml", "environment": os.environ}


def test_a_demo_that_cannot_run_is_one_line(monkeypatch, capsys) -> None:
    def run(**_):
        raise ConfigError("it needs more", fix="Install it.")

    monkeypatch.setattr(steps, "run", run)
    assert __main__.main([]) == 2
    assert capsys.readouterr().err == "safeser: it needs more [config] Install it.\n"


def test_wrong_usage_could_not_run() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--frobnicate"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: python -m examples.demo ")
    assert "Traceback" not in ended.stderr
