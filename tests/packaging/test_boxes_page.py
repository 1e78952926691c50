"""The page about boxes: its files are written, its commands run, and print what it says."""

from __future__ import annotations

import os

import pytest

from tests.conftest import PATIENCE
from tests.pages import Page, matches, shell

pytest.importorskip("zmq")


def test_the_tutorial_about_boxes_runs(tmp_path):
    page = Page("tutorials/boxes.md")
    files = page.files
    with shell(tmp_path, os.environ) as opened:
        for command in page.commands:
            for name in [*files]:
                if (tmp_path / name).parent.exists():  # the keys are made by a command
                    (tmp_path / name).write_text(files.pop(name), "utf-8")
            printed, code = opened.run(command.text, PATIENCE)
            assert matches(printed, command.printed), "\n".join([command.text, *printed])
            assert code == 0, command.text
