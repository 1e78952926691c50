"""List the names of the types of libraries without importing any of these.

The one rule: a package is imported only when an object of a listed type is sent or loaded. A header
that names a type imports nothing before the policy admits it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.families.plain import Unencodable
from safeser.families.reduced import Reducers, Row, list_rows
from safeser.families.registry import loading, registry
from safeser.families.science import sparse
from safeser.families.stdlib.containers import around
from safeser.pickles import Entry, Profile
from safeser.pickles.live import Live
from safeser.pickles.shims.labels import hide_memory

__all__ = ["register"]


#: The types of each library that has modules of its own here, and these modules.
_MODULES = {
    "pandas": (
        "DataFrame Series Index RangeIndex MultiIndex array Timestamp Timedelta Period Interval NA"
        " NaT offset dtype GroupBy",
        ("pandas.scalars", "pandas.indexes", "pandas.arrays", "pandas.dtypes", "pandas.frames"),
    ),
    "pyarrow": (
        "Array Buffer ChunkedArray DataType Field KeyValueMetadata RecordBatch Scalar Schema Table",
        ("arrow.tables",),
    ),
    "polars": ("DataFrame LazyFrame Series", ("arrow.polars",)),
    "xarray": ("Variable IndexData Index DataArray Dataset", ("science.labelled",)),
    "torch": ("Tensor Size dtype device", ("science.tensors",)),
}

_SPARSE = {
    f"scipy.sparse:{name}_{kind}": Row(
        ("data", "numpy", "scipy"),
        (f"scipy.sparse:{name}_{kind}",),
        sparse.reducers,
        # To look at each index takes longer than all else, and is the receiver's to do.
        rehearsed=False,
    )
    for name in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
    for kind in ("array", "matrix")
}

#: Reviewed functions that make what SciPy's functions return.
_RESULTS = ("scipy.result", "scipy.named_tuple", "scipy.record", "scipy.inverse")


def _results(package: str) -> Iterator[type]:
    return _made_by(
        "scipy", lambda entry: entry.make in _RESULTS and entry.name.startswith(package)
    )


def _result_reducers() -> Reducers:
    (kind,) = (each for each in _results("scipy.stats.") if each.__name__ == "TtestResult")
    return {**sparse.reducers(), kind: _reduced_result}


def _reduced_result(x: Any) -> Any:
    """Return how *x* is made again: of what it keeps, one part is a module and some is derived."""
    make, (kind, parts, state), *_ = x.__reduce_ex__(4)
    state = {name: state[name] for name in state if name not in ("_dtype", "_statistic_np", "_xp")}
    return make, (kind, parts, state), state


_RESULT_PROFILES = ("data", "numpy", "scipy")
#: By package, so that a sparse matrix does not import what tests and optimizers need.
_SCIPY = {
    package: {
        f"{package}:result": Row(_RESULT_PROFILES, partial(_results, f"{package}."), reducers)
    }
    for package, reducers in (
        ("scipy._lib", sparse.reducers),
        ("scipy.integrate", sparse.reducers),
        ("scipy.optimize", sparse.reducers),
        ("scipy.stats", _result_reducers),
        ("dask.array", dict),
    )
}

_SCIPY["scipy.spatial"] = {
    "scipy.spatial:KDTree": Row(_RESULT_PROFILES, ("scipy.spatial:KDTree", "scipy.spatial:cKDTree"))
}


def _calendar_reducers() -> Reducers:
    from xarray import CFTimeIndex

    return {CFTimeIndex: _reduced_calendar}


def _reduced_calendar(x: Any) -> Any:
    """Return how *x* is made again: of a row of numbers for each moment, a tenth of the bytes."""
    make, (cls, fields), *_ = x.__reduce__()
    alike = {(type(day).__qualname__, day.calendar, day.has_year_zero) for day in x}
    if len(alike) == 1:
        ((fields["kind"], fields["calendar"], fields["has_year_zero"]),) = alike
        fields["data"] = np.array([(*day.timetuple()[:6], day.microsecond) for day in x], np.int64)
    return make, (cls, fields)


_MOMENTS = ("360Day", "AllLeap", "Gregorian", "Julian", "NoLeap", "ProlepticGregorian")
_CALENDARS = {
    "cftime": {
        "cftime:datetime": Row(
            ("pandas",), ("cftime:datetime", *(f"cftime:Datetime{name}" for name in _MOMENTS))
        )
    },
    "xarray": {
        "xarray:CFTimeIndex": Row(
            ("data", "numpy", "pandas"), ("xarray:CFTimeIndex",), _calendar_reducers
        )
    },
}

_SKLEARN_PROFILES = ("data", "numpy", "scipy", "sklearn")
#: Reviewed functions that make what is no estimator and has no fields of its own.
_PARTS = ("sklearn.stateless", "sklearn.loss", "sklearn.triplet", "sklearn.begin_tree")


def _estimators() -> Iterator[type]:
    return _made_by("sklearn", lambda entry: entry.make == "sklearn.begin")


def _parts() -> Iterator[type]:
    """Yield the classes of trees, losses and links, and of what is made empty and given state."""
    yield from _made_by("sklearn", lambda entry: entry.make in _PARTS)
    for entry in Profile.named("sklearn").entries.values():
        if entry.make == "sklearn.begin_native":
            yield from (Live(name).found for name in entry.args[0])


def _made_by(profile: str, right: Callable[[Entry], bool]) -> Iterator[type]:
    """Yield the classes of a profile's entries that are *right*; no version has all of them."""
    listed = Profile.named(profile)
    for entry in listed.entries.values():
        if right(entry):
            with contextlib.suppress(PayloadError):
                yield listed.object_of(entry)


_SKLEARN = {
    "sklearn:estimator": Row(_SKLEARN_PROFILES, _estimators, sparse.reducers),
    "sklearn:part": Row(_SKLEARN_PROFILES, _parts, sparse.reducers),
}
_UNLISTED = {
    "sklearn.base:BaseEstimator": "its class is not one of scikit-learn's that safeser lists"
}


def _load_bunch() -> None:
    from sklearn.utils import Bunch

    def content(x: Any) -> Any:
        if vars(x).get("_deprecated_key_to_warnings"):
            raise Unencodable(x, "it warns about some of its keys, which is not kept")
        return dict(x)

    def make(content: Any) -> Any:
        made = Bunch()
        made.update(content)
        return made

    hide_memory(Bunch)
    registry.register(around("sklearn.utils:Bunch", Bunch, dict, content, make))


def register() -> None:
    """List the names; called once, when safeser.families is imported."""
    for package, (names, modules) in _MODULES.items():
        listed = [f"{package}:{name}" for name in names.split()]
        registry.register_lazy(package, listed, loading(*modules))
    list_rows("scipy", _SPARSE)
    for package, rows in (*_SCIPY.items(), *_CALENDARS.items()):
        list_rows(package, rows)
    list_rows("sklearn", _SKLEARN, advice=_UNLISTED)
    registry.register_lazy("sklearn", ("sklearn.utils:Bunch",), _load_bunch)
