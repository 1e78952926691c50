"""Objects of every kind that the shipped profiles load, many at a size of one's choice.

The one rule: each sample is made by the library itself and written by a real pickler, so that every
call in it has valid arguments; only a few that no library makes any more are put together by hand.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextlib
import decimal
import email.message
import fractions
import functools
import importlib
import io
import itertools
import logging
import operator
import pathlib
import pickle
import string
import types
import urllib.parse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from safeser import pickles
from safeser.errors import SafeserError
from tests.samples import pickles_honest, seeds
from tests.samples.values import collect_all as values_of_tests
from verification.fuzz.models import models
from verification.sweep import library_samples
from verification.sweep.product_samples import Maker, products, text_of

__all__ = ["Maker", "enums", "estimators", "exceptions", "honest", "makers", "rest"]


_PROFILE = pickles.Profile.named(*pickles.DATA_PROFILES)


def _plain() -> dict[str, Maker]:
    def mail(n: int) -> Any:
        made = email.message.Message()
        for at in range(max(1, n // 20)):
            made[f"X-{at}"] = "value"
        made.set_payload("text")
        return made

    return {
        "set": lambda n: set(range(n)),
        "OrderedDict": lambda n: collections.OrderedDict.fromkeys(range(n)),
        "Counter": lambda n: collections.Counter(range(n)),
        "deque": lambda n: collections.deque(range(n), n),
        "defaultdict": lambda n: collections.defaultdict(list, dict.fromkeys(range(n))),
        "Fraction": lambda n: fractions.Fraction(int("1" * min(n, 4000)), 7),
        "PurePosixPath": lambda n: pathlib.PurePosixPath("a" * n),
        "PureWindowsPath": lambda n: pathlib.PureWindowsPath("a" * n),
        "PosixPath": lambda n: pathlib.Path("a" * n),
        "array": lambda n: array.array("d", range(n)),
        "UserDict": lambda n: collections.UserDict(dict.fromkeys(range(n))),
        "UserList": lambda n: collections.UserList(range(n)),
        "UserString": lambda n: collections.UserString(text_of(n)),
        "SimpleNamespace": lambda n: types.SimpleNamespace(
            **dict.fromkeys(map("a{}".format, range(n)))
        ),
        "argparse.Namespace": lambda n: argparse.Namespace(
            **dict.fromkeys(map("a{}".format, range(n)))
        ),
        "Template": lambda n: string.Template(text_of(n)),
        "LogRecord": lambda n: logging.LogRecord("a", 10, "f", 1, text_of(n), (), None),
        "Message": mail,
        "DefragResult": lambda n: urllib.parse.urldefrag("http://a/" + text_of(n)),
        "DefragResultBytes": lambda n: urllib.parse.urldefrag(b"http://a/b"),
        "ParseResult": lambda n: urllib.parse.urlparse("http://a/" + text_of(n)),
        "ParseResultBytes": lambda n: urllib.parse.urlparse(b"http://a/b"),
        "SplitResult": lambda n: urllib.parse.urlsplit("http://a/" + text_of(n)),
        "SplitResultBytes": lambda n: urllib.parse.urlsplit(b"http://a/b"),
        "DecimalTuple": lambda n: decimal.Decimal("1" * min(n, 4000)).as_tuple(),
        "BytesIO": lambda n: io.BytesIO(bytes(n)),
        "StringIO": lambda n: io.StringIO(text_of(n)),
        "iterator": lambda n: iter(list(range(n))),
        "iterator-text": lambda n: iter(text_of(n)),
        "iterator-bytes": lambda n: iter(bytes(n)),
        "iterator-tuple": lambda n: iter(tuple(range(n))),
        "iterator-range": lambda n: iter(range(n)),
    }


def _exceptions() -> dict[str, Maker]:
    def noted(n: int) -> Exception:
        error = ValueError("text", *range(n))
        error.add_note("a note")
        return error

    def without_memory(n: int) -> Exception:
        try:
            return Exception(np.empty((10**9, 10**6)))
        except MemoryError as error:
            return error.with_traceback(None)

    return {
        "ValueError": noted,
        "_ArrayMemoryError": without_memory,
        "ExceptionGroup": lambda n: ExceptionGroup("x", [ValueError(at) for at in range(n)]),
        "UnicodeDecodeError": lambda n: UnicodeDecodeError("utf-8", bytes(n), 0, 1, "bad"),
        "UnicodeEncodeError": lambda n: UnicodeEncodeError("utf-8", text_of(n), 0, 1, "bad"),
        "UnicodeTranslateError": lambda n: UnicodeTranslateError(text_of(n), 0, 1, "bad"),
    }


def _functions() -> dict[str, Maker]:
    import toolz

    return {
        "itemgetter": lambda n: operator.itemgetter(*range(n)),
        "attrgetter": lambda n: operator.attrgetter(*(["shape"] * n)),
        "methodcaller": lambda n: operator.methodcaller("upper"),
        "partial": lambda n: functools.partial(max, *range(n)),
        "Compose": lambda n: toolz.compose(*([len] * n), len, list),
    }


def _estimators() -> dict[str, Maker]:
    from sklearn import ensemble, linear_model, neighbors, tree

    def rows(n: int) -> Any:
        return np.arange(4.0 * max(n, 4)).reshape(-1, 4) % 7

    def fitted(make: Callable[[], Any]) -> Maker:
        def sized(n: int) -> Any:
            given = rows(n)
            return make().fit(given, given[:, 0] > 3)

        return sized

    return {
        "DecisionTree": lambda n: tree.DecisionTreeRegressor().fit(
            np.arange(float(max(n, 4))).reshape(-1, 1), np.arange(float(max(n, 4)))
        ),
        "RandomForest": fitted(lambda: ensemble.RandomForestClassifier(n_estimators=3)),
        "HistGradientBoosting": fitted(lambda: ensemble.HistGradientBoostingClassifier(max_iter=2)),
        "LinearRegression": fitted(linear_model.LinearRegression),
        "neighbors.KDTree": lambda n: neighbors.KDTree(rows(n), 2),
        "neighbors.BallTree": lambda n: neighbors.BallTree(rows(n), 2, "minkowski", p=3),
        "KNeighbors": fitted(lambda: neighbors.KNeighborsClassifier(2)),
    }


def _small_estimators() -> Iterator[Any]:
    """Yield one of each listed class of scikit-learn, of the first arguments that it takes."""
    from sklearn import linear_model, metrics
    from sklearn.gaussian_process.kernels import RBF

    tried: tuple[tuple[Any, ...], ...] = (
        *((), (1.0,), (2,), ([0, 1],), (RBF(), RBF()), ([RBF()],), (RBF(), 2)),
        *((np.eye(2),), ([np.zeros(2)],), (linear_model.Ridge(),)),
    )
    for name, entry in _PROFILE.entries.items():
        for arguments in tried if name.startswith("sklearn") and entry.role == "class" else ():
            with contextlib.suppress(Exception):  # the next ones may be what it takes
                made = _PROFILE.object_of(entry)(*arguments)
                pickles.loads(pickle.dumps(made), profile=_PROFILE)
                yield made
                break
    yield metrics.make_scorer(metrics.accuracy_score)
    importlib.import_module("sklearn.experimental.enable_iterative_imputer")
    imputer = importlib.import_module("sklearn.impute").IterativeImputer()
    yield imputer.fit([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]])


def honest() -> Iterator[tuple[str, Any]]:
    """Yield the honest values of the tests, which have one size."""
    made = [each for values in values_of_tests().values() for each in values]
    made += [*pickles_honest.STDLIB, *pickles_honest.ARRAYS, *pickles_honest.PANDAS]
    for group in (seeds.plain, seeds.rarer, seeds.arrays, seeds.frames, seeds.tables, seeds.models):
        for value in group():
            made += value if type(value) is tuple else [value]
    for value in made:
        yield type(value).__name__, value


def estimators() -> Iterator[tuple[str, Any]]:
    """Yield fitted estimators of one size, all that the profile lists; it takes half a minute."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for made in (*_small_estimators(), *models()):
            yield type(made).__name__, made


def exceptions() -> Iterator[tuple[str, bytes]]:
    """Yield a pickle of each listed exception, of the first arguments that its class takes."""
    text, number = b"\x8c\x01x", b"K\x01"
    tried = [b")"]
    for length in range(1, 6):
        chosen = itertools.product((text, number), repeat=length)
        tried += [b"(" + b"".join(parts) + b"t" for parts in chosen]
    for name, entry in _PROFILE.entries.items():
        if entry.make not in ("exceptions.exception", "exceptions.foreign"):
            continue
        for arguments in tried:
            data = b"\x80\x04" + _named(name) + arguments + b"R."
            try:
                pickles.loads(data, profile=_PROFILE)
            except SafeserError as error:
                if error.rule == "pickle.unresolved":
                    break
                continue
            yield name, data
            break


def _named(name: str) -> bytes:
    parts = name.partition(":")[::2]
    return b"".join(b"\x8c%c%b" % (len(part), part.encode()) for part in parts) + b"\x93"


def rest() -> Iterator[tuple[str, bytes]]:
    """Yield pickles of what nobody writes here: tblib's, and what older versions wrote."""

    def call(name: str, *arguments: bytes) -> bytes:
        return _named(name) + b"(" + b"".join(arguments) + b"tR"

    times = b")\x81}\x8c\x09n_repeatsK\x01sb"
    error, fields = _named("builtins:ValueError"), b"}(\x8c\x04args)\x8c\x08__dict__}u"
    made = {
        "tblib:Frame": _named("tblib:Frame") + b")\x81}b",
        "tblib:Code": _named("tblib:Code") + b")\x81}b",
        "tblib:Traceback": _named("tblib:Traceback") + b")\x81}b",
        "traceback": call("tblib.pickling_support:unpickle_traceback", b"N", b"K\x01", b"N"),
        "exception": call("tblib.pickling_support:unpickle_exception", error, b")", b"N", b"N"),
        "attributes": call(
            "tblib.pickling_support:unpickle_exception_with_attrs",
            error, fields, b"N", b"N", b"N", b"\x89", b"N", b")",
        ),
        # What they hold is a class, which no profile lets stand for itself.
        **{
            kind: _named(f"sklearn.model_selection._split:{kind}") + times
            for kind in ("RepeatedKFold", "RepeatedStratifiedKFold")
        },
    }  # fmt: skip
    for label, body in made.items():
        yield label, b"\x80\x04" + body + b"."


def enums() -> Iterator[tuple[str, bytes]]:
    """Yield a pickle of a member of each listed enum."""
    for name, entry in _PROFILE.entries.items():
        if entry.role == "enum":
            yield name, pickle.dumps(next(iter(_PROFILE.object_of(entry))), 3)


def makers() -> Iterator[tuple[str, Maker]]:
    """Yield a label and a maker for each kind."""
    for group in (_plain, _exceptions, _functions, *library_samples.GROUPS, _estimators):
        yield from group().items()
    for label, product in products():
        yield f"{label}, long", lambda n, make=product: make(n, 2)
        yield f"{label}, wide", lambda n, make=product: make(2, n)
