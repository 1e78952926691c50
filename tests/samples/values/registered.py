"""Classes of one's own: enums, dataclasses, named tuples, and objects that are their attributes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.samples import classes as own


def examples() -> dict[str, object]:
    trouble = own.AppError(3, "boom")
    trouble.seen = 5
    return {
        "flags": own.Rights.READ | own.Rights.RUN,
        "member": own.Color.RED,
        "spot": own.Frozen(name="a", parts=(1.5, own.Color.RED)),
        "span": own.Pair(own.Point(1.0, own.Level.LOW), b"y" * 2000),
        "bag": own.Bag(a=1, b="x" * 2000, c=[own.Pair(1j, own.Color.RED)]),
        "slots": own.Slotted(3),
        "trouble": trouble,
    }


def _area() -> own.Area:
    made = own.Area(2, "y")
    made.hits = [1, 2j]
    return made


def others() -> Iterator[object]:
    """Yield more honest values."""
    yield from (own.Point(1), own.Point(2.0, own.Point(3, [own.Color.RED])), own.Private(1))
    yield own.Point((1, 2), {"deep": own.Pair(1, own.Old(1j, 2))})
    yield own.Frozen(name="n", parts=(own.Level.HIGH, {1: own.Rights.READ}))
    yield from (_area(), own.Tidy({"a", 1}, ["a", "b"]), own.Pair(1), own.Tall(1, [2]))
    yield from (own.Pair(own.Pair(1, 2), ...), own.Other(1), own.Two(1, 2), own.Altering([2], {}))
    yield own.Rough([1, [2.0, float("nan")], np.float32(3)])
    yield from (*own.Color, own.Color.ALSO_RED, *own.Level, *own.Rights, own.Many.F12)
    yield from (own.Rights(0), own.Loose.A | own.Loose.B, {own.Color.RED: [own.Color.RED]})
    yield {own.Frozen(name="a"): 1, own.Pair(1, 2): {own.Private(3)}}
    yield from (own.Bag(), own.Bag(z=own.Bag(y=own.Slotted(3)), a=own.Mixed(1, 2j), größe=1))
    yield from (own.Bag(a=1, c=[1, [2]], _private=None, kind="other"), own.Slotted(()))
    yield from (own.Mixed({1: 2}, "b"), own.Bag(w=np.arange(1000.0), shape=(2, 500)))
    yield own.Narrow()
