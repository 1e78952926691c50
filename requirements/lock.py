"""Renews the locks: every package of [demo], [dev] and [docs], pinned, with its hashes.

Beside them there is one for each release of Dask that ``make compat`` runs on, which differs from
``dev.lock`` in Dask alone.

The one rule: a lock names versions and hashes and never where they come from, so that everybody's
own index serves it and cannot serve anything else.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: The oldest release that is supported, the newest, and some between.
RELEASES = ("2025.5.1", "2025.12.0", "2026.3.0", "2026.6.0", "2026.8.0")
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


def compile_lock(name: str, *further: str) -> None:
    """Write ``requirements/<name>.lock``."""
    lock = f"requirements/{name}.lock"
    sources = ("pyproject.toml", "requirements/build.in")
    command = [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, *further, *sources]
    subprocess.run([*command, f"--output-file={lock}"], cwd=HERE.parent, check=True)  # noqa: S603 - all of it stands here


def compile_compat(release: str) -> None:
    """Write ``requirements/compat-<release>.lock``: of all but Dask what ``dev.lock`` has."""
    pinned = re.findall(r"^([^ =]+==[^\\\n]+)", (HERE / "dev.lock").read_text(), re.MULTILINE)
    others = [pin for pin in pinned if pin.partition("==")[0] not in ("dask", "distributed")]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join([*others, f"dask=={release}", f"distributed=={release}", ""]))
        constraints.flush()
        needs = ("--extra=dask", "--extra=arrow", "requirements/compat.in")
        compile_lock(f"compat-{release}", *needs, f"--constraint={constraints.name}")


if __name__ == "__main__":
    compile_lock("demo", "--extra=demo")
    # The same versions in all, so that one virtual environment serves the demo, tests and site.
    compile_lock("dev", "--extra=dev", "--constraint=requirements/demo.lock")
    compile_lock("docs", "--extra=docs", "--constraint=requirements/dev.lock")
    for each in RELEASES:
        compile_compat(each)
