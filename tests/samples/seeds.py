"""Pickles of everything that the shipped profiles load, to start a fuzzer from.

The one rule: seeds come from real objects and real picklers, so that they reach the code behind
each entry; what is wrong with them is the fuzzer's business.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from tests.samples.values import collect
from tests.types.only_one import PICKLE

__all__ = ["seeds", "without_exceptions"]


def plain() -> Iterator[Any]:
    yield from collect(("stdlib",))[0].values()
    shared = ("x", 1)
    yield [shared, shared, {"k": shared}]
    yield UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")


def rarer() -> Iterator[Any]:
    """Yield values of types that pickles alone carry."""
    for only in PICKLE.values():
        yield only.make()


def arrays() -> Iterator[Any]:
    yield from collect(("arrays",))[0].values()
    yield from (np.polynomial.Polynomial([1.0, 2.0]), np.polynomial.HermiteE([1.0, 2.0]))
    yield from (np.array(["a"], np.dtypes.StringDType()), np.random.Generator(np.random.SFC64(1)))


def frames() -> Iterator[Any]:
    import pandas as pd

    yield from collect(("frames",))[0].values()
    yield from (pd.array([0.5, None]), pd.period_range("2026", periods=2, freq="M"))
    yield from (pd.CategoricalIndex(["a"]), pd.arrays.NumpyExtensionArray(np.arange(3)))
    yield from (pd.Int8Dtype(), pd.Float64Dtype(), pd.offsets.MonthEnd(2), pd.offsets.Day(3))


def tables() -> Iterator[Any]:
    yield from collect(("arrow",))[0].values()


def models() -> Iterator[Any]:
    from sklearn import linear_model, neighbors

    yield from collect(("sparse", "estimators"))[0].values()
    points = np.arange(24.0).reshape(12, 2)
    yield linear_model.LinearRegression().fit(points, points[:, 0])
    yield neighbors.BallTree(points, 2, "minkowski", p=3)


@cache
def without_exceptions(_: int) -> dict[type, Any]:
    """Return what is registered, without tblib's reducers, which some library may have installed.

    Under the names of Python 2 they lose which OSError it was.
    """
    return {
        cls: reduce
        for cls, reduce in copyreg.dispatch_table.items()
        if not issubclass(cls, BaseException)
    }


def _dumped(value: Any, protocol: int, callback: Callable[[Any], Any] | None = None) -> bytes:
    sink = io.BytesIO()
    pickler = pickle.Pickler(sink, protocol, buffer_callback=callback)
    pickler.dispatch_table = without_exceptions(len(copyreg.dispatch_table))
    pickler.dump(value)
    return sink.getvalue()


def seeds() -> list[bytes]:
    """Return fuzz inputs: one byte that says how many buffers come along, then a pickle."""
    made = []
    for value in (*plain(), *rarer(), *arrays(), *frames(), *tables(), *models()):
        buffers: list[Any] = []
        for protocol, callback in (*((number, None) for number in range(6)), (5, buffers.append)):
            try:
                pickled = _dumped(value, protocol, callback)
            except Exception:  # old protocols can't write everything
                continue
            if callback is None or 0 < len(buffers) <= 3:
                made.append(bytes([len(buffers)]) + pickled)
    return made
