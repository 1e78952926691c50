"""More operations of ordinary notebooks: xarray, joblib, scikit-learn, futures, the client, plots.

They follow those of operations.py in the same notebook, behind its setup.
"""

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
