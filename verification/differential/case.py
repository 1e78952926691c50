"""One numbered case: bytes from a seeded source, and how safeser and CPython read them."""

from __future__ import annotations

from functools import cache
from random import Random

from tests.samples.seeds import seeds
from verification.differential.oracle import Disagreement, examine
from verification.differential.programs import mutated, program
from verification.differential.values import written

__all__ = ["make", "outcome", "whole_seeds"]


def make(chance: Random, *, pool: float = 0.05) -> tuple[bytes, list[bytes | bytearray]]:
    """Return a pickle and its out-of-band buffers.

    :param pool: share of cases that start from an object of some listed library.
    """
    if chance.random() < pool:
        count, data = _pool(chance)
        return (mutated(data, chance) if chance.random() < 0.9 else data), [bytes(64)] * count
    pick = chance.random()
    if pick < 0.4:
        data, buffers = written(chance)
        if pick < 0.2:
            data = mutated(data, chance)
        return data, buffers
    data = program(chance)
    return (mutated(data, chance) if pick < 0.55 else data), [b"abc", bytearray(8)]


@cache
def whole_seeds() -> tuple[bytes, ...]:
    """Return a pickle of each listed type, behind a byte that says how many buffers it has."""
    # A large one would take the time of a thousand small ones.
    return tuple(seed for seed in seeds() if len(seed) < 4096)


def _pool(chance: Random) -> tuple[int, bytes]:
    """Return a pickle of some listed type of any library, and how many buffers belong to it."""
    seed = chance.choice(whole_seeds())
    return seed[0] & 3, seed[1:]


def outcome(data: bytes, buffers: list[bytes | bytearray]) -> str:
    """Return ``"accepted"``, a rule, or ``"disagreement: …"``."""
    try:
        return examine(data, buffers)
    except Disagreement as found:
        return f"disagreement: {found}"
