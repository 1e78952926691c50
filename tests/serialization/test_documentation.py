"""The examples about the functions run, in the order of their pages."""

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "families.md"


def test_examples_run(tmp_path):
    # In a process of their own: what they register is registered once.
    text = PAGE.read_text().partition("## Registered classes")[0]
    blocks = _blocks("python", text)
    assert len(blocks) == 4
    subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        check=True,
        timeout=60,
    )


def test_what_preflight_prints_is_on_its_page(tmp_path):
    text = (DOCS / "how-to" / "preflight.md").read_text().partition("## On the command line")[0]
    (tmp_path / "jobs.py").write_text("\n".join(_blocks("python", text)))
    ended = subprocess.run(
        [sys.executable, "-W", "error", "jobs.py"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert _unsized(ended.stdout) == _unsized("".join(_blocks("text", text)))


def _blocks(language, text):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def _unsized(text):
    """Return *text* without sizes: code holds the name of its file."""
    return re.sub(r"\d+ bytes", "N bytes", text)
