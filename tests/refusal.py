"""What a test expects to be refused, and by which rule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from safeser.errors import SafeserError

__all__ = ["refusal"]


@contextmanager
def refusal(
    error: type[SafeserError], rule: str, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[SafeserError]]:
    """Expect *error* by *rule*, in whose text *match* is found."""
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert caught.value.rule == rule
