"""pandas dtypes: back as they were, refused where an array says more, forged ones refused."""

import datetime as dt

import numpy as np
import pytest
from families_attack import FAMILIES, GRANT, mutate_all, through

from safeser import families
from safeser.errors import PayloadError

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

DTYPES = [
    *(pd.Int8Dtype(), pd.UInt64Dtype(), pd.Float32Dtype(), pd.BooleanDtype()),
    *(pd.StringDtype("python"), pd.StringDtype("pyarrow")),
    pd.Series(["a"], dtype="string").dtype,
    pd.CategoricalDtype(["b", "a"], ordered=True),
    pd.CategoricalDtype(pd.date_range("2026", periods=3)),
    pd.DatetimeTZDtype("ns", "UTC"),
    pd.DatetimeTZDtype("s", dt.timezone(dt.timedelta(hours=1))),
    pd.PeriodDtype("Q-NOV"),
    pd.IntervalDtype("int64", "left"),
    pd.IntervalDtype(pd.DatetimeTZDtype("ns", "UTC"), "both"),
    *(pd.SparseDtype("float64"), pd.SparseDtype("int64", 7)),
    *(pd.ArrowDtype(pa.int8()), pd.ArrowDtype(pa.list_(pa.timestamp("us", "UTC")))),
    *(pd.CategoricalDtype(), pd.CategoricalDtype(["a"], None), pd.IntervalDtype()),
    *(pd.IntervalDtype("float32"), pd.SparseDtype(object, "a")),
    pd.arrays.NumpyExtensionArray(np.arange(2)).dtype,
]


def same(one, other):
    assert type(one) is type(other)
    assert one == other
    assert repr(one) == repr(other)
    assert repr(getattr(one, "na_value", None)) == repr(getattr(other, "na_value", None))
    if isinstance(one, pd.CategoricalDtype) and other.categories is not None:
        pd.testing.assert_index_equal(one.categories, other.categories, exact=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_dtypes_come_back(dtype):
    same(through(dtype), dtype)


def test_the_dtypes_of_a_frame_come_back():
    frame = pd.DataFrame({"a": [1], "b": ["x"], "c": pd.Categorical(["y"])})
    back = through(frame.dtypes)
    pd.testing.assert_series_equal(back, frame.dtypes)
    for one, other in zip(back, frame.dtypes, strict=True):
        assert type(one) is type(other)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("ObjectDtype", []),
        (["Int64Dtype"], []),
        ("Int64Dtype", [1]),
        ("StringDtype", ["C", True]),
        ("StringDtype", ["python"]),
        ("CategoricalDtype", [[1, 2], False]),
        ("CategoricalDtype", [pd.Index([1, 1]), False]),
        ("CategoricalDtype", [pd.MultiIndex.from_arrays([[1], [2]]), False]),
        ("CategoricalDtype", [None, 1]),
        ("DatetimeTZDtype", ["ns", None]),
        ("DatetimeTZDtype", ["D", ("UTC",)]),
        ("DatetimeTZDtype", ["ns", ("../UTC",)]),
        ("DatetimeTZDtype", []),
        ("PeriodDtype", ["D"]),
        ("PeriodDtype", [pd.offsets.Day(1000)]),
        ("IntervalDtype", [np.dtype("O"), "left"]),
        ("IntervalDtype", [np.dtype("f8"), "up"]),
        ("SparseDtype", [np.dtype("U3"), "x"]),
        ("SparseDtype", [np.dtype("f8"), [1]]),
        ("ArrowDtype", [pa.run_end_encoded(pa.int32(), pa.int8())]),
        ("ArrowDtype", [1]),
        ("NumpyEADtype", [np.dtype("V8")]),
        ("NumpyEADtype", ["f8"]),
    ],
    ids=repr,
)
def test_a_dtype_of_other_parts_is_refused(kind, parts):
    made = [families.serialize(part, FAMILIES) for part in parts]
    forged = {"serializer": "dask", "type": "pandas:dtype", "sub-header": {"kind": kind}}
    forged["sub-headers"] = [header for header, _ in made]
    forged["frame-lengths"] = [len(frames) for _, frames in made]
    with pytest.raises(PayloadError):
        families.deserialize(forged, [frame for _, frames in made for frame in frames], GRANT)


@pytest.mark.parametrize("dtype", [DTYPES[0], DTYPES[7], DTYPES[11]], ids=repr)
def test_any_change_of_what_was_sent_gives_a_dtype_or_an_error(dtype):
    refused, accepted = mutate_all(dtype, repr)
    assert refused > accepted


def test_text_where_arrows_class_takes_no_dtype(monkeypatch):
    # As pandas 2 has it: one class for each way to miss a value.
    from safeser.families.pandas import internals

    monkeypatch.setattr(internals, "_TYPED_TEXT", False)
    monkeypatch.setattr(internals, "ARROW_TEXT", (pd.arrays.ArrowStringArray,) * 2)
    content = pa.chunked_array([["x", None]])
    made = internals.text_of(content, pd.StringDtype("pyarrow", na_value=pd.NA))
    assert made.dtype == pd.StringDtype("pyarrow", na_value=pd.NA)
    assert made.tolist() == ["x", pd.NA]
    with pytest.raises(ValueError, match=r"^$"):
        internals.text_of(content, pd.StringDtype("pyarrow", na_value=float("nan")))
