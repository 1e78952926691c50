"""Renews the locks: every package of [demo] and [dev], pinned, with the hashes of all its files.

The one rule: a lock names versions and hashes and never where they come from, so that everybody's
own index serves it and cannot serve anything else.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPTIONS = (
    "--universal",  # one lock for every platform and Python that safeser supports
    "--python-version=3.11",
    "--generate-hashes",
    "--no-header",
    "--no-annotate",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--upgrade",
    "--quiet",
)


def compile_lock(extra: str, *further: str) -> None:
    """Write ``requirements/<extra>.lock``."""
    lock = f"requirements/{extra}.lock"
    sources = ("pyproject.toml", "requirements/build.in", f"--extra={extra}")
    command = [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, *further, *sources]
    subprocess.run([*command, f"--output-file={lock}"], cwd=HERE.parent, check=True)  # noqa: S603 - all of it stands here


if __name__ == "__main__":
    compile_lock("demo")
    # The same versions in both, so that one virtual environment serves the demo and the tests.
    compile_lock("dev", "--constraint=requirements/demo.lock")
