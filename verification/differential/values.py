"""Random plain values and objects, and the many ways in which picklers write them."""

from __future__ import annotations

import array
import collections
import copyreg
import datetime
import decimal
import fractions
import io
import ipaddress
import pathlib
import pickle
import pickletools
import uuid
from collections.abc import Callable
from random import Random
from typing import Any

import cloudpickle
import numpy as np

from tests.samples.seeds import without_exceptions

__all__ = ["written"]

_UTC = datetime.UTC
_WORDS = (
    "", "a", "key", "naïve", "\ud800", "x" * 300, "line\nbreak", "back\\slash", "\0", "é" * 90,
)  # fmt: skip
_NUMBERS = (0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31) - 1, 2**63, -(2**200))
_FLOATS = (0.0, -0.0, 1.5, 1e300, float("inf"), float("-inf"), float("nan"), 5e-324)


def leaf(chance: Random) -> Any:
    pick = chance.randrange(7)
    if pick == 0:
        return chance.choice(_NUMBERS)
    if pick == 1:
        return chance.randint(-70_000, 70_000)
    if pick == 2:
        return chance.choice(_FLOATS)
    if pick == 3:
        return chance.choice((None, True, False, ..., NotImplemented))
    if pick == 4:
        return chance.choice((b"", b"bytes", bytes(300), b"\xff\n"))
    return chance.choice(_WORDS)


def key(chance: Random) -> Any:
    pick = chance.randrange(6)
    if pick == 0:
        return (chance.choice(_WORDS), chance.randint(0, 9))
    if pick == 1:
        return frozenset((chance.randint(0, 9), "m"))
    if pick == 2:
        return datetime.date(2026, 1, chance.randint(1, 28))
    return leaf(chance)


def container(chance: Random, depth: int) -> Any:
    count = chance.choice((0, 1, 1, 2, 3, 5))
    shared = value(chance, depth - 1)
    items = [shared if chance.random() < 0.2 else value(chance, depth - 1) for _ in range(count)]
    pick = chance.randrange(8)
    if pick == 0:
        return tuple(items)
    if pick == 1:
        return {key(chance) for _ in items}
    if pick == 2:
        return frozenset(key(chance) for _ in items)
    if pick in (3, 4):
        made = {key(chance): item for item in items}
        if chance.random() < 0.1:
            made["self"] = made
        return made
    if pick == 5:
        return chance.choice(_LISTED)(chance, items)
    if chance.random() < 0.1:
        items.append(items)
    return items


_LISTED: tuple[Callable[[Random, list[Any]], Any], ...] = (
    lambda _, items: collections.OrderedDict(enumerate(items)),
    lambda _, items: collections.deque(items, len(items) + 2),
    lambda _, items: collections.deque(items),
    lambda chance, items: collections.defaultdict(
        chance.choice((list, dict, int, None)), dict(enumerate(items))
    ),
    lambda chance, _: collections.Counter(chance.choice(_WORDS)),
    lambda _, items: OSError(2, "gone", "file") if items else ValueError(*items),
    lambda _, items: ValueError("text", *items),
)


def listed(chance: Random) -> Any:
    """Return an object of a listed type, out of plain parts."""
    day, number = chance.randint(1, 28), chance.randint(-5, 5)
    made = (
        lambda: datetime.datetime(2026, 2, day, 3, 4, 5, 6),
        lambda: datetime.datetime(2026, 2, day, fold=1, tzinfo=_UTC),
        lambda: datetime.time(1, 2, 3, 4, fold=day % 2),
        lambda: datetime.timedelta(day, number, 7),
        lambda: datetime.timezone(datetime.timedelta(minutes=number), "zone"),
        lambda: decimal.Decimal((day % 2, (1, 2, 3), number)),
        lambda: decimal.Decimal("NaN"),
        lambda: fractions.Fraction(number, day),
        lambda: uuid.UUID(int=day),
        lambda: complex(number, day),
        lambda: range(number, day, 2),
        lambda: slice(number, None, day),
        lambda: bytearray(bytes(day)),
        lambda: pathlib.PurePosixPath("a") / str(day),
        lambda: ipaddress.ip_address(day),
        lambda: ipaddress.ip_network(f"10.0.{day}.0/24"),
        lambda: array.array(chance.choice("bBhHiIlLqQfd"), [day, 1]),
        lambda: np.arange(day).astype(chance.choice(("<i4", ">i2", "f8", "c8", "?", "U3", "S2"))),
        lambda: np.asfortranarray(np.ones((2, day))),
        lambda: np.zeros(day, dtype=[("a", "<i2"), ("b", "f4", (2,))]),
        lambda: np.array([day, "x", None, [number]], dtype=object),
        lambda: np.float64(number),
        lambda: np.datetime64("2026-01-01", chance.choice(("D", "s", "ns"))),
        lambda: np.dtype(chance.choice(("<i8", ">f4", "M8[us]", "S5", "V3", "?"))),
        lambda: np.ma.array([day, number], mask=[True, False]),
    )
    return chance.choice(made)()


def value(chance: Random, depth: int = 3) -> Any:
    pick = chance.random()
    if depth <= 0 or pick < 0.35:
        return leaf(chance)
    if pick < 0.5:
        return listed(chance)
    return container(chance, depth)


def _dumped(kind: Any, made: Any, protocol: int, callback: Any) -> bytes:
    sink = io.BytesIO()
    pickler = kind(sink, protocol, buffer_callback=callback)
    pickler.dispatch_table = without_exceptions(len(copyreg.dispatch_table))
    pickler.dump(made)
    return sink.getvalue()


def written(chance: Random) -> tuple[bytes, list[bytes | bytearray]]:
    """Return a pickle of a random value by a random pickler, and its out-of-band buffers."""
    made, buffers = value(chance), []
    protocol = chance.choice((0, 1, 2, 3, 4, 4, 5, 5, 5))
    out_of_band: list[Any] = []
    callback = out_of_band.append if protocol == 5 and chance.random() < 0.5 else None
    pick = chance.randrange(10)
    try:
        if pick == 0 and protocol > 2:
            data = cloudpickle.dumps(made, protocol, buffer_callback=callback)
        else:
            kind = pickle._Pickler if pick in (1, 2) else pickle.Pickler
            data = _dumped(kind, made, protocol, callback)
        if pick == 3:
            data = pickletools.optimize(data)
    except Exception:  # old protocols can't write everything, and pickletools not what they wrote
        return pickle.dumps(None), []
    for buffer in out_of_band:
        raw = bytes(buffer.raw())
        buffers.append(raw if chance.random() < 0.5 else bytearray(raw))
    return data, buffers
