"""One value, two spellings, one verdict: what restricted pickle accepts, typed values accept."""

from __future__ import annotations

import collections
import decimal
import fractions
import ipaddress
import math
import pathlib
import re
import time
import types
from datetime import timedelta, timezone

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given

from tests.draws import draws
from tests.samples.same import same
from tests.types import strategies
from tests.types.both import by_pickle, by_typed, compared
from tests.types.only_one import PICKLE, TYPED

# pandas speaks of what it will not do in a later version.
pytestmark = pytest.mark.filterwarnings("ignore")


def deep_type(levels):
    kind = pa.int8()
    for _ in range(levels):
        kind = pa.list_(kind)
    return kind


def deep_dtype(levels):
    dtype = np.dtype("i1")
    for _ in range(levels):
        dtype = np.dtype([("a", dtype)])
    return dtype


def wide(count):
    return np.dtype([(f"f{n}", "i1") for n in range(count)])


def wrapped():
    spread = {"names": ["a"], "formats": ["c16"], "offsets": [(1 << 31) - 16], "itemsize": 8}
    return np.dtype(spread)


def flags():
    return np.frombuffer(b"\0\1\2\xff", "?")


def masked_objects():
    return np.ma.array(np.array([1, None], object), mask=[True, False])


def sparse_column(length):
    places = pd._libs.sparse.IntIndex(length, np.array([5], "i4"))
    return pd.arrays.SparseArray(np.array([1.0]), places)


def chained():
    made = collections.ChainMap()
    made.maps = [collections.Counter("a"), collections.UserDict(a=1)]
    return made


CODED = pa.dictionary(pa.int8(), pa.string())
UNITED = pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [pa.array([1, 2, 3])])


UNION = pa.dense_union([pa.field("a", pa.int64())])


def united_twice():
    """Return a dense union whose part is one that holds a type code of nothing."""
    codes, offsets = pa.array([0, 127], pa.int8()), pa.array([0, 0], pa.int32())
    buffers = [None, codes.buffers()[1], offsets.buffers()[1]]
    inner = pa.Array.from_buffers(UNION, 1, buffers, children=[pa.array([1])])
    return pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), offsets, [inner])


def structure(mask, levels=1):
    """Return a structure of unions, whose bitmap no element of a slice may be missing by."""
    inner = pa.StructArray.from_arrays([UNITED], ["u"]) if levels == 2 else UNITED
    return pa.StructArray.from_arrays([inner], ["x"], mask=mask and pa.array(mask))


def coded_nulls():
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.nulls(2))


def narrow(matrix):
    matrix.maxprint = -1
    return matrix


def stepped(count, freq):
    return pd.date_range("1950-01-02 09:00", periods=count, freq=freq, unit="s")


def in_order(codes, depth):
    made = pd.MultiIndex([["a", "b"]] * 2, [codes] * 2)
    made.sortorder = depth
    return made


def hours(openings):
    return pd.offsets.CustomBusinessHour(7, **strategies.opened(openings))


YEARS = {"weekday": 1, "startingMonth": 1, "variation": "nearest"}
QUARTERS = pd.offsets.FY5253Quarter(qtr_with_extra_week=1, **YEARS)


def moment_in(zone):
    return time.struct_time([1] * 9, {"tm_zone": zone, "tm_gmtoff": None})


def many_categories():
    return pd.Categorical.from_codes([0, 1], pd.RangeIndex(2 * 10**6))


FREE = [np.datetime64("2050-01-01") + at for at in range(9000)]


#: value -> the rule of its bound, or nothing where both accept it
PROBES = {
    "decimal of 5,000 digits": (lambda: decimal.Decimal("1" * 5000), ""),
    "decimal of 16,385 digits": (lambda: decimal.Decimal("1" * 16_385), "decimal"),
    "decimal 1e10000": (lambda: decimal.Decimal("1e10000"), ""),
    "decimal 1e999999": (lambda: decimal.Decimal("1e999999"), "decimal"),
    "fraction of 20,000 bits": (lambda: fractions.Fraction(1 << 19_999, 3), ""),
    "fraction of 65,537 bits": (lambda: fractions.Fraction(1 << 65_536, 3), "fraction"),
    "path with a part of 5,000": (lambda: pathlib.PurePosixPath("a" * 5000), ""),
    "path of 300 parts": (lambda: pathlib.PurePosixPath(*["a"] * 300), ""),
    "path of 2,049 parts": (lambda: pathlib.PurePosixPath(*["a"] * 2049), "path"),
    "path with a NUL": (lambda: pathlib.PurePosixPath("a\0"), "path"),
    "pattern of 1,000 characters": (lambda: re.compile("a" * 1000), ""),
    "pattern of 1,001 characters": (lambda: re.compile("a" * 1001), "pattern"),
    "pattern of 200 classes": (lambda: re.compile("[a-z]" * 200), "pattern"),
    "scope of 52 characters": (lambda: ipaddress.ip_address("fe80::1%" + "e" * 52), ""),
    "scope of 80 characters": (lambda: ipaddress.ip_address("fe80::1%" + "e" * 80), "address"),
    "zone of a moment": (lambda: moment_in("z" * 5000), "text"),
    "year 2**40": (lambda: time.struct_time([1 << 40] + [1] * 8), "number"),
    "range(2**70)": (lambda: range(1 << 70), ""),
    "range(2**2000)": (lambda: range(1 << 2000), "range"),
    "slice(2**70)": (lambda: slice(1 << 70), ""), "slice of a list": (lambda: slice([1]), ""),
    "flags of 2": (flags, ""), "flags of 2 in a frame": (lambda: pd.DataFrame({"a": flags()}), ""),
    "frame of no rows": (lambda: pd.DataFrame(np.zeros((0, 100_000))), ""),
    "frame of too many columns": (lambda: pd.DataFrame(np.zeros((0, 131_073))), "columns"),
    "record of 5,000 fields": (lambda: wide(5000), ""),
    "record of 10,001 fields": (lambda: wide(10_001), "dtype"),
    "array of 5,000 fields": (lambda: np.zeros(2, wide(5000)), ""),
    "dtype with metadata": (lambda: np.dtype("f8", metadata={"a": 1}), ""),
    "dtype with an object for metadata": (lambda: np.dtype("f8", metadata={"a": {1}}), "dtype"),
    "record beyond its end": (wrapped, "dtype"),
    "record in records, 16 deep": (lambda: deep_dtype(15), ""),
    "record in records, 17 deep": (lambda: deep_dtype(17), "dtype"),
    "array of 2**40 times nothing": (lambda: np.zeros((0, 1 << 40)), "array-size"),
    "texts of 2**30 bytes": (lambda: np.dtype(f"S{1 << 30}"), ""),
    "array of objects in a record": (lambda: np.zeros(1, [("a", object)]), "dtype"),
    "masked objects": (masked_objects, ""),
    "texts with methods": (lambda: np.array(["a"]).view(np.char.chararray), ""),
    "numbers as texts with methods": (lambda: np.zeros(1, "i1").view(np.char.chararray), "dtype"),
    "seed of 10,000 bits": (lambda: np.random.SeedSequence(1 << 10_000), "random-state"),
    "name of a polynomial": (lambda: np.poly1d([1], variable="z" * 65), "polynomial"),
    "zone with a name of 5,000": (lambda: timezone(timedelta(0), "a" * 5000), "time-zone"),
    "zone with a name of 200": (lambda: timezone(timedelta(0), "a" * 200), ""),
    "NaN as a key": (lambda: {math.nan: 1}, ""), "chain of counters": (chained, ""),
    "default of a frozenset": (lambda: collections.defaultdict(frozenset), ""),
    "namespace of a keyword": (lambda: types.SimpleNamespace(**{"class": 1}), ""),
    "namespace of a dunder": (lambda: types.SimpleNamespace(**{"__class__": 1}), "attribute"),
    "period of 5,000 days": (lambda: pd.Period("2026", pd.offsets.Day(5000)), "period"),
    "offset of 2**40 months": (lambda: pd.offsets.MonthEnd(1 << 30), "offset"),
    "9,700 business days": (lambda: stepped(9700, "B"), ""),
    "9,800 business days": (lambda: stepped(9800, "B"), "freq"),
    "100 days, each the 60,000th": (lambda: stepped(100, pd.offsets.BusinessDay(60_000)), "freq"),
    "4,900 months": (lambda: stepped(4900, "MS"), ""),
    "30 hours of 120 openings": (lambda: stepped(30, hours(120)), ""),
    "40 hours of 120 openings": (lambda: stepped(40, hours(120)), "freq"),
    "2 hours of 720 openings": (lambda: stepped(2, hours(720)), "freq"),
    "600 fiscal quarters": (lambda: stepped(600, QUARTERS), ""),
    "650 fiscal quarters": (lambda: stepped(650, QUARTERS), "freq"),
    "3,000 days beside holidays": (lambda: stepped(3000, pd.offsets.CDay(holidays=FREE)), ""),
    "5,000 days beside holidays": (lambda: stepped(5000, pd.offsets.CDay(holidays=FREE)), "freq"),
    "a million hours": (lambda: stepped(1_000_000, "h"), ""),
    "interval of 2,000 bits": (lambda: pd.Interval(0, 1 << 2000), "interval"),
    "index of 2**40 numbers": (lambda: pd.RangeIndex(1 << 40), "index"),
    "index of 1,001 levels": (lambda: pd.MultiIndex.from_arrays([[1]] * 1001), "index"),
    "index of 1,000 levels": (lambda: pd.MultiIndex.from_arrays([[1]] * 1000), ""),
    "level of 2,000,000": (lambda: pd.MultiIndex([pd.RangeIndex(2 * 10**6)], [[0, 1]]), ""),
    "2,000,000 categories": (many_categories, ""),
    "index in order": (lambda: in_order([0, 0, 1], 1), ""),
    "index in no order": (lambda: in_order([0, 1, 0], 1), "index"),
    "index in the order of a level it lacks": (lambda: in_order([0, 0, 1], 3), "index"),
    "sparse column of 2 GiB": (lambda: sparse_column((1 << 27) + 1), "sparse"),
    "interval of half floats": (lambda: pd.IntervalDtype("f2"), ""),
    "type of Arrow, 15 lists deep": (lambda: deep_type(15), ""),
    "type of Arrow, 16 lists deep": (lambda: deep_type(16), "arrow-type"),
    "list of 2**25 for each": (lambda: pa.list_(pa.int8(), 1 << 25), "arrow-type"),
    "extension of a dictionary": (lambda: pa.opaque(CODED, "a", "b"), "arrow-type"),
    "extension of a union": (lambda: pa.opaque(UNITED.type, "a", "b"), "arrow-type"),
    "extension of an extension": (lambda: pa.opaque(pa.bool8(), "a", "b"), "arrow-type"),
    "extension of lists of codes": (lambda: pa.opaque(pa.list_(CODED), "a", "b"), ""),
    "structure of unions": (lambda: structure(None), ""),
    "structure of unions with a bitmap": (lambda: structure([False, False, False]), ""),
    "structure of unions with nulls": (lambda: structure([False, True, False]), "arrow"),
    "structure of unions past its nulls": (lambda: structure([True, True, False])[2:], ""),
    "structure of structures of unions": (lambda: structure([False, True, False], 2), "arrow"),
    "union in a union": (lambda: pa.dense_union([pa.field("a", pa.list_(UNION))]), "arrow-type"),
    "slice of a union in a union": (lambda: united_twice()[1:], "arrow-type"),
    "union in a sparse union": (lambda: pa.sparse_union([pa.field("a", UNION)]), ""),
    "union of nothing": (lambda: pa.dense_union([]), "arrow-type"),
    "sparse union of nothing": (lambda: pa.list_(pa.sparse_union([])), "arrow-type"),
    "dictionary of nulls": (coded_nulls, "arrow"),
    "scalar of a dictionary of nulls": (lambda: coded_nulls()[0], "arrow"),
    "null in a dictionary of nulls": (lambda: coded_nulls()[2], ""),
    "matrix that prints less than nothing": (lambda: narrow(sp.eye(2).tocsr()), "scipy"),
    "graph wider than its places": (lambda: sp.eye(1, 1 << 33, format="coo"), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBES)
def test_one_value_has_one_bound(name):
    make, bound = PROBES[name]
    value = make()
    pickled, typed = by_pickle(value), by_typed(value)
    if not bound:
        assert (pickled.rule, typed.rule) == ("", "")
        assert alike(pickled.value, value)
        assert alike(typed.value, value)
        return
    # The sender's error has its own rule; what it says is what the bound said.
    assert (pickled.rule, typed.rule) == (f"value.{bound}", "families.cannot-serialize")
    assert typed.message.endswith(pickled.message)


PRINTED = (np.ndarray, pd.DataFrame, pd.Categorical, np.dtype, dict, sp.spmatrix)


def alike(made, value):
    if type(made) is not type(value):
        return False
    if isinstance(value, pd.DatetimeIndex):
        return made.equals(value) and made.freq == value.freq
    if isinstance(value, pd.MultiIndex):
        return made.equals(value) and made.sortorder == value.sortorder
    if isinstance(
        value, np.ndarray | pd.DataFrame | pd.Categorical | np.dtype | dict | sp.spmatrix
    ):
        return repr(made) == repr(value)
    return made == value


@pytest.mark.parametrize(
    "make", [np.dtypes.StringDType, lambda: np.array(["a"], np.dtypes.StringDType())]
)
def test_text_of_any_length_is_refused(make):
    """Restricted pickle lists no function that makes the dtype; ``byteswap`` of it crashes."""
    assert by_pickle(make()).rule == "pickle.global"
    assert "StringDType is refused" in by_typed(make()).message


@draws(1500)
@given(strategies.values())
def test_what_one_accepts_the_other_accepts(value):
    verdicts = compared(value)
    if verdicts is None:
        return
    pickled, typed = verdicts
    if {pickled.rule, typed.rule} & {"pickle.max-memory", "families.max-memory"}:
        # The budget of a message: what is held twice is one in a pickle and two typed values, and a
        # call of a pickle visits what its arguments hold. The bounds of a value are compared here.
        return
    assert bool(pickled.rule) == bool(typed.rule), (pickled.rule, typed.message)
    # What the receiver refuses, the sender does not send.
    assert typed.rule == "" or not typed.sent, typed.rule
    if not typed.rule:
        same(typed.value, value)


@pytest.mark.parametrize("name", PICKLE)
def test_restricted_pickle_alone_carries(name):
    value = PICKLE[name].make()
    assert by_pickle(value).rule == ""
    assert by_typed(value).rule == "families.cannot-serialize"


@pytest.mark.parametrize("name", TYPED)
def test_typed_values_alone_carry(name):
    value = TYPED[name].make()
    assert by_pickle(value).rule.startswith("pickle.")
    assert by_typed(value).rule == ""
