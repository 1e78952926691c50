"""Check pandas offsets, periods, intervals, dtypes, ranges and columns against bounds.

The one rule: every repeat count is bounded, and a value is stored only under a type that pandas
itself stores it under.
"""

from __future__ import annotations

import datetime
import importlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from safeser.gate.values import Limits
from safeser.types import refused
from safeser.types.numpy import ASKED

#: Untyped on purpose: pandas is an extra.
pd: Any = importlib.import_module("pandas")
_offsets: Any = importlib.import_module("pandas._libs.tslibs.offsets")
_relative: Any = importlib.import_module("dateutil.relativedelta")

UNITS = ("s", "ms", "us", "ns")
CLOSED = ("left", "right", "both", "neither")

_INT63 = 1 << 63
#: Offsets of months, business hours and holidays are walked one by one; ticks are multiplied.
_MAX_REPEAT = 1 << 16
_MAX_SPAN = 1 << 31
#: pandas keeps a table of every frequency of periods that it was ever asked for.
_MAX_PERIODS = 999
#: A calendar of two centuries has some thousands; pandas makes one of them each time.
_MAX_HOLIDAYS = 10_000
_MAX_PARTS = 16
_MAX_TEXT = 64
_MAX_NTH = 1000
#: Bytes of each number of a range when its values are computed.
_NUMBER = 8
_MAX_LEVELS = 1000
#: Beyond, the sum of a bound and a step may not fit 64 bits.
_INT62 = 1 << 62
#: Visits of an element, of a quarter of a microsecond, that one step of an offset takes at most:
#: to compare an index with its freq, pandas adds it as often as the index has values, in Python.
_STEP = 80
_STEPS = {
    "BusinessDay": 40,
    "BusinessHour": 64,
    "CustomBusinessHour": 256,
    "CustomBusinessMonthBegin": 400,
    "CustomBusinessMonthEnd": 400,
    "FY5253Quarter": 640,
}
#: What pandas takes before the first step and after the last.
_ENDS = 1024
#: A step looks at each opening of its day once for each that it passes.
_OPENING, _OPENINGS = 56, 3
#: Holidays in a row are passed day by day, once or twice in all.
_HOLIDAY = 16
#: Steps of one length are compared by NumPy, which adds this many in one visit.
_EVEN = 8
#: Of the elements, the visits of one walk: some 100 ms by default, in which nothing else runs.
_WALK = 0.3815
#: A column takes pandas some 20 us whenever columns are walked, and one without rows no byte.
_MAX_EMPTY_COLUMNS = 1 << 17
#: An end of an interval is compared and hashed; real ones fit 64 bits, or a few more.
_MAX_END_BITS = 1024

_PERIOD = re.compile(r"(?:[1-9][0-9]{0,2})?[A-Za-z]{1,3}(?:-[A-Z]{3})?\Z")
_TIME = re.compile(r"[<=][mM]8\[(?:s|ms|us|ns)\]\Z")
_SPANS: frozenset[str] = frozenset(_offsets._relativedelta_kwds) - {"weekday"} | {"leapdays"}
_PART = (datetime.timedelta, datetime.time, np.datetime64, np.int64, pd.Timedelta)


# -- kinds of elements -----------------------------------------------------------------------------


def is_kept(dtype: np.dtype[Any]) -> bool:
    """Tell whether pandas keeps an array of *dtype* as it is."""
    if dtype.kind in "mM":
        return dtype.isnative and np.datetime_data(dtype) in [(unit, 1) for unit in UNITS]
    return dtype.kind in "biufcO"


def check_kept(dtype: np.dtype[Any]) -> None:
    if not is_kept(dtype):
        raise refused("column", "a column is not of a type that pandas keeps")


def check_wrapped(values: np.ndarray[Any, Any]) -> None:
    """Refuse values that pandas would convert in an array of its own, or in a column."""
    check_kept(values.dtype)
    if values.ndim != 1:
        raise refused("column", "an array of pandas' has more than one dimension")


def check_sparse_values(values: np.ndarray[Any, Any], length: int, limits: Limits) -> None:
    """Refuse *values* that cannot be those of a sparse array of *length*, or stand for too much."""
    check_wrapped(values)
    check_sparse_length(length, values.dtype.itemsize, limits)
    if not values.dtype.isnative:
        raise refused("column", "sparse values are in another byte order than this machine's")


def check_sparse_length(length: int, itemsize: int, limits: Limits) -> None:
    """Refuse *length* elements of *itemsize* bytes, for most of which no byte was sent."""
    if length * max(itemsize, 1) > limits.max_array:
        raise refused("sparse", "a sparse array is larger than max_array", limit="max_array")


def is_known(kind: Any) -> bool:
    """Whether pandas knows what an element of Arrow's *kind* is: ``to_json`` of others crashes."""
    try:
        return pd.ArrowDtype(kind).type is not None
    except NotImplementedError:
        return False


# -- offsets ---------------------------------------------------------------------------------------


def offset_of(name: str, count: int, normalize: bool, parts: Sequence[Any]) -> Any:
    """Return the offset of pandas' class *name*, repeated *count* times.

    :param parts: what else its class takes, in order: a weekday, a mask, times, holidays.
    """
    kind = getattr(_offsets, name)
    most = _MAX_REPEAT
    if issubclass(kind, _offsets.Tick):
        most = -(-_INT63 // kind(1).nanos)  # what fits 64 bits of nanoseconds
    elif kind is _offsets.Day:
        most = _MAX_SPAN
    _check_count(count, most)
    check_offset_parts(parts)
    return kind(count, normalize, *parts)


def _check_count(count: int, most: int) -> None:
    if not -most < count < most:
        raise refused("offset", "a date offset is repeated too often")


def check_offset_parts(parts: Sequence[Any]) -> None:
    """Refuse *parts* that are no weekday, mask, start, end, holiday or variation of an offset."""
    members = [member for part in parts for member in (part if type(part) is tuple else (part,))]
    if len(parts) > _MAX_PARTS or len(members) > _MAX_HOLIDAYS:
        raise refused("offset", f"a date offset has more than {_MAX_HOLIDAYS} parts")
    for member in members:
        if type(member) is int:
            _check_count(member, _MAX_REPEAT)
        elif type(member) is str and len(member) > _MAX_TEXT:
            raise refused("offset", "a text of a date offset is too long")
        elif type(member) not in (type(None), bool, int, str, *_PART):
            raise refused("offset", "a part of a date offset is of none of its types")


def date_offset(count: int, normalize: bool, spans: Mapping[str, Any]) -> Any:
    """Return the offset of *spans* by name, such as months, repeated *count* times."""
    _check_count(count, _MAX_REPEAT)
    _check_spans(spans)
    made = pd.DateOffset(count, normalize, **spans)
    if isinstance(made._offset, _relative.relativedelta):
        _check_carried(made._offset)
    return made


def relative_delta(spans: Mapping[str, Any]) -> Any:
    """Return dateutil's difference of *spans* by name."""
    _check_spans(spans)
    return _check_carried(_relative.relativedelta(**spans))


def _check_carried(delta: Any) -> Any:
    """Return *delta*, to whose days and years dateutil added hours, weeks and months."""
    _check_spans({"days": delta.days, "years": delta.years})
    return delta


def _check_spans(spans: Mapping[str, Any]) -> None:
    for name, value in spans.items():
        if name == "weekday" and type(value) in (int, _relative.weekday):
            continue
        if name not in _SPANS or type(value) is not int or not -_MAX_SPAN < value < _MAX_SPAN:
            raise refused("offset", "a span of a date offset is unknown or out of range")


def weekday_of(day: int, nth: int | None) -> Any:
    """Return a weekday, or the *nth* of that day in a month."""
    if not 0 <= day < 7 or (nth is not None and not -_MAX_NTH < nth < _MAX_NTH):
        raise refused("offset", "a weekday is none, or too many weeks away")
    return _relative.weekday(day, nth)


def check_walk(freq: Any, length: int, limits: Limits) -> int:
    """Return the visits that comparing *length* values of an index with *freq* takes, or refuse it.

    Its sender chooses both, and steps from 1 us to 40 ms: a month, or an hour of 700 openings.
    """
    if isinstance(freq, _offsets.Tick | _offsets.Day):
        return length // _EVEN
    openings, holidays = (len(getattr(freq, name, None) or ()) for name in ("start", "holidays"))
    # A business day of pandas 3 makes all days in between, which takes memory as well.
    step = _STEPS.get(type(freq).__name__, _STEP) + abs(freq.n)
    step += openings * (_OPENING + openings // _OPENINGS)
    visits: int = _ENDS + length * step + holidays * _HOLIDAY
    if visits > limits.elements * _WALK:
        raise refused(
            "freq",
            "an index has too many values for what each step of its freq takes to check",
            fix="Drop it: index.freq = None.",
        )
    return visits


def check_period_freq(freq: Any) -> None:
    """Refuse *freq* unless it belongs to the bounded set of frequencies of periods."""
    if not isinstance(freq, _offsets.BaseOffset) or type(freq) is pd.DateOffset:
        raise refused("period", "a period's frequency is none of pandas' own")
    _, (count, normalize, *parts) = freq.__reduce__()[:2]
    sound = all(part in (None, datetime.timedelta()) or part in range(13) for part in parts)
    if not 1 <= count <= _MAX_PERIODS or normalize or not sound:
        raise refused("period", f"a period's frequency is no multiple of up to {_MAX_PERIODS}")


def check_interval_end(value: Any) -> None:
    """Refuse *value* as an end of an interval."""
    sound = type(value) is float or isinstance(value, np.generic | pd.Timestamp | pd.Timedelta)
    if not sound and (type(value) is not int or value.bit_length() > _MAX_END_BITS):
        raise refused("interval", "an end of an interval is neither a number nor a moment")


# -- indexes and frames ----------------------------------------------------------------------------


def integer_range(start: int, stop: int, step: int, *, limits: Limits) -> range:
    """Return the numbers of an index that is a range.

    It costs nothing to say, and eight bytes for each number once its values are used.
    """
    if not step or any(abs(number) >= _INT62 for number in (start, stop, step)):
        raise refused("index", "a bound of a range is out of range, or its step is zero")
    numbers = range(start, stop, step)
    if len(numbers) * _NUMBER > limits.max_array:
        raise refused("index", "the values of a range are larger than max_array", limit="max_array")
    return numbers


def check_labels(index: Any) -> None:
    """Refuse a label of *index* by which NumPy asks an object where its memory is, and the like.

    A series answers for its labels as attributes. ``np.asarray`` asks the instance and takes the
    address as it is: a series with the label ``__array_interface__`` and a dictionary below it
    reads and writes whatever memory its sender names. A notebook calls what is at ``_repr_html_``.
    """
    if isinstance(index, pd.MultiIndex):
        return  # its levels are indexes of their own, which were checked before
    if isinstance(index.dtype, pd.ArrowDtype):
        told = any(map(_arrow_names_memory, index.array.__arrow_array__().chunks))
    elif index.dtype == object or isinstance(index.dtype, pd.StringDtype):
        told = bool(index.isin(sorted(ASKED)).any())
    else:
        return  # so are categories
    if told:
        raise refused(
            "label",
            "a label is a name by which NumPy asks for an address of memory, or the like",
            fix="Rename the rows or columns that are called __array_interface__ or the like.",
        )


def _arrow_names_memory(chunk: Any) -> bool:
    values = getattr(chunk, "dictionary", chunk)
    is_text = str(values.type) in ("string", "large_string")  # pandas keeps no views of text
    return is_text and any(values.index(name).as_py() >= 0 for name in ASKED)


def check_levels(levels: Sequence[Any], *, limits: Limits) -> None:
    """Refuse *levels* of an index that are too many, or that together stand for too much.

    pandas writes a range out where it compares or counts the values of its level.
    """
    if not 0 < len(levels) <= _MAX_LEVELS:
        raise refused("index", f"an index has no levels, or more than {_MAX_LEVELS}")
    if any(not isinstance(level, pd.Index) or level.nlevels > 1 for level in levels):
        raise refused("index", "a level of an index is no index of one level")
    numbers = sum(len(level) for level in levels if isinstance(level, pd.RangeIndex))
    if numbers * _NUMBER > limits.max_array:
        raise refused(
            "index", "the values of an index's levels are larger than max_array", limit="max_array"
        )


def ordered(index: Any, depth: int | None) -> Any:
    """Return *index*, of several levels of which the first *depth* are in order, or refuse it.

    pandas compares all levels, then all but one and so on: the square of the levels, each time for
    all rows, which is 50 s for a pickle of 25 kB.
    """
    tied: Any = np.ones(max(len(index) - 1, 0), bool)
    for codes in index.codes[: max(depth or 0, 0)]:
        step = np.diff(np.asarray(codes, np.int64))
        if (step[tied] < 0).any():
            raise refused("index", "the levels of an index are not in the order that it states")
        tied &= step == 0
    if (depth or 0) > index.nlevels:
        raise refused("index", "an index is in the order of more levels than it has")
    index.sortorder = depth
    return index


def check_columns(columns: int, *, rows: int | None, limits: Limits) -> None:
    """Refuse a frame of more columns than can be walked, whether or not a row bears them out.

    :param rows: None where that is not known yet.
    """
    if columns > limits.elements:
        raise refused(
            "columns", "a frame has more columns than max_memory allows", limit="max_memory"
        )
    if rows == 0 and columns > _MAX_EMPTY_COLUMNS:
        raise refused("columns", f"a frame without rows has over {_MAX_EMPTY_COLUMNS} columns")


# -- dtypes ----------------------------------------------------------------------------------------


def string_dtype(storage: Any, missing: Any) -> Any:
    """Return the dtype of text in *storage*, where *missing* is NA or NaN."""
    if storage not in ("pyarrow", "python"):
        raise refused("dtype", "a StringDtype is not one of pandas'")
    if missing is pd.NA:
        return pd.StringDtype(storage)
    if type(missing) is not float or not math.isnan(missing):
        raise refused("dtype", "a StringDtype is not one of pandas'")
    return pd.StringDtype(storage, missing)


def categorical_dtype(categories: Any, ordered: Any) -> Any:
    """Return the dtype of *categories*, an index of labels that differ, or None."""
    if type(ordered) not in (bool, type(None)):
        raise refused("dtype", "categories are neither ordered nor not")
    if not isinstance(categories, pd.Index | None) or isinstance(categories, pd.MultiIndex):
        raise refused("dtype", "categories are not an index of one level")
    return pd.CategoricalDtype(categories, ordered)


def zoned_dtype(unit: Any, zone: Any) -> Any:
    """Return the dtype of moments of *unit* in a *zone* whose own code is trusted."""
    if unit not in UNITS or zone is None:
        raise refused("dtype", "a datetime type has no unit or time zone")
    return pd.DatetimeTZDtype(unit, zone)


def period_dtype(name: str) -> Any:
    """Return the dtype of periods that are called *name*, as ``3D`` or ``Q-NOV``."""
    if not _PERIOD.match(name):
        raise refused("period", "that is not the frequency of a period")
    made = pd.PeriodDtype(name)
    check_period_freq(made.freq)
    return made


def interval_dtype(subtype: Any, closed: Any) -> Any:
    """Return the dtype of intervals between numbers or moments; either may be unsaid.

    pandas keeps a table of every type of interval that it was ever asked for.
    """
    plain = isinstance(subtype, np.dtype)
    numbers = plain and subtype.kind in "iuf" and subtype.itemsize <= 8 and subtype.isnative
    times = plain and _TIME.match(subtype.str)
    if not (subtype is None or numbers or times or isinstance(subtype, pd.DatetimeTZDtype)):
        raise refused("dtype", "intervals are of numbers or of times")
    if closed is not None and closed not in CLOSED:
        raise refused("dtype", "an interval is closed on an unknown side")
    return pd.IntervalDtype(subtype, closed)


def sparse_dtype(subtype: Any, fill: Any) -> Any:
    """Return the dtype of sparse elements of *subtype*, of which most are *fill*."""
    if not isinstance(subtype, np.dtype) or not is_kept(subtype) or not subtype.isnative:
        raise refused("dtype", "sparse elements are of a type that pandas does not keep")
    missing = fill is pd.NaT or fill is pd.NA or fill is None
    if not (missing or isinstance(fill, np.generic)) and type(fill) not in _FILLS:
        raise refused("dtype", "what sparse arrays are filled with is no plain value")
    return pd.SparseDtype(subtype, fill)


_FILLS = (bool, int, float, complex, str)


def arrow_dtype(kind: Any) -> Any:
    """Return the dtype of Arrow's *kind*."""
    if not is_known(kind):
        raise refused("dtype", "pandas does not know the Arrow type of a column")
    return pd.ArrowDtype(kind)


def numpy_dtype(dtype: Any) -> Any:
    """Return the dtype of NumPy's arrays of *dtype* that pandas wraps."""
    if not isinstance(dtype, np.dtype):
        raise refused("dtype", "a type of pandas' is over something else than NumPy's")
    check_kept(dtype)
    return pd.arrays.NumpyExtensionArray(np.empty(0, dtype)).dtype
