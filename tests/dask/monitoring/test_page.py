"""The page ``/safeser`` of Dask's dashboard, in a real browser, with hostile refusals on it."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import tab
from tests.dask.monitoring.programs import DASHBOARD
from tests.needs import needs
from tests.processes import Folder, until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the dashboard of a scheduler."""
    folder = Folder(tmp_path_factory.mktemp("dashboard"))
    try:
        environment = folder.environment("scheduler")
        folder.start("scheduler", sys.executable, "-c", DASHBOARD, environment=environment)
        lines = until(
            "its port", lambda: [x for x in folder.log("scheduler").split("\n") if 'port"' in x]
        )
        yield f"http://127.0.0.1:{json.loads(lines[0])['port']}"
    finally:
        folder.stop()


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def test_the_other_pages_lead_to_it(dashboard):
    for page in ("status", "workers", "safeser"):
        assert '<a href="safeser">Safeser</a>' in get(f"{dashboard}/{page}")


@needs("chromium")
def test_a_browser_shows_decisions_and_runs_nothing(dashboard, tmp_path: Path):
    async def look() -> None:
        async with tab(f"{dashboard}/safeser", tmp_path / "browser") as page:
            text = await page.shows("submission.none", "bob may not submit", "update-graph")
            # Rules of peers are one label in the counts, and text in the list.
            assert "other\n5" in text
            assert "submission.none\n1" in text
            assert "<img src=x onerror=" in text
            assert "{{ 7*7 }} <%= 7*7 %>" in text
            assert "$$\\alpha$$" in text
            assert "?[2J?" in text
            assert await page.value("document.title") == "Dask: safeser"
            assert (
                await page.value("document.querySelectorAll('script[src^=\"http\"]').length") == 0
            )
            assert await page.count("mjx-container") == 0
            images = await page.count("img")
            await page.call("Page.navigate", url=f"{dashboard}/status")
            await page.shows("Task Stream")
            assert images <= await page.count("img")  # those of Dask's navigation
            await page.call("Page.navigate", url=f"{dashboard}/safeser")
            await page.shows("bob may not submit")
            await page.picture(tmp_path / "page.png")

    asyncio.run(look())
