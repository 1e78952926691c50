"""What a pickle hands to many objects is charged as often as they are made of it: bytes are few."""

from __future__ import annotations

import decimal
import logging
import os
import pickle
import types

import numpy as np
import pytest

from safeser.errors import PayloadError
from safeser.pickles import DATA_PROFILES, Budget, dtype_record, exception_record, failures, loads
from safeser.pickles.reading.machine import read
from safeser.pickles.streams import WRAPPER, read_passage
from safeser.values import Limits
from tests.pickles.own_classes import allowed

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


def sharing(asm, *, arguments, call, count=500):
    """Calls that are all handed the same tuple of names."""
    body = asm.name("m:f") + b"\x94" + asm.tuple(*[b"h\x00"] * arguments) + b"\x94"
    return asm.pickle(b"(" + body + (b"h\x00h\x01" + call) * count + b"t")


def refused(data, rule):
    with pytest.raises(PayloadError) as caught:
        read(data, buffers=0, limits=Limits())
    assert caught.value.rule == f"pickle.{rule}"


@pytest.mark.parametrize("call", [b"R", b"\x81", b"}\x92"])
def test_calls_share_as_many_arguments_as_their_bytes_allow(asm, call):
    assert read(sharing(asm, arguments=20, call=call), buffers=0, limits=Limits()).calls == 500
    refused(sharing(asm, arguments=500, call=call), "arguments")


def test_and_as_many_keyword_arguments(asm):
    fields = asm.dict(*(part for name in NAMES for part in (asm.text(name), b"N")))
    body = asm.name("m:f") + b"\x94)\x94" + fields + b"\x94" + b"h\x00h\x01h\x02\x92" * 500
    refused(asm.pickle(b"(" + body + b"t"), "arguments")


def test_what_spells_an_instantiation_is_copied_as_often_as_its_bytes_allow(asm):
    new = asm.name("m:C.__new__")
    state = asm.tuple(b"h\x00", asm.tuple(asm.name("m:C"), *[b"N"] * 500), b"}", b"N")
    partial = asm.name("functools:partial") + new + b"\x94\x85R" + state + b"b\x94"
    refused(asm.pickle(b"(" + partial + b"h\x01)R" * 500 + b"t"), "arguments")


def joblib_file(asm, arrays):
    """A file of arrays without elements that are all of one record of many fields."""

    def dtype(code, size, names=b"N", fields=b"N", flags=b"K\x00"):
        made = asm.call("numpy:dtype", asm.text(code), b"\x89", b"\x88")
        rest = asm.text("|"), b"N", names, fields, asm.number(size), b"K\x01", flags
        return asm.build(made, asm.tuple(b"K\x03", *rest))

    inner = asm.tuple(dtype("V1", 1) + b"\x94", b"K\x00") + b"\x94"
    names = asm.tuple(*map(asm.text, NAMES))
    fields = asm.dict(*(part for name in NAMES for part in (asm.text(name), b"h\x01")))
    described = {
        "subclass": asm.name("numpy:ndarray"),
        "shape": asm.tuple(b"K\x00"),
        "order": asm.text("C"),
        "dtype": dtype(f"V{SIZE}", SIZE, names, fields),
        "allow_mmap": b"\x88",
    }
    state = asm.dict(*(part for name in described for part in (asm.text(name), described[name])))
    body = inner + state + b"\x94" + asm.name(WRAPPER) + b"\x94" + b"h\x03)\x81h\x02b" * arrays
    return asm.pickle(b"(" + body + b"t")


def test_arrays_of_a_file_share_a_dtype_as_far_as_its_bytes_allow(asm):
    few, hundreds = joblib_file(asm, 10), joblib_file(asm, 500)
    assert len(read_passage(few, 0, Budget(Limits()), arrays=True).arrays) == 10
    with pytest.raises(PayloadError) as caught:
        read_passage(hundreds, 0, Budget(Limits()), arrays=True)
    assert caught.value.rule == "pickle.joblib-array"


# -- records of errors and dtypes ------------------------------------------------------------------


def nested(asm, part):
    """A ValueError of a hundred times a hundred times a hundred times *part*."""
    body = part + b"\x940"
    for level in range(2):
        body += asm.tuple(*[b"h" + bytes([level])] * 99) + b"\x940"
    return asm.pickle(body + asm.call("builtins:ValueError", *[b"h\x02"] * 99))


def test_the_name_of_a_class_is_told_as_often_as_its_bytes_allow(asm):
    data = nested(asm, asm.name("m" * 200 + ":" + "f" * 200))
    assert len(exception_record(data).text) < 8 * len(data) + 2000


def test_a_class_is_looked_into_as_often_as_its_bytes_allow(asm, monkeypatch):
    looked, stock = [], failures._named
    monkeypatch.setattr(failures, "_named", lambda node: looked.append(node) or stock(node))
    fields = asm.dict(*(part for name in NAMES for part in (asm.text(name), b"N")))
    made = asm.call("cloudpickle.cloudpickle:_make_skeleton_class", b"N", b"N", b"N", fields)
    data = nested(asm, made + b")R")
    record = exception_record(data)
    assert not record.complete
    assert 2 * SIZE * len(looked) < 8 * len(data) + 2000


def test_a_class_that_is_looked_into_once_is_named(asm):
    fields = asm.dict(asm.text("__module__"), asm.text("lib"), asm.text("__qualname__"), b"N")
    made = asm.call(
        "cloudpickle.cloudpickle:_make_skeleton_class", b"N", asm.text("C"), b"N", fields
    )
    for by in (made, asm.name("lib:C")):
        data = asm.pickle(asm.call("builtins:ValueError", by + b")R", by))
        assert exception_record(data).args[0] == "<lib:C object>" or by is made
    plain = asm.dict(asm.text("__module__"), asm.text("lib"))
    made = asm.call(
        "cloudpickle.cloudpickle:_make_skeleton_class", b"N", asm.text("C"), b"N", plain
    )
    data = asm.pickle(asm.call("builtins:ValueError", made + b")R", b"]"))
    assert exception_record(data).args == ("<lib:C object>", "<list>")


@pytest.mark.parametrize(("bits", "told"), [(4, "<M8[16s]"), (40, None), (60_000, None)])
def test_a_unit_is_of_as_many_as_numpy_counts(asm, bits, told):
    made = asm.call("numpy:dtype", asm.text("M8"), b"\x89", b"\x88")
    unit = asm.tuple(b"N", asm.tuple(asm.raw(b"s"), asm.number(1 << bits), b"K\x01", b"K\x01"))
    rest = b"NNN" + asm.number(-1) * 2 + b"K\x00"
    data = asm.pickle(asm.build(made, asm.tuple(b"K\x04", asm.text("<"), rest, unit)))
    assert dtype_record(data) == told


# -- building --------------------------------------------------------------------------------------


def log_record():
    made = logging.LogRecord("a", 1, "b", 2, "m", None, None)
    vars(made).update(FIELDS)
    return made.__reduce_ex__(4)


ELEMENTS = {
    "log record": log_record(),
    "namespace": types.SimpleNamespace(**FIELDS).__reduce_ex__(4),
    "signals": (
        decimal.Context,
        (9, "ROUND_UP", -9, 9, 1, 0, [decimal.Inexact] * SIZE, [decimal.Inexact] * SIZE),
    ),
    "stat": (os.stat_result, ((0,) * 10, {f"st_{name}": 0 for name in NAMES})),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_that_objects_share(name):
    visits, *_ = spent(many(ELEMENTS[name]), "data")
    assert visits > COUNT * SIZE


def test_coefficients_that_polynomials_share():
    _, copies, _ = spent(many(np.poly1d(np.arange(1.0, SIZE)).__reduce_ex__(4)), ("data", "numpy"))
    assert copies < 2 * SIZE * 8  # it holds the very array
    series = np.polynomial.Polynomial([1.0]).__reduce_ex__(4)
    fields = {**series[2], "domain": np.array([0.0, 1.0]), "window": np.array([0.0, 1.0])}
    _, copies, objects = spent(many((*series[:2], fields)), ("data", "numpy"))
    assert copies == 0  # of what they are made they hold the very arrays
    assert objects > COUNT * 5 * 8


def test_text_labels_that_categories_share():
    pd = pytest.importorskip("pandas")
    visits, *_ = spent(
        many(pd.CategoricalDtype(NAMES).__reduce_ex__(4)), ("data", "numpy", "pandas")
    )
    assert visits > COUNT * SIZE


def test_rows_that_sparse_matrices_share():
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.lil_matrix((SIZE, 1)).__reduce_ex__(4)
    visits, *_ = spent(many(matrix, 10), ("data", "numpy", "scipy"))
    assert visits > 10 * SIZE * 10


def test_intervals_between_ranges_take_what_their_bounds_take_when_written_out():
    pd = pytest.importorskip("pandas")
    make = pd.interval_range(0, 1).__reduce__()[0]

    def between(length):
        bounds = pd.RangeIndex(length)
        state = {"left": bounds, "right": bounds, "closed": "left", "name": None}
        return pickle.dumps(Again((make, (pd.IntervalIndex, state))))

    profile = ("data", "numpy", "pandas")
    assert len(loads(between(10), profile=profile)) == 10
    with pytest.raises(PayloadError) as caught:
        loads(between(1 << 20), profile=profile)
    assert caught.value.rule == "pickle.max-bytes"


def test_levels_that_share_their_codes():
    """pandas compared all levels, then all but one and so on: 50 s for a pickle of 25 kB."""
    pd = pytest.importorskip("pandas")
    make, level = pd.MultiIndex.from_arrays([[1]]).__reduce__()[0], pd.Index([1, 2])

    def coded(rows, levels):
        codes = np.zeros(rows, "i1")
        codes[-2] = 1
        parts = {"levels": [level] * levels, "codes": [codes] * levels, "names": [None] * levels}
        return pickle.dumps(Again((make, (pd.MultiIndex, {**parts, "sortorder": 1}))), 5)

    for rows, levels, rule in ((20_000, 1000, "pickle.max-bytes"), (100, 1000, "value.index")):
        with pytest.raises(PayloadError) as caught:
            loads(coded(rows, levels), profile=("data", "numpy", "pandas"))
        assert caught.value.rule == rule


def test_indexes_that_share_their_values_are_each_compared_with_their_freq():
    pd = pytest.importorskip("pandas")
    index = pd.date_range("2000", periods=300, freq="MS")
    visits, *_ = spent(many(index.__reduce__(), 10), ("data", "numpy", "pandas"))
    assert visits > 10 * 300 * 64


def doubled(levels):
    value = []
    for _ in range(levels):
        value = [value, value]
    return value


def test_what_an_estimator_holds_twice_is_copied_once():
    linear = pytest.importorskip("sklearn.linear_model")
    model = linear.LinearRegression()
    model.feature_names_in_ = doubled(16)
    data = pickle.dumps(model)
    _, _, objects = spent(data, DATA_PROFILES)
    assert objects < 20_000
    assert loads(data, profile=DATA_PROFILES).feature_names_in_ == doubled(16)


@pytest.mark.usefixtures("own")
class TestOwnClasses:
    def test_fields(self, asm):
        fields = asm.dict(*(part for name in NAMES for part in (asm.text(name), b"N")))
        body = asm.name("safeser_own:Plain") + b"\x940" + fields + b"\x940("
        data = asm.pickle(body + b"h\x00)\x81h\x01b" * COUNT + b"t")
        visits, _, objects = spent(data, allowed(Plain="class"))
        assert visits > COUNT * SIZE
        assert objects > COUNT * SIZE * 8

    def test_arguments(self, asm):
        parts = asm.text("x" * SIZE) + b"\x940" + asm.list(*[b"N"] * SIZE) + b"\x940("
        body = asm.name("safeser_own:Plain") + b"\x940" + parts
        data = asm.pickle(body + b"h\x00h\x01h\x02\x86\x81" * COUNT + b"t")
        visits, copies, _ = spent(data, allowed(Plain="class"))
        assert visits > COUNT * SIZE
        # They are handed on, and not copied.
        assert copies < 2 * SIZE

    def test_copies_that_a_class_makes(self, asm):
        for name, value in (("Text", asm.text("x" * SIZE)), ("Words", asm.list(*[b"N"] * SIZE))):
            body = asm.name(f"safeser_own:{name}") + b"\x940" + value + b"\x94\x85\x940("
            data = asm.pickle(body + b"h\x00h\x02R" * COUNT + b"t")
            _, copies, objects = spent(data, allowed(**{name: "class"}))
            assert (copies if name == "Text" else objects) >= COUNT * SIZE
