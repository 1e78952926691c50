"""What an analyst does on an ordinary day: each cell below is one operation.

``# %% area: what it does`` begins a cell, whose last expression is compared. ``client`` is connected to a cluster of two workers,
``DATA`` is a folder that the policy lists for reading, ``SCRATCH`` one that it lists for writing.
"""

# %% setup
import json

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import xarray as xr
from distributed import as_completed
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

TABLE = pd.read_csv(f"{DATA}/sales-0.csv", parse_dates=["day"])
FRAME = dd.from_pandas(TABLE, npartitions=4)
ARRAY = da.arange(400, chunks=50).reshape(20, 20).rechunk((10, 10))
CUBE = xr.open_dataset(f"{DATA}/climate-0.nc").load()
X, Y = make_classification(120, 5, random_state=0)
RATES = {"Bern": 1.0, "Chur": 1.5, "Genf": 2.0}


class Model:
    def __init__(self, slope):
        self.slope = slope

    def predict(self, x):
        return self.slope * x


def double(x):
    return 2 * x


def in_francs(part, rate):
    return part.assign(francs=part.amount * part.place.map(rate))


# %% arrays: reduce by blocks
ARRAY.sum().compute(), ARRAY.mean(axis=0).compute(), ARRAY.std().compute()

# %% arrays: multiply matrices
(ARRAY @ ARRAY.T).trace().compute()

# %% arrays: rechunk from rows to columns
da.ones((40, 40), chunks=(40, 5)).rechunk((5, 40)).cumsum(axis=0).sum().compute()

# %% arrays: map_blocks(lambda)
ARRAY.map_blocks(lambda block: block * 2 - block.min(), dtype=ARRAY.dtype).compute()

# %% arrays: map_overlap with an own function
ARRAY.map_overlap(lambda block: block + np.roll(block, 1, 0), depth=1, boundary=0).compute().sum()

# %% arrays: select by a mask
ARRAY[ARRAY % 7 == 0].compute_chunk_sizes().compute()

# %% arrays: singular values
da.linalg.svd(da.arange(60.0, chunks=60).reshape(20, 3).rechunk((5, 3)))[1].compute().round(6)

# %% arrays: random numbers by a seed
da.random.default_rng(7).normal(size=(100,), chunks=25).sum().compute().round(9)

# %% arrays: histogram and percentile
(
    da.histogram(ARRAY.ravel(), bins=5, range=(0, 400))[0].compute(),
    da.percentile(ARRAY.ravel(), [10, 50]).compute(),
)

# %% arrays: apply_gufunc with an own function
da.apply_gufunc(lambda a: a.mean(-1), "(i)->()", ARRAY, allow_rechunk=True).compute()

# %% frames: mean of columns
FRAME[["amount", "weight"]].mean().compute()

# %% frames: query
FRAME.query("amount > 30 and place == 'Bern'").compute()

# %% frames: apply(lambda) to a column
FRAME.amount.apply(lambda n: n**2 + 1, meta=("amount", "i8")).compute()

# %% frames: apply(lambda) to rows
FRAME.apply(lambda row: row.amount * row.weight, axis=1, meta=(None, "f8")).compute()

# %% frames: assign and strings
FRAME.assign(short=FRAME.place.str.upper().str[:2], weekday=FRAME.day.dt.dayofweek).compute()

# %% frames: group and aggregate
FRAME.groupby("place").agg({"amount": ["sum", "max"], "weight": "mean"}).compute().sort_index()

# %% frames: group and apply(lambda)
FRAME.groupby("place")[["amount", "weight"]].apply(
    lambda part: part.amount.max() - part.weight.min(), meta=(None, "f8")
).compute().sort_index()

# %% frames: merge by shuffling
right = dd.from_pandas(pd.DataFrame({"amount": range(0, 60, 2), "even": True}), npartitions=3)
FRAME.merge(right, on="amount").compute().sort_values("amount").reset_index(drop=True)

# %% frames: set_index and loc
FRAME.set_index("amount").loc[10:14].compute()

# %% frames: sort_values
FRAME.sort_values("weight", ascending=False).compute().head(5)

# %% frames: map_partitions with an own function
FRAME.map_partitions(in_francs, RATES).francs.sum().compute()

# %% frames: value_counts and nunique
[FRAME.place.value_counts().compute().sort_index(), FRAME.place.nunique().compute()]

# %% frames: rolling and resample
[
    FRAME.weight.rolling(3).mean().compute(),
    FRAME.set_index("day").amount.resample("30D").sum().compute(),
]

# %% frames: pivot_table
FRAME.categorize("place").pivot_table(
    index="amount", columns="place", values="weight", aggfunc="sum"
).compute()

# %% frames: describe and quantile
[FRAME.describe().compute(), FRAME.weight.quantile(0.3).compute()]

# %% bags: map, filter and frequencies
words = db.from_sequence("the cat and the dog".split(), npartitions=2)
sorted(words.map(str.title).filter(lambda word: len(word) == 3).frequencies().compute())

# %% bags: foldby and groupby
numbers = db.range(20, npartitions=4)
[
    sorted(numbers.foldby(lambda n: n % 3, lambda a, b: a + b, 0).compute()),
    sorted((k, sorted(v)) for k, v in numbers.groupby(lambda n: n % 3).compute()),
]

# %% bags: to a frame
db.from_sequence([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], npartitions=2).to_dataframe().compute()

# %% own functions: submit(lambda)
client.submit(lambda a, b: a * b, 6, 7).result()

# %% own functions: map and gather
client.gather(client.map(double, range(10)))

# %% own functions: as_completed
sorted(result for _, result in as_completed(client.map(double, range(5)), with_results=True))

# %% own functions: a tree of delayed calls
dask.delayed(sum)([dask.delayed(double)(n) for n in range(8)]).compute()

# %% own functions: methods of an own class
(dask.delayed(Model)(3).predict(4)).compute()

# %% own functions: persist a frame and use it twice
kept = FRAME.map_partitions(in_francs, RATES).persist()
[kept.francs.sum().compute(), kept.francs.max().compute()]

# %% listed folders: read_csv
dd.read_csv(f"{DATA}/sales-*.csv", parse_dates=["day"]).groupby("place").amount.sum().compute()

# %% listed folders: read_parquet with a filter
dd.read_parquet(f"{DATA}/sales.parquet", filters=[("amount", ">", 55)]).compute()

# %% listed folders: read_text and json.loads
db.read_text(f"{DATA}/lines.json").map(json.loads).pluck("a").sum().compute()

# %% listed folders: an own function that reads files
client.gather(client.map(lambda n: int(pd.read_csv(f"{DATA}/sales-{n}.csv").amount.sum()), [0, 1]))

# %% listed folders: open netCDF files as one data set
xr.open_mfdataset(f"{DATA}/climate-*.nc", chunks={"time": 6}).t.mean("time").compute()

# %% listed folders: open_mfdataset(parallel=True)
xr.open_mfdataset(f"{DATA}/climate-*.nc", parallel=True).t.std("time").compute()

# %% listed folders: zarr
[
    da.from_zarr(f"{DATA}/climate.zarr", component="t").mean().compute(),
    xr.open_zarr(f"{DATA}/climate.zarr").t.max("x").compute(),
]

# %% scratch: to_parquet
FRAME.map_partitions(in_francs, RATES).to_parquet(f"{SCRATCH}/francs.parquet")
dd.read_parquet(f"{SCRATCH}/francs.parquet").francs.sum().compute()

# %% scratch: to_netcdf and to_zarr
CUBE.chunk(time=6).to_netcdf(f"{SCRATCH}/cube.nc")
CUBE.chunk(time=6).to_zarr(f"{SCRATCH}/cube.zarr", mode="w")
[
    xr.open_dataset(f"{SCRATCH}/cube.nc").t.sum().compute(),
    xr.open_zarr(f"{SCRATCH}/cube.zarr").t.sum().compute(),
]

# %% xarray: group by month and subtract
chunked = CUBE.chunk(time=6)
(chunked.groupby("time.month") - chunked.groupby("time.month").mean()).t.compute()

# %% xarray: apply_ufunc with an own function
xr.apply_ufunc(
    lambda a: a.max(-1) - a.min(-1),
    CUBE.t.chunk(x=2),
    input_core_dims=[["time"]],
    dask="parallelized",
    output_dtypes=[float],
).compute()

# %% xarray: map_blocks, resample and rolling
[
    CUBE.chunk(time=6).map_blocks(lambda part: part * 2).t.sum().compute(),
    CUBE.chunk(time=6).resample(time="QS").mean().t.isel(x=0, y=0).compute(),
    CUBE.chunk(time=6).t.rolling(time=3).mean().isel(x=1, y=1).compute(),
]

# %% scikit-learn: GridSearchCV
with joblib.parallel_config(backend="dask"):
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=3).fit(X, Y)
[search.best_params_, search.best_estimator_.coef_.round(6)]

# %% scikit-learn: cross_val_score
with joblib.parallel_config(backend="dask"):
    scores = cross_val_score(LogisticRegression(), X, Y, cv=4)
scores

# %% scikit-learn: fit a forest, and predict on the workers
with joblib.parallel_config(backend="dask"):
    forest = RandomForestClassifier(8, random_state=0).fit(X, Y)
[forest.predict(X[:20]), client.submit(forest.predict, X[20:40]).result()]
