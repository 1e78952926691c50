"""The examples of docs/reference/families.md about the functions run, in the order of the page."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "families.md"


def test_examples_run(tmp_path):
    # In a process of their own: what they register is registered once.
    text = PAGE.read_text().partition("## Standard library")[0]
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == 4
    subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
