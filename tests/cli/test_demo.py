"""``safeser demo``: its options reach the demo, and its code is the demo's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safeser import ConfigError
from safeser.demo import story


@pytest.mark.parametrize("code", [0, 1])
def test_the_code_is_the_demos(safeser, monkeypatch, tmp_path, code):
    asked = {}

    def run(**options):
        asked.update(options)
        return code

    monkeypatch.setattr(story, "run", run)
    assert safeser("demo", "--directory", tmp_path, "--policy", "./p.yaml").code == code
    assert asked == {"directory": Path(tmp_path), "policy": "./p.yaml", "environment": os.environ}


def test_a_demo_that_cannot_run_is_one_line(safeser, monkeypatch):
    def run(**_):
        raise ConfigError("it needs more", fix="Install it.")

    monkeypatch.setattr(story, "run", run)
    ended = safeser("demo")
    assert ended.code == 2
    assert ended.err == "safeser: it needs more [config] Install it.\n"
