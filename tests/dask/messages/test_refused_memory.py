"""A refused message leaves nothing behind: without the garbage collector, its frames are gone.

A principal that may only look sent twelve refused requests of 200 MB, and the scheduler kept them.
"""

from __future__ import annotations

import gc
import weakref

import msgpack
import numpy as np
import pytest

from safeser.dask.wire.codec import Encoder, PayloadRow
from safeser.errors import PayloadError, SafeserError
from safeser.gate.session import Arrival
from tests.dask.forged import as_is, forged

LARGE = bytes(100_000)
PICKLE = {"serializer": "pickle", "writeable": []}


REQUESTS = {
    "unknown field": lambda t: forged({"op": "identity", "nope": LARGE[:4000]}),
    "over its ceiling": lambda t: forged({"op": "identity", "nope": LARGE}),
    "malformed": lambda t: [b"\x81\xa2op" + LARGE],
    "not granted": lambda t: forged({"op": "terminate", "reason": LARGE.decode()}),
    "no table": lambda t: [msgpack.packb({"op": "identity"}), LARGE],
    "marker": lambda t: forged(
        {"op": "set_metadata", "keys": ["a"], "value": {"__Pickled__": LARGE}}
    ),
    "payload": lambda t: forged(
        {"op": "set_metadata", "keys": ["a"], "value": t.Row(PICKLE, (b"cos\nsystem\n." + LARGE,))}
    ),
    "unreadable payload": lambda t: forged(
        {"op": "set_metadata", "keys": ["a"], "value": t.Row({"serializer": "msgpack"}, (LARGE,))}
    ),
}


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def verified(monkeypatch, no_collector):
    """References to each message that is verified, which keep none."""
    found = []
    real = Arrival.verified

    def noted(self, end=b""):
        made = real(self, end)
        found.append(weakref.ref(made))
        return made

    monkeypatch.setattr(Arrival, "verified", noted)
    return found


@pytest.mark.parametrize("name", REQUESTS)
def test_nothing_of_a_refused_request_is_left(talk, verified, name):
    t = talk("bob")
    frames = REQUESTS[name](t)
    verified.clear()
    assert t._carry(t.near, t.far, t.server, frames, None) is t.SKIP
    assert t.refused_by_server
    assert [each() for each in verified] == [None]
    assert t.server.take_answers()


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "over its ceiling"])
def test_nothing_of_a_refused_batch_is_left(talk, verified, name):
    t = talk("alice").client_stream()
    [body, *rest] = REQUESTS[name](t)
    body = body.replace(b"\xa8identity", b"\xb0heartbeat-client").replace(
        b"\xacset_metadata", b"\xa9log-event"
    )
    verified.clear()
    t._carry(t.near, t.far, t.server, [b"\x91" + body, *rest], None)
    assert t.refused_by_server
    assert [each() for each in verified] == [None]


def _reply(t, message):
    t.asker.send({"op": "get_metadata", "keys": ("a",)})
    return forged(message)


REPLIES = {
    "marker": lambda t: _reply(t, {"x": {"__Pickled__": LARGE}}),
    "payload": lambda t: _reply(t, t.Row(PICKLE, (b"cos\nsystem\n." + LARGE,))),
    "malformed": lambda t: [b"\xc1" + LARGE],
}


@pytest.mark.parametrize("name", REPLIES)
def test_an_error_that_its_user_keeps_does_not_keep_the_reply(talk, verified, name):
    t = talk("alice")
    frames = REPLIES[name](t)
    verified.clear()
    with pytest.raises(SafeserError) as caught:
        t._carry(t.far, t.near, t.asker, frames, None)
    kept = caught.value.without_frames()  # as the comm raises it, see test_comm_wire
    del caught
    assert [each() for each in verified] == [None]
    assert kept.rule


def test_frames_go_with_the_message(no_collector):
    """Buffers in reference cycles once took a scheduler to 1.2 GB that had passed on 64 MB."""
    array = np.zeros(10_000)
    gone = weakref.ref(array)
    encoder = Encoder()
    row = PayloadRow({"serializer": "dask"}, (memoryview(array).cast("B"),))
    encoder.add({"op": "x", "data": {"a": row}, "workers": {"w1"}}, as_is)
    frames = encoder.frames(listed=False)
    assert len(frames) == 3
    del array, row, encoder, frames
    assert gone() is None


def test_an_error_forgets_what_it_was_raised_from():
    def read(data):
        try:
            msgpack.unpackb(data)
        except msgpack.ExtraData as error:
            raise PayloadError("trailing bytes") from error

    with pytest.raises(PayloadError) as caught:
        read(b"\x01" + LARGE)
    error = caught.value.without_frames()
    assert error.__traceback__ is None
    assert isinstance(error.__cause__, msgpack.ExtraData)  # why, which is told
    assert error.__cause__.__traceback__ is None
