"""Pickles of everything that the shipped profiles load, to start a fuzzer from.

The one rule: seeds come from real objects and real picklers, so that they reach the code behind
each entry; what is wrong with them is the fuzzer's business.
"""

from __future__ import annotations

import argparse
import array
import collections
import copyreg
import datetime
import decimal
import fractions
import http
import io
import ipaddress
import itertools
import pathlib
import pickle
import random
import re
import signal
import statistics
import string
import time
import types
import urllib.parse
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

__all__ = ["seeds", "without_exceptions"]


def plain() -> Iterator[Any]:
    yield {"a": [1, -1, 2.5, None, True, "text", b"bytes"], "b": (1, (2, (3,)))}
    yield {1, 2, frozenset({3})}
    yield bytearray(b"abc")
    yield 1 << 200
    yield complex(1, 2)
    yield range(3), slice(1, 2, 3), ...
    yield collections.OrderedDict(a=1), collections.Counter("aab"), collections.deque([1], 3)
    yield collections.defaultdict(list, {"a": [1]})
    zone = datetime.timezone(datetime.timedelta(hours=1), "x")
    yield datetime.datetime(2026, 1, 2, 3, 4, 5, 6, zone), datetime.date(2026, 1, 2)
    yield datetime.time(1, 2, 3, 4, zone, fold=1), datetime.timedelta(1, 2, 3)
    yield decimal.Decimal("1.5e-3"), fractions.Fraction(1, 3), uuid.UUID(int=7)
    yield pathlib.PurePosixPath("/a/b"), ipaddress.ip_address("::1"), array.array("d", [1.0])
    looped: list[Any] = [1]
    looped.append(looped)
    yield looped
    shared = ("x", 1)
    yield [shared, shared, {"k": shared}]
    yield ValueError("text", 1), KeyError("k"), OSError(2, "no", "file")


def rarer() -> Iterator[Any]:
    """Values of the standard library that data carries now and then."""
    yield collections.ChainMap({"a": 1}), collections.UserDict(a=1), collections.UserList([1])
    yield types.SimpleNamespace(a=1), argparse.Namespace(b=2), string.Template("$x")
    yield zoneinfo.ZoneInfo("Europe/Zurich"), time.gmtime(0), http.HTTPStatus.OK
    yield re.compile("a+b", re.IGNORECASE), random.Random(1), io.BytesIO(b"ab"), io.StringIO("x")
    yield itertools.count(3, 2), itertools.repeat("x", 3), iter([1, 2]), decimal.Context(prec=5)
    yield urllib.parse.urlsplit("http://a/b?c"), statistics.NormalDist(1, 2), signal.SIGINT
    yield ExceptionGroup("both", [ValueError(1), KeyError("k")]), uuid.SafeUUID.safe
    yield UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ipaddress.ip_network("10.0.0.0/8")


def arrays() -> Iterator[Any]:
    yield np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((2, 3)))
    yield np.zeros(2, dtype=[("a", "<i4"), ("b", "f8", (2,))]), np.dtype("M8[ns]")
    yield np.array(["a", None, [1]], dtype=object), np.float32(1.5), np.array("2026", "M8[D]")
    yield np.ma.array([1, 2], mask=[0, 1]), np.bool_(True), np.array(["ab"])
    yield np.random.default_rng(1), np.random.RandomState(1), np.random.SeedSequence(1)
    yield np.poly1d([1, 2]), np.polynomial.Polynomial([1.0, 2.0]), np.rec.array([(1, 2.0)])
    yield np.array(["a", "bc"], dtype=np.dtypes.StringDType()), np.array([[1, 2]]).view(np.matrix)


def frames() -> Iterator[Any]:
    try:
        import pandas as pd
    except ImportError:
        return
    yield pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.Categorical(["u", "v"])})
    yield pd.Series([1.0], index=pd.date_range("2026", periods=1, tz="UTC"), name="s")
    yield pd.MultiIndex.from_product([[1], ["a"]]), pd.Timestamp("2026"), pd.Timedelta(1)
    yield pd.interval_range(0, 2), pd.period_range("2026", periods=2, freq="M"), pd.NaT
    yield pd.array([1, None]), pd.array([True, None]), pd.array(["a", None]), pd.array([0.5, None])
    yield pd.arrays.SparseArray([0, 0, 1]), pd.offsets.MonthEnd(2), pd.DateOffset(days=1), pd.NA
    yield pd.RangeIndex(3), pd.Index(["a", "b"], name="n"), pd.timedelta_range("1h", periods=2)


def tables() -> Iterator[Any]:
    try:
        import pyarrow as pa
    except ImportError:
        return
    yield pa.array([1, None, 3]), pa.array(["a", None]), pa.array([[1], None]), pa.scalar(1.5)
    yield pa.table({"a": [1, 2], "b": ["x", "y"]}), pa.schema([("a", pa.int8())])
    yield (
        pa.array([{"x": 1}]),
        pa.array(["u", "v"]).dictionary_encode(),
        pa.chunked_array([[1], [2]]),
    )


def models() -> Iterator[Any]:
    try:
        import scipy.sparse as sp
        from sklearn import cluster, ensemble, linear_model, neighbors, pipeline, preprocessing
        from sklearn import tree as trees
    except ImportError:
        return
    for form in ("csr", "csc", "coo", "bsr", "dia", "dok", "lil"):
        yield sp.eye(3, format=form), sp.eye_array(3, format=form)
    rows, labels = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
    for model in (
        linear_model.LinearRegression(),
        linear_model.LogisticRegression(),
        trees.DecisionTreeClassifier(max_depth=2),
        ensemble.RandomForestClassifier(n_estimators=2),
        neighbors.KNeighborsClassifier(2),
        cluster.KMeans(2, n_init=1),
        pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.Ridge()),
    ):
        yield model.fit(rows, labels)


def searched() -> Iterator[Any]:
    try:
        import scipy.spatial as sp
        from sklearn import neighbors
    except ImportError:
        return
    points = np.arange(24.0).reshape(12, 2)
    yield sp.KDTree(points, 2), sp.cKDTree(points, 3, balanced_tree=False, compact_nodes=False)
    yield neighbors.KDTree(points, 2), neighbors.BallTree(points, 2, "minkowski", p=3)


@cache
def without_exceptions(_: int) -> dict[type, Any]:
    """Return what is registered, without tblib's reducers, which some library may have installed.

    Under the names of Python 2 they lose which OSError it was.
    """
    return {
        cls: reduce
        for cls, reduce in copyreg.dispatch_table.items()
        if not issubclass(cls, BaseException)
    }


def _dumped(value: Any, protocol: int, callback: Callable[[Any], Any] | None = None) -> bytes:
    sink = io.BytesIO()
    pickler = pickle.Pickler(sink, protocol, buffer_callback=callback)
    pickler.dispatch_table = without_exceptions(len(copyreg.dispatch_table))
    pickler.dump(value)
    return sink.getvalue()


def seeds() -> list[bytes]:
    """Return fuzz inputs: one byte that says how many buffers come along, then a pickle."""
    made = []
    for value in (*plain(), *rarer(), *arrays(), *frames(), *tables(), *models(), *searched()):
        for protocol in range(6):
            try:
                made.append(b"\0" + _dumped(value, protocol))
            except Exception:  # old protocols can't write everything
                continue
        buffers: list[Any] = []
        held = _dumped(value, 5, buffers.append)
        if 0 < len(buffers) <= 3:
            made.append(bytes([len(buffers)]) + held)
    return made
