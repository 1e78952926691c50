"""NumPy's scalars, dtypes, elements that are no bytes, and its own subclasses of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from families_attack import FAMILIES, GRANT, mutate_all, through
from hypothesis import given
from hypothesis.extra import numpy as hnp

from safeser import families
from safeser.errors import PayloadError
from tests.draws import draws
from tests.samples.uses import BROKEN, uses

NESTED = np.dtype(
    [("a", ">i4"), ("b", [("c", "U3"), ("d", "M8[s]", (2, 1))]), (("title", "e"), "?")], align=True
)
Text = np.dtypes.StringDType


SCALARS = [
    np.float32(1.5), np.float64("nan"), np.longlong(5), np.True_, np.complex64(1j), np.half(2),
    np.datetime64("2020-01-01"), np.datetime64("NaT"), np.timedelta64(5, "h"), np.void(b"abc"),
    np.str_("a\0"), np.bytes_(b"a\0"), np.str_(""), np.zeros(1, NESTED)[0], np.longdouble(1) / 3,
]  # fmt: skip


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: type(value).__name__)
def test_scalars(value):
    back = through(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    assert back.dtype == value.dtype


@given(hnp.arrays(hnp.scalar_dtypes() | hnp.nested_dtypes(), ()))
@draws(40)
def test_any_scalar(array):
    value = array[()]
    back = through(value)
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    assert repr(back) == repr(value)


def content(array):
    return array.tolist() if array.dtype.hasobject else array.tobytes()


def same_mask(a, b):
    """Assert that nobody can tell the masked arrays apart."""
    assert type(a) is type(b)
    assert a.dtype == b.dtype
    assert content(a.data) == content(b.data)
    assert a.data.strides == b.data.strides
    assert a.data.flags.writeable == b.data.flags.writeable
    assert (np.ma.getmask(a) is np.ma.nomask) == (np.ma.getmask(b) is np.ma.nomask)
    assert np.ma.getmaskarray(a).tobytes() == np.ma.getmaskarray(b).tobytes()
    assert (a.hardmask, a.sharedmask, a.baseclass) == (b.hardmask, b.sharedmask, b.baseclass)
    fill = a._fill_value, b._fill_value
    assert (fill[0] is None) == (fill[1] is None)
    if fill[0] is not None:
        assert fill[0].dtype == fill[1].dtype
        assert content(fill[0]) == content(fill[1])
    assert repr(a) == repr(b)


def asked(masked):
    """Return *masked* after somebody asked for its fill value, which sets it."""
    assert masked.fill_value is not None
    return masked


MASKED = {
    "fill value": np.ma.array([1, 2], mask=[0, 1], fill_value=7),
    "hard": np.ma.array([[1.0, 2], [3, 4]], hard_mask=True),
    "fields": np.ma.array([("a", 1)], dtype=[("x", "U2"), ("y", "i4")], mask=[(True, False)]),
    "sub-array": asked(np.ma.array([("a", [1, 2])], [("x", "U2"), ("y", "i4", 2)])),
    "zero-d": np.ma.array(5, mask=True),
    "no mask": np.ma.array([1, 2]),
    "mask of nothing": np.ma.array([1, 2], mask=False),
    "default fill value": np.ma.array([1, 2], mask=[0, 1]),
    "long fill value": asked(np.ma.array(["ab"], mask=[1])),
    "dates": asked(np.ma.array(np.array(["2020", "NaT"], "M8[s]"), mask=[0, 1])),
    "Fortran": np.ma.array(np.asfortranarray(np.arange(6.0).reshape(2, 3)), mask=np.eye(2, 3)),
    "broadcast": np.ma.array(np.broadcast_to(1.0, (2, 3)), mask=np.eye(2, 3)),
    "broadcast mask": np.ma.MaskedArray(np.ones((2, 3)), mask=np.broadcast_to(True, (2, 3))),
    "a view": np.ma.array([1, 2, 3], mask=[0, 1, 0])[1:],
    "empty": np.ma.zeros((0, 3)),
    "objects": np.ma.array([1, "a", None], dtype=object, mask=[0, 1, 0]),
    "objects and their fill value": asked(np.ma.array([[1, [2]]], dtype=object, mask=[[0, 1]])),
}


@pytest.mark.parametrize("name", MASKED)
def test_masked_arrays(name):
    same_mask(through(MASKED[name]), MASKED[name])


def test_a_fill_value_that_nobody_set_follows_the_dtype():
    # Sending asked for it, which set it on both sides: as floats it stayed 999999.
    masked = np.ma.array([1, 2], mask=[0, 1])
    back = through(masked)
    assert masked._fill_value is None
    assert back.astype(float).fill_value == 1e20


def test_masked_is_one_object():
    assert through([np.ma.masked])[0] is np.ma.masked


def with_info():
    masked = np.ma.array([1])
    masked._optinfo["unit"] = "m"
    return masked


def named(array):
    array.name = "mine"
    return array


def matrix(x):
    return np.asarray(x).view(np.matrix)


class Mine(np.ndarray):
    pass


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (np.ma.array(["a"], dtype=Text()), "byteswap"),
        (with_info(), "attributes"),
        (np.ma.array(matrix([[1]])), "a class of its own"),
        (named(matrix([[1]])), "attributes"),
        (named(np.zeros(1).view(np.recarray)), "attributes"),
        (np.zeros(1).view(Mine), "Mine"),
        (np.zeros(1).view(np.memmap), "stands for a file"),
        (np.ma.array([("a", 1)], dtype=[("x", "U2"), ("y", "i4")])[0], "mvoid"),
    ],
)
def test_what_would_be_altered_is_refused(value, word):
    with pytest.raises(PayloadError, match=word) as caught:
        families.serialize(value, FAMILIES)
    assert caught.value.rule == "families.cannot-serialize"


SEEN = {
    "matrix": matrix([[1, 2], [3, 4]]),
    "Fortran matrix": matrix([[1, 2], [3, 4]]).T,
    "matrix of objects": matrix(np.array([[1, "a"]], object)),
    "records": np.rec.array([(1, "a"), (2, "b")], dtype=[("n", "i4"), ("t", "U1")]),
    "a view of records": np.rec.array([(1,), (2,), (3,)], dtype=[("n", "i4")])[::2],
    "records of records": np.rec.array(
        [((1,),)], dtype=[("n", np.dtype((np.record, [("m", "i4")])))]
    ),
    "plain recarray": np.arange(3).view(np.recarray),
    "array of texts": np.array(["a", "bc"]).view(np.char.chararray),
    "array of records": np.zeros(2, np.dtype((np.record, [("n", "i4")]))),
    "aligned records": np.zeros(2, np.dtype((np.record, NESTED))).view(np.recarray),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
def test_subclasses_of_numpys_own(name):
    value = SEEN[name]
    back = through(value)
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    assert back.dtype.type is value.dtype.type
    assert back.dtype.isalignedstruct == value.dtype.isalignedstruct
    assert back.flags.writeable == value.flags.writeable
    assert back.flags.f_contiguous == (value.flags.f_contiguous or value.ndim < 2)
    assert repr(back) == repr(value)
    if value.dtype.names:
        assert type(back[0]) is type(value[0])
        back.copy()["n" if "n" in value.dtype.names else "a"].tolist()


def test_matrices_and_records_are_not_copied():
    for value in (matrix(np.ones((100, 10))), np.zeros(9, np.dtype((np.record, [("n", "i4")])))):
        header, frames = families.serialize(value, FAMILIES)
        received = bytearray(frames[0])
        back = families.deserialize(header, [received], GRANT)
        assert np.shares_memory(np.frombuffer(frames[0], np.uint8), value)
        assert np.shares_memory(np.frombuffer(received, np.uint8), back)


def test_a_file_is_never_opened(tmp_path):
    path = tmp_path / "array"
    path.write_bytes(bytes(80))
    mapped = np.memmap(path, mode="r")
    with pytest.raises(PayloadError, match=r"np\.asarray"):
        families.serialize(mapped, FAMILIES)
    assert through(np.asarray(mapped)).tolist() == [0] * 80
    for meta in ({}, {"filename": str(path), "mode": "r+", "offset": 0}):
        header = {"serializer": "dask", "type": "numpy:memmap", "sub-header": meta}
        with pytest.raises(PayloadError, match="file"):
            families.deserialize(header, [], GRANT)


TEXT = {"missing": [], "coerce": True}


@pytest.mark.parametrize("described", [TEXT, {**TEXT, "missing": [None]}])
@pytest.mark.parametrize("name", ["numpy:ndarray", "numpy:dtype", "numpy:generic"])
def test_text_of_any_length_is_refused(name, described):
    # byteswap() of any array of NumPy's StringDType ends the process.
    metas = {
        "numpy:ndarray": {"shape": [1], "order": "C", "writeable": True, "dtype": described},
        "numpy:dtype": {"dtype": described},
        "numpy:generic": {"dtype": described, "data": bytes(16)},
    }
    header = {"serializer": "dask", "type": name, "sub-header": metas[name]}
    with pytest.raises(PayloadError) as caught:
        families.check(header, [bytes(16)] if name == "numpy:ndarray" else [])
    assert caught.value.rule == "families.dtype"
    with pytest.raises(PayloadError, match="byteswap"):
        families.serialize({"x": np.array(["a"], Text())}, FAMILIES)


def forged(kind, child, **meta):
    inner, frames = families.serialize(child, FAMILIES)
    header = {"serializer": "dask", "type": kind, "sub-header": meta,
              "sub-headers": [inner], "frame-lengths": [len(frames)]}  # fmt: skip
    return header, frames


@pytest.mark.parametrize(
    "case",
    [
        forged("numpy:matrix", np.zeros(3)),
        forged("numpy:matrix", np.zeros((1, 1, 1))),
        forged("numpy:matrix", [1, 2]),
        forged("numpy:recarray", {"a": 1}),
        forged("numpy:recarray", np.float64(1)),
        forged("numpy:matrix", np.zeros((2, 2)), name="x"),
    ],
)
def test_subclasses_that_lie(case):
    with pytest.raises(PayloadError):
        families.deserialize(*case, GRANT)


@pytest.mark.parametrize(
    ("dtype", "unused"),
    [
        ("g", [range(10, 16)]),
        (">g", [range(6)]),
        ("G", [range(10, 16), range(26, 32)]),
        ([("a", "i4"), ("b", "g")], [range(14, 20)]),
        ([("a", [("b", ">G")], (1, 2))], [range(6), range(16, 22), range(32, 38), range(48, 54)]),
    ],
)
@pytest.mark.parametrize("part", [slice(None), slice(None, None, 2), 1], ids=str)
def test_what_long_doubles_do_not_use_of_their_bytes_is_not_sent(dtype, unused, part):
    # Six of sixteen: whoever made the numbers left there what was there before.
    if np.finfo(np.longdouble).nmant != 63:
        pytest.skip("this platform's long double uses all of its bytes")
    array = np.zeros(6, dtype)
    raw = array.view(np.uint8).reshape(6, -1)
    for place in unused:
        raw[:, place] = 0xAB
    header, frames = families.serialize(array[part], FAMILIES)
    sent = repr([header, *map(bytes, frames)])
    assert "xab" not in sent
    loaded = families.deserialize(header, frames, GRANT)
    assert repr(loaded.tolist()) == repr(array[part].tolist())
    assert (raw[:, unused[0]] == 0xAB).all()


@pytest.mark.parametrize("letter", "?bBhHiIlLqQefdgFDGMmSUV")
@pytest.mark.parametrize("order", "<>")
def test_a_marked_byte_order_is_sent_whether_or_not_it_is_native(letter, order):
    """Arrays of Zarr and HDF5 say ``<`` where NumPy's own say ``=``."""
    size = {"M": "8[s]", "m": "8[s]", "S": "3", "U": "3", "V": "3"}.get(letter, "")
    dtype = np.dtype(f"{letter}{size}").newbyteorder(order)
    for sent in (np.zeros(3, dtype), np.zeros(2, [("a", dtype)])):
        header, frames = families.serialize(sent, FAMILIES)
        assert header["serializer"] == "dask"
        loaded = families.deserialize(header, frames, GRANT)
        assert loaded.dtype == sent.dtype
        assert loaded.tobytes() == sent.tobytes()


def test_long_doubles_that_no_arithmetic_makes_are_refused():
    # 80 bits whose leading bit contradicts the exponent: C libraries crashed when printing them.
    if np.finfo(np.longdouble).nmant != 63:
        pytest.skip("this platform's long double has no such bits")
    for dtype in (
        np.dtype("g"),
        np.dtype("G"),
        np.dtype([("a", "g")]),
        np.dtype("g").newbyteorder(),
    ):
        wrong = np.zeros(1, dtype)
        wrong.view(np.uint8)[:] = 0x7F if dtype.isnative else 0
        if not dtype.isnative:
            wrong.view(np.uint8)[7] = 0x7F
        with pytest.raises(PayloadError, match="long double"):
            families.serialize(wrong, FAMILIES)
        header, _ = families.serialize(np.zeros(1, dtype), FAMILIES)
        with pytest.raises(PayloadError, match="long double"):
            families.check(header, [wrong.tobytes()])


def use(value):
    for act in uses(value):
        try:
            act()
        except BROKEN:
            raise
        except Exception:
            pass


@pytest.mark.parametrize(
    "value", [SEEN["records"], SEEN["matrix"], MASKED["fields"]],
    ids=["records", "matrix", "masked"],
)  # fmt: skip
def test_headers_that_lie(value):
    refused, accepted = mutate_all(value, use, every=3)
    assert refused > accepted
