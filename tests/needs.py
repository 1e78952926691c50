"""What a test needs of the machine: where it is missing, the test skips, which fails in CI."""

from __future__ import annotations

import shutil

import pytest

__all__ = ["needs", "require"]


def needs(what: str, there: bool | None = None) -> pytest.MarkDecorator:
    """Mark tests that need the program *what*, or something else that is *there* or not."""
    return pytest.mark.needs(what, shutil.which(what) is not None if there is None else there)


def require(what: str, there: bool) -> None:
    """Skip the test at hand unless *what* is *there*."""
    if not there:
        pytest.skip(f"needs {what}")
