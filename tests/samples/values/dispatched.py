"""Classes taken apart and put together by functions, as Dask registers them."""

from __future__ import annotations

import numpy as np

from safeser.families.registered.dispatch import register_serialization


class Tile:
    def __init__(self, corner: tuple[int, ...], data: object) -> None:
        self.corner = corner
        self.data = data

    def total(self) -> float:
        return float(np.frombuffer(self.data, "f8").sum())  # type: ignore[call-overload]


def _take(tile: Tile) -> tuple[dict[str, object], list[object]]:
    return {"corner": tile.corner, "name": "tile", "inner": {"a": [1, None]}}, [tile.data]


def _put(header: dict[str, object], frames: list[memoryview]) -> Tile:
    (data,) = frames
    return Tile(tuple(header["corner"]), bytes(data))  # type: ignore[arg-type]


register_serialization(Tile, _take, _put)


def examples() -> dict[str, object]:
    tile = Tile((1, 2), np.arange(4.0).tobytes())
    return {"alone": tile, "inside": [tile, {"k": tile, 2: 2j}]}


def uses(value: object):
    if isinstance(value, Tile):
        yield value.total
