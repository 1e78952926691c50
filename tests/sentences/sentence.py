"""What a row of the catalogue of sentences is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Sentence"]


@dataclass(frozen=True, slots=True)
class Sentence:
    """An error as a user reads it.

    :param rule: of the error.
    :param provoke: raises it.
    :param text: the whole of ``str(error)``, or its ``message`` alone.
    """

    rule: str
    provoke: Callable[[], object]
    text: str
