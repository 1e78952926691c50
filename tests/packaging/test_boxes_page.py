"""The page about boxes: its files are written, its commands run, and print what it says."""

from __future__ import annotations

import os

import pytest

from tests.conftest import PATIENCE
from tests.pages import Page, follow, shell

pytest.importorskip("zmq")


def test_the_tutorial_about_boxes_runs(tmp_path):
    with shell(tmp_path, os.environ) as opened:
        follow(Page("tutorials/boxes.md"), tmp_path, opened, PATIENCE)
