"""Values that one spelling carries and the other does not, each with the reason.

The one rule: what is not listed here, both carry or both refuse.
"""

from __future__ import annotations

import argparse
import collections
import decimal
import email.message
import itertools
import logging
import random
import statistics
import string
import types
import urllib.parse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from dateutil import relativedelta, tz

__all__ = ["PICKLE", "TYPED", "TYPES_OF_PICKLE", "Only"]


class Only(NamedTuple):
    """A value of a type that one spelling knows, and why the other does not."""

    make: Callable[[], Any]
    reason: str


_TREE = "a typed value is a tree of its parts"
_RARE = "a type that tasks rarely carry: it has a reviewed function, and no typed form"


def _looped() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    return made


def _looped_deque() -> Any:
    made: Any = collections.deque()
    made.append(made)
    return made


def _looped_namespace() -> Any:
    made = types.SimpleNamespace()
    made.itself = made
    return made


#: What restricted pickle alone carries.
PICKLE: dict[str, Only] = {
    "a list that holds itself": Only(_looped, _TREE),
    "a deque that holds itself": Only(_looped_deque, _TREE),
    "a namespace that holds itself": Only(_looped_namespace, _TREE),
    "a UserString": Only(lambda: collections.UserString("a"), _RARE),
    "arguments": Only(lambda: argparse.Namespace(a=1), _RARE),
    "a template": Only(lambda: string.Template("$a"), _RARE),
    "a count": Only(lambda: itertools.count(3), _RARE),
    "a repetition": Only(lambda: itertools.repeat(1, 2), _RARE),
    "an iterator": Only(lambda: iter([1]), _RARE),
    "a decimal context": Only(lambda: decimal.Context(prec=5), _RARE),
    "digits of a decimal": Only(lambda: decimal.Decimal("1.5").as_tuple(), _RARE),
    "parts of an address": Only(lambda: urllib.parse.urlsplit("http://a/b"), _RARE),
    "a distribution": Only(lambda: statistics.NormalDist(1, 2), _RARE),
    "dateutil's UTC": Only(tz.tzutc, _RARE),
    "dateutil's span": Only(lambda: relativedelta.relativedelta(days=1), _RARE),
    "dateutil's weekday": Only(lambda: relativedelta.MO, _RARE),
    "a block of moments": Only(
        lambda: pd.DataFrame({"a": pd.date_range("2026", periods=2)})._mgr.blocks[0].values,
        "a block of two dimensions is a part of a frame, which typed values carry",
    ),
    "a log record": Only(lambda: logging.LogRecord("a", 20, "b", 1, "c", None, None), _RARE),
    "an e-mail": Only(email.message.EmailMessage, _RARE),
    "a method": Only(lambda: str.upper, _RARE),
    "a file in memory": Only(
        lambda: np.zeros(3).view(np.memmap),
        "typed values refuse what stands for a file; a pickle of one holds its content",
    ),
}
#: What typed values alone carry, beside what restricted pickle lists no function for: frames
#: of polars, datasets of xarray, collections and futures of Dask, and registered classes.
TYPED: dict[str, Only] = {
    "a scalar of runs": Only(
        lambda: pa.RunEndEncodedArray.from_arrays([1], [2])[0], "Arrow cannot load its own pickle"
    ),
    "a scalar of a union": Only(
        lambda: pa.UnionArray.from_dense(
            pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
        )[0],
        "Arrow cannot load its own pickle",
    ),
    "a key with an identity": Only(
        lambda: {random.Random(1): 1}, "a key of a pickle is compared by what it holds"
    ),
    "a function as a key": Only(
        lambda: {len: 1}, "a hash of a function is not among those that pickles trust"
    ),
    "a type of Arrow as a key": Only(
        lambda: {pa.int8(): 1}, "a hash of Arrow's is not among those that pickles trust"
    ),
    "Arrow's dtype of pandas as a key": Only(
        lambda: {pd.ArrowDtype(pa.int8()): 1},
        "a hash of Arrow's is not among those that pickles trust",
    ),
}
#: The types of :data:`PICKLE`, of which typed values carry nothing.
TYPES_OF_PICKLE = frozenset(type(only.make()) for only in PICKLE.values()) - {
    *(list, types.SimpleNamespace, collections.deque),  # of these, only what holds itself
    type(pd.DatetimeIndex([]).array),
}
