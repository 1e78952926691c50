"""What the benchmark of families sends: one object of each type and size.

The one rule: values look like data, with no pattern that a shortcut could use, and are the same in
every run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["TYPES", "Type"]


@dataclass(frozen=True, slots=True)
class Type:
    """One type of object.

    :param family: the library it belongs to, whose target it counts towards.
    :param make: returns an object that holds about so many bytes.
    :param most: the largest size at which it is measured: where millions of Python objects would
        be measured rather than a serializer.
    :param needs: package without which it is left out.
    """

    name: str
    family: str
    make: Callable[[int], Any]
    most: int = 1 << 40
    needs: str = "numpy"

    @property
    def usable(self) -> bool:
        return importlib.util.find_spec(self.needs) is not None


def _random() -> np.random.Generator:
    return np.random.default_rng(20261121)


def _floats(size: int) -> Any:
    return _random().random(size // 8)


def _strided(size: int) -> Any:
    return _random().random((size // 8, 2))[:, 0]


def _fortran(size: int) -> Any:
    return np.asfortranarray(_random().random((size // 64, 8)))


def _frozen(size: int) -> Any:
    array = _floats(size)
    array.flags.writeable = False
    return array


def _flags(size: int) -> Any:
    return _random().random(size) < 0.5


def _text(size: int) -> Any:
    return _random().integers(10**6, 10**7, size // 28).astype("U7")


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
    import pandas as pd

    return pd.DataFrame(_random().random((size // 64, 8)), columns=list("abcdefgh"))


def _words(count: int) -> list[str]:
    return [f"word-{number}" for number in _random().integers(0, 10**6, count).tolist()]


def _mixed_frame(size: int) -> Any:
    import pandas as pd

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


def _texts_frame(size: int) -> Any:
    import pandas as pd

    return pd.DataFrame({"name": _words(max(1, size // 19))})


def _category_frame(size: int) -> Any:
    import pandas as pd

    names = pd.Index(["north", "east", "south", "west"])
    codes = _random().integers(0, 4, size).astype("i1")
    return pd.DataFrame({"side": pd.Categorical.from_codes(codes, names)})


def _table(size: int) -> Any:
    import pyarrow as pa

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


def _bytes(size: int) -> bytes:
    return _random().bytes(size)


def _records(size: int) -> list[dict[str, Any]]:
    return [
        {"id": number, "name": f"name-{number}", "score": number / 8, "tags": ["x", "y"]}
        for number in range(max(1, size // 64))
    ]


def _sparse(size: int) -> Any:
    from scipy import sparse

    rows = max(2, size // 120)
    random = _random()
    data, columns = random.random(rows * 10), random.integers(0, 1000, rows * 10)
    made = sparse.csr_matrix((data, columns, np.arange(rows + 1) * 10), shape=(rows, 1000))
    made.sum_duplicates()
    return made


def _polars(size: int) -> Any:
    import polars as pl

    return pl.from_arrow(_table(size))


TYPES = (
    Type("array of floats", "numpy", _floats),
    Type("the same, read-only", "numpy", _frozen),
    Type("the same, every other", "numpy", _strided),
    Type("Fortran order", "numpy", _fortran),
    Type("flags", "numpy", _flags),
    Type("fixed text", "numpy", _text),
    Type("structured", "numpy", _structured),
    Type("frame of floats", "pandas", _numeric_frame, needs="pandas"),
    Type("mixed frame", "pandas", _mixed_frame, needs="pandas"),
    Type("frame of text", "pandas", _texts_frame, needs="pandas"),
    Type("categorical frame", "pandas", _category_frame, needs="pandas"),
    Type("Arrow table", "pyarrow", _table, needs="pyarrow"),
    Type("polars frame", "polars", _polars, needs="polars"),
    Type("sparse rows", "scipy", _sparse, needs="scipy"),
    Type("bytes", "builtins", _bytes),
    Type("records", "builtins", _records, most=1 << 20),
)
