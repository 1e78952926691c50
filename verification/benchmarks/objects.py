"""What the pickle benchmark loads: objects of the kinds that Dask and its users send, by size.

The one rule: each kind comes in variants that differ in a few bytes, as the pickles of real traffic
do.
"""

from __future__ import annotations

import datetime
import decimal
import pickle
import uuid
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression


@dataclass(frozen=True, slots=True)
class Sent:
    """One pickle and its out-of-band buffers."""

    data: bytes
    buffers: tuple[memoryview, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object.

    :param make: returns the variant of a number.
    :param variants: how many to make: few where one is large.
    :param apart: arrays travel beside the pickle, as protocol 5 allows.
    """

    name: str
    make: Callable[[int], Any]
    variants: int
    apart: bool = False

    def sent(self) -> list[Sent]:
        return [_sent(self.make(number), apart=self.apart) for number in range(self.variants)]


def _sent(value: Any, *, apart: bool) -> Sent:
    buffers: list[Any] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append if apart else None)
    return Sent(data, tuple(buffer.raw() for buffer in buffers))


def _record(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"name-{number}",
        "score": number / 8,
        "tags": ["x", "y"],
        "place": {"at": (number, number + 1), "note": None},
    }


def _task(number: int) -> Any:
    key = ("sum-4f1c", number, 0)
    return (f"sum-{number}", {"key": key, "args": [1, 2.5], "kwargs": {"axis": None}}, ["a", "b"])


def _message(number: int) -> Any:
    keys = {f"key-{number}-{at}": {"worker": "tcp://10.0.0.1:40000", "at": at} for at in range(8)}
    return {"op": "update", "keys": keys, "stimulus": f"task-{number}", "time": 1.5}


def _stdlib(number: int) -> Any:
    when = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=number)
    return [
        OrderedDict(when=when, date=when.date()),
        defaultdict(list, {number: [decimal.Decimal(number) / 8]}),
        deque([uuid.UUID(int=number)], 4),
        frozenset((number, "x")),
    ]


def _error(number: int) -> Exception:
    error = ValueError("no such column", number)
    error.add_note("while reading")
    return error


def _frame(number: int, *, rows: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": np.arange(number, number + rows),
            "score": np.arange(rows) / 8,
            "name": [f"name-{at}" for at in range(rows)],
        }
    )


def _model(number: int) -> LogisticRegression:
    points = np.arange(40.0).reshape(20, 2) + number
    return LogisticRegression().fit(points, np.arange(20) % 2)


KINDS = (
    Kind("a small dict", lambda at: {"a": at, "b": [1, 2], "c": "x"}, 200),
    Kind("a task's description", _task, 200),
    Kind("dates, decimals, deques", _stdlib, 100),
    Kind("an exception", _error, 200),
    Kind("a message of 8 keys", _message, 100),
    Kind("20 records", lambda at: [_record(at + row) for row in range(20)], 50),
    Kind("800 records", lambda at: [_record(at + row) for row in range(800)], 3),
    Kind("2,000 strings", lambda at: [f"string-{at}-{row}" for row in range(2000)], 5),
    Kind("3,000 integers", lambda at: list(range(at, at + 3000)), 5),
    Kind("an array of 10", lambda at: np.arange(10.0) + at, 100),
    Kind("an array of 800 kB", lambda at: np.arange(100_000.0) + at, 5),
    Kind("the same, out of band", lambda at: {"part": at, "data": np.arange(100_000.0)}, 50, True),
    Kind("a frame of 1,000 rows", lambda at: _frame(at, rows=1000), 10),
    Kind("the same, out of band", lambda at: (at, _frame(at, rows=1000)), 10, True),
    Kind("a fitted model", _model, 20),
)
