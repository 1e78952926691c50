"""What a pickle hands to many objects is charged as often as they are made of it: bytes are few.

One value in the memo and many calls of nine bytes over it took gigabytes of memory while only
arguments were charged.
"""

from __future__ import annotations

import decimal
import logging
import os
import pickle
import pickletools
import re
import types
import zoneinfo

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import linear_model

from safeser.gate.values import Limits
from safeser.pickles import DATA_PROFILES, Budget, exception_record, failures, loads
from safeser.pickles.reading.machine import read
from safeser.pickles.streams import WRAPPER, read_passage
from tests.pickles.forging import refused
from tests.pickles.own_classes import allowed
from tests.samples import opcodes as op
from tests.samples.repeated import templates

COUNT, SIZE = 100, 300
NAMES = [f"a{n}" for n in range(SIZE)]
FIELDS = dict.fromkeys(NAMES)


class Again:
    """Is written as *reduced* says, whose parts are the same objects each time."""

    def __init__(self, reduced):
        self.reduced = reduced

    @property
    def __class__(self):
        named = getattr(self.reduced[0], "__name__", "") == "__newobj__"
        return self.reduced[1][0] if named else Again

    def __reduce_ex__(self, protocol):
        return self.reduced


def many(reduced, count=COUNT):
    return pickle.dumps([Again(reduced) for _ in range(count)], 4)


def spent(data, profile):
    """Return the elements, and the bytes of data and of objects, that a load is charged."""
    given, budget = Budget(Limits()), Budget(Limits())
    for each in (given, budget):
        each.copies = each.objects = 1 << 27
    given.bring(len(data))
    loads(data, profile=profile, budget=budget, limits=Limits())
    return tuple(
        getattr(given, name) - getattr(budget, name) for name in ("visits", "copies", "objects")
    )


# -- reading ---------------------------------------------------------------------------------------


def sharing(*, arguments, call, count=500):
    """Calls that are all handed the same tuple of names."""
    body = op.name("m:f") + b"\x94" + op.value((b"h\x00",) * arguments) + b"\x94"
    return op.pickled(b"(" + body + (b"h\x00h\x01" + call) * count + b"t")


def spelling():
    """Return calls of what spells one instantiation with many arguments."""
    state = op.value((b"h\x00", (op.name("m:C"), *[None] * 500), {}, None))
    made = op.name("functools:partial") + op.name("m:C.__new__") + b"\x94\x85R" + state + b"b\x94"
    return op.pickled(b"(" + made + b"h\x01)R" * 500 + b"t")


KEYWORDS = op.name("m:f") + b"\x94)\x94" + op.value(FIELDS) + b"\x94" + b"h\x00h\x01h\x02\x92" * 500


@pytest.mark.parametrize("data", [
    *(sharing(arguments=500, call=call) for call in (b"R", b"\x81", b"}\x92")),
    op.pickled(b"(" + KEYWORDS + b"t"), spelling(),
])  # fmt: skip
def test_calls_share_as_many_arguments_as_their_bytes_allow(data):
    refused("pickle.arguments", read, data, buffers=0, limits=Limits())


@pytest.mark.parametrize("call", [b"R", b"\x81", b"}\x92"])
def test_and_no_fewer(call):
    assert read(sharing(arguments=20, call=call), buffers=0, limits=Limits()).calls == 500


def joblib_file(arrays):
    """A file of arrays without elements that are all of one record of many fields."""

    def dtype(code, size, names=b"N", fields=b"N", flags=b"K\x00"):
        made = op.call("numpy:dtype", code, False, True)
        rest = op.value("|"), b"N", names, fields, op.value(size), b"K\x01", flags
        return op.build(made, (3, *rest))

    inner = op.value((dtype("V1", 1) + b"\x94", 0)) + b"\x94"
    names = op.value(tuple(NAMES))
    fields = op.value(dict.fromkeys(NAMES, b"h\x01"))
    described = {
        "subclass": op.name("numpy:ndarray"),
        "shape": op.value((0,)),
        "order": op.value("C"),
        "dtype": dtype(f"V{SIZE}", SIZE, names, fields),
        "allow_mmap": b"\x88",
    }
    state = op.value(described)
    body = inner + state + b"\x94" + op.name(WRAPPER) + b"\x94" + b"h\x03)\x81h\x02b" * arrays
    return op.pickled(b"(" + body + b"t")


def test_arrays_of_a_file_share_a_dtype_as_far_as_its_bytes_allow():
    few, hundreds = joblib_file(10), joblib_file(500)
    assert len(read_passage(few, 0, Budget(Limits()), arrays=True).arrays) == 10
    refused("pickle.joblib-array", read_passage, hundreds, 0, Budget(Limits()), arrays=True)


# -- records of errors and dtypes ------------------------------------------------------------------


def nested(part):
    """A ValueError of a hundred times a hundred times a hundred times *part*."""
    body = part + b"\x940"
    for level in range(2):
        body += op.value((*[b"h" + bytes([level])] * 99,)) + b"\x940"
    return op.pickled(body + op.call("builtins:ValueError", *[b"h\x02"] * 99))


def test_the_name_of_a_class_is_told_as_often_as_its_bytes_allow():
    data = nested(op.name("m" * 200 + ":" + "f" * 200))
    assert len(exception_record(data).text) < 8 * len(data) + 2000


def test_a_class_is_looked_into_as_often_as_its_bytes_allow(monkeypatch):
    looked, stock = [], failures._named
    monkeypatch.setattr(failures, "_named", lambda node: looked.append(node) or stock(node))
    fields = op.value(FIELDS)
    made = op.call("cloudpickle.cloudpickle:_make_skeleton_class", None, None, None, fields)
    data = nested(made + b")R")
    record = exception_record(data)
    assert not record.complete
    assert 2 * SIZE * len(looked) < 8 * len(data) + 2000


# -- building --------------------------------------------------------------------------------------


def log_record():
    made = logging.LogRecord("a", 1, "b", 2, "m", None, None)
    vars(made).update(FIELDS)
    return made.__reduce_ex__(4)


DATES = pd.date_range("2000", periods=300, freq="MS")
#: What is written many times, how often, and at least how many elements each of them visits.
ELEMENTS = {
    "log record": (log_record(), COUNT, SIZE),
    "namespace": (types.SimpleNamespace(**FIELDS).__reduce_ex__(4), COUNT, SIZE),
    "signals": ((decimal.Context, (9, "ROUND_UP", -9, 9, 1, 0, [decimal.Inexact] * SIZE,
        [decimal.Inexact] * SIZE)), COUNT, SIZE),
    "stat": ((os.stat_result, ((0,) * 10, {f"st_{name}": 0 for name in NAMES})), COUNT, SIZE),
    "text labels of categories": (pd.CategoricalDtype(NAMES).__reduce_ex__(4), COUNT, SIZE),
    "rows of matrices": (sparse.lil_matrix((SIZE, 1)).__reduce_ex__(4), 10, SIZE * 10),
    "values compared with a freq": (DATES.__reduce__(), 10, 300 * 64),
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_that_objects_share(name):
    reduced, count, least = ELEMENTS[name]
    visits, *_ = spent(many(reduced, count), DATA_PROFILES)
    assert visits > count * least


def test_coefficients_that_polynomials_share():
    _, copies, _ = spent(many(np.poly1d(np.arange(1.0, SIZE)).__reduce_ex__(4)), ("data", "numpy"))
    assert copies < 2 * SIZE * 8  # it holds the very array
    series = np.polynomial.Polynomial([1.0]).__reduce_ex__(4)
    fields = {**series[2], "domain": np.array([0.0, 1.0]), "window": np.array([0.0, 1.0])}
    _, copies, objects = spent(many((*series[:2], fields)), ("data", "numpy"))
    assert copies == 0  # of what they are made they hold the very arrays
    assert objects > COUNT * 5 * 8


def test_intervals_between_ranges_take_what_their_bounds_take_when_written_out():
    make = pd.interval_range(0, 1).__reduce__()[0]

    def between(length):
        bounds = pd.RangeIndex(length)
        state = {"left": bounds, "right": bounds, "closed": "left", "name": None}
        return pickle.dumps(Again((make, (pd.IntervalIndex, state))))

    assert len(loads(between(10), profile=DATA_PROFILES)) == 10
    refused("pickle.max-bytes", loads, between(1 << 20), profile=DATA_PROFILES)


def test_levels_that_share_their_codes():
    """pandas compared all levels, then all but one and so on: 50 s for a pickle of 25 kB."""
    make, level = pd.MultiIndex.from_arrays([[1]]).__reduce__()[0], pd.Index([1, 2])

    def coded(rows, levels):
        codes = np.zeros(rows, "i1")
        codes[-2] = 1
        parts = {"levels": [level] * levels, "codes": [codes] * levels, "names": [None] * levels}
        return pickle.dumps(Again((make, (pd.MultiIndex, {**parts, "sortorder": 1}))), 5)

    for rows, levels, rule in ((20_000, 1000, "pickle.max-bytes"), (100, 1000, "value.index")):
        refused(rule, loads, coded(rows, levels), profile=DATA_PROFILES)


def doubled(levels):
    value = []
    for _ in range(levels):
        value = [value, value]
    return value


def test_what_an_estimator_holds_twice_is_copied_once():
    model = linear_model.LinearRegression()
    model.feature_names_in_ = doubled(16)
    data = pickle.dumps(model)
    _, _, objects = spent(data, DATA_PROFILES)
    assert objects < 20_000
    assert loads(data, profile=DATA_PROFILES).feature_names_in_ == doubled(16)


@pytest.mark.usefixtures("own")
class TestOwnClasses:
    def test_fields(self):
        fields = op.value(FIELDS)
        body = op.name("safeser_own:Plain") + b"\x940" + fields + b"\x940("
        data = op.pickled(body + b"h\x00)\x81h\x01b" * COUNT + b"t")
        visits, _, objects = spent(data, allowed(Plain="class"))
        assert visits > COUNT * SIZE
        assert objects > COUNT * SIZE * 8

    def test_arguments(self):
        parts = op.value("x" * SIZE) + b"\x940" + op.value([None] * SIZE) + b"\x940("
        body = op.name("safeser_own:Plain") + b"\x940" + parts
        data = op.pickled(body + b"h\x00h\x01h\x02\x86\x81" * COUNT + b"t")
        visits, copies, _ = spent(data, allowed(Plain="class"))
        assert visits > COUNT * SIZE
        # They are handed on, and not copied.
        assert copies < 2 * SIZE

    def test_copies_that_a_class_makes(self):
        for name, value in (("Text", op.value("x" * SIZE)), ("Words", op.value([None] * SIZE))):
            body = op.name(f"safeser_own:{name}") + b"\x940" + value + b"\x94\x85\x940("
            data = op.pickled(body + b"h\x00h\x02R" * COUNT + b"t")
            _, copies, objects = spent(data, allowed(**{name: "class"}))
            assert (copies if name == "Text" else objects) >= COUNT * SIZE


#: Bytes of the pickles; half of one is the value.
FULL = 300_000
HELD = FULL // 16


_INDEX = "pandas.core.indexes.base:_new_Index"
_BACKED = "pandas._libs.arrays:__pyx_unpickle_NDArrayBacked"


def numbers(kind):
    return (np.arange(HELD) ** 2).astype(kind)


def wide():
    return pd.DataFrame(np.zeros((1, 25_000), "i1"), columns=pd.RangeIndex(25_000))


AMPLIFIED = {
    "PeriodIndex": (_INDEX, lambda: pd.PeriodIndex.from_ordinals(numbers(int), freq="h")),
    "DataFrame": ("pandas:DataFrame", wide),
    "Index of int": (_INDEX, lambda: pd.Index(numbers(int))),
    "Index of float": (_INDEX, lambda: pd.Index(numbers(float))),
    "Index of Int64": (_INDEX, lambda: pd.Index(pd.array(numbers(int), dtype="Int64"))),
    "DatetimeIndex": ("pandas.core.indexes.datetimes:_new_DatetimeIndex",
        lambda: pd.DatetimeIndex(numbers("M8[s]"))),
    "TimedeltaIndex": ("pandas.core.indexes.timedeltas:_new_TimedeltaIndex",
        lambda: pd.TimedeltaIndex(numbers("m8[s]"))),
    "DatetimeArray of a zone": (_BACKED,
        lambda: pd.DatetimeIndex(numbers("M8[s]")).tz_localize("UTC").array),
}  # fmt: skip


def attack(name, value):
    """Return a pickle of two calls of *name* as in *value*, and one of as many as fit."""
    found = {each.name: each for each in templates(pickle.dumps(value, 5), "")}
    return found[name].repeated(2), found[name].filling(FULL)


@pytest.mark.unmeasured
@pytest.mark.parametrize("case", AMPLIFIED)
def test_attack_copies_of_one_value_are_charged(case):
    name, make = AMPLIFIED[case]
    twice, many = attack(name, make())
    assert len(loads(twice, profile=DATA_PROFILES)) == 2
    refused("pickle.max-bytes", loads, many, profile=DATA_PROFILES)


def keyed(value, refs=490, dicts=400):
    """Return a pickle of many dicts whose one key is a tuple that names *value* again and again."""
    data = pickle.dumps(value, 4)
    memo = sum(code.name == "MEMOIZE" for code, _, _ in pickletools.genops(data))
    get, get_key = (b"j" + index.to_bytes(4, "little") for index in (memo, memo + 1))
    padding = b"B" + FULL.to_bytes(4, "little") + bytes(FULL) + b"0"  # brings more to spend
    named = data[:-1] + b"\x940" + padding + b"(" + get * refs + b"t\x940"
    return named + b"](" + (b"}" + get_key + b"K\x01s") * dicts + b"e."


LONDON = "Europe/London"
AUTUMN = pd.Timestamp("2021-10-31 01:30", tz="UTC").tz_convert(LONDON)
SLOW_KEYS = {
    "a second of two": AUTUMN.replace(fold=1),
    "an interval": pd.Interval(AUTUMN, AUTUMN + pd.Timedelta(1, "h")),
    "a pattern": re.compile("a" * 1000),
}


@pytest.mark.unmeasured
@pytest.mark.parametrize("case", SLOW_KEYS)
def test_attack_keys_that_are_slow_to_hash_are_charged(case):
    value = SLOW_KEYS[case]
    [found] = loads(keyed(value, refs=2, dicts=1), profile=DATA_PROFILES)
    assert found == {(value, value): 1}
    refused(
        "pickle.max-memory",
        loads,
        keyed(value),
        profile=DATA_PROFILES,
        limits=Limits(max_sharing=1000),
    )


@pytest.mark.unmeasured
def test_attack_zones_that_are_not_cached_are_charged():
    zone = zoneinfo.ZoneInfo.no_cache("America/New_York")
    assert loads(pickle.dumps(zone), profile=DATA_PROFILES).key == zone.key
    _, many = attack("zoneinfo:ZoneInfo._unpickle", zone)
    refused("pickle.max-memory", loads, many, profile=DATA_PROFILES)
