"""Values whose sizes are two arguments: the sender of one chooses both factors of what it costs.

The one rule: a value is valid, so that its message is read to the end. Each maker takes both sizes,
and raises where they make no value.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import pathlib
import re
import zoneinfo
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse as sp
from pandas._libs.tslibs import offsets

from tests.types.strategies import opened

__all__ = ["Maker", "Product", "labels_of", "products", "text_of"]

#: Makes a value of about so many elements; some kinds have one size.
Maker = Callable[[int], Any]

#: Makes a value of two sizes.
Product = Callable[[int, int], Any]

_ZONE = zoneinfo.ZoneInfo("Europe/Zurich")


def text_of(n: int) -> str:
    return "x" * n


def labels_of(n: int) -> list[str]:
    return [f"{at:x}" for at in range(n)]


def _sundays(count: int) -> dict[str, Any]:
    free = np.datetime64("1970-01-04") + 7 * np.arange(count)
    return {"holidays": list(free), "weekmask": "Sun"}


def _ranged(freq: Callable[[int], Any], **more: Any) -> Product:
    return lambda a, b: pd.date_range("1950-01-01", periods=a, freq=freq(b), unit="s", **more)


def _freqs() -> dict[str, Product]:
    year = {"weekday": 1, "startingMonth": 1, "variation": "nearest"}
    return {
        "freq-openings": _ranged(lambda b: offsets.CustomBusinessHour(7, **opened(b))),
        "freq-hours": _ranged(lambda b: offsets.BusinessHour(7, **opened(b))),
        "freq-holidays": _ranged(lambda b: offsets.CustomBusinessMonthBegin(1, **_sundays(b))),
        "freq-free-days": _ranged(lambda b: offsets.CustomBusinessDay(1, **_sundays(b)), tz=_ZONE),
        "freq-n": _ranged(lambda b: offsets.BusinessDay(1 + b)),
        "freq-quarters": _ranged(lambda b: offsets.FY5253Quarter(qtr_with_extra_week=1, **year)),
        "freq-spans": _ranged(lambda b: pd.DateOffset(days=b, hours=1), tz=_ZONE),
        "freq-hour": _ranged(lambda b: offsets.Hour(b), tz=_ZONE),
        "freq-day": _ranged(lambda b: offsets.Day(1 + b % 9), tz=_ZONE),
    }


def _indexes() -> dict[str, Product]:
    def times(n: int) -> Any:
        return pd.date_range("2000", periods=n, freq="h", tz=_ZONE, unit="s")

    def coded(level: Callable[[int], Any]) -> Product:
        return lambda a, b: pd.CategoricalIndex(
            pd.Categorical.from_codes(np.arange(a) % b, level(b))
        )

    def unordered(a: int, b: int) -> Any:
        codes = np.zeros(a, "i1")
        codes[-2] = 1
        made = pd.MultiIndex([[1, 2]] * b, [codes] * b)
        made.sortorder = 1
        return made

    return {
        "multi-order": unordered,
        "multi-values": lambda a, b: pd.MultiIndex.from_arrays([np.arange(a)] * b),
        "multi-codes": lambda a, b: pd.MultiIndex([[1, 2]] * b, [np.arange(a) % 2] * b),
        "multi-texts": lambda a, b: pd.MultiIndex([labels_of(a)] * b, [[0]] * b),
        "multi-ranges": lambda a, b: pd.MultiIndex([pd.RangeIndex(a)] * b, [[0]] * b),
        "multi-times": lambda a, b: pd.MultiIndex([times(a)] * b, [[0]] * b),
        "categories": coded(labels_of),
        "categories-times": coded(times),
        "categories-intervals": coded(lambda b: pd.interval_range(0, b)),
        "categories-periods": coded(lambda b: pd.period_range("2000", periods=b, freq="h")),
        "categories-objects": coded(lambda b: pd.Index(times(b), dtype=object)),
        "periods": lambda a, b: pd.period_range("2000", periods=a, freq=f"{1 + b % 900}h"),
        "intervals": lambda a, b: pd.IntervalIndex.from_breaks(times(a + 1)),
    }


def _frames() -> dict[str, Product]:
    def beside(column: Callable[[int], Any]) -> Product:
        return lambda a, b: pd.DataFrame({at: column(a) for at in range(b)})

    def sparse(a: int, b: int) -> Any:
        places = pd._libs.sparse.BlockIndex(a * b, np.arange(b) * a, np.ones(b, "i4"))
        return pd.arrays.SparseArray(np.ones(b), places)

    def apart(a: int, b: int) -> Any:
        made = beside(lambda a: pd.array(np.zeros(a), dtype="Float64"))(a, b)
        return made.set_flags(allows_duplicate_labels=False)

    return {
        "frame": lambda a, b: pd.DataFrame(np.zeros((a, b))),
        "frame-masked": apart,
        "frame-categories": beside(lambda a: pd.Categorical(labels_of(a))),
        "frame-text": beside(lambda a: pd.array(["x"] * a, "str")),
        "frame-arrow": beside(lambda a: pd.array(range(a), dtype="int64[pyarrow]")),
        "frame-sparse": beside(lambda a: pd.arrays.SparseArray(np.zeros(a))),
        "frame-zoned": beside(lambda a: pd.array(np.zeros(a, "M8[ns]")).tz_localize(_ZONE)),
        "frame-objects": beside(lambda a: np.array([pd.Timestamp(0, tz=_ZONE)] * a, object)),
        "frame-levels": lambda a, b: pd.DataFrame(
            np.zeros((1, a)), columns=pd.MultiIndex([[1]] * b, [[0] * a] * b)
        ),
        "sparse-blocks": sparse,
        "texts": lambda a, b: pd.Series(["x" * b] * a, dtype=object),
    }


def _arrays() -> dict[str, Product]:
    def records(kind: str) -> Product:
        return lambda a, b: np.zeros(a, [(f"f{at}", kind) for at in range(b)])

    def nested(a: int, b: int) -> Any:
        kind: Any = "?"
        for _ in range(min(b, 16)):
            kind = [("a", kind), ("b", "?")]
        return np.zeros(a, kind)

    return {
        "flags": records("?"),
        "characters": records("U1"),
        "long-doubles": records("g"),
        "records-masked": lambda a, b: np.ma.array(records("?")(a, b)),
        "records-in-records": nested,
        "subarrays": lambda a, b: np.zeros(a, ("?", (b,))),
        "dimensions": lambda a, b: np.zeros((a,) + (1,) * min(b, 60)),
        "objects": lambda a, b: np.array([["x"] * a] * b, object),
        "empty-shapes": lambda a, b: np.zeros((a, 0, b)),
        "repeated": lambda a, b: np.ma.array(np.broadcast_to(np.zeros(b), (a, b))),
    }


def _arrow() -> dict[str, Product]:
    def wide(b: int) -> Any:
        return pa.struct([(f"f{at}", pa.int8()) for at in range(b)])

    def deep(b: int) -> Any:
        kind = pa.int8()
        for _ in range(min(b, 14)):
            kind = pa.list_(kind)
        return kind

    def coded(a: int, b: int) -> Any:
        return pa.DictionaryArray.from_arrays(
            pa.array(np.arange(a) % b, pa.int32()), pa.array(labels_of(b))
        )

    def united(mode: str) -> Product:
        def make(a: int, b: int) -> Any:
            codes, parts = pa.array(np.zeros(a, "i1")), [pa.array(np.zeros(a, "i1"))] * min(b, 120)
            if mode == "sparse":
                return pa.UnionArray.from_sparse(codes, parts)
            return pa.UnionArray.from_dense(codes, pa.array(np.arange(a, dtype="i4")), parts)

        return make

    def chunks(chunk: Callable[[int], Any]) -> Product:
        return lambda a, b: pa.chunked_array([chunk(b)] * a)

    def views(a: int, b: int) -> Any:
        starts, sizes = pa.array(np.zeros(a, "i4")), pa.array(np.full(a, b, "i4"))
        return pa.ListViewArray.from_arrays(starts, sizes, pa.array(np.zeros(b, "i1")))

    def runs(a: int, b: int) -> Any:
        return pa.RunEndEncodedArray.from_arrays(
            pa.array(np.arange(1, a + 1) * b, pa.int32()), pa.array(np.zeros(a))
        )

    return {
        "arrow-dictionary": coded,
        "arrow-dictionaries": chunks(lambda b: coded(b, b)),
        "arrow-empty-chunks": chunks(lambda b: pa.array([], wide(b))),
        "arrow-coded-chunks": chunks(
            lambda b: pa.DictionaryArray.from_arrays(pa.array([], pa.int8()), pa.array([], wide(b)))
        ),
        "arrow-struct": lambda a, b: pa.array([None] * a, wide(b)),
        "arrow-deep": lambda a, b: pa.array([None] * a, deep(b)),
        "arrow-wide": lambda a, b: pa.nulls(a, pa.list_(pa.int8(), b)),
        "arrow-fixed": lambda a, b: pa.nulls(a, pa.binary(b)),
        "arrow-sparse": united("sparse"),
        "arrow-dense": united("dense"),
        "arrow-views": views,
        "arrow-runs": runs,
        "arrow-nulls": lambda a, b: pa.table({f"f{at}": pa.nulls(a) for at in range(b)}),
        "arrow-table": lambda a, b: pa.table(
            {f"f{at}": pa.chunked_array([[1]] * a) for at in range(b)}
        ),
        "arrow-text-views": lambda a, b: pa.array(["x" * b] * a, pa.string_view()),
        "arrow-metadata": lambda a, b: pa.schema(
            [pa.field(f"f{at}", pa.int8(), metadata={"k": "x" * b}) for at in range(a)]
        ),
    }


def _polars() -> dict[str, Product]:
    import polars as pl

    def enums(a: int, b: int) -> Any:
        kind = pl.Enum(labels_of(b))
        return pl.DataFrame({f"f{at}": pl.Series(["0"], dtype=kind) for at in range(a)})

    return {
        "polars-enums": enums,
        "polars-enum": lambda a, b: pl.Series(["0"] * a, dtype=pl.Enum(labels_of(b))),
        "polars-chunks": lambda a, b: pl.concat(
            [pl.DataFrame({f"f{at}": [1] for at in range(b)})] * a, rechunk=False
        ),
        "polars-dates": lambda a, b: pl.DataFrame(
            {f"f{at}": [datetime.date(2000, 1, 1)] * a for at in range(b)}
        ),
    }


def _xarray() -> dict[str, Product]:
    import xarray as xr

    return {
        "xarray-variables": lambda a, b: xr.Dataset(
            {f"v{at}": ("x", np.zeros(a)) for at in range(b)}, {"x": np.arange(a)}
        ),
        "xarray-dimensions": lambda a, b: xr.DataArray(np.zeros((a,) + (1,) * min(b, 60))),
    }


def _sparse() -> dict[str, Product]:
    def coordinates(a: int, b: int) -> Any:
        numbers = np.arange(a, dtype="i4")
        made = sp.coo_array((np.ones(a, "i1"), (numbers,) * min(b, 64)))
        made.has_canonical_format = True
        return made

    return {
        "coo-dimensions": coordinates,
        "dok": lambda a, b: sp.eye_array(a, max(a, b), format="dok"),
        "lil": lambda a, b: sp.lil_array(np.ones((a, b))),
        "lil-rows": lambda a, b: sp.lil_array((a, b)),
        "dia": lambda a, b: sp.dia_array((np.ones((b, a)), np.arange(b)), shape=(a, a)),
        "bsr": lambda a, b: sp.bsr_array(np.ones((a, b)), blocksize=(1, b)),
        "csr": lambda a, b: sp.csr_array(np.ones((a, b), "i1")),
    }


def _standard() -> dict[str, Product]:
    def chained(a: int, b: int) -> Any:
        made: Any = collections.ChainMap(*[{} for _ in range(a)])
        for _ in range(min(b, 40)):
            made = collections.ChainMap(made)
        return made

    moment = datetime.datetime(2000, 1, 1, tzinfo=_ZONE)
    day = datetime.timedelta(1)
    return {
        "moments": lambda a, b: [moment + at * day for at in range(a)],
        "keys-moments": lambda a, b: {moment + at * day: None for at in range(a)},
        "decimals": lambda a, b: [decimal.Decimal("1" * min(b, 16_000))] * a,
        "paths": lambda a, b: [pathlib.PurePosixPath(*["a"] * min(b, 2_000))] * a,
        "patterns": lambda a, b: [re.compile(f"{at}" + "[a-z]" * min(b, 300)) for at in range(a)],
        "keys-tuples": lambda a, b: {(*range(min(b, 5_000)), at): None for at in range(a)},
        "chained": chained,
        "lists": lambda a, b: [[0] * b] * a,
        "generators": lambda a, b: [np.random.PCG64(at) for at in range(a)],
        "polynomials": lambda a, b: [np.poly1d(np.ones(b)) for _ in range(a)],
    }


def products() -> Iterator[tuple[str, Product]]:
    """Yield each product by its name; those of a library that is not installed are left out."""
    for group in (
        _freqs, _indexes, _frames, _arrays, _arrow, _polars, _xarray, _sparse, _standard,
    ):  # fmt: skip
        try:
            yield from group().items()
        except ImportError:
            continue
