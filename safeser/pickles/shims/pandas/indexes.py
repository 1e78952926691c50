"""Reviewed functions for pandas' indexes.

The one rule: labels are hashable and cheap to hash, codes lie within their levels, a frequency
fits every element, and the public constructors make the index.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from safeser.pickles.nodes import GlobalRef
from safeser.pickles.shims.pandas.arrays import owned, unique
from safeser.pickles.shims.pandas.times import pd, walked
from safeser.pickles.shims.site import Site, bad, plain
from safeser.types import pandas as bounds

__all__ = ["CALENDARS", "SHIMS", "column", "held", "label"]

#: Bytes of a number of a range.
_NUMBER = 8
#: Bytes of a moment of cftime's, with its numbers.
_MOMENT = 160
#: The classes of such moments.
CALENDARS = (
    *("Datetime360Day", "DatetimeAllLeap", "DatetimeGregorian", "DatetimeJulian"),
    *("DatetimeNoLeap", "DatetimeProlepticGregorian", "datetime"),
)


def label(site: Site, value: Any) -> Any:
    site.check_hashable(value)
    return value


def column(values: Any) -> Any:
    """Return *values* if they can be one column: one dimension of an accepted type."""
    if held(values).ndim != 1:
        raise bad("shape", "a column has more than one dimension")
    return values


def held(values: Any) -> Any:
    """Return *values* if pandas keeps an array like that, in as many dimensions as it has."""
    if not isinstance(values, pd.api.extensions.ExtensionArray):
        bounds.check_kept(plain(values, np.ndarray).dtype)
    elif type(values) is pd.arrays.NumpyExtensionArray:
        raise bad("shape", "a column is an array that pandas wraps")
    # Others were made by a reviewed function, from parts that it checked.
    return values


def _index(site: Site, _: str, kind: Any, fields: Any) -> Any:
    given = dict(plain(fields, dict))
    made = _MAKERS[plain(kind, GlobalRef).qualname](site, given)
    if given:
        raise bad("state", "an index has no such field")
    bounds.check_labels(made)
    return made


def _of_data(site: Site, given: dict[str, Any]) -> Any:
    name = label(site, given.pop("name", None))
    content = column(given.pop("data"))
    if content.dtype == object:
        site.hashable.add(type(pd.NaT))
        site.frozen(content)
    return pd.Index(content, dtype=content.dtype, name=name)


def _calendar(site: Site, given: dict[str, Any]) -> Any:
    if "kind" in given:
        given["data"] = _moments_of(site, given)
    index = _of_data(site, given)
    made = importlib.import_module("xarray").CFTimeIndex
    return made(index.array.to_numpy(), name=index.name)


def _moments_of(site: Site, given: dict[str, Any]) -> Any:
    """Return moments of one calendar, which typed values write as a row of numbers for each."""
    kind, table = plain(given.pop("kind"), str), plain(given.pop("data"), np.ndarray)
    if kind not in CALENDARS or table.ndim != 2 or table.shape[1] != 7 or table.dtype.kind != "i":
        raise bad("arguments", "moments of a calendar are no table of numbers")
    site.charge(len(table))
    site.budget.charge_memory(0, _MOMENT * len(table))
    told = plain(given.pop("calendar"), str), plain(given.pop("has_year_zero"), bool)
    cls = getattr(importlib.import_module("cftime"), kind)
    make = partial(cls, calendar=told[0], has_year_zero=told[1])
    made = np.empty(len(table), object)
    made[:] = [make(*row) for row in table.tolist()]
    if any((day.calendar, day.has_year_zero) != told for day in made[:1]):
        raise bad("arguments", "moments of a calendar contradict its name")
    site.hashable.add(cls)
    return made


def _range(site: Site, given: dict[str, Any]) -> Any:
    name = label(site, given.pop("name", None))
    parts = (plain(given.pop(part), int) for part in ("start", "stop", "step"))
    return pd.RangeIndex(bounds.integer_range(*parts, limits=site.limits), name=name)


def _categories(site: Site, given: dict[str, Any]) -> Any:
    name = label(site, given.pop("name", None))
    return pd.CategoricalIndex(plain(given.pop("data"), pd.Categorical), name=name)


def _periods(site: Site, given: dict[str, Any]) -> Any:
    name = label(site, given.pop("name", None))
    return pd.PeriodIndex(plain(column(given.pop("data")), pd.arrays.PeriodArray), name=name)


def _intervals(site: Site, given: dict[str, Any]) -> Any:
    name, closed = label(site, given.pop("name", None)), plain(given.pop("closed"), str)
    if "data" in given:
        made = plain(given.pop("data"), pd.arrays.IntervalArray)
    else:
        left, right = given.pop("left"), given.pop("right")
        if not isinstance(left, pd.Index) or type(left) is not type(right):
            raise bad("arguments", "the bounds of intervals are of two types")
        if left.dtype != right.dtype:
            raise bad("arguments", "the bounds of intervals are of two types")
        if isinstance(left, pd.RangeIndex):
            # Of any length it is a few bytes until it is written out, as it is here.
            site.charge_bytes(_NUMBER * (len(left) + len(right)))
        made = pd.arrays.IntervalArray.from_arrays(left, right, closed, copy=True)
    return pd.IntervalIndex(made, closed=closed, name=name)


def _moments(site: Site, given: dict[str, Any]) -> Any:
    name, freq = label(site, given.pop("name", None)), given.pop("freq", None)
    data = column(given.pop("data"))
    if isinstance(data, pd.arrays.DatetimeArray):
        kind = pd.DatetimeIndex
    else:
        plain(data, pd.arrays.TimedeltaArray)
        kind = pd.TimedeltaIndex
    freq = getattr(data, "_freq", None) if freq is None else freq
    if freq is None:
        return kind(data, name=name)
    return kind(data, freq=walked(site, freq, len(data)), name=name)


def _levels(site: Site, given: dict[str, Any]) -> Any:
    levels, codes = plain(given.pop("levels"), list, tuple), plain(given.pop("codes"), list, tuple)
    names = [label(site, name) for name in given.pop("names")]
    order = plain(given.pop("sortorder", None), int, type(None))
    if not len(levels) == len(codes) == len(names):
        raise bad("shape", "an index has other levels than codes or names")
    bounds.check_levels(levels, limits=site.limits)
    for level in levels:
        unique(site, level)
    # All may be one array, which a pickle has once.
    site.check_room(sum(plain(code, np.ndarray).nbytes for code in codes))
    numbers = [owned(site, code, "i") for code in codes]
    made = pd.MultiIndex(levels, numbers, names=names, verify_integrity=True)
    return bounds.ordered(made, order)


_MAKERS: dict[str, Callable[[Site, dict[str, Any]], Any]] = {
    "CFTimeIndex": _calendar,
    "CategoricalIndex": _categories,
    "DatetimeIndex": _moments,
    "Index": _of_data,
    "IntervalIndex": _intervals,
    "MultiIndex": _levels,
    "PeriodIndex": _periods,
    "RangeIndex": _range,
    "TimedeltaIndex": _moments,
}

_FROZEN: Any = type(pd.MultiIndex.from_arrays([[], []]).names)


def _frozen_list(site: Site, _: str, members: Any) -> Any:
    return _FROZEN(plain(members, list))


SHIMS: dict[str, Callable[..., Any]] = {"frozen_list": _frozen_list, "index": _index}
