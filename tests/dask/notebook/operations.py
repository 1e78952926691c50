"""Operations of ordinary notebooks: each cell below is one, and its last expression is compared.

``# %% area: what it does`` begins a cell. ``client`` is connected to a cluster of two workers,
``keep(cls)`` is ``safeser.register_class`` on ``safeser://`` and returns its argument on ``tcp://``. Of
the classes here it is needed for a named tuple alone.
"""

# %% setup
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import logging
import operator
import os
import pathlib
import threading
import time
import typing
import uuid

import attrs
import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import distributed
import joblib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from distributed import as_completed, get_client, get_worker, wait, worker_client

FIRST, SECOND = sorted(client.scheduler_info()["workers"])
TABLE = pd.DataFrame(
    {
        "day": pd.date_range("2026-01-01", periods=60, freq="D"),
        "place": ["Bern", "Chur", "Genf"] * 20,
        "number": np.arange(60),
        "weight": np.linspace(0, 1, 60),
    }
)
FRAME = dd.from_pandas(TABLE, npartitions=4)
ARRAY = da.arange(400, chunks=50).reshape(20, 20).rechunk((10, 10))
CUBE = xr.Dataset(
    {"t": (("time", "x", "y"), np.arange(240.0).reshape(24, 5, 2), {"units": "K"})},
    {"time": pd.date_range("2026-01-01", periods=24, freq="15D"), "x": list("abcde")},
)


@dataclasses.dataclass
class Point:
    x: int
    tags: list


class Model:
    def __init__(self, slope):
        self.slope = slope

    def predict(self, x):
        return self.slope * x


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Span(typing.NamedTuple):
    first: int
    last: int


class Unlucky(KeyError):
    most = 0

    def __str__(self):
        return f"{self.args[0]} of {self.most}"


class Counter:
    n = 0

    def __init__(self):
        self.n = 0

    def add(self, n):
        self.n += n
        return self.n


def double(x):
    return 2 * x


def fail(x):
    raise ValueError(f"no {x}")


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    color: Color = Color.RED


@attrs.frozen
class Measured:
    points: list


keep(Span)

# %% arrays: reduce by blocks
ARRAY.sum().compute(), ARRAY.mean(axis=0).compute(), ARRAY.std().compute()

# %% arrays: multiply matrices
(ARRAY @ ARRAY.T).trace().compute()

# %% arrays: rechunk from rows to columns
da.ones((40, 40), chunks=(40, 5)).rechunk((5, 40)).cumsum(axis=0).sum().compute()

# %% arrays: map_blocks with a function of the notebook
ARRAY.map_blocks(lambda block: block * 2 - block.min(), dtype=ARRAY.dtype).compute()

# %% arrays: map_overlap
ARRAY.map_overlap(lambda block: block + np.roll(block, 1, 0), depth=1, boundary=0).compute().sum()

# %% arrays: select by a mask, with unknown chunks
ARRAY[ARRAY % 7 == 0].compute_chunk_sizes().compute()

# %% arrays: singular values
da.linalg.svd(da.arange(60.0, chunks=60).reshape(20, 3).rechunk((5, 3)))[1].compute().round(6)

# %% arrays: histogram and percentile
(
    da.histogram(ARRAY.ravel(), bins=5, range=(0, 400))[0].compute(),
    da.percentile(ARRAY.ravel(), [10, 50]).compute(),
)

# %% arrays: from_delayed and stack
da.stack([da.from_delayed(dask.delayed(np.full)(3, n), (3,), int) for n in range(3)]).compute()

# %% arrays: apply_gufunc
da.apply_gufunc(lambda a: (a.mean(-1), a.std(-1)), "(i)->(),()", ARRAY, allow_rechunk=True)[
    1
].compute()

# %% arrays: masked, complex, structured and object elements
[
    da.ma.masked_greater(da.arange(6, chunks=3), 3).compute(),
    da.from_array(np.array([1 + 2j, 3j]), chunks=1).conj().compute(),
    da.from_array(np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]), chunks=1)["b"].compute(),
    da.from_array(np.array(["a", None, 3], dtype=object), chunks=2).compute(),
]

# %% arrays: persist, slice and store to Zarr
kept = ARRAY.persist()
da.to_zarr(kept, "array.zarr", overwrite=True)
da.from_zarr("array.zarr")[3:9, ::4].compute()

# %% arrays: random numbers by a seed
da.random.default_rng(7).normal(size=(100,), chunks=25).sum().compute().round(9)

# %% frames: mean of columns
FRAME[["number", "weight"]].mean().compute()

# %% frames: group and aggregate
FRAME.groupby("place").agg({"number": ["sum", "max"], "weight": "mean"}).compute().sort_index()

# %% frames: group and apply a function of the notebook
FRAME.groupby("place")[["number", "weight"]].apply(
    lambda part: part.number.max() - part.weight.min(), meta=(None, "f8")
).compute().sort_index()

# %% frames: merge by shuffling
right = dd.from_pandas(pd.DataFrame({"number": range(0, 60, 2), "even": True}), npartitions=3)
FRAME.merge(right, on="number").compute().sort_values("number").reset_index(drop=True)

# %% frames: set_index and loc
FRAME.set_index("number").loc[10:14].compute()

# %% frames: map_partitions with a function of the notebook
FRAME.map_partitions(lambda part: part.assign(half=part.number / 2)).compute().tail(3)

# %% frames: value_counts, nunique and drop_duplicates
[
    FRAME.place.value_counts().compute().sort_index(),
    FRAME.place.nunique().compute(),
    FRAME.place.drop_duplicates().compute().sort_values().tolist(),
]

# %% frames: rolling and resample
[
    FRAME.weight.rolling(3).mean().compute().tail(2),
    FRAME.set_index("day").number.resample("30D").sum().compute(),
]

# %% frames: strings and dates
FRAME.assign(short=FRAME.place.str.upper().str[:2], week=FRAME.day.dt.dayofweek).compute().head(3)

# %% frames: write and read CSV
FRAME.to_csv("table-*.csv", index=False)
dd.read_csv("table-*.csv", parse_dates=["day"]).number.sum().compute()

# %% frames: write and read Parquet
FRAME.to_parquet("table.parquet")
dd.read_parquet("table.parquet", filters=[("number", ">", 55)]).compute()

# %% frames: categories and a pivot table
FRAME.categorize("place").pivot_table(
    index="number", columns="place", values="weight", aggfunc="sum"
).compute().head(4)

# %% frames: describe, quantile and nlargest
[
    FRAME.describe().compute(),
    FRAME.weight.quantile(0.3).compute(),
    FRAME.nlargest(2, "number").compute(),
]

# %% frames: from_delayed and to_delayed
parts = [dask.delayed(lambda n: pd.DataFrame({"n": [n, n + 1]}))(n) for n in range(3)]
[len(part) for part in dask.compute(*dd.from_delayed(parts, meta={"n": int}).to_delayed())]

# %% frames: objects of an own class in a column
FRAME.map_partitions(
    lambda part: part.assign(point=[Point(n, []) for n in part.number]),
    meta=dict(FRAME.dtypes, point=object),
).map_partitions(
    lambda part: part.point.map(lambda point: point.x), meta=(None, int)
).sum().compute()

# %% pandas: numbers, flags and complex numbers
client.submit(
    lambda: pd.DataFrame(
        {
            str(t): np.array([0, 1, 2]).astype(t)
            for t in ("i1", "u8", "f2", "f4", "f8", "bool", "c16")
        }
    )
).result()

# %% pandas: nullable numbers and flags
client.submit(
    lambda: pd.DataFrame(
        {
            t: pd.array([1, None, 0], dtype=t)
            for t in ("Int8", "UInt64", "Float32", "Float64", "boolean")
        }
    )
).result()

# %% pandas: text and Python objects
client.submit(
    lambda: pd.DataFrame(
        {
            "str": ["a", None, "c"],
            "string": pd.array(["a", None, "c"], dtype="string"),
            "arrow": pd.array(["a", None, "c"], dtype="string[pyarrow]"),
            "object": pd.Series([1, "x", None], dtype=object),
            "lists": [[1], [], [2, 3]],
            "decimal": [decimal.Decimal("1.5")] * 3,
        }
    )
).result()

# %% pandas: dates, zones, durations and periods
client.submit(
    lambda: pd.DataFrame(
        {
            "day": pd.to_datetime(["2026-01-01", None, "2026-03-01"]),
            "zone": pd.date_range("2026-03-28", periods=3, tz="Europe/Zurich"),
            "seconds": pd.to_timedelta([1, 2, 3], unit="s"),
            "period": pd.period_range("2026-01", periods=3, freq="M"),
        }
    )
).result()

# %% pandas: categories, intervals and sparse columns
client.submit(
    lambda: pd.DataFrame(
        {
            "category": pd.Categorical(["a", "b", "a"], ["b", "a"], ordered=True),
            "interval": pd.interval_range(0, 3),
            "sparse": pd.arrays.SparseArray([0, 0, 1]),
        }
    )
).result()

# %% pandas: columns of Arrow
client.submit(
    lambda: pd.DataFrame(
        {
            t: pd.array(values, dtype=f"{t}[pyarrow]")
            for t, values in {
                "int64": [1, None],
                "double": [0.5, None],
                "bool": [True, None],
                "timestamp[ns]": [pd.Timestamp("2026-01-01"), None],
            }.items()
        }
    )
).result()

# %% pandas: indexes of several levels, and of rows and columns
client.submit(
    lambda: pd.DataFrame(
        np.arange(8).reshape(4, 2),
        pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["k", "n"]),
        pd.MultiIndex.from_tuples([("x", 1), ("y", 2)]),
    )
).result()

# %% pandas: scalars
client.gather(
    [
        client.submit(pd.Timestamp, "2026-01-01", tz="UTC"),
        client.submit(pd.Timedelta, "1h"),
        client.submit(pd.Period, "2026-01", "M"),
        client.submit(pd.Interval, 1, 2),
        client.submit(lambda: [pd.NaT, pd.NA, np.float32(1.5), np.datetime64("2026-01-01")]),
    ]
)

# %% bags: map, filter and frequencies
sorted(db.from_sequence("the cat and the dog".split(), npartitions=2).frequencies().compute())

# %% bags: foldby and groupby
numbers = db.range(20, npartitions=4)
[
    sorted(numbers.foldby(lambda n: n % 3, operator.add, 0).compute()),
    sorted((k, sorted(v)) for k, v in numbers.groupby(lambda n: n % 3).compute()),
]

# %% bags: read text and parse JSON
pathlib.Path("lines.json").write_text('{"a": 1}\n{"a": 2}\n')
import json

db.read_text("lines.json").map(json.loads).pluck("a").sum().compute()

# %% bags: to a frame and back
db.from_sequence([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], npartitions=2).to_dataframe().compute()

# %% bags: objects of an own class
[p.x for p in db.from_sequence(range(4), npartitions=2).map(lambda n: Point(n, [n])).compute()]

# %% delayed: a tree of calls
total = dask.delayed(sum)([dask.delayed(double)(n) for n in range(8)])
total.compute()

# %% delayed: methods and attributes of an own class
model = dask.delayed(Model)(3)
(model.predict(4) + model.slope).compute()

# %% delayed: several collections at once
dask.compute(ARRAY.sum(), FRAME.number.sum(), dask.delayed(double)(4), {"a": [ARRAY.min()]})

# %% delayed: optimize and persist
(held,) = dask.persist(dask.delayed(double)(21))
dask.optimize(held)[0].compute()

# %% own classes: a dataclass, and a list and a dictionary of them
client.gather(
    [client.submit(Point, 1, ["a"]), client.submit(lambda: {"p": [Point(2, []), Point(3, [4])]})]
)

# %% own classes: a plain class whose method works here
client.submit(Model, 3).result().predict(4)

# %% own classes: members of an enum and named tuples
client.gather([client.submit(Color, "red"), client.submit(Span, 1, last=2)])

# %% own classes: from worker to worker
made = client.submit(Model, 5, workers=[FIRST], pure=False)
client.submit(lambda m: m.predict(2), made, workers=[SECOND], pure=False).result()

# %% own classes: a function that a task returns, on another worker
made = client.submit(lambda n: lambda x: x + n, 10, workers=[FIRST], pure=False)
client.submit(lambda f: f(5), made, workers=[SECOND], pure=False).result()

# %% own classes: scattered, and used by tasks
far = client.scatter(Point(9, [1]))
client.submit(lambda p: p.x + len(p.tags), far).result(), far.result()


# %% own classes: an own exception is caught by its class
def unlucky():
    raise Unlucky("thirteen")


try:
    client.submit(unlucky).result()
except Unlucky as error:
    said = str(error)
said


# %% own classes: an own exception keeps its attributes and says what it said
def over():
    error = Unlucky(5)
    error.most = 3
    error.add_note("noted")
    raise error from ValueError("why")


try:
    client.submit(over).result()
except Unlucky as error:
    said = [str(error), error.most, error.__notes__[0], repr(error.__cause__)]
said

# %% own classes: frozen dataclasses and frozen classes of attrs, in each other
client.submit(lambda: {"m": Measured([Fixed(), Fixed(Color.BLUE), Point(1, ["a"])])}).result()

# %% own classes: a cell that runs twice, and registers twice
for _ in range(2):

    class Again:
        pass

    class Twice(Span):
        pass

    keep(Twice)
made = client.gather([client.submit(lambda: Again()), client.submit(lambda: Twice(1, 2))])
type(made[0]) is Again, type(made[1]) is Twice, made[1]

# %% own classes: results of many standard types
client.submit(
    lambda: [
        {1, 2},
        frozenset("ab"),
        1 + 2j,
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        decimal.Decimal("1.10"),
        fractions.Fraction(1, 3),
        uuid.UUID(int=7),
        pathlib.PurePosixPath("/a/b"),
        collections.Counter("hello"),
        collections.deque([1, 2]),
        collections.OrderedDict(a=1),
        range(3),
        b"\x00",
        float("inf"),
        2**100,
        None,
    ]
).result()
