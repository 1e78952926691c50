"""Operations whose tasks pass each other values of Dask's own classes, on two workers.

They follow those of operations.py in the same notebook, behind its setup.
"""

# %% passed on: shuffle frames by tasks
FRAME.shuffle("place", shuffle_method="tasks").compute().sort_values("number")

# %% passed on: shuffle frames by p2p
FRAME.shuffle("place", shuffle_method="p2p").compute().sort_values("number")

# %% passed on: shuffle frames by disk
FRAME.shuffle("place", shuffle_method="disk").compute().sort_values("number")

# %% passed on: merge, set_index, group, join and drop duplicates by tasks
with dask.config.set({"dataframe.shuffle.method": "tasks"}):
    other = dd.from_pandas(TABLE[["number", "place"]][::-1], npartitions=3, sort=False)
    out = dask.compute(
        FRAME.merge(other, on="number").number.sum(),
        FRAME.merge(other, on="number", how="left", broadcast=True).number.sum(),
        FRAME.set_index("weight", npartitions=3).number.loc[0.5:].sum(),
        FRAME.groupby("place").weight.median().sum(),
        FRAME.groupby("number").weight.apply(lambda part: part.sum(), meta=("w", float)).sum(),
        FRAME.drop_duplicates("place", split_out=2).place.count(),
        FRAME.place.nunique(),
    )
[round(float(each), 6) for each in out]

# %% passed on: rolling windows and gaps over partitions
[
    FRAME.map_overlap(lambda part: part.weight.rolling(3).sum(), 2, 0).compute().tail(3),
    FRAME.number.diff().compute().tail(2),
    FRAME.weight.shift(2).sum().compute().round(6),
    FRAME.number.cumsum().compute().tail(2),
]


# %% passed on: a partition with rows of its neighbours, and parts of one
def handed(make, use):
    made = client.submit(make, workers=[FIRST], pure=False)
    return client.submit(use, made, workers=[SECOND], pure=False).result()


from dask.dataframe.backends import ShuffleGroupResult
from dask.dataframe.rolling import CombinedOutput

[
    handed(lambda: CombinedOutput((TABLE, 2, None)), lambda it: [type(it).__name__, *it]),
    handed(lambda: ShuffleGroupResult({0: TABLE[:0]}), lambda it: [type(it).__name__, *it.items()]),
]


# %% passed on: locks, events, queues, variables and semaphores
def handed(make, use):
    made = client.submit(make, workers=[FIRST], pure=False)
    return client.submit(use, made, workers=[SECOND], pure=False).result()


[
    handed(lambda: distributed.Lock("l2"), lambda lock: lock.acquire() and lock.release()),
    handed(lambda: distributed.Event("e2"), lambda event: event.is_set()),
    handed(lambda: distributed.Queue("q2"), lambda queue: queue.qsize()),
    handed(lambda: distributed.Variable("v2"), lambda variable: variable.set(3)),
    handed(lambda: distributed.Semaphore(2, "s2"), lambda semaphore: semaphore.get_value()),
    distributed.Variable("v2").get(),
]

# %% passed on: an actor that a task calls on another worker
counter = client.submit(Counter, actor=True, workers=[FIRST])
client.submit(lambda actor: actor.add(2).result(), counter, workers=[SECOND]).result()

# %% passed on: arrays of xarray and Zarr that each task has as an argument
CUBE.to_netcdf("inlined.nc")
da.to_zarr(ARRAY, "inlined.zarr", overwrite=True)
inlined = CUBE.chunk(time=6, inline_array=True)
[
    xr.open_dataset("inlined.nc", chunks={"time": 6}, inline_array=True).t.mean("time").compute(),
    xr.open_dataset("inlined.nc", chunks={"x": 2}, inline_array=True).t.sum().compute().item(),
    da.from_zarr("inlined.zarr", inline_array=True)[3:9, ::4].compute(),
    inlined.map_blocks(lambda part: part * 2).t.sum().compute(),
    inlined.resample(time="QS").mean().t.isel(x=0, y=0).compute(),
    inlined.t.rolling(time=3).mean().isel(x=1, y=1).compute(),
]


# %% passed on: named results of linear algebra
def handed(make, use):
    made = client.submit(make, workers=[FIRST], pure=False)
    return client.submit(use, made, workers=[SECOND], pure=False).result()


square = np.array([[2.0, 1.0], [1.0, 3.0]])
rows = da.arange(60.0, chunks=60).reshape(20, 3).rechunk((5, 3))
[
    handed(lambda: np.linalg.svd(square), lambda it: it.S.round(6)),
    client.submit(np.linalg.eigh, square).result().eigenvalues.round(6),
    dask.compute(*map(np.abs, da.linalg.qr(rows)))[1].round(6),
    da.linalg.lstsq(rows + da.eye(20, chunks=5)[:, :3].rechunk((5, 3)), rows[:, 0])[2].compute(),
]

# %% passed on: write Parquet with a file of metadata
FRAME.to_parquet("noted.parquet", write_metadata_file=True)
dd.read_parquet("noted.parquet").number.sum().compute()

# %% passed on: results of tests of statistics
from dask.array import stats

one, other = da.arange(40.0, chunks=10), da.arange(40.0, chunks=10)[::-1] ** 2
dask.compute(
    *(stats.ttest_1samp(one, 3), stats.ttest_ind(one, other), stats.ttest_rel(one, other)),
    *(stats.skewtest(other), stats.kurtosistest(other), stats.normaltest(other)),
    *(stats.chisquare(one + 1), stats.f_oneway(one, other)),
)

# %% passed on: bags, grouped by tasks
bag = db.range(20, npartitions=4)
sorted((k, sorted(v)) for k, v in bag.groupby(lambda n: n % 3, shuffle="tasks").compute())

# %% passed on: bags, grouped by disk
sorted(
    (k, sorted(v))
    for k, v in db.range(9, npartitions=3).groupby(lambda n: n % 3, shuffle="disk").compute()
)

# %% passed on: bags, joined, zipped, sampled and reduced
from dask.bag import random as bag_random

bag = db.from_sequence(range(20), npartitions=4)
[
    sorted(bag.join([1, 2, 3], lambda n: n % 5).compute()),
    db.zip(bag, bag.map(double)).compute()[:3],
    len(bag_random.sample(bag, 5).compute()),
    bag.accumulate(operator.add).compute()[-1],
    bag.product(bag).count().compute(),
    [float(each) for each in dask.compute(bag.var(), bag.mean(), bag.topk(2).sum(), bag.max())],
    sorted(bag.map(lambda n: n % 4).distinct().compute()),
]
