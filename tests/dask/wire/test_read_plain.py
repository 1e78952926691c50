"""Small messages that are read without a look at each container, and those that are not."""

from __future__ import annotations

import msgpack
import pytest

from safeser.dask.wire.reader import EXT_EAGER, EXT_SET, UNSURE, Reader, read_plain
from safeser.values import Limits

LIMITS = Limits()


def _deep(levels: int) -> bytes:
    return b"\x91" * levels + b"\xc0"


@pytest.mark.parametrize(
    "value",
    [None, 1.5, "x", b"\xff\x04", (), {"op": "a", "n": ({"b": (1, -1, 1 << 63)},), b"c": True}],
)
def test_it_reads_what_the_reader_reads(value):
    data = msgpack.packb(value)
    assert read_plain(data, LIMITS) == Reader(LIMITS).read(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\xa1a\x01\xa1a\x02",  # a key twice
        b"\xcd\x00\x01",  # a number in a form that no encoder of safeser writes
        b"\xc0\xc0",  # bytes behind the value
        b"\xa1\xff",  # no UTF-8
        msgpack.packb({"__Pickled__": b""}),
        msgpack.packb({1: 2}),
        msgpack.packb(msgpack.Timestamp(1)),
        msgpack.packb([msgpack.ExtType(EXT_EAGER, bytes(4))]),
        msgpack.packb(msgpack.ExtType(EXT_SET, b"\x90")),
        _deep(LIMITS.max_depth + 1),
        msgpack.packb(bytes(1 << 13)),
    ],
)
def test_it_is_not_sure_of_anything_else(data):
    assert read_plain(data, LIMITS) is UNSURE


def test_it_is_not_sure_of_more_elements_than_a_message_may_have():
    data = msgpack.packb([0] * 20)
    assert read_plain(data, Limits(max_refs=10)) is UNSURE
