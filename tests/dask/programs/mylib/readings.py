"""A class whose instances may travel, and one whose may not."""

from __future__ import annotations

from dataclasses import dataclass

from safeser import register_class


@register_class
@dataclass(frozen=True)
class Reading:
    station: str
    value: float


@dataclass(frozen=True)
class Unregistered:
    station: str
    value: float


def value_of(reading: Reading | Unregistered) -> float:
    return reading.value
