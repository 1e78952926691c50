"""The page about Celery, as printed: a real Redis, a real worker, and two attackers."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.conftest import PATIENCE
from tests.pages import Page, follow, shell
from tests.redis_server import needs_redis

pytestmark = [needs_redis, pytest.mark.slow]


@pytest.fixture
def folder():
    made = Path(tempfile.mkdtemp(prefix="shop-"))  # paths of sockets have at most 107 bytes
    yield made
    shutil.rmtree(made)


def test_the_tutorial_about_celery_runs(folder):
    with shell(folder, os.environ) as opened:
        follow(Page("tutorials/celery.md"), folder, opened, PATIENCE)
        refused, _ = opened.run("safeser audit query keys/audit --outcome refused", PATIENCE)
        said = re.sub(r"\s+", " ", " ".join(refused))
        for rule in ("context.family", "envelope.format"):
            assert rule in said
