"""Pickles of everything that the shipped profiles load, to start a fuzzer from.

The one rule: seeds come from real objects and real picklers, so that they reach the code behind
each entry; what is wrong with them is the fuzzer's business.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import ipaddress
import pathlib
import pickle
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["seeds"]


def plain() -> Iterator[Any]:
    yield {"a": [1, -1, 2.5, None, True, "text", b"bytes"], "b": (1, (2, (3,)))}
    yield {1, 2, frozenset({3})}
    yield bytearray(b"abc")
    yield 1 << 200
    yield complex(1, 2)
    yield range(3), slice(1, 2, 3), ...
    yield collections.OrderedDict(a=1), collections.Counter("aab"), collections.deque([1], 3)
    yield collections.defaultdict(list, {"a": [1]})
    zone = datetime.timezone(datetime.timedelta(hours=1), "x")
    yield datetime.datetime(2026, 1, 2, 3, 4, 5, 6, zone), datetime.date(2026, 1, 2)
    yield datetime.time(1, 2, 3, 4, zone, fold=1), datetime.timedelta(1, 2, 3)
    yield decimal.Decimal("1.5e-3"), fractions.Fraction(1, 3), uuid.UUID(int=7)
    yield pathlib.PurePosixPath("/a/b"), ipaddress.ip_address("::1"), array.array("d", [1.0])
    looped: list[Any] = [1]
    looped.append(looped)
    yield looped
    shared = ("x", 1)
    yield [shared, shared, {"k": shared}]
    yield ValueError("text", 1), KeyError("k"), OSError(2, "no", "file")


def arrays() -> Iterator[Any]:
    yield np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((2, 3)))
    yield np.zeros(2, dtype=[("a", "<i4"), ("b", "f8", (2,))]), np.dtype("M8[ns]")
    yield np.array(["a", None, [1]], dtype=object), np.float32(1.5), np.array("2026", "M8[D]")
    yield np.ma.array([1, 2], mask=[0, 1]), np.bool_(True), np.array(["ab"])


def frames() -> Iterator[Any]:
    try:
        import pandas as pd
    except ImportError:
        return
    yield pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.Categorical(["u", "v"])})
    yield pd.Series([1.0], index=pd.date_range("2026", periods=1, tz="UTC"), name="s")
    yield pd.MultiIndex.from_product([[1], ["a"]]), pd.Timestamp("2026"), pd.Timedelta(1)
    yield pd.interval_range(0, 2), pd.period_range("2026", periods=2, freq="M"), pd.NaT


def seeds() -> list[bytes]:
    """Return fuzz inputs: one byte that says how many buffers come along, then a pickle."""
    made = []
    for value in (*plain(), *arrays(), *frames()):
        for protocol in range(6):
            try:
                made.append(b"\0" + pickle.dumps(value, protocol))
            except Exception:  # old protocols can't write everything
                continue
        buffers: list[Any] = []
        held = pickle.dumps(value, 5, buffer_callback=buffers.append)
        if 0 < len(buffers) <= 3:
            made.append(bytes([len(buffers)]) + held)
    return made
