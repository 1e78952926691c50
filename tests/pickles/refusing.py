"""How tests ask for a refusal: by its rule, never by its sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from safeser.errors import SafeserError

__all__ = ["refused"]


def refused(rule: str, call: Callable[..., object], *args: Any, **options: Any) -> SafeserError:
    """Check that *call* raises an error of *rule*, and return it."""
    with pytest.raises(SafeserError) as caught:
        call(*args, **options)
    assert caught.value.rule == rule
    return caught.value
