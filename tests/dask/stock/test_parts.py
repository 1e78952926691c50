"""Parts of headers that a stock peer may get wrong, and pickles that are only looked at."""

from __future__ import annotations

import pickle
import sys
import types

import numpy as np
import pytest
import scipy.sparse as sp
import zstandard
from distributed.protocol.serialize import Serialized, serialize_and_split

from safeser import pickles
from safeser.dask.stock import wire
from safeser.dask.stock.client import _is_unguarded
from safeser.errors import PayloadError, PolicyDenied
from safeser.families import compression
from safeser.gate.values import Limits
from safeser.pickles import DtypeRecord, dtype_record, held_by


def matrix(**changes):
    """Return the header and frames of a matrix, some of its own description changed."""
    header, frames = serialize_and_split(sp.csr_matrix(np.eye(2)), serializers=["dask"])
    meta = {**header["sub-header"], **changes}
    return Serialized({**header, "sub-header": meta}, frames)


def part(**changes):
    header, _ = serialize_and_split(sp.csr_matrix(np.eye(2)), serializers=["dask"])
    parts = header["sub-header"]["complex"]
    return {**parts, "indices": {**parts["indices"], **changes}}


@pytest.mark.parametrize(
    "changes",
    [
        {"more": 1},
        {"type-serialized": pickle.dumps(sp.csc_matrix)},
        {"type-serialized": b""},
        {"simple": 1},
        {"simple": {}},
        {"simple": {"_shape": (2, 2), "maxprint": 50, "__class__": 1}},
        {"simple": {"_shape": 2, "maxprint": 50}},
        {"simple": {"_shape": (2, -2), "maxprint": 50}},
        {"simple": {"_shape": (1, 1), "maxprint": 50}},
        {"simple": {"data": 1}},
        {"simple": {1: 2}},
        {"complex": {}},
        {"complex": {"data": 1}},
        {"complex": {1: {}}},
        {"complex": part(start=0)},
        {"complex": part(stop=99)},
        {"complex": part(header={"serializer": "pickle", "writeable": ()})},
    ],
    ids=str,
)
def test_malformed_matrices(peer, changes):
    assert peer.answer(matrix()).shape == (2, 2)
    with pytest.raises((PayloadError, PolicyDenied)):
        peer.answer(matrix(**changes))


def test_coordinates_are_a_tuple(peer):
    header, frames = serialize_and_split(sp.coo_matrix(np.eye(2)), serializers=["dask"])
    parts = header["sub-header"]["complex"]
    inner = {**parts["coords"]["header"], "type-serialized": "list"}
    parts["coords"] = {**parts["coords"], "header": inner}
    with pytest.raises(PayloadError, match="no tuple"):
        peer.answer(Serialized(header, frames))


def test_masks_are_arrays(peer):
    header, frames = serialize_and_split(np.ma.masked_array([1], [1]), serializers=["dask"])
    header["sub-header"]["mask-header"] = 5
    with pytest.raises(PayloadError, match="mask"):
        peer.answer(Serialized(header, frames))


# -- compression that this machine may not have ----------------------------------------------------


@pytest.fixture
def no_known_codecs():
    """Codecs are looked for anew, here and by whatever test is next."""
    compression._codec.cache_clear()
    yield
    compression._codec.cache_clear()


@pytest.mark.usefixtures("no_known_codecs")
def test_zstandard_says_its_size(monkeypatch):
    huge = b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little")
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(b"x")
    for body, message in ((huge, "over max_array"), (unsaid, "do not say"), (b"x", "how large")):
        with pytest.raises(PayloadError, match=message):
            wire.decompressed(("zstd",), [memoryview(body)], wire.Room(Limits()))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(PayloadError):
        wire.decompressed(("zstd",), [memoryview(huge)], wire.Room(Limits()))


# -- pickles that are read and never loaded --------------------------------------------------------


def _records(fields, levels, inner="S1"):
    names = [f"f{index}" for index in range(fields)]
    for _ in range(levels):
        described = {"names": names, "formats": [inner] * fields, "offsets": [0] * fields}
        inner = np.dtype({**described, "itemsize": 1})
    return pickle.dumps(inner)


def test_a_record_that_is_each_field_of_another_is_told_a_few_times_only():
    assert isinstance(dtype_record(_records(10, 3)), DtypeRecord)
    assert isinstance(dtype_record(_records(1000, 1)), DtypeRecord)
    assert dtype_record(_records(10, 4)) is None  # seven levels of these took five minutes
    assert dtype_record(_records(0, 1)) == DtypeRecord((), 1, False)


def call(*args, state=None):
    return pickle.dumps(_Call(args, state), 4)


class _Call:
    def __init__(self, args, state):
        self._made = (np.dtype, args) if state is None else (np.dtype, args, state)

    def __reduce__(self):
        return self._made


FIELD = (np.dtype("i4"), 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        pickle.dumps("x"),
        pickle.dumps(np.dtype("O")),
        pickle.dumps(np.dtype((np.int32, (2,)))),
        pickle.dumps(np.dtype([("a", "i4", (2,))])),
        pickle.dumps(np.dtype("i4", metadata={"a": 1})),
        call("V4", False, True),
        call("V4", True, True, state=(3, "|", None, ("a",), {"a": FIELD}, 4, 1, 16)),
        call(4, False, True, state=(3, "|", None, ("a",), {"a": FIELD}, 4, 1, 16)),
        call("V4", False, True, state=(3, "?", None, ("a",), {"a": FIELD}, 4, 1, 16)),
        call("V4", False, True, state=(3, "|", None, ("a",), {}, 4, 1, 16)),
        call("V4", False, True, state=(3, "|", None, ("a",), None, 4, 1, 16)),
        call("V4", False, True, state=(3, "|", None, ("a",), {"a": (1, 0)}, 4, 1, 16)),
        call("V4", False, True, state=(3, "|", None, ("a",), {"a": (FIELD[0], "x")}, 4, 1, 16)),
        call("V4", False, True, state=(3, "|", None, ("a",), {"a": FIELD}, "4", 1, 16)),
        call("V4", False, True, state=(3, "|", None, ("a",), {"a": FIELD}, 4, 1, "16")),
        call("V4", False, True, state=(3, "|", None, ("a",), {"a": FIELD}, 4, 1, 16, 5)),
        call("i4", False, True, state=(3, "<", None, ("a",), {"a": FIELD}, 4, 1, 16)),
        call("M8", False, True, state=(4, "<", None, None, None, -1, -1, 0, 5)),
        call(
            "M8", False, True, state=(4, "<", None, None, None, -1, -1, 0, (None, (b"]", 1, 1, 1)))
        ),
    ],
    ids=range(20),
)
def test_other_pickles_are_no_dtypes(data):
    record = dtype_record(data)
    # A letter that no number has is refused by whoever makes a dtype of it.
    assert record is None or record == "|O8"


def test_names_of_what_pickles_hold():
    assert held_by(pickle.dumps([1])) == "list"
    assert held_by(pickle.dumps(3)) == "int"
    assert held_by(pickle.dumps(print)) == "builtins:print"
    assert held_by(pickle.dumps(sp.csr_matrix(np.eye(2)))) == "scipy.sparse._csr:csr_matrix"
    assert held_by(b"garbage") == ""
    assert held_by(bytes(1 << 17)) == ""
    assert pickles.held_by is held_by


def test_who_speaks_without_a_guard():
    def some(**attributes):
        return types.SimpleNamespace(**{"status": "running", **attributes})

    assert _is_unguarded(some(connection_args={"ssl_context": None}))
    assert _is_unguarded(some())
    assert not _is_unguarded(some(status="closed"))
    assert not _is_unguarded(some(connection_args={"guarded": 1}))
    assert not _is_unguarded(some(connection_args={"safeser": 1}))
