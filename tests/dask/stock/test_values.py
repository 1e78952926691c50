"""What a stock peer sends of each class that Dask has a serializer for, and what comes of it."""

from __future__ import annotations

import array
import pickle
import pickletools

import numpy as np
import pytest
import scipy.sparse as sp
from distributed.protocol.serialize import Serialized, serialize_and_split

from safeser.errors import PayloadError, PolicyDenied

FAMILIES = ["dask", "msgpack"]


def sent(value, **options):
    """Return *value* as a stock worker sends it to who asked for dask and msgpack."""
    return Serialized(*serialize_and_split(value, serializers=FAMILIES, **options))


def typed(cls, meta, frames, **more):
    header = {"serializer": "dask", "type": "x", "type-serialized": pickle.dumps(cls)}
    return Serialized({**header, "sub-header": meta, **more}, frames)


ARRAYS = [
    np.arange(12).reshape(3, 4),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(12).reshape(3, 4)[:, ::2],
    np.array(5),
    np.zeros((0, 3)),
    np.array(["a", "bc", ""]),
    np.array([b"x", b"yy"]),
    np.array([True, False]),
    np.array(["2020-01-01", "NaT"], "M8[s]"),
    np.array([1, 2], "m8[25ns]"),
    np.arange(3, dtype=">i4"),
    np.array([1 + 2j]),
    np.array([1.5], np.longdouble),
    np.broadcast_to(np.ones(3), (4, 3)),
    np.broadcast_to(np.float64(7), (2, 2)),
    np.ones((1, 3)).transpose(),
]


@pytest.mark.parametrize("value", ARRAYS, ids=lambda value: f"{value.dtype}{value.shape}")
def test_arrays(peer, value):
    got = peer.answer(sent(value))
    assert type(got) is np.ndarray
    assert got.dtype == value.dtype
    assert got.shape == value.shape
    np.testing.assert_array_equal(got, value)
    assert got.flags.writeable == (0 not in value.strides)


VALUES = [
    1,
    "text",
    None,
    b"bytes",
    bytearray(b"more"),
    (1, ("a", 2.5)),
    [1, [2, "x"], {"k": (1, 2)}],
    {"a": 1.5, "b": (1,)},
    {("t", 1): b"x", 3: "y"},
    [b"", b"1"],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values(peer, value):
    assert peer.answer(sent(value)) == value


def test_lists_of_msgpack_are_tuples_as_in_dask(peer):
    assert peer.answer(sent((1, [2, {"a": [3]}]))) == (1, (2, {"a": (3,)}))


def test_collections_of_arrays(peer):
    value = {"a": np.arange(3), "b": [np.ones(2), (b"x",)]}
    got = peer.answer(sent(value))
    assert list(got) == ["a", "b"]
    np.testing.assert_array_equal(got["b"][0], np.ones(2))
    assert got["b"][1] == (b"x",)
    assert peer.answer(sent({b"a", b"b"})) == {b"a", b"b"}


def test_frames_that_were_cut_are_joined(peer):
    value = [np.arange(1000), b"x" * 100]
    array_, text = peer.answer(sent(value, size=64))
    np.testing.assert_array_equal(array_, value[0])
    assert text == value[1]


def test_markers_of_sets_are_sets(peer):
    assert peer.answer({"keys": {"a", "b"}}) == {"keys": {"a", "b"}}


# -- what is refused -------------------------------------------------------------------------------


def refused(peer, reply, rule, *words):
    with pytest.raises((PayloadError, PolicyDenied)) as caught:
        peer.answer(reply)
    assert caught.value.rule == rule, caught.value
    assert all(word in str(caught.value) for word in words), caught.value
    assert rule in peer.rules
    assert peer.answer(sent(3)) == 3


def test_what_dask_could_not_send_names_its_class(peer):
    import pandas as pd

    refused(peer, sent(pd.DataFrame({"a": [1]})), "stock.unsent", "DataFrame", "to_numpy")
    refused(peer, [sent(1), sent(object())], "stock.unsent", "object")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.float32(1), "numpy._core.multiarray:scalar"),
        ({1, 2}, "set"),
        (ValueError("x"), "builtins:ValueError"),
        (complex, "builtins:complex"),
    ],
    ids=repr,
)
def test_pickles_name_what_they_hold(peer, value, name):
    pickled = Serialized({"serializer": "pickle", "writeable": ()}, [pickle.dumps(value)])
    refused(peer, pickled, "floor.unknown", f"a pickle of {name}", "safeser://")


def test_a_pickle_inside_a_collection(peer):
    header = {"is-collection": True, "type-serialized": "list", "frame-lengths": (1,)}
    inner = {"serializer": "pickle", "writeable": ()}
    nested = Serialized({**header, "sub-headers": (inner,)}, [pickle.dumps(1)])
    refused(peer, nested, "floor.unknown")


def test_large_pickles_are_refused_without_reading_them(peer):
    header = {"serializer": "pickle", "writeable": ()}
    refused(peer, Serialized(header, [pickle.dumps([1] * 100_000)]), "floor.unknown", "a pickle ")


def test_classes_that_are_not_listed(peer):
    import pyarrow as pa

    refused(peer, sent(pa.table({"a": [1]})), "stock.type", "pyarrow.lib:Table")
    refused(peer, typed(dict.fromkeys, {}, []), "stock.type", "builtins:dict.fromkeys")
    refused(peer, typed(Peerless, {}, []), "stock.type", "Peerless")
    refused(peer, sent(np.array([1, "a"], object)), "stock.type", "Python objects")


class Peerless:
    pass


MALFORMED_ARRAYS = [
    {"dtype": (0, "|O")},
    {"dtype": (0, "|V8")},
    {"dtype": (0, "<i8\n")},
    {"dtype": (0, "<i3")},
    {"dtype": (0, (("a", "|O"),))},
    {"dtype": (0, (("a", "<i4", 2),))},
    {"dtype": (1, pickle.dumps(np.dtype("O")))},
    {"dtype": (1, pickle.dumps(np.dtype([("a", "O")])))},
    {"dtype": (1, pickle.dumps(np.dtype("i8"))[:-1] + b"0.")},
    {"dtype": (2, "<i8")},
    {"dtype": "<i8"},
    {"shape": (-1,)},
    {"shape": "x"},
    {"shape": (1 << 62, 1 << 62), "strides": (8, 8)},
    {"strides": (16,), "shape": (2,)},
    {"strides": (0,), "shape": (5,)},
    {"strides": (-8,), "shape": (2,)},
    {"strides": 8},
    {"writeable": ()},
    {"writeable": (1,)},
    {"broadcast_to": (1 << 40,)},
    {"broadcast_to": "x"},
    {"matrix": 1},
    {"more": 1},
]
ARRAY = {"dtype": (0, "<i8"), "shape": (1,), "strides": (8,), "writeable": (True,)}


@pytest.mark.parametrize("change", MALFORMED_ARRAYS, ids=repr)
def test_malformed_arrays(peer, change):
    assert peer.answer(typed(np.ndarray, ARRAY, [bytes(8)])).tolist() == [0]
    with pytest.raises(PayloadError):
        peer.answer(typed(np.ndarray, {**ARRAY, **change}, [bytes(8)]))


MASKED = {"data-header": ARRAY, "nframes": 1, "fill-value": (False, 1)}
WHOLE = {"serializer": "dask", "type-serialized": pickle.dumps(dict), "simple": {}, "complex": {}}

#: What stock Dask has serializers for, which this side has written as typed values instead.
ELSEWHERE = {
    "records": sent(np.zeros(3, [("a", "i4"), ("b", "f8")])),
    "aligned records": sent(np.zeros(2, np.dtype([("a", "i1"), ("b", "f8")], align=True))),
    "a buffer": sent(memoryview(np.arange(6.0).reshape(2, 3))),
    "an array of the standard library": sent(array.array("d", [1.5, 2])),
    "a masked array": sent(np.ma.masked_array([1, 2, 3], [0, 1, 0], fill_value=7)),
    "a masked constant": sent(np.ma.masked),
    "a matrix": typed(np.ndarray, {**ARRAY, "matrix": True}, [bytes(8)]),
    "a sparse matrix": sent(sp.csr_matrix(np.eye(4))),
    "a fill value that is a pickle": typed(
        np.ma.MaskedArray, {**MASKED, "fill-value": (True, b"cos\nsystem\n.")}, [bytes(8)]
    ),
    "a dictionary by its fields": typed(dict, WHOLE, []),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_read_as_a_typed_value_alone(peer, name):
    refused(peer, ELSEWHERE[name], "stock.type")


def test_types_are_one_name_and_nothing_else(peer):
    evil = pickle.dumps(Peerless())
    assert "NEWOBJ" in {op.name for op, *_ in pickletools.genops(evil)}
    for pickled in (evil, b"", b"garbage", pickle.dumps("numpy:ndarray"), None, "numpy.ndarray"):
        value = typed(np.ndarray, ARRAY, [bytes(8)], **{"type-serialized": pickled})
        refused(peer, value, "stock.header")


#: Headers of one honest element, so that nothing but what holds it is at fault.
ONE = ({"serializer": "msgpack"},)

MALFORMED = [
    {"serializer": "pickle"},
    {"serializer": "msgpack", "more": 1},
    {"serializer": "dask"},
    {},
    {"is-collection": True},
    {"is-collection": True, "sub-headers": (), "frame-lengths": (), "type-serialized": "array"},
    {"is-collection": True, "sub-headers": (1,), "frame-lengths": (1,), "type-serialized": "list"},
    {"is-collection": True, "sub-headers": ONE, "frame-lengths": (0,), "type-serialized": "set"},
    {"is-collection": True, "sub-headers": ONE, "frame-lengths": (), "type-serialized": "list"},
    {"is-collection": True, "sub-headers": (), "frame-lengths": (1,), "type-serialized": "list"},
    {
        **{"is-collection": True, "type-serialized": "list"},
        **{"sub-headers": 2 * ONE, "frame-lengths": (2, -1)},
    },
    {"is-collection": True, "sub-headers": ONE, "frame-lengths": (1,), "type-serialized": "array"},
    {"is-collection": True, "sub-headers": ONE, "frame-lengths": (-1,), "type-serialized": "set"},
    {"is-collection": True, "sub-headers": ONE, "frame-lengths": (1,), "type-serialized": "dict"},
    {"serializer": "msgpack", "compression": ("snappy",)},
    {"serializer": "msgpack", "compression": (None, None)},
    {"serializer": "msgpack", "compression": "lz4"},
    {"serializer": "msgpack", "split-num-sub-frames": (2,), "split-offsets": (0,)},
    {"serializer": "msgpack", "split-num-sub-frames": (1,), "split-offsets": (1,)},
    {"serializer": "msgpack", "split-num-sub-frames": (1, 1), "split-offsets": (0, 0)},
    {"serializer": "msgpack", "split-num-sub-frames": (1,)},
]


@pytest.mark.parametrize("header", MALFORMED, ids=repr)
def test_malformed_headers(peer, header):
    with pytest.raises((PayloadError, PolicyDenied)):
        peer.answer(Serialized(dict(header), [b"\x01"]))
    assert peer.answer(sent(3)) == 3
