"""Whether two sizes of one value multiply to what it costs.

For every value of :mod:`verification.sweep.product_samples`, in either spelling, one size is set
and the other made as large as 100 kB hold. The message has one such value, or as many of an eighth
of it as it holds; a pickle has equal parts once, and repeats each call over the arguments of one
value (:mod:`tests.samples.repeated`). Each is
loaded in a process of its own, whether it ends as an object or is refused. The limits are those of
:mod:`verification.sweep.pickles`.

Options: ``--only TEXT`` takes products whose name has it, ``--quick`` one middle size of the second
factor, ``--worst N`` prints so many lines.
"""

from __future__ import annotations

import io
import pickle
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgpack
import numpy as np
import pandas as pd
import pyarrow as pa

from safeser import families
from safeser.errors import SafeserError
from safeser.gate.values import Limits
from tests.samples.repeated import Template, templates
from verification.sweep.pickles import SIZE, Children, Row, all_of, constructors, main
from verification.sweep.product_samples import Product, products

FAMILIES = ("dask", "msgpack")
#: A hostile sender has none.
_BOUNDLESS = Limits(max_memory=1 << 40 << 7)
#: Sizes of the second factor; the first is doubled from one of these up to the other.
_SECOND, _QUICK = (1, 8, 64, 512, 4096), (64,)
_FIRST, _MOST = 4, 1 << 17
#: What making and writing one value may take here; a larger one is not tried.
_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Copies:
    """One typed value, sent as often as a message of some size holds it."""

    name: str
    label: str
    header: dict[str, Any] = field(repr=False)
    frames: list[bytes] = field(repr=False)
    size: int = 0

    @property
    def unit(self) -> bytes:
        return self.repeated(1)

    def repeated(self, count: int) -> bytes:
        whole = {
            "serializer": "collection",
            "type": "list",
            "sub-headers": [self.header] * count,
            "frame-lengths": [len(self.frames)] * count,
        }
        return msgpack.packb([whole, self.frames * count])  # type: ignore[no-any-return]  # bytes

    def filling(self, size: int) -> bytes:
        return self.repeated(max(1, size // len(self.unit)))


def _typed(name: str, label: str, value: Any) -> Copies | None:
    try:
        header, frames = families.serialize(value, FAMILIES, limits=_BOUNDLESS)
    except SafeserError:
        return None
    return Copies(name, label, header, [bytes(frame) for frame in frames])


class _Sharing(pickle._Pickler):  # type: ignore[name-defined]  # the one in Python
    """Writes once what is there several times with the same content: bytes are few."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 5)
        self._known: dict[bytes, Any] = {}

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, _SHARED):
            obj = self._known.setdefault(pickle.dumps(obj, 5), obj)
        super().save(obj, save_persistent_id)


_SHARED = (
    *(np.ndarray, np.dtype, list, pa.Array, pa.Buffer, pa.DataType),
    *(pd.Index, pd.api.extensions.ExtensionArray, pd.api.extensions.ExtensionDtype),
)


def shared(value: Any) -> bytes:
    """Return a pickle of *value* whose equal parts are one object."""
    file = io.BytesIO()
    _Sharing(file).dump(value)
    return file.getvalue()


@dataclass(frozen=True, slots=True)
class Whole:
    """One pickle as it is."""

    name: str
    label: str
    unit: bytes = field(repr=False)
    size: int = 0

    def repeated(self, count: int) -> bytes:
        return self.unit

    def filling(self, size: int) -> bytes:
        return self.unit


Attack = Copies | Whole | Template


def attacks_of(name: str, product: Product, *, quick: bool) -> Iterator[Attack]:
    """Yield the messages of one product."""
    for second in _QUICK if quick else _SECOND:
        first, made = _FIRST, []
        while first <= _MOST:
            begun = time.monotonic()
            found = list(spelt(name, product, first, second))
            if not found:
                break
            made.append(found)
            if time.monotonic() - begun > _PATIENCE:
                break
            first *= 2
        for chosen in {len(made) - 1, len(made) - 4}:
            yield from made[chosen] if 0 <= chosen < len(made) else ()


def spelt(name: str, product: Product, first: int, second: int) -> Iterator[Attack]:
    label = f"{name} {first} x {second}"
    try:
        value = product(first, second)
        data = shared(value)
    except Exception:  # no value has these sizes, or pickle does not write it
        data = b""
    if data and len(data) < SIZE:
        yield Whole("(pickle)", label, data)
    if data and len(data) < SIZE // 2:
        entries = constructors()
        yield from (each for each in templates(data, label) if each.name in entries)
    typed = _typed("(typed)", label, value) if "value" in locals() else None
    if typed is not None and len(typed.unit) < SIZE:
        yield typed


def sweep(only: str = "", *, quick: bool = False) -> list[Row]:
    """Load every message, and return what each took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        planned = [
            attack
            for name, product in products()
            if only in name
            for attack in attacks_of(name, product, quick=quick)
        ]
    return all_of(planned, _row)


def _row(children: Children, attack: Attack) -> Row | None:
    row = children.run(attack, measured=True)
    assert row is not None
    # What reading takes for each element is a bound of its own, and no product.
    return replace(row, memory=0) if isinstance(attack, Whole) else row


if __name__ == "__main__":
    sys.exit(main(__doc__, sweep, "products"))
