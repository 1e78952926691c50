"""What the benchmark of families sends: one object of each type and size.

The one rule: values look like data, with no pattern that a shortcut could use, and are the same in
every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from scipy import sparse

__all__ = ["TYPES", "Type"]


@dataclass(frozen=True, slots=True)
class Type:
    """One type of object.

    :param family: the library it belongs to, whose target it counts towards.
    :param make: returns an object that holds about so many bytes.
    :param most: the largest size at which it is measured: where millions of Python objects would
        be measured rather than a serializer.
    """

    name: str
    family: str
    make: Callable[[int], Any]
    most: int = 1 << 40


def _random() -> np.random.Generator:
    return np.random.default_rng(20261121)


def _floats(size: int) -> Any:
    return _random().random(size // 8)


def _frozen(size: int) -> Any:
    array = _floats(size)
    array.flags.writeable = False
    return array


def _structured(size: int) -> Any:
    made = np.zeros(
        size // 24, [("at", "M8[ns]"), ("price", "f8"), ("count", "i4"), ("side", "S4")]
    )
    made["at"] = np.datetime64("2026-01-01", "ns") + np.arange(len(made))
    made["price"] = _random().random(len(made))
    made["count"] = _random().integers(0, 1000, len(made))
    made["side"] = b"buy"
    return made


def _numeric_frame(size: int) -> Any:
    return pd.DataFrame(_random().random((size // 64, 8)), columns=list("abcdefgh"))


def _words(count: int) -> list[str]:
    return [f"word-{number}" for number in _random().integers(0, 10**6, count).tolist()]


def _mixed_frame(size: int) -> Any:
    rows = max(1, size // 45)
    random = _random()
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "score": random.random(rows),
            "ok": random.random(rows) < 0.5,
            "at": pd.date_range("2026-01-01", periods=rows, freq="s", tz="UTC"),
            "count": pd.array(random.integers(0, 9, rows), dtype="Int32"),
            "name": _words(rows),
        }
    )


def _category_frame(size: int) -> Any:
    names = pd.Index(["north", "east", "south", "west"])
    codes = _random().integers(0, 4, size).astype("i1")
    return pd.DataFrame({"side": pd.Categorical.from_codes(codes, names)})


def _table(size: int) -> Any:
    rows = max(1, size // 36)
    random = _random()
    missing = random.random(rows) < 0.1
    return pa.table(
        {
            "id": np.arange(rows),
            "score": pa.array(random.random(rows), mask=missing),
            "name": _words(rows),
        }
    )


def _records(size: int) -> list[dict[str, Any]]:
    return [
        {"id": number, "name": f"name-{number}", "score": number / 8, "tags": ["x", "y"]}
        for number in range(max(1, size // 64))
    ]


def _sparse(size: int) -> Any:
    rows = max(2, size // 120)
    random = _random()
    data, columns = random.random(rows * 10), random.integers(0, 1000, rows * 10)
    made = sparse.csr_matrix((data, columns, np.arange(rows + 1) * 10), shape=(rows, 1000))
    made.sum_duplicates()
    return made


TYPES = (
    Type("array of floats", "numpy", _floats),
    Type("the same, read-only", "numpy", _frozen),
    Type("the same, every other", "numpy", lambda n: _random().random((n // 8, 2))[:, 0]),
    Type("Fortran order", "numpy", lambda n: np.asfortranarray(_random().random((n // 64, 8)))),
    Type("flags", "numpy", lambda n: _random().random(n) < 0.5),
    Type("fixed text", "numpy", lambda n: _random().integers(10**6, 10**7, n // 28).astype("U7")),
    Type("structured", "numpy", _structured),
    Type("frame of floats", "pandas", _numeric_frame),
    Type("mixed frame", "pandas", _mixed_frame),
    Type("frame of text", "pandas", lambda n: pd.DataFrame({"name": _words(max(1, n // 19))})),
    Type("categorical frame", "pandas", _category_frame),
    Type("Arrow table", "pyarrow", _table),
    Type("polars frame", "polars", lambda n: pl.from_arrow(_table(n))),
    Type("sparse rows", "scipy", _sparse),
    Type("bytes", "builtins", lambda n: _random().bytes(n)),
    Type("records", "builtins", _records, most=1 << 20),
)
