"""Profile numpy: what rows cannot say of buffers, of memory that is shared, and of older names."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.gate.values import Limits
from safeser.pickles import loads
from tests.pickles.forging import Called, refused
from tests.samples.opcodes import call, pickled, raw
from tests.samples.pickles_honest import drawn
from tests.samples.pickles_numpy import dtype, dtype_state, with_metadata

PROFILE = ("data", "numpy")


def test_an_out_of_band_array_is_not_copied():
    memory = bytearray(80)
    data = pickle.dumps(np.zeros(10), 5, buffer_callback=lambda _: None)
    got = loads(data, buffers=[memory], profile=PROFILE)
    memory[0:8] = np.float64(3).tobytes()
    assert got[0] == 3


def test_plain_buffers_of_all_kinds():
    data, readonly = (
        pickle.dumps(pickle.PickleBuffer(content), 5, buffer_callback=lambda _: None)
        for content in (bytearray(b"ab"), b"ab")
    )
    for buffer in (b"ab", bytearray(b"ab"), memoryview(b"ab"), np.frombuffer(b"ab", "u1")):
        assert bytes(loads(data, buffers=[buffer])) == b"ab"
    assert loads(readonly, buffers=[bytearray(b"ab")]).readonly
    assert loads(readonly, buffers=[b"ab"]) == b"ab"
    with pytest.raises(PayloadError):
        loads(data, buffers=[])


def test_names_of_numpy_1():
    data = pickle.dumps(np.arange(3), 3).replace(b"numpy._core", b"numpy.core")
    assert loads(data, profile=PROFILE).tolist() == [0, 1, 2]
    with pytest.raises(PolicyDenied):
        loads(data)


def test_looking_at_the_same_bytes_again_is_charged():
    flags = dtype("b1", dtype_state(order="|")) + b"q\x000" + raw(bytes(1 << 19)) + b"q\x010"
    again = call("numpy._core.numeric:_frombuffer", b"h\x01", b"h\x00", (1 << 19,), "C")
    refused(
        "pickle.max-memory",
        loads,
        pickled(flags + b"](" + again * 20 + b"e"),
        profile=PROFILE,
        limits=Limits(max_memory=600 << 7, max_sharing=99),
    )


FLAGS = {
    "array": np.array([True, False, True]),
    "record": np.array([(True, 1), (False, 2), (True, 3)], [("f", "?"), ("n", "i1")]),
    "sub-array": np.array([([True, False],), ([False, True],)], [("f", "?", (2,))]),
    "scalar": np.array([(True, 1)], [("f", "?"), ("n", "i1")])[0],
    "mask": np.ma.array([1, 2, 3], mask=[1, 0, 1]),
    "mask of a structure": np.ma.array([(1, 2)], [("a", "i4"), ("b", "f4")], mask=[(0, 1)]),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flags_that_are_neither_0_nor_1_are_true(name):
    # NumPy counts true flags by adding their bytes, and then writes as many results.
    value = FLAGS[name]
    held = np.ma.getmaskarray if "mask" in name else lambda flags: flags
    raw_flags = held(value).tobytes()
    before, body, after = pickle.dumps(value, 4).rpartition(raw_flags)
    assert body
    step = 2 if name in ("record", "scalar") else 1
    forged = bytes(255 if at % step == 0 and byte else byte for at, byte in enumerate(raw_flags))
    assert forged != raw_flags
    got = loads(before + forged + after, profile=PROFILE)
    assert repr(got) == repr(value)
    assert held(got).tobytes() == raw_flags


@pytest.mark.parametrize("of", ["?", [("f", "?")]])
def test_what_was_checked_does_not_change_through_another_array(of):
    # A flag of 255 makes NumPy write past the end of what it allocates.
    content, make = bytearray(b"\0\1" * 50), np._core.numeric._frombuffer
    shared = [Called(make, content, np.dtype(each), (100,), "C") for each in ("u1", of)]
    numbers, flags = loads(pickle.dumps(shared), profile=PROFILE)
    numbers[:] = 255
    assert flags.tobytes() == b"\0\1" * 50
    assert flags.flags.writeable


def test_a_buffer_that_is_read_only_here_may_be_writable_there():
    both = [np.zeros(8, "u1"), np.zeros(8, "?")]
    data, store = pickle.dumps(both, 5, buffer_callback=lambda _: None), bytearray(8)
    numbers, flags = loads(data, buffers=[store, memoryview(store).toreadonly()], profile=PROFILE)
    numbers[:] = 255
    assert not flags.any()
    assert not flags.flags.writeable


def test_metadata_that_changes_later_is_kept_as_it_was():
    held = {"a": 1}
    got, again = loads(pickle.dumps([np.dtype("i4", metadata=held), held]), profile=PROFILE)
    again["b"] = 2
    assert got.metadata == {"a": 1}
    loads(pickled(with_metadata({"a": None})), profile=PROFILE)
    assert np.dtype("i4").metadata is None  # NumPy's own


def test_a_state_that_changes_later_is_kept_as_it_was_checked():
    source = drawn(np.random.MT19937)
    data = pickle.dumps([source, source.bit_generator.state["state"]["key"]])
    got, key = loads(data, profile=PROFILE)
    key[:] = 0
    assert got.bit_generator.state["state"]["key"].any()
