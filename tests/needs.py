"""What a test needs of the machine: where it is missing, a developer's run skips and CI fails."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["needs", "require"]


def needs(what: str, there: bool | None = None) -> pytest.MarkDecorator:
    """Mark tests that need the program *what*, or something else that is *there* or not."""
    return pytest.mark.needs(what, shutil.which(what) is not None if there is None else there)


def require(what: str, there: bool) -> None:
    """Skip the test at hand, or fail it in CI, unless *what* is *there*."""
    if there:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI has no {what}; .ci/run has to install it", pytrace=False)
    pytest.skip(f"needs {what}")
