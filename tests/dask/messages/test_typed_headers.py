"""Typed values as Dask's messages bring them: what their headers list comes back as tuples."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

import safeser
from safeser.dask.wire.codec import Encoder, PayloadRow, parse
from safeser.errors import SafeserError
from safeser.gate.values import Limits
from tests.samples.values import collect

LIMITS = Limits()


def in_a_message(header: Any, frames: Any) -> PayloadRow:
    encoder = Encoder(LIMITS)
    encoder.add(object(), lambda leaf: (PayloadRow(header, tuple(frames)), False))
    (row,) = parse(encoder.frames(listed=False), LIMITS).rows
    return row


def written_again(header: Any, frames: Any) -> tuple[bytes, list[bytes]]:
    """Return the bytes that what *header* and *frames* stand for is written as."""
    header, frames = safeser.serialize(safeser.deserialize(header, frames))
    return msgpack.packb(header), [bytes(frame) for frame in frames]


@pytest.mark.slow
def test_every_typed_value_arrives_in_a_message_as_it_does_without_one():
    examples, _ = collect()
    assert len(examples) > 200
    apart = {}
    for name, value in examples.items():
        header, frames = safeser.serialize(value)
        row = in_a_message(header, frames)
        listed = msgpack.unpackb(msgpack.packb(header), strict_map_key=False)
        try:
            same = written_again(row.header, row.frames) == written_again(listed, frames)
            apart |= {} if same else {name: "another value"}
        except SafeserError as error:
            apart[name] = str(error)
    assert apart == {}
