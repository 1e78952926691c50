"""Functions by name: ``train`` and ``double`` are allowed, ``other`` is not; nor is ``Thing``."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def train(data: Any, *, rate: float = 0.5) -> float:
    return float(sum(data)) * rate


def double(value: Any) -> Any:
    return value * 2


def other(value: Any) -> Any:
    return value


def touch(path: str) -> str:
    """Leave a mark: nobody may get here."""
    Path(path).write_text("touched")
    return path


class Thing:
    def __init__(self, value: Any = None) -> None:
        self.value = value

    def method(self, value: Any) -> Any:
        return value
