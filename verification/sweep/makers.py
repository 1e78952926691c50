"""What makes one sample, and texts and labels of a given size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Maker", "labels_of", "text_of"]

#: Makes a sample of about so many elements; some kinds have one size.
Maker = Callable[[int], Any]


def text_of(n: int) -> str:
    return "x" * n


def labels_of(n: int) -> list[str]:
    return [f"{at:x}" for at in range(n)]
