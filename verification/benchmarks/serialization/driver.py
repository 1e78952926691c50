"""The client of one cluster: nine ways to submit one object, and many small calls.

The one rule: as :mod:`verification.benchmarks.client`, of which this is one with other measures.
"""

from __future__ import annotations

import functools
import itertools
import pathlib
import time
from collections.abc import Callable
from typing import Any

from verification.benchmarks import client as driver
from verification.benchmarks.serialization.counted import Counted
from verification.benchmarks.serialization.loop_watch import LoopWatch

#: Each object and each call is another one, so that nothing is answered from what is held.
_numbers = itertools.count()

#: Seconds between two looks at the client's loop: more would be seen in its processor time.
_LOOK_EVERY = 0.01

#: Objects that ``map`` is given.
MAPPED = 5


def take(*args: Any, **kwargs: Any) -> int:
    """Return how many arguments there are; results are numbers, which count nothing."""
    return len(args) + len(kwargs)


def _closing_over(made: Counted) -> Callable[[], int]:
    def function() -> int:
        return made.number

    return function


def _joblib(client: Any, made: Counted) -> None:
    import joblib

    with joblib.parallel_backend("dask", client=client):
        joblib.Parallel()([joblib.delayed(take)(made)])


def _delayed(client: Any, made: Counted) -> None:
    import dask

    client.compute(dask.delayed(take)(made)).result()


CASES: dict[str, Callable[[Any, Counted], Any]] = {
    "flat": lambda client, made: client.submit(take, made).result(),
    "nested": lambda client, made: client.submit(take, {"a": [made]}).result(),
    "keyword": lambda client, made: client.submit(take, named=made).result(),
    "partial": lambda client, made: client.submit(functools.partial(take, made)).result(),
    "closure": lambda client, made: client.submit(_closing_over(made)).result(),
    "wrapped twice": lambda client, made: client.submit(
        functools.partial(functools.partial(take, made), 1)
    ).result(),
    f"map of {MAPPED}": lambda client, made: client.gather(
        client.map(take, [made, *(Counted(next(_numbers)) for _ in range(MAPPED - 1))])
    ),
    "delayed": _delayed,
    "joblib": _joblib,
}


def case(client: Any, number: int) -> list[float]:
    """Submit by the case of that *number*, and wait for the result."""
    list(CASES.values())[number](client, Counted(next(_numbers)))
    return []


def again(client: Any, number: int) -> list[float]:
    """Submit one object a second time, while its future is held."""
    del number
    held = client.map(take, [_made_again])
    client.gather(client.map(take, [_made_again]))
    _held.extend(held)
    return []


#: What :func:`again` submits; its first future is held until the client ends.
_made_again = Counted(-1)
_held: list[Any] = []


# --- many small calls ----------------------------------------------------------------------------


def length(path: pathlib.Path, number: int = 0) -> int:
    return len(path.name) + number


def call(function: Callable[[], int]) -> int:
    return function()


def _partials(count: int) -> list[functools.partial[int]]:
    names = (f"part-{next(_numbers)}.csv" for _ in range(count))
    return [functools.partial(length, pathlib.Path("/data/in") / name) for name in names]


def _finished(client: Any, submit: Callable[[], list[Any]]) -> list[float]:
    """Return the seconds in which *submit* returned, and what it cost the client.

    That is the bytes that it wrote, and the longest time for which its loop was held, in seconds.
    """
    watch = _watch_of(client)
    watch.take_all()
    before, start = _written(client), time.perf_counter()
    futures = submit()
    seconds = time.perf_counter() - start
    held = watch.take_all()
    assert len(client.gather(futures)) == len(futures)
    return [seconds, _written(client) - before, max(held, watch.take_all())]


@functools.cache
def _watch_of(client: Any) -> LoopWatch:
    watch = LoopWatch(_LOOK_EVERY)
    client.loop.add_callback(watch.tick)
    return watch


def _written(client: Any) -> int:
    total: int = client.scheduler_comm.comm.stream._total_write_index
    return total


def mapped(client: Any, count: int) -> list[float]:
    """Map one partial of a function over *count* numbers."""
    (function,) = _partials(1)
    first = next(_numbers)
    return _finished(client, lambda: client.map(function, range(first, first + count)))


def submitted(client: Any, count: int) -> list[float]:
    """Submit *count* partials in a loop."""
    functions = _partials(count)
    return _finished(client, lambda: [client.submit(each) for each in functions])


def arguments(client: Any, count: int) -> list[float]:
    """Map a function over *count* partials."""
    functions = _partials(count)
    return _finished(client, lambda: client.map(call, functions))


def records(client: Any, count: int) -> list[float]:
    """Submit one call with *count* records."""
    made = [{"name": f"n{at}", "value": at} for at in range(count)]
    return _finished(client, lambda: [client.submit(take, made, pure=False)])


def main() -> None:
    for measure in (case, again, mapped, submitted, arguments, records):
        driver.MEASURES[measure.__name__] = measure
    driver.main()


if __name__ == "__main__":
    # What is submitted is of a module that workers import, not of this script.
    from verification.benchmarks.serialization.driver import main as run

    run()
