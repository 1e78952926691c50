"""``python -m verification.benchmarks.tokens``: ``safeser.tokenize`` beside ``dask.tokenize``.

The one rule: one round lets both tokenize the same object, one after the other, each round another
first; a ratio is the median of the ratios of single rounds, and never one of numbers from two runs.
What is measured is processor time of this process. *Mixed* is one list of all objects but the large
ones, whose time is that of the hash function.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import pathlib
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import tokenize as dask_tokenize

import safeser
from verification.benchmarks import report

PACKAGES = ("safeser", "dask", "cloudpickle", "numpy", "pandas", "pyarrow")
#: What each gets of one round, at least one turn.
SLICE = 0.01
WORDS = ("alpha", "beta", "gamma", "delta")


@dataclasses.dataclass
class Order:
    """A class of one's own, with methods and defaults."""

    number: int
    words: set[str] = dataclasses.field(default_factory=lambda: set(WORDS))

    def known(self, word: str) -> bool:
        return word in self.words or word in {"alpha", "beta"}


class Model:
    scale = 2.5

    def __init__(self, weights: Any) -> None:
        self.weights = weights
        self.names = list(WORDS)

    def predict(self, x: Any) -> Any:
        return transform(x) * self.scale


def transform(x: Any) -> Any:
    return np.sqrt(np.abs(x)) + len(WORDS)


def recursive(n: int) -> int:
    return 1 if n < 2 else n * recursive(n - 1)


def _closure() -> Callable[[str], bool]:
    words = frozenset(WORDS)
    return lambda word: word in words


def _frame() -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(1000), "b": np.arange(1000) / 3, "c": ["x", "yy"] * 500})


SMALL: dict[str, Any] = {
    "a number": 5,
    "text": "some text",
    "small dict": {"a": 1, "b": "x", "c": None},
    "1,000 numbers": list(range(1000)),
    "100 records": [{"id": at, "name": str(at), "tags": [at, "x"]} for at in range(100)],
    "set of text": set(WORDS),
    "path and times": [
        pathlib.Path("/data/a"), datetime.datetime(2026, 1, 1), datetime.timedelta(1),
    ],
    "regular expression": re.compile("a+b"),
    "function of a library": np.linalg.norm,
    "function of one's own": transform,
    "recursive function": recursive,
    "lambda with closure": _closure(),
    "partial": functools.partial(transform, x=1),
    "class of one's own": Model,
    "instance": Model(np.arange(10)),
    "method": Model(np.arange(10)).predict,
    "dataclass": Order(1),
    "array, 1 kB": np.arange(128),
    "text array": np.array(["a", "bb"] * 500, dtype=object),
    "frame": _frame(),
    "categorical": pd.Series(pd.Categorical(WORDS * 100)),
    "Arrow table": pa.table({"a": list(range(1000)), "b": ["x"] * 1000}),
}  # fmt: skip
LARGE: dict[str, Any] = {
    "array, 16 MB": np.arange(2_000_000.0),
    "frame, 16 MB": pd.DataFrame(np.arange(2_000_000.0).reshape(-1, 10)),
    "bytes, 16 MB": b"x" * 16_000_000,
}


def contest(value: Any) -> report.Contest:
    contenders = {"safeser": safeser.tokenize, "dask": dask_tokenize}
    return report.Contest(
        {name: functools.partial(_seconds, each, value) for name, each in contenders.items()}
    )


def _seconds(tokenize: Callable[[Any], str], value: Any) -> float:
    """Return the processor time of one turn, the mean of as many as fit into one slice."""
    turns = 0
    start = time.process_time()
    while True:
        tokenize(value)
        turns += 1
        taken = time.process_time() - start
        if taken >= SLICE:
            return taken / turns


def main() -> None:
    options = report.options(__doc__, rounds=9, only="")
    values = {name: value for name, value in (SMALL | LARGE).items() if options.only in name}
    runs = {name: contest(value) for name, value in (values | {"mixed": [*SMALL.values()]}).items()}
    report.hold(runs.values(), options.rounds)
    ratios = {name: report.number(run.ratio("safeser", "dask") or 0) for name, run in runs.items()}
    lines = [
        [name, run.micros("safeser"), run.micros("dask"), ratios[name]]
        for name, run in runs.items()
    ]
    report.show(("object", "safeser (µs)", "dask (µs)", "safeser / dask"), lines)
    report.show_notes(rounds=options.rounds, packages=PACKAGES)


if __name__ == "__main__":
    main()
