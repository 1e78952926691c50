"""Packers that are used again, by several threads and inside each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgpack
import pytest

from safeser.dask.wire import packer
from safeser.dask.wire.codec import Encoder
from safeser.dask.wire.packer import packed, packed_with


@pytest.fixture(autouse=True)
def _none_idle(monkeypatch):
    monkeypatch.setattr(packer, "_idle", [])


def test_a_leaf_is_packed_inside_of_another():
    def inside(leaf):
        return msgpack.ExtType(3, packed(sorted(leaf)))

    value = packed_with([{2, 1}, {3}], inside)
    assert value == packed([msgpack.ExtType(3, packed([1, 2])), msgpack.ExtType(3, packed([3]))])


def test_a_packer_that_failed_is_not_used_again_and_keeps_nothing():
    with pytest.raises(TypeError, match="no form for object"):
        packed([b"before", object()])
    assert packer._idle == []
    assert packed(b"after") == msgpack.packb(b"after")

    def fails(leaf):
        raise KeyError(leaf)

    with pytest.raises(KeyError):
        packed_with([b"before", object()], fails)
    assert packed([]) == b"\x90"


def test_threads_have_packers_of_their_own():
    values = [[number, {"key": "x" * number}] for number in range(500)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(packed, values)) == [msgpack.packb(value) for value in values]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 70_000])
def test_a_batch_of_elements_is_one_array(count):
    encoder = Encoder()
    for number in range(count):
        encoder.add(number, lambda leaf: leaf)
    [frame] = encoder.frames(listed=True)
    assert msgpack.unpackb(frame) == list(range(count))
