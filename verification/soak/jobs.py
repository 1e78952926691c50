"""The mixed work: each job submits something and compares what comes back with its own result.

The one rule: a job that returns has compared every value that it got. It returns how many tasks it
had done, and raises :class:`Wrong` where a value differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Event, Lock, Queue, Semaphore, Variable, as_completed, wait

from safeser import SafeserError

__all__ = ["BY_TASKS", "CODE", "DATA", "PATIENCE", "REFUSED", "Wrong"]

#: A future that has not ended by then is lost. Two cores, workers that are killed and start again.
PATIENCE = 150

#: So long a dataset stays published; far longer than it takes a reader to ask for its newest name.
_PUBLISHED_SECONDS = 300

Job = Callable[[Any, Random], int]

#: Jobs that are about what safeser refuses.
REFUSED = frozenset({"unsendable", "meets_the_rogue", "submits_nothing"})

CODE: dict[str, Job] = {}
BY_TASKS: dict[str, Job] = {}
DATA: dict[str, Job] = {}


class Wrong(Exception):
    """Something else came back than what was computed here."""


def expect(got: Any, wanted: Any) -> None:
    if isinstance(wanted, np.ndarray):
        same = type(got) is np.ndarray and got.dtype == wanted.dtype and np.array_equal(got, wanted)
    elif isinstance(wanted, pd.DataFrame | pd.Series):
        same = type(got) is type(wanted) and got.equals(wanted)
    elif isinstance(wanted, float):
        same = bool(np.isclose(got, wanted, rtol=1e-9))
    else:
        same = type(got) is type(wanted) and got == wanted
    if not same:
        raise Wrong(f"{got!r:.200} instead of {wanted!r:.200}")


def job(*books: dict[str, Job]) -> Callable[[Job], Job]:
    def enter(function: Job) -> Job:
        for book in books:
            book[function.__name__] = function
        return function

    return enter


def tag(random: Random) -> str:
    return f"{random.getrandbits(64):016x}"


# --- with code --------------------------------------------------------------------------------


@job(CODE)
def maps(client: Any, random: Random) -> int:
    shift, many = random.randrange(1000), 60
    futures = client.map(lambda x: x * x + shift, range(many), pure=False)
    expect(client.gather(futures), [x * x + shift for x in range(many)])
    return many


@job(CODE)
def trees(client: Any, random: Random) -> int:
    """Futures as arguments: results move between workers."""
    layer = client.map(lambda seed: np.arange(seed, seed + 2000), range(16), pure=False)
    tasks = len(layer)
    while len(layer) > 1:
        layer = [
            client.submit(lambda a, b: a + b, *pair, pure=False)
            for pair in zip(layer[::2], layer[1::2], strict=True)
        ]
        tasks += len(layer)
    expect(layer[0].result(timeout=PATIENCE), 16 * np.arange(2000) + sum(range(16)))
    return tasks


@job(CODE)
def fails(client: Any, random: Random) -> int:
    """Errors come back as what they are, with their text, and only where they belong."""
    number = random.randrange(1000)

    def odd(x: int) -> int:
        if x % 2:
            raise ValueError(f"odd {x} {number}")
        return x

    futures = client.map(odd, range(10), pure=False)
    wait(futures, timeout=PATIENCE)
    for x, future in enumerate(futures):
        try:
            got = future.result(timeout=PATIENCE)
        except ValueError as error:
            expect((type(error), str(error)), (ValueError, f"odd {x} {number}"))
        else:
            expect((got, got % 2), (x, 0))
    return len(futures)


@job(CODE)
def retries(client: Any, random: Random) -> int:
    name = tag(random)

    def sometimes(name: str) -> str:
        variable = Variable(name)
        try:
            variable.get(timeout=0.5)
        except TimeoutError:
            variable.set(1)
            raise RuntimeError("not yet") from None
        return name

    got = client.submit(sometimes, name, pure=False, retries=5).result(timeout=PATIENCE)
    Variable(name).delete()
    expect(got, name)
    return 1


@job(CODE)
def cancels(client: Any, random: Random) -> int:
    naps = client.map(lambda x: time.sleep(5), range(6), pure=False)
    client.cancel(naps)
    for nap in naps:
        expect(nap.cancelled(), True)
    expect(client.submit(lambda: "after", pure=False).result(timeout=PATIENCE), "after")
    return 1


@job(CODE)
def unsendable(client: Any, random: Random) -> int:
    """A result that is code fails alone; its neighbours come."""
    bad = client.submit(lambda: lambda: 1, pure=False)
    good = client.submit(lambda: "good", pure=False)
    try:
        got = bad.result(timeout=PATIENCE)
    except SafeserError:
        got = "refused"
    expect(got, "refused")
    expect(good.result(timeout=PATIENCE), "good")
    return 2


class Counter:
    n = 0

    def add(self, more: int) -> int:
        self.n += more
        return self.n


@job(CODE)
def actors(client: Any, random: Random) -> int:
    counter = client.submit(Counter, actor=True, pure=False).result(timeout=PATIENCE)
    steps = [random.randrange(100) for _ in range(8)]
    sums = [counter.add(step).result(timeout=PATIENCE) for step in steps]
    expect(sums, np.cumsum(steps).tolist())
    return len(steps)


@job(CODE)
def locks(client: Any, random: Random) -> int:
    """A counter that only a lock keeps right."""
    name = tag(random)
    Variable(name).set(0)

    def step(lock: str, pure: int) -> None:
        with Lock(lock):
            variable = Variable(lock)
            variable.set(variable.get(timeout=20) + 1)

    many = 4
    futures = client.map(lambda i: step(name, i), range(many), pure=False)
    client.gather(futures)
    got = Variable(name).get(timeout=20)
    Variable(name).delete()
    # A task whose worker is killed after it counted counts once more.
    if got < many:
        raise Wrong(f"{got} steps under a lock instead of {many}")
    return many


@job(CODE)
def semaphores(client: Any, random: Random) -> int:
    name = tag(random)
    semaphore, event = Semaphore(2, name), Event(name)

    def work(x: int) -> int:
        with Semaphore(2, name):
            Event(name).wait(timeout=30)
            return x

    futures = client.map(work, range(3), pure=False)
    event.set()
    expect(client.gather(futures), [0, 1, 2])
    event.clear()
    semaphore.close()
    return 3


@job(CODE)
def visits(client: Any, random: Random) -> int:
    """A second client comes, works and goes."""
    with type(client)(client.scheduler.address, timeout=60, set_as_default=False) as visitor:
        expect(visitor.submit(lambda: 5, pure=False).result(timeout=PATIENCE), 5)
    return 1


@job(CODE)
def runs(client: Any, random: Random) -> int:
    expect(client.run_on_scheduler(lambda: 3), 3)
    return 1


@job(CODE)
def publishes(client: Any, random: Random) -> int:
    """What the others read: a dataset, and a variable that names a future.

    Each dataset has a name of its own and goes minutes later. A future of one that is replaced
    while somebody reads it never ends, on tcp:// too (docs/explanation/upstream.md, 17).
    """
    number, now = random.randrange(1 << 30), int(time.time())
    array = client.submit(lambda: np.arange(number, number + 500), pure=False)
    wait(array, timeout=PATIENCE)
    name = f"numbers-{now}-{number}"
    client.publish_dataset(array, name=name)
    Variable("latest").set(array)
    expect(client.get_dataset(name).result(timeout=PATIENCE)[0], np.int64(number))
    for each in client.list_datasets():
        if int(each.split("-")[1]) < now - _PUBLISHED_SECONDS:
            client.unpublish_dataset(each)
    return 1


@job(CODE)
def bags(client: Any, random: Random) -> int:
    many = random.randrange(50, 200)
    bag = db.from_sequence(range(many), npartitions=4).map(lambda x: x + 1)
    odd = bag.filter(lambda x: x % 2)
    expect(odd.sum().compute(), sum(x for x in range(1, many + 1) if x % 2))
    return 12


@job(CODE)
def late(client: Any, random: Random) -> int:
    futures = client.map(lambda x: (time.sleep(0.01), x)[1], range(20), pure=False)
    # Not with_results=True: Dask's as_completed then waits for ever if the connection is cut while
    # it gathers one, on tcp:// too (_track_future raises in a callback that nobody awaits).
    got = sorted(each.result(timeout=PATIENCE) for each in as_completed(futures, timeout=PATIENCE))
    expect(got, list(range(20)))
    return 20


#: What the harness calls its workers; the one with another name is the rogue.
HONEST = frozenset({"steady", "shaken", "bare"})


@job(CODE)
def meets_the_rogue(client: Any, random: Random) -> int:
    """A hostile worker says pickles in errors, types and warnings; what is next is as ever."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    rogues = [address for address, about in workers.items() if about["name"] not in HONEST]
    for rogue in rogues:
        for attack in ("result-type", "warn-event"):
            key = f"{attack}-{tag(random)}"
            met = client.submit(lambda: 1, key=key, workers=[rogue])
            expect(met.result(timeout=PATIENCE), 1)
        for form in (0, 1):
            key = f"error-reply-{tag(random)}-{form}"
            met = client.submit(lambda: 1, key=key, workers=[rogue])
            try:
                got = met.result(timeout=PATIENCE)
            except SafeserError:
                got = "refused"
            expect(got, "refused")
    expect(client.submit(lambda: 7, pure=False).result(timeout=PATIENCE), 7)
    return 1 + 4 * len(rogues)


# --- collections ------------------------------------------------------------------------------


@job(CODE, BY_TASKS)
def arrays(client: Any, random: Random) -> int:
    values = np.random.default_rng(random.getrandbits(32)).integers(0, 1000, (200, 200))
    x = da.from_array(values, chunks=50)
    expect(int((x + x.T).sum().compute()), int((values + values.T).sum()))
    expect(float(x.mean(axis=0).std().compute()), float(values.mean(axis=0).std()))
    return 60


@job(CODE, BY_TASKS)
def rechunks(client: Any, random: Random) -> int:
    values = np.random.default_rng(random.getrandbits(32)).random((240, 240))
    with dask.config.set({"array.rechunk.method": client.soak_method}):
        x = da.from_array(values, chunks=(240, 30)).rechunk((30, 240))
        expect(x.compute(), values)
    return 24


def frame(random: Random) -> pd.DataFrame:
    chance = np.random.default_rng(random.getrandbits(32))
    return pd.DataFrame(
        {
            "k": chance.integers(0, 20, 1000),
            "v": chance.integers(0, 1000, 1000),
            "s": chance.choice(list("abc"), 1000),
        }
    )


@job(CODE, BY_TASKS)
def groups(client: Any, random: Random) -> int:
    whole = frame(random)
    sums = dd.from_pandas(whole, npartitions=4).groupby("k").v.sum().compute()
    expect(sums.sort_index(), whole.groupby("k").v.sum())
    return 10


@job(CODE, BY_TASKS)
def shuffles(client: Any, random: Random) -> int:
    whole = frame(random)
    got = (
        dd.from_pandas(whole, npartitions=4)
        .shuffle("k", shuffle_method=client.soak_method)
        .compute()
    )
    # Dask makes its own kind of text of the text; what it says is the same.
    expect(got.sort_index().astype({"s": object}), whole.astype({"s": object}))
    return 12


@job(CODE, BY_TASKS)
def merges(client: Any, random: Random) -> int:
    left, right = frame(random), frame(random).head(50)
    with dask.config.set({"dataframe.shuffle.method": client.soak_method}):
        near, far = dd.from_pandas(left, npartitions=3), dd.from_pandas(right, npartitions=3)
        got = near.merge(far, on="k")[["v_x", "v_y"]].sum().compute()
    wanted = left.merge(right, on="k")[["v_x", "v_y"]].sum()
    expect([int(n) for n in got], [int(n) for n in wanted])
    return 20


@job(CODE, BY_TASKS)
def large(client: Any, random: Random) -> int:
    """Eight megabytes there and back."""
    array = np.random.default_rng(random.getrandbits(32)).random(1 << 20)
    future = client.scatter(array, hash=False)
    expect(float(client.submit(np.sum, future, pure=False).result(timeout=PATIENCE)), array.sum())
    expect(client.gather(future), array)
    return 2


# --- data alone -------------------------------------------------------------------------------


@job(CODE, BY_TASKS, DATA)
def scatters(client: Any, random: Random) -> int:
    name = tag(random)  # the keys of what is scattered by name are the names
    values = {f"{name}-a": random.random(), f"{name}-b": [1, (2, "x")]}
    values[f"{name}-c"] = b"raw" * random.randrange(1, 1000)
    pieces = client.scatter(values, hash=False)
    expect(client.gather(pieces), values)
    # Not broadcast, nor replicated: Dask's scheduler copies to a worker that is gone for ever, and
    # holds a lock meanwhile for which everybody's copies wait (2026.8.0, Scheduler.replicate).
    whole = client.scatter(np.arange(100), hash=False)
    expect(client.gather(whole, direct=True), np.arange(100))
    return 4


@job(CODE, BY_TASKS, DATA)
def queues(client: Any, random: Random) -> int:
    name = tag(random)
    queue = Queue(name)
    for number in range(5):
        queue.put({"n": number, "text": name})
    expect([queue.get(timeout=20)["n"] for _ in range(5)], list(range(5)))
    queue.close()
    return 5


@job(CODE, BY_TASKS, DATA)
def metadata(client: Any, random: Random) -> int:
    value = {"x": (random.random(), "text")}  # what goes into a message is a tuple there
    name = f"soak-{random.randrange(50)}-{client.id}"
    client.set_metadata(name, value)
    expect(client.get_metadata(name), value)
    client.log_event("soak", {"n": 1})
    return 2


@job(DATA)
def reads(client: Any, random: Random) -> int:
    """What somebody else computed and published."""
    names = client.list_datasets()
    if not names:
        return 0
    try:
        got = client.get_dataset(max(names)).result(timeout=PATIENCE)
    except KeyError:  # unpublished since
        return 0
    expect(got, np.arange(got[0], got[0] + 500))
    return 1


@job(DATA)
def submits_nothing(client: Any, random: Random) -> int:
    try:
        client.submit(len, "x", pure=False)
    except Exception as error:
        if getattr(error, "rule", "") != "submission.none":
            raise
    else:
        raise Wrong("a client without a submission submitted")
    return 1
