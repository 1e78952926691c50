"""NumPy: exact round trips without copies, and headers that would crash a naive decoder."""

import contextlib
import copy

import numpy as np
import pytest
from families_attack import FAMILIES, GRANT, LIMITS, hostile, mutate_all, survives, through
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from safeser import families
from safeser.errors import PayloadError
from safeser.families.numpy import dtypes
from safeser.types import numpy as bounds
from safeser.values import Limits
from tests.draws import draws

NESTED = np.dtype(
    [("a", ">i4"), ("b", [("c", "U3"), ("d", "M8[s]", (2, 1))]), (("title", "e"), "?")], align=True
)


def identical(a, b):
    assert type(a) is type(b)
    assert a.dtype == b.dtype
    assert a.dtype.char == b.dtype.char
    assert a.dtype.isalignedstruct == b.dtype.isalignedstruct
    assert a.shape == b.shape
    assert a.flags.writeable == b.flags.writeable
    for name in a.dtype.names or ():  # what lies between fields means nothing
        assert np.ascontiguousarray(a[name]).tobytes() == np.ascontiguousarray(b[name]).tobytes()
    if a.dtype.char in "gG":  # nor does what they don't use of their bytes
        assert a.tolist() == b.tolist()
    elif a.dtype.names is None:
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def frozen_array(array):
    array.flags.writeable = False
    return array


ARRAYS = {
    "ints": np.arange(6).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "transposed": np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
    "strided": np.arange(10)[::-3],
    "big-endian": np.arange(3, dtype=">f8"),
    "long long": np.arange(3, dtype="q"),
    "long double": np.ones(2, "g"),
    "half": np.ones(2, "e"),
    "complex": np.ones(2, "F"),
    "flags": np.array([True, False]),
    "zero-d": np.array(5),
    "empty": np.zeros((0, 3)),
    "text": np.array(["a", "\U0001f600\0b", ""]),
    "swapped text": np.array(["a", "b"]).astype(">U2"),
    "bytes": np.array([b"a", b"bc"]),
    "raw": np.zeros(2, "V3"),
    "dates": np.array(["2020", "NaT"], "M8[25us]"),
    "durations": np.array([1, 2], ">m8"),
    "nested": np.zeros(3, NESTED),
    "gaps": np.zeros(2, {"names": ["b", "a"], "formats": ["i2", "i4"], "offsets": [8, 0],
                         "itemsize": 16}),
    "no fields": np.zeros(2, []),
    "no width": np.zeros(3, "V0"),
    "broadcast": np.broadcast_to(np.arange(3.0), (4, 3)),
    "one": np.broadcast_to(1.0, (5, 6)),
    "repeated, writeable": np.lib.stride_tricks.as_strided(np.arange(3), (2, 3), (0, 8)),
    "fixed": frozen_array(np.arange(3)),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("received", [True, False], ids=["bytes", "bytearray"])
def test_round_trip(name, received):
    identical(through(ARRAYS[name], frozen=received), ARRAYS[name])


@given(
    hnp.arrays(
        hnp.array_dtypes(allow_subarrays=True)
        | hnp.nested_dtypes()
        | hnp.scalar_dtypes()
        | hnp.unicode_string_dtypes(),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
    )
)
@draws(50)
def test_round_trip_of_any(array):
    identical(through(array), array)


@given(hnp.arrays(np.int16, (4, 5)), hnp.basic_indices((4, 5), allow_newaxis=True))
@draws(50)
def test_any_view(array, index):
    view = array[index]
    back = through(view)
    if isinstance(view, np.ndarray):
        identical(back, view)


@given(hnp.array_dtypes(allow_subarrays=True) | hnp.nested_dtypes() | hnp.scalar_dtypes())
@draws(50)
def test_any_dtype(dtype):
    back = through(dtype)
    assert back == dtype
    assert back.char == dtype.char


def test_large_buffers_are_not_copied():
    for array in (np.arange(1e6), np.arange(1e6).reshape(10, -1).T):
        header, frames = families.serialize([array], FAMILIES)
        assert np.shares_memory(np.frombuffer(frames[0]), array)
        received = bytearray(frames[0])
        (back,) = families.deserialize(header, [received], GRANT)
        assert np.shares_memory(back, np.frombuffer(received))
        (back,) = families.deserialize(header, [bytes(received)], GRANT)
        assert back.flags.writeable
    array = frozen_array(np.arange(1e6))
    header, frames = families.serialize(array, FAMILIES)
    received = bytes(frames[0])
    back = families.deserialize(header, [received], GRANT)
    assert np.shares_memory(back, np.frombuffer(received))
    header, frames = families.serialize(np.broadcast_to(1.0, (1000, 1000)), FAMILIES)
    assert len(frames[0]) == 8


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 0, 1), (0, 2, 1), (2, 1, 0)])
def test_axes_in_any_order_are_not_copied(axes):
    array = np.arange(24.0).reshape(2, 3, 4)
    for sent in (array.transpose(axes), frozen_array(array.copy()).transpose(axes)):
        header, frames = families.serialize(sent, FAMILIES)
        assert np.shares_memory(np.frombuffer(frames[0]), sent)
        received = bytearray(frames[0])
        back = families.deserialize(header, [received], GRANT)
        assert np.shares_memory(back, np.frombuffer(received))
        identical(back, sent)
        assert back.strides == sent.strides


def test_repeated_axes_keep_their_strides():
    for sent in (
        np.broadcast_to(np.arange(3.0), (4, 3)),
        np.broadcast_to(np.arange(3.0)[:, None, None], (3, 2, 2)),
        np.broadcast_to(np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1), (5, 4, 2, 3)),
        np.broadcast_to(1.0, ()),
    ):
        header, frames = families.serialize(sent, FAMILIES)
        assert sum(map(len, frames)) < max(sent.nbytes, 9)
        back = families.deserialize(header, frames, GRANT)
        identical(back, sent)
        assert back.strides == sent.strides


def test_what_a_small_memory_repeats_is_bounded():
    endless = np.lib.stride_tricks.as_strided(np.ones(2), (1 << 40, 1 << 10), (0, 8))
    with pytest.raises(PayloadError, match="max_array"):
        families.serialize(endless, FAMILIES)


def test_frames_need_no_alignment():
    header, frames = families.serialize(np.arange(3.0), FAMILIES)
    received = memoryview(b"x" + bytes(frames[0]))[1:]
    assert families.deserialize(header, [received], GRANT).tolist() == [0, 1, 2]


def test_objects_go_one_by_one():
    array = np.empty((2, 2), object)
    array[0, 0], array[0, 1], array[1, 0] = [1, 2], np.arange(3), (2j, None)
    array[1, 1] = np.array(5)
    for sent in (array, array.T, array[:, 1], array[:0], frozen_array(array.copy())):
        back = through(sent)
        assert back.shape == sent.shape
        assert back.flags.writeable == sent.flags.writeable
        assert repr(back) == repr(sent)
    with pytest.raises(PayloadError, match=r"\[3\].*object|object.*\[3\]"):
        families.serialize(np.array([1, 2, 3, object()], object), FAMILIES)


class Float(np.float64):
    pass


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (np.zeros(1, [("a", int), ("b", object)]), "'b'"),
        (np.zeros(1, {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}), "overlap"),
        (np.zeros(1, np.dtype("f8", metadata={"a": object()})), "metadata"),
        (np.array(["a"], np.dtypes.StringDType()), "byteswap"),
        (np.dtypes.StringDType(na_object=None), "byteswap"),
        (np.zeros(1, np.dtype((np.int32, [("a", "i2"), ("b", "i2")]))), "scalar type"),
        (np.add, "numpy:ufunc"),
        (np.float64, "code"),
        (np.dtypes.Float64DType, "code"),
        (np.sum, "code"),
        (np.dtype([((5, "a"), int)]), "title"),
        (np.zeros(1, [("a", int)])[0].astype(object) and Float(1), "subclass"),
        (type("Text", (np.str_,), {})("x"), "subclass"),
    ],
)
def test_what_would_be_altered_is_refused(value, word):
    with pytest.raises(PayloadError, match=word) as caught:
        families.serialize(value, FAMILIES)
    assert caught.value.rule == "families.cannot-serialize"


def test_flags_that_were_never_set_are_flags():
    # Counting a flag of 2 wrote past the buffer; memory that was never set holds such.
    junk = np.array([0, 1, 2, 255], np.uint8)
    assert through(junk.view(bool)).view(np.uint8).tolist() == [0, 1, 1, 1]
    record = np.zeros(2, [("a", "i2"), ("b", "?"), ("c", [("d", "?", 2)])])
    record["b"].view(np.uint8)[:] = 7
    record["c"]["d"].view(np.uint8)[0] = 9
    for frozen in (True, False):
        back = through(record, frozen=frozen)
        assert back["b"].view(np.uint8).tolist() == [1, 1]
        assert back["c"]["d"].view(np.uint8).tolist() == [[1, 1], [0, 0]]
        assert back.flags.writeable
    assert np.count_nonzero(through(frozen_array(junk.view(bool)))) == 3


def use(value):
    repr(value)
    copy.deepcopy(value)
    if isinstance(value, np.ndarray) and value.size < 10_000:
        value.tolist()
        with np.errstate(all="ignore"):
            for act in (np.sort, lambda x: x + x, lambda x: x == x, np.count_nonzero):
                with contextlib.suppress(TypeError, ValueError):
                    act(value)
        if value.dtype == bool:
            value[value]


LIED_ABOUT = {
    **{name: ARRAYS[name] for name in ("ints", "flags", "text", "nested", "gaps", "one", "dates")},
    "objects": np.array([1, [2], None], object),
    "masked": np.ma.array([1, 2], mask=[0, 1]),
    "scalar": np.float32(1),
    "record": np.zeros(1, NESTED)[0],
    "string": np.str_("a"),
    "dtype": NESTED,
    "list": [np.arange(3), {"a": np.ones(2)}],
}


@pytest.mark.parametrize("name", LIED_ABOUT)
def test_headers_that_lie(name):
    refused, accepted = mutate_all(LIED_ABOUT[name], use)
    assert refused > accepted


@given(st.data())
@draws(100)
def test_dtypes_that_lie(data):
    description = data.draw(
        st.recursive(
            hostile | st.sampled_from(["<l8", ["U", 8, "<"], "|?1"]),
            lambda inner: (
                st.fixed_dictionaries({"base": inner, "shape": hostile})
                | st.fixed_dictionaries(
                    {
                        "fields": st.lists(
                            st.tuples(st.text(max_size=2), inner, st.integers(-1, 40)).map(list),
                            max_size=4,
                        ),
                        "size": st.integers(-1, 64),
                        "align": st.booleans(),
                    }
                )
            ),
            max_leaves=5,
        )
    )
    size = data.draw(st.integers(0, 64))
    header = {
        "serializer": "dask",
        "type": "numpy:ndarray",
        "sub-header": {"shape": [1], "order": "C", "writeable": True, "dtype": description},
    }
    survives(header, [data.draw(st.binary(min_size=size, max_size=size))], use)
    with contextlib.suppress(PayloadError):
        built = dtypes.build(description)
        assert not built.hasobject
        repr(built)


def lying(**changes):
    meta = {"shape": [2], "order": "C", "writeable": True, "dtype": "<l8", **changes}
    return {"serializer": "dask", "type": "numpy:ndarray", "sub-header": meta}


def record(*fields, size=8):
    return {"fields": list(fields), "size": size, "align": False}


LONG = "<l8"


@pytest.mark.parametrize(
    ("header", "frame", "rule"),
    [
        (lying(dtype=["O", 8, "|"]), bytes(16), "families.dtype"),
        (lying(dtype="|O"), bytes(16), "families.dtype"),
        (lying(dtype=record(["a", ["O", 8, "|"], 0])), bytes(16), "families.dtype"),
        (lying(dtype=record(["a", {"base": ["O", 8, "|"], "shape": [1]}, 0])), bytes(16),
         "families.dtype"),
        (lying(dtype=record(["a", LONG, 0], ["b", LONG, 4], size=16)), bytes(32), "value.dtype"),
        (lying(dtype=record(["a", LONG, 0], ["a", LONG, 8], size=16)), bytes(32), "value.dtype"),
        (lying(dtype=record(["a", LONG, -8])), bytes(16), "value.dtype"),
        (lying(dtype=record(["a", LONG, 1])), bytes(16), "value.dtype"),
        (lying(dtype=record(["a", LONG, 0, 5])), bytes(16), "families.dtype"),
        (lying(dtype=record(["a", LONG])), bytes(16), "families.dtype"),
        (lying(dtype={"fields": 5, "size": 8, "align": False}), bytes(16), "families.dtype"),
        (lying(dtype={"fields": [["a", "<i4", 2]], "size": 8, "align": True}), bytes(16),
         "value.dtype"),
        (lying(dtype=record(*[[str(n), "|b1", n] for n in range(10001)], size=10001)),
         bytes(20002), "families.dtype"),
        (lying(dtype={"base": LONG, "shape": [1]}), bytes(16), "value.dtype"),
        (lying(dtype={"base": LONG, "shape": []}), bytes(16), "value.dtype"),
        (lying(dtype=record(["a", {"base": LONG, "shape": [1 << 31]}, 0])), b"", "value.dtype"),
        (lying(dtype=record(["a", {"base": ["V", 0, "|"], "shape": [1 << 40, 0]}, 0])), b"",
         "value.dtype"),
        (lying(dtype=["l", 3, "<"]), bytes(6), "families.dtype"),
        (lying(dtype=["M", 8, "<", "parsec", 1]), bytes(16), "families.dtype"),
        (lying(dtype=["M", 8, "<", "s", 0]), bytes(16), "families.dtype"),
        (lying(dtype=["M", 4, "<", "s", 1]), bytes(8), "families.dtype"),
        (lying(dtype=["l", 8, "<", "s", 1]), bytes(16), "families.dtype"),
        (lying(dtype=["U", 3, "<"]), bytes(6), "families.dtype"),
        (lying(dtype=["V", -1, "|"]), bytes(16), "families.dtype"),
        (lying(dtype=[8, 8, "|"]), bytes(16), "families.dtype"),
        (lying(dtype=["G", 24, "<"]), bytes(48), "families.dtype"),
        (lying(), bytes(15), "families.shape"),
        (lying(), bytes(17), "families.shape"),
        (lying(shape=[-1, -2]), bytes(16), "value.shape"),
        (lying(shape=[True, 2]), bytes(16), "value.shape"),
        (lying(shape=[0, 1 << 61]), b"", "value.array-size"),
        (lying(shape=[1 << 40], dtype=["V", 0, "|"]), b"", "value.array-size"),
        (lying(shape=[1] * 65), bytes(8), "value.shape"),
        (lying(shape=[1 << 40], base=[1], writeable=False), bytes(8), "value.array-size"),
        (lying(shape=[3], base=[2], writeable=False), bytes(16), "families.shape"),
        (lying(shape=[3, 2], base=[2], writeable=False), bytes(16), "families.shape"),
        (lying(shape=[3], base=[1]), bytes(8), "families.shape"),
        (lying(base=None, writeable=False), bytes(16), "value.shape"),
        (lying(order="A"), bytes(16), "families.header"),
        (lying(order=["C"]), bytes(16), "families.header"),
        (lying(order=[True]), bytes(16), "families.header"),
        (lying(order=[0, 0], shape=[2, 1]), bytes(16), "families.header"),
        (lying(order=[0, 1, 2], shape=[2, 1]), bytes(16), "families.header"),
        (lying(order=[2, 0], shape=[2, 1]), bytes(16), "families.header"),
        (lying(writeable=1), bytes(16), "families.header"),
        (lying(dtype=["l", 8.0, "<"]), bytes(16), "families.dtype"),
        (lying(dtype=["?", True, "|"]), bytes(2), "families.dtype"),
        (lying(dtype={"missing": [], "coerce": True}), bytes(32), "families.dtype"),
        (lying(dtype=record(["a", {"missing": [], "coerce": True}, 0])), bytes(32),
         "families.dtype"),
        (lying(dtype={**record(["a", LONG, 0]), "record": 1}), bytes(16), "families.dtype"),
        (lying(strides=[8]), bytes(16), "families.header"),
        (lying(dtype=["U", 4, "<"]), b"\0\0\x11\0" * 2, "value.elements"),
        # A flag that is put right spares no text beside it.
        (lying(dtype=record(["a", "|?1", 0], ["b", ["U", 4, "<"], 4])), b"\2" + b"\xff" * 15,
         "value.elements"),
        # NumPy adds the dimensions of a field to those of its array.
        (lying(shape=[1] * 60, dtype=record(["a", {"base": LONG, "shape": [1] * 5}, 0])), bytes(8),
         "value.shape"),
        (lying(dtype=record(["a", LONG, (1 << 31) - 8])), bytes(16), "value.dtype"),
        (lying(dtype=["U", 4, ">"]), b"\0\x11\0\0" * 2, "value.elements"),
        (lying(dtype=record(["a", {"base": ["U", 4, "<"], "shape": [2]}, 0])), b"\xff" * 16,
         "value.elements"),
    ],
)  # fmt: skip
def test_malformed(header, frame, rule):
    with pytest.raises(PayloadError) as caught:
        families.check(header, [frame], limits=LIMITS)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "i2"), ("b", "f8")]),
        np.dtype([("a", "i2"), ("b", "f8")], align=True),
        np.dtype([(("title", "a"), "U2"), ("b", "?", 2)]),
        np.dtype((np.record, [("a", "i2"), ("b", "f8")])),
        np.dtype([("a", "i2"), ("b", [("c", "i2"), ("d", "f8")])]),
    ],
)
def test_a_received_dtype_belongs_to_its_receiver(dtype):
    # Names of fields are set in place: one receiver's renaming would reach all arrays that follow.
    first, second = through(np.zeros(2, dtype)), through(np.zeros(2, dtype))
    identical(first, np.zeros(2, dtype))
    inner = first.dtype["b"] if first.dtype["b"].names else first.dtype
    inner.names = ("renamed", "too")
    identical(second, np.zeros(2, dtype))
    identical(through(np.zeros(2, dtype)), np.zeros(2, dtype))


def test_remembered_dtypes_are_few():
    for number in range(300):
        dtype = np.dtype([(f"n{number}", "i2")])
        assert through(np.zeros(1, dtype)).dtype == dtype
        assert through(np.zeros(1, [(f"n{number}", "?")])).dtype.names == (f"n{number}",)
    assert len(dtypes._records) <= 128
    assert bounds._structure.cache_info().currsize <= 128


@pytest.mark.parametrize("missing", ["shape", "order", "writeable", "dtype"])
@pytest.mark.parametrize("instead", ["base", "strides", None])
@pytest.mark.parametrize("base", [None, [2]])
def test_keys_are_exact(missing, instead, base):
    header = lying(writeable=False, **({"base": base} if base else {}))
    header["sub-header"][instead or "x"] = header["sub-header"].pop(missing)
    if instead is None:
        del header["sub-header"]["x"]
    with pytest.raises(PayloadError):
        families.check(header, [bytes(16)])


def test_dtypes_that_nest_for_ever():
    description = LONG
    for _ in range(100):
        description = record(["a", description, 0])
    with pytest.raises(PayloadError, match="deep"):
        dtypes.build(description)


def test_objects_and_masks_that_lie():
    header, frames = families.serialize(np.array([1, 2], object), FAMILIES)
    for change in ({"shape": [3]}, {"shape": [1 << 59, 0]}, {"shape": [2, 1 << 59]}):
        lie = {**header, "sub-header": {**header["sub-header"], **change}}
        with pytest.raises(PayloadError):
            families.check(lie, frames)
    empty, frames = families.serialize(np.zeros(0, object), FAMILIES)
    empty["sub-header"]["shape"] = [0, 1 << 60]
    with pytest.raises(PayloadError, match="larger"):
        families.check(empty, frames)
    masked, frames = families.serialize(np.ma.array([1, 2], mask=[0, 1], fill_value=3), FAMILIES)
    other, more = families.serialize(np.array([1.5]), FAMILIES)
    for position in range(3):
        lie = {**masked, "sub-headers": list(masked["sub-headers"])}
        lie["sub-headers"][position] = other
        with pytest.raises(PayloadError):
            families.check(lie, [*frames[:position], *more, *frames[position + 1 :]])
    ones, one_frame = families.serialize(np.broadcast_to(1, (3,)), FAMILIES)
    lie = {**masked, "sub-headers": [ones, *masked["sub-headers"][1:]]}
    with pytest.raises(PayloadError, match="fit its data"):
        families.check(lie, [*one_frame, *frames[1:]])


def test_what_a_grant_of_bytes_allows():
    header, frames = families.serialize(np.ones(100), FAMILIES)
    with pytest.raises(PayloadError) as caught:
        families.check(header, frames, limits=Limits(max_array=799))
    assert caught.value.rule == "families.too-large"


@pytest.mark.parametrize(
    "inner",
    [
        {"base": "|b1", "shape": [(1 << 31) - 1, 0]},
        {"base": "|b1", "shape": [0, (1 << 31) - 1, (1 << 31) - 1]},
        {"base": ["S", 0, "|"], "shape": [(1 << 31) - 1]},
    ],
)
def test_a_sub_array_without_bytes_is_refused(inner):
    # It is free to say, and printing one element of the record walked over two billion nothings.
    description = {"fields": [["a", inner, 0], ["b", "|b1", 0]], "size": 1, "align": False}
    meta = {"shape": [1], "order": "C", "writeable": False, "dtype": description}
    header = {"serializer": "dask", "type": "numpy:ndarray", "sub-header": meta}
    with pytest.raises(PayloadError, match="sub-array of it has no bytes"):
        families.check(header, [b"x"])


def test_a_sub_array_without_bytes_is_not_sent():
    with pytest.raises(PayloadError, match="sub-array of it has no bytes"):
        families.serialize(np.zeros(2, [("a", "i4", (0,))]), FAMILIES)
