"""A virtual environment for each release of Dask that safeser is tested on.

The one rule: each is made of its lock, ``requirements/compat-<release>.lock``, with checked hashes;
of another text of that lock another environment is made.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]

#: Kept between runs, and ignored by git.
CACHE = PROJECT / ".compat"

_LOCKS = "compat-*.lock"


def releases() -> list[str]:
    """Return the releases that have a lock, the oldest first."""
    found = (PROJECT / "requirements").glob(_LOCKS)
    named = (path.stem.removeprefix("compat-") for path in found)
    return sorted(named, key=lambda name: tuple(map(int, name.split("."))))


def python_of(release: str) -> Path:
    """Return the interpreter of the environment of *release*, which is made if it is not there."""
    lock = PROJECT / "requirements" / f"compat-{release}.lock"
    made_of = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = CACHE / f"{release}-{made_of}"
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        for older in CACHE.glob(f"{release}-*"):
            shutil.rmtree(older)
        _run(sys.executable, "-m", "venv", str(folder))
        _install(python, lock)
        (folder / "done").touch()
    return python


def _install(python: Path, lock: Path) -> None:
    """Install what *lock* names, and safeser as it is here, with uv if that reaches an index.

    uv takes seconds where pip takes a minute, but does not read pip's configuration.
    """
    tools = [[str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]]
    if importlib.util.find_spec("uv") is not None:
        tools.insert(0, [sys.executable, "-m", "uv", "pip", "install", "--python", str(python)])
    for tool in tools:
        try:
            _run(*tool, "--quiet", "--require-hashes", "--requirement", str(lock))
            _run(*tool, "--quiet", "--no-build-isolation", "--no-deps", "--editable", str(PROJECT))
        except subprocess.CalledProcessError:
            if tool is tools[-1]:
                raise
        else:
            return


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr, env=environment())


def environment() -> dict[str, str]:
    """Return the variables of this process without those that name other code."""
    dropped = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in dropped}
