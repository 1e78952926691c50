"""Operations of ordinary notebooks: each cell below is one, and its last expression is compared.

``# %% area: what it does`` begins a cell. ``client`` is connected to a cluster of two workers,
``keep(cls)`` is ``safeser.register_class`` on ``safeser://`` and returns its argument on ``tcp://``.
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


class Unlucky(Exception):
    pass


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


for cls in (Point, Model, Color, Span, Unlucky):
    keep(cls)

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

# %% xarray: write netCDF and open it in chunks
CUBE.to_netcdf("cube.nc")
xr.open_dataset("cube.nc", chunks={"time": 6}).t.mean("time").compute()

# %% xarray: write netCDF from the cluster
CUBE.chunk(time=6).to_netcdf("chunked.nc")
xr.open_dataset("chunked.nc").t.sum().item()

# %% xarray: write Zarr from the cluster and open it
CUBE.chunk(time=6).to_zarr("cube.zarr", mode="w", consolidated=False)
xr.open_zarr("cube.zarr", consolidated=False).t.max("x").compute()

# %% xarray: open_mfdataset
for month, part in CUBE.groupby("time.month"):
    part.to_netcdf(f"part-{month:02}.nc")
xr.open_mfdataset("part-*.nc").t.std("time").compute()

# %% xarray: open_mfdataset(parallel=True)
xr.open_mfdataset("part-*.nc", parallel=True).t.std("time").compute()

# %% xarray: save_mfdataset
halves = [CUBE.chunk(time=6).isel(time=slice(0, 12)), CUBE.chunk(time=6).isel(time=slice(12, 24))]
xr.save_mfdataset(halves, ["half-0.nc", "half-1.nc"])
xr.open_dataset("half-1.nc").t.sum().item()

# %% xarray: group by month and subtract
chunked = CUBE.chunk(time=6)
(chunked.groupby("time.month") - chunked.groupby("time.month").mean()).t.compute()

# %% xarray: apply_ufunc with a function of the notebook
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

# %% xarray: data sets as results of tasks and between workers
made = client.submit(lambda: CUBE.isel(time=slice(0, 2)), workers=[FIRST], pure=False)
client.submit(lambda part: part.t.sum("x"), made, workers=[SECOND], pure=False).result()

# %% joblib: Parallel over the cluster
with joblib.parallel_config(backend="dask"):
    out = joblib.Parallel()(joblib.delayed(double)(n) for n in range(10))
out

# %% joblib: large arguments and objects of an own class
with joblib.parallel_config(backend="dask"):
    out = joblib.Parallel()(
        joblib.delayed(lambda a, m: m.predict(a.sum()))(np.arange(5000), Model(n)) for n in range(3)
    )
out

# %% joblib: an error of a call arrives
try:
    with joblib.parallel_config(backend="dask"):
        joblib.Parallel()(joblib.delayed(fail if n == 2 else abs)(n) for n in range(3))
except ValueError as error:
    said = str(error)
said

# %% scikit-learn: GridSearchCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

X, Y = make_classification(120, 5, random_state=0)
with joblib.parallel_config(backend="dask"):
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=3).fit(X, Y)
[search.best_params_, search.best_estimator_.coef_.round(6)]

# %% scikit-learn: cross_val_score
with joblib.parallel_config(backend="dask"):
    scores = cross_val_score(LogisticRegression(), X, Y, cv=4)
scores

# %% scikit-learn: a forest that is fitted on the cluster, and estimators as results
with joblib.parallel_config(backend="dask"):
    forest = RandomForestClassifier(8, random_state=0).fit(X, Y)
[forest.predict(X[:20]), client.submit(LogisticRegression().fit, X, Y).result().intercept_.round(6)]

# %% futures: in lists, dictionaries and keywords
futures = client.map(double, range(4))
[
    client.submit(sum, futures).result(),
    client.submit(
        lambda d, *, last: d["a"][0] + last, {"a": [futures[1]]}, last=futures[3]
    ).result(),
    client.gather({"a": futures[2], "b": [futures[3]]}),
]

# %% futures: inside collections of Dask
(
    client.compute(
        da.stack([da.from_delayed(dask.delayed(np.ones)(3), (3,), float)] * 2).sum()
    ).result(),
    (dask.delayed(sum)([futures[2], dask.delayed(double)(futures[3])]).compute()),
)

# %% futures: as_completed, with results
sorted(result for _, result in as_completed(client.map(double, range(5)), with_results=True))

# %% futures: wait, done callbacks and fire_and_forget
seen = threading.Event()
one = client.submit(double, 11)
one.add_done_callback(lambda future: seen.set())
done, rest = wait([one])
distributed.fire_and_forget(client.submit(double, 12))
[len(done), len(rest), seen.wait(20), one.status, str(one.type)]

# %% futures: errors, retries and cancellation
wrong = client.submit(fail, 3)
raised = [type(wrong.exception()).__name__, str(wrong.exception()), wrong.status]
late = client.submit(time.sleep, 5)
late.cancel()
[raised, client.gather([wrong, client.submit(double, 2)], errors="skip"), late.cancelled()]

# %% futures: concurrent.futures by get_executor
with client.get_executor() as executor:
    mapped = list(executor.map(double, range(4)))
mapped

# %% client: progress bars of text
import contextlib
import io

with contextlib.redirect_stdout(io.StringIO()) as shown:
    distributed.progress(client.map(double, range(30, 40)), notebook=False)
"Completed" in shown.getvalue()

# %% client: performance_report and get_task_stream
with distributed.performance_report("report.html"), distributed.get_task_stream() as stream:
    client.gather(client.map(double, range(100, 110)))
[
    "<html" in pathlib.Path("report.html").read_text().lower(),
    len(stream.data),
    sorted(stream.data[0]),
]


# %% client: plugins of workers and of the scheduler
class Marks(distributed.WorkerPlugin):
    def setup(self, worker):
        worker.marked = 17


class Counts(distributed.SchedulerPlugin):
    async def start(self, scheduler):
        scheduler.counted = 0

    def update_graph(self, scheduler, **kwargs):
        scheduler.counted += 1


client.register_plugin(Marks(), name="marks")
client.register_plugin(Counts(), name="counts")
found = client.submit(lambda: get_worker().marked, pure=False).result()
[found, client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.counted)]

# %% client: an actor
counter = client.submit(Counter, actor=True).result()
[counter.add(3).result(), counter.add(4).result(), counter.n]


# %% client: tasks that submit tasks
def outer(n):
    with worker_client() as inner:
        return sum(inner.gather(inner.map(double, range(n))))


(
    client.submit(outer, 4).result(),
    client.submit(lambda: get_client().submit(double, 6).result()).result(),
)

# %% client: recreate_error_locally
try:
    client.recreate_error_locally(client.submit(fail, 5, pure=False))
except ValueError as error:
    said = str(error)
said

# %% client: datasets
client.publish_dataset(numbers=ARRAY.persist(), plain=FRAME.persist())
[sorted(client.list_datasets()), client.get_dataset("numbers").sum().compute()]

# %% client: queues, variables, locks, events and semaphores
queue, variable = distributed.Queue("q"), distributed.Variable("v")
queue.put(client.submit(double, 8))
variable.set({"a": [1, 2]})
with distributed.Lock("l"), distributed.Semaphore(2, "s"):
    distributed.Event("e").set()
[queue.get().result(), variable.get()["a"][1], distributed.Event("e").is_set()]

# %% client: run, upload_file and files of one's own
pathlib.Path("helper_of_mine.py").write_text("def triple(x):\n    return 3 * x\n")
client.upload_file("helper_of_mine.py")


def by_helper(x):
    import helper_of_mine

    return helper_of_mine.triple(x)


[client.submit(by_helper, 5).result(), sorted(client.run(lambda: 1).values())]

# %% client: logs, profile, metadata and events
client.set_metadata("mine", {"a": 1})
client.log_event("topic", {"b": 2})
[
    client.get_metadata("mine"),
    client.get_events("topic")[-1][1],
    sorted(client.profile())[:3],
    type(client.get_worker_logs()).__name__,
    len(client.scheduler_info()["workers"]),
]

# %% client: how it and collections look in a notebook
[
    "Scheduler" in client._repr_html_(),
    "<table" in ARRAY._repr_html_(),
    "Dask DataFrame" in FRAME._repr_html_(),
]

# %% client: memory samples and spans
from distributed.diagnostics import MemorySampler

sampler = MemorySampler()
with sampler.sample("run", interval=0.05), distributed.span("work"):
    client.gather(client.map(double, range(200, 210)))
list(sampler.to_pandas().columns)

# %% plots: an image, a line and bars of results
drawn, axes = plt.subplots(1, 3)
axes[0].imshow(ARRAY.compute())
axes[1].plot(FRAME.set_index("day").weight.compute())
axes[2].bar(*zip(*FRAME.groupby("place").number.sum().compute().items(), strict=True))
drawn.canvas.draw()
np.asarray(drawn.canvas.buffer_rgba())[::50, ::50].sum()

# %% plots: xarray draws a mean
CUBE.chunk(time=6).t.mean("y").plot().get_array().sum()
