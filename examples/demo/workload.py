"""Alice's workload: ordinary use of Dask on the data sets that scikit-learn ships.

Each result must equal what NumPy or pandas computes here, and have the exact type.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client
from distributed.diagnostics.progressbar import TextProgressBar
from sklearn.datasets import load_diabetes, load_digits

__all__ = ["Unexpected", "parts"]

_WAIT = 120  # seconds for one result, on a busy machine


class Unexpected(Exception):
    """A result is wrong."""


def _expect(right: bool, what: str) -> None:
    if not right:
        raise Unexpected(what)


def parts(
    client: Client, *, progress: Callable[[int, int], None]
) -> list[tuple[str, Callable[[], str]]]:
    """Return the name of each part and a function that runs it and describes its result.

    The function raises :class:`Unexpected` if the result is wrong.

    :param progress: called by Dask's own progress bar with the tasks done, and with all of them.
    """
    digits, labels = load_digits(return_X_y=True)
    return [
        ("digits, Dask array", lambda: _statistics(digits)),
        ("digits, SVD", lambda: _svd(digits)),
        ("diabetes, Dask DataFrame", _groupby),
        ("submit, map, gather with lambdas", lambda: _futures(client, digits, labels)),
        ("progress of 24 tasks", lambda: _progress(client, progress)),
        ("a task that fails", lambda: _failure(client)),
    ]


def _statistics(digits: Any) -> str:
    array = da.from_array(digits, chunks=(450, 64))
    mean, spread = array.mean(axis=0).compute(), array.std(axis=0).compute()
    _expect(
        type(mean) is np.ndarray and type(spread) is np.ndarray, "the mean is not a NumPy array"
    )
    close = np.allclose(mean, digits.mean(axis=0)) and np.allclose(spread, digits.std(axis=0))
    _expect(close, "the statistics differ from NumPy's")
    return f"mean and std of {digits.shape[0]} images, as NumPy computes"


def _svd(digits: Any) -> str:
    centred = digits - digits.mean(axis=0)
    _, found, _ = da.linalg.svd(da.from_array(centred, chunks=(450, 64)))
    values = found.compute()
    _expect(type(values) is np.ndarray, "the singular values are not a NumPy array")
    _expect(
        np.allclose(values, np.linalg.svd(centred, compute_uv=False)),
        "the SVD differs from NumPy's",
    )
    share = float((values[:10] ** 2).sum() / (values**2).sum())
    return f"10 of 64 directions hold {share:.0%} of the variance, as NumPy computes"


def _groupby() -> str:
    frame = load_diabetes(as_frame=True).frame
    frame["half"] = np.where(frame["bmi"] > 0, "above the mean", "below the mean")
    found = dd.from_pandas(frame, npartitions=4).groupby("half").target.mean().compute()
    _expect(type(found) is pd.Series, "the groups are not a pandas Series")
    expected = frame.groupby("half").target.mean()
    _expect(
        bool(np.allclose(found.sort_index(), expected.sort_index())),
        "the groups differ from pandas'",
    )
    head = dd.from_pandas(frame, npartitions=4).nlargest(3, "target").compute()
    _expect(type(head) is pd.DataFrame and len(head) == 3, "the rows are not a pandas DataFrame")
    low, high = found["below the mean"], found["above the mean"]
    return f"progression {low:.0f} with a lower BMI, {high:.0f} with a higher, as pandas computes"


def _futures(client: Client, digits: Any, labels: Any) -> str:
    total = client.submit(lambda a, b: a + b, 20, 22).result(_WAIT)
    _expect(type(total) is int and total == 42, "20 + 22 is not 42")
    images = client.scatter(digits)
    inks = client.gather(
        client.map(
            lambda label, x, of: float(x[of == label].mean()), range(10), x=images, of=labels
        )
    )
    expected = [float(digits[labels == label].mean()) for label in range(10)]
    _expect(all(type(ink) is float for ink in inks), "the means are not plain floats")
    _expect(bool(np.allclose(inks, expected)), "the means of the labels differ")
    return f"digit {int(np.argmax(inks))} has the most ink, {int(np.argmin(inks))} the least"


class _Bar(TextProgressBar):  # type: ignore[misc]  # distributed has no types
    """Dask's progress bar, drawn by a function."""

    def __init__(self, futures: Any, draw: Callable[[int, int], None]) -> None:
        self._draw = draw
        super().__init__(futures)

    def _draw_bar(self, remaining: int, all: int, **rest: Any) -> None:
        del rest
        self._draw(all - remaining, all)

    def _draw_stop(self, **rest: Any) -> None:
        del rest


def _progress(client: Client, draw: Callable[[int, int], None]) -> str:
    seen: list[int] = []

    def slow_square(n: int) -> int:
        time.sleep(0.08)
        return n * n

    def drawn(done: int, of: int) -> None:
        seen.append(done)
        draw(done, of)

    tasks = client.map(slow_square, range(24))
    _Bar(tasks, drawn)
    squares = client.gather(tasks)
    _expect(squares == [n * n for n in range(24)], "the squares differ")
    _expect(len(seen) > 1 and seen[-1] == 24, "Dask's progress bar did not follow the tasks")
    return "Dask's own progress bar showed them"


def _failure(client: Client) -> str:
    def weigh(record: dict[str, float]) -> float:
        return 1.0 / record["weight"]

    task = client.submit(weigh, {"weight": 0.0})
    try:
        task.result(_WAIT)
    except ZeroDivisionError as error:
        text = "".join(traceback.format_exception(error))
        _expect(str(error) == "float division by zero", "the error has another text")
        _expect("in weigh" in text, "the worker's traceback is missing")
        place = next(line for line in text.splitlines() if "in weigh" in line).partition(", ")[2]
        return f"ZeroDivisionError: {error}, and the worker's traceback: {place}"
    raise Unexpected("the task that must fail succeeded")
