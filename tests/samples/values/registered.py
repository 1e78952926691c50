"""Classes of one's own: enums, dataclasses, named tuples, and objects that are their attributes."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

from safeser.families.registered.classes import register_class
from safeser.families.registered.generic import register_generic


@register_class
class Shade(enum.Flag):
    DARK = 1
    LIGHT = 2
    RED = 4


@register_class
@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    x: float
    shade: Shade
    tags: tuple[str, ...] = ()


@register_class
class Span(NamedTuple):
    start: object
    stop: object


@register_class
class Trouble(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


@register_generic
class Bag:
    __slots__ = ("__dict__", "a", "b")

    def method(self) -> int:
        return 1


def examples() -> dict[str, object]:
    bag = Bag()
    bag.a, bag.b, bag.c = 1, "x" * 2000, [Span(1j, Shade.RED)]
    trouble = Trouble(3, "boom")
    trouble.seen = 5
    return {
        "flags": Shade.DARK | Shade.RED,
        "member": Shade.LIGHT,
        "spot": Spot(1.5, Shade.RED, ("a",)),
        "span": Span(Spot(1.0, Shade.DARK), b"y" * 2000),
        "bag": bag,
        "trouble": trouble,
    }
