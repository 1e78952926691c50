"""Values above the largest frame of the envelope through the one door, and counts that lie."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest

from safeser.envelope import format as wire
from safeser.errors import PayloadError
from safeser.values import Context
from tests.refusal import refusal

POLICY = """
safeser: 1
name: small
revision: 1
principals: {alice: {}, bob: {}}
contexts:
  - name: data
    sender: [alice, bob]
    recipient: [alice, bob]
    kinds: [data]
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
limits: {max_bytes: 1MiB, max_array: 512KiB}
"""

CONTEXT = Context("alice", "bob")
PARTS = msgpack.packb([{"serializer": "msgpack"}, "data", None, [1, 1]])


@pytest.fixture
def links(doors, monkeypatch):
    monkeypatch.setattr(wire, "MAX_FRAME", 1000)
    return doors.links("alice", "bob", POLICY)


@pytest.mark.parametrize("size", [0, 999, 1000, 1001, 2000, 5001])
def test_a_long_array_arrives_whole(links, size):
    near, far = links
    array = np.arange(size, dtype="u1")
    buffers = near.seal([array, "and more"], CONTEXT)
    admitted = far.admit_message(far.verify(buffers), CONTEXT)
    [[got, text]] = far.load(admitted)
    assert np.array_equal(got, array)
    assert text == "and more"


def test_counts_that_lie_are_refused_and_recorded(links):
    near, far = links
    frames = near.session.seal(PARTS, [b"\xc0" * 1000, b"\xc0"])
    with refusal(PayloadError, "payload.parts"):
        far.admit_message(far.verify(frames), CONTEXT)
    assert far.audit.rules == ["payload.parts"]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (bytes(600 << 10), "limit.max_array"),
        (bytes(2 << 20), "limit.max_bytes"),
        (np.zeros(600 << 10, "u1"), "families.cannot-serialize"),
    ],
    ids=["bytes", "many bytes", "array"],
)
def test_what_is_too_large_is_refused_at_the_sender_and_the_session_goes_on(links, value, rule):
    near, far = links
    with refusal(PayloadError, rule):
        near.seal(value, CONTEXT)
    assert far.load(far.admit_message(far.verify(near.seal(1, CONTEXT)), CONTEXT)) == [1]
