"""One numbered case: bytes from a seeded source, and how safeser and CPython read them."""

from __future__ import annotations

from random import Random

from tests.differential.oracle import Disagreement, examine
from tests.differential.programs import mutated, program
from tests.differential.values import written

__all__ = ["make", "outcome"]


def make(chance: Random) -> tuple[bytes, list[bytes | bytearray]]:
    """Return a pickle and its out-of-band buffers."""
    pick = chance.random()
    if pick < 0.4:
        data, buffers = written(chance)
        if pick < 0.2:
            data = mutated(data, chance)
        return data, buffers
    data = program(chance)
    return (mutated(data, chance) if pick < 0.55 else data), [b"abc", bytearray(8)]


def outcome(data: bytes, buffers: list[bytes | bytearray]) -> str:
    """Return ``"accepted"``, a rule, or ``"disagreement: …"``."""
    try:
        return examine(data, buffers)
    except Disagreement as found:
        return f"disagreement: {found}"
