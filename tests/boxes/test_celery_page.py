"""The page about Celery, as printed: a real Redis, a real worker, and two attackers."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.conftest import PATIENCE
from tests.pages import Page, matches, shell
from tests.redis_server import needs_redis

pytestmark = [needs_redis, pytest.mark.slow]


@pytest.fixture
def folder():
    made = Path(tempfile.mkdtemp(prefix="shop-"))  # paths of sockets have at most 107 bytes
    yield made
    shutil.rmtree(made)


def test_the_tutorial_about_celery_runs(folder):
    page = Page("tutorials/celery.md")
    files = page.files
    with shell(folder, os.environ) as opened:
        for command in page.commands:
            for name in [*files]:
                if (folder / name).parent.exists():  # the keys are made by a command
                    (folder / name).write_text(files.pop(name), "utf-8")
            printed, code = opened.run(command.text, PATIENCE)
            assert matches(printed, command.printed), "\n".join([command.text, *printed])
            assert code == 0, command.text
        refused, _ = opened.run("safeser audit query keys/audit --outcome refused", PATIENCE)
        said = re.sub(r"\s+", " ", " ".join(refused))
        for rule in ("context.family", "envelope.format"):
            assert rule in said
