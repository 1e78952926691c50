"""One folder of keys, and the boxes of two principals in it."""

from __future__ import annotations

import pytest

from tests.channel.boxes import Folder


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "keys")


@pytest.fixture
def ann(folder):
    with folder.box("ann") as box:
        yield box


@pytest.fixture
def bea(folder):
    with folder.box("bea") as box:
        yield box
