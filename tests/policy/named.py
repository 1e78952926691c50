"""Names that a policy of the tests allows."""

from __future__ import annotations

from pathlib import Path

__all__ = ["Path", "Point", "add"]


class Point:
    pass


def add(one: int, other: int) -> int:
    return one + other
