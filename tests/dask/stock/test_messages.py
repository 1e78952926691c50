"""Structure, streams and errors of a stock peer: what Dask's client gets to see of them."""

from __future__ import annotations

import contextlib
import pickle
import sys
import zlib

import msgpack
import numpy as np
import pytest
from distributed.core import error_message
from distributed.protocol import dumps
from distributed.protocol.serialize import (
    Serialized,
    ToPickle,
    serialize_and_split,
    to_serialize,
)
from hypothesis import given
from hypothesis import strategies as st
from lz4 import block

from safeser.channel import OpenLink, Unverified
from safeser.dask.messages.conversation import SKIP
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.gate.values import Context, Kind
from tests.draws import draws
from tests.refusal import refusal

OK = {"op": "lost-data", "key": "fine"}


def sent(value):
    return Serialized(*serialize_and_split(value, serializers=["dask", "msgpack"]))


# -- markers and references ------------------------------------------------------------------------

ENUM = {"__Enum__": True, "name": "environ", "__module__": "distributed.utils", "__name__": "os"}


@pytest.mark.parametrize(
    ("marked", "rule"),
    [
        (ENUM, "marker.enum"),
        ({"__Enum__": 1}, "marker.enum"),
        ({"__Serialized__": True, "data": ({"serializer": "pickle"}, [b""])}, "marker.serialized"),
        ({"__Serialized__": "x"}, "marker.serialized"),
        ({"__Serialized__": 99}, "stock.header"),
        ({"__Pickled__": -1}, "marker.pickled"),
        ({"__Pickled__": 1 << 40}, "stock.header"),
        ({"__Set__": True, "as-list": 5}, "marker.set"),
        ({"__Set__": False, "as-list": ()}, "marker.set"),
        ({"__Set__": True, "as-list": [1], "more": 1}, "marker.set"),
    ],
    ids=str,
)
def test_markers_do_nothing(peer, marked, rule):
    imported = set(sys.modules)
    with refusal(PayloadError, rule):
        peer.answer({"a": [marked]})
    assert set(sys.modules) == imported
    assert peer.rules == [rule]


def test_a_set_of_what_is_not_hashable_costs_its_element(peer):
    peer.stream()
    unhashable = {"__Set__": True, "as-list": [{}]}
    assert peer.hear([{"op": "cancelled-keys", "keys": unhashable}, OK]) == (OK,)


def test_many_markers_are_told_once_in_a_while(peer):
    peer.stream()
    event = {"op": "event", "topic": "t", "event": [ENUM] * 5000}
    assert peer.hear([event, OK]) == (OK,)
    assert peer.rules == ["marker.enum"]


def test_many_errors_are_told_apart_up_to_a_bound(peer, monkeypatch):
    monkeypatch.setattr("safeser.dask.stock.errors._ERRORS", 20)
    peer.stream()
    element = {"op": "task-erred", "exception": b"", "traceback": None}
    got = peer.hear([{**element, "key": key} for key in range(25)])
    assert len(got) == 25
    assert "too many" in str(got[-1]["exception"])


def frames_of(message, *more):
    return [msgpack.packb(message), *more]


HEADER = msgpack.packb({"serializer": "msgpack", "num-sub-frames": 1})


def test_a_frame_belongs_to_one_value(peer):
    peer.conversation.note_sent({"op": "identity"})
    one = frames_of({"a": {"__Serialized__": 1}}, HEADER, b"\x01")
    assert peer.hear_frames(one) == {"a": 1}
    for message in (
        [{"__Serialized__": 1}, {"__Serialized__": 1}],
        [{"__Serialized__": 1}, {"__Serialized__": 2}],
    ):
        peer.conversation.note_sent({"op": "identity"})
        with pytest.raises(PayloadError, match="another value"):
            peer.hear_frames(frames_of(message, HEADER, HEADER, b"\x01"))


def test_frames_that_nothing_names_are_left_alone(peer):
    # Dask begins anew when msgpack meets an object that it does not know, and leaves these behind.
    peer.conversation.note_sent({"op": "identity"})
    got = peer.hear_frames(frames_of({"a": {"__Serialized__": 3}}, b"?", b"?", HEADER, b"\x07"))
    assert got == {"a": 7}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc1",
        msgpack.packb([1]),
        msgpack.packb({}),
        msgpack.packb({"num-sub-frames": -1}),
        msgpack.packb({"num-sub-frames": 2}),
        msgpack.packb({"num-sub-frames": 1, "serializer": ENUM}),
        msgpack.packb({"num-sub-frames": 1, "pickled-obj": 5}),
    ],
)
@pytest.mark.parametrize("marker", ["__Serialized__", "__Pickled__"])
def test_malformed_headers_of_payloads(peer, header, marker):
    peer.conversation.note_sent({"op": "identity"})
    with pytest.raises(PayloadError):
        peer.hear_frames(frames_of({"a": {marker: 1}}, header, b"\x01"))


def test_values_nested_too_deep(peer):
    header = {"serializer": "msgpack"}
    for _ in range(60):
        header = {
            **{"is-collection": True, "type-serialized": "list"},
            **{"sub-headers": (header,), "frame-lengths": (1,)},
        }
    with pytest.raises(PayloadError):
        peer.answer(Serialized(header, [b"\x01"]))


# -- compression -----------------------------------------------------------------------------------


def compressed(data, name, body):
    header, _ = serialize_and_split(data, serializers=["dask"])
    return Serialized({**header, "compression": (name,)}, [body])


def test_frames_that_a_worker_compressed(peer):
    data = b"data" * 1000
    assert peer.answer(compressed(data, "lz4", block.compress(data))) == data
    assert peer.answer(compressed(data, "zlib", zlib.compress(data))) == data


def test_bombs(make_peer):
    peer = make_peer().greet()
    limits = peer.link.policy.limits
    huge = (limits.max_array + 1).to_bytes(4, "little")
    for body in (huge + b"\x1f\x00\x01" * 10, b"\xff\xff\xff\x3f" + bytes(50), b""):
        with pytest.raises(PayloadError):
            peer.answer(compressed(b"x", "lz4", body))


# -- errors as data --------------------------------------------------------------------------------


def failure():
    try:
        try:
            {}["key"]
        except KeyError as error:
            raise ValueError("bad value") from error
    except ValueError as error:
        return error_message(error)


def test_errors_come_as_data_with_their_chain(peer):
    reply = peer.answer(failure(), op="run_function")
    error = reply["exception"]
    assert (type(error), str(error)) == (ValueError, "bad value")
    assert isinstance(error.__cause__, KeyError)
    assert "in failure" in error.__notes__[0]
    assert reply["traceback"] is None


def test_errors_of_tasks(peer):
    peer.stream()
    told = failure()
    element = {"op": "task-erred", "key": "k"}
    element |= {"exception": told["exception"], "traceback": told["traceback"]}
    (got,) = peer.hear([element])
    assert isinstance(got["exception"], ValueError)
    assert got["traceback"] is None
    assert "in failure" in got["exception"].__notes__[0]


class Own(Exception):
    pass


@pytest.mark.parametrize("data", [b"", b"garbage", pickle.dumps("text"), pickle.dumps(print)])
def test_errors_that_are_none(peer, data):
    told = {"status": "error", "exception": data, "traceback": data, "exception_text": "said"}
    error = peer.answer(told, op="run_function")["exception"]
    assert isinstance(error, Exception)


def test_errors_of_one_message_are_read_within_a_bound(peer):
    peer.stream()
    large = to_serialize(pickle.dumps(ValueError("x" * (3 << 20))))
    element = {"op": "task-erred", "exception": large, "traceback": None}
    first, second = peer.hear([{**element, "key": "a"}, {**element, "key": "b"}])
    assert isinstance(first["exception"], ValueError)
    assert "too many" in str(second["exception"])
    huge = to_serialize(b"x" * (5 << 20))
    (third,) = peer.hear([{**element, "exception": huge, "key": "c"}])
    assert isinstance(third["exception"], Exception)


def test_errors_that_are_payloads_of_something_else(peer):
    peer.stream()
    element = {"op": "task-erred", "key": "k", "traceback": None}
    pickled = Serialized({"serializer": "pickle", "writeable": ()}, [pickle.dumps(ValueError("x"))])
    for exception in (pickled, sent(np.ones(2)), sent(5), ToPickle(ValueError("x")), ENUM):
        (got,) = peer.hear([{**element, "exception": exception}])
        assert isinstance(got["exception"], SafeserError)


def test_what_workers_answer_to_run(peer):
    told = failure()
    bare = pickle.dumps(ValueError("bare"))
    reply = {"tcp://a": {"status": "OK", "result": sent(5)}, "tcp://b": told, "tcp://c": bare}
    got = peer.answer(reply, op="broadcast", msg={"op": "run"})
    assert got["tcp://a"]["result"] == 5
    assert isinstance(got["tcp://b"]["exception"], ValueError)
    error = pickle.loads(got["tcp://c"])
    assert (type(error), str(error)) == (ValueError, "bare")


# -- types, warnings, streams ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (pickle.dumps(np.ndarray), "ndarray"),
        (pickle.dumps(Own), "Own"),
        ("mymod.Thing", "Thing"),
        (pickle.dumps(Own("x")), None),
        (b"garbage", None),
        (None, None),
        (5, None),
    ],
)
def test_types_are_names(peer, told, name):
    peer.stream()
    (got,) = peer.hear([{"op": "key-in-memory", "key": "k", "type": told}])
    made = None if got["type"] is None else pickle.loads(got["type"])
    assert (None if made is None else made.__name__) == name
    assert made is not Own


def test_types_in_task_streams_are_names(peer):
    stream = peer.answer(({"key": "k", "type": pickle.dumps(np.ndarray)},), op="get_task_stream")
    assert stream == ({"key": "k", "type": "numpy:ndarray"},)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pickle.dumps("careful"), "careful"),
        (pickle.dumps(UserWarning("told")), "told"),
        (b"garbage", "a warning that could not be read"),
        ("plain", "plain"),
    ],
)
def test_warnings_are_text(peer, message, text):
    peer.stream()
    event = {"message": message, "category": pickle.dumps(RuntimeWarning)}
    (got,) = peer.hear([{"op": "event", "topic": "warn", "event": (0, event)}])
    assert pickle.loads(got["event"][1]["message"]) == text
    assert pickle.loads(got["event"][1]["category"]) is RuntimeWarning


@pytest.mark.parametrize(
    "element",
    [
        5,
        {},
        {"op": 5},
        {"op": "compute-task"},
        {"op": "never-heard-of"},
        {"status": "error", "exception": pickle.dumps(ValueError("x"))},
        {"op": "event", "topic": "warn", "event": 5},
        {"op": "event", "topic": "warn", "event": (0, {"message": 5})},
        {"op": "event", "topic": ToPickle("warn"), "event": (0, {})},
    ],
    ids=str,
)
def test_other_elements_are_left_out(peer, element):
    peer.stream()
    assert peer.hear([element, OK]) == (OK,)


def test_a_restart_reaches_the_client(peer):
    peer.stream()
    assert peer.hear([{"op": "restart"}]) == ({"op": "restart"},)


def test_malformed_messages_of_a_stream(peer):
    peer.stream()
    for frames in ([b"\xc1"], [b""], [msgpack.packb(msgpack.ExtType(3, b"\x90"))], []):
        assert peer.hear_frames(frames) is SKIP
    assert peer.hear([OK]) == (OK,)


# -- the handshake ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "greeting",
    [
        {},
        "x",
        {"compression": None, "python": (3, 11), "pickle-protocol": "5"},
        {"python": (3, 11), "pickle-protocol": 5, "more": ToPickle(1)},
        {"python": (3, 11), "pickle-protocol": 5, "more": to_serialize(1)},
        {"python": (3, 11), "pickle-protocol": 5, "more": ENUM},
        {"python": (3, 11), "pickle-protocol": 5, "more": list(range(2000))},
    ],
    ids=lambda greeting: str(greeting)[:60],
)
def test_handshakes_that_are_none(make_peer, greeting):
    peer = make_peer()
    peer.conversation.note_sent({})
    with pytest.raises(PayloadError):
        peer.hear(greeting)
    assert not peer.conversation.greeted


def test_replies_that_nobody_asked_for(peer):
    with refusal(PayloadError, "reply.unasked"):
        peer.hear({"status": "OK"})


def test_requests_that_no_answer_can_be_read_of(peer):
    with pytest.raises(PolicyDenied):
        peer.conversation.note_sent({"op": "never-heard-of"})


# -- the link --------------------------------------------------------------------------------------


def test_records_say_that_nobody_vouched(peer):
    with pytest.raises(PolicyDenied):
        peer.answer({"a": ToPickle(1)})
    peer.answer(sent(np.ones(2)))
    refused, admitted = peer.audit.events
    for record in (refused, admitted):
        assert (record["sender"], record["recipient"]) == ("unknown", "client")
        said = record["session"].fields
        assert said["authenticated"] is False
        assert (said["transport"], said["address"]) == ("tcp", "tcp://127.0.0.1:8786")
    assert (refused["rule"], refused["family"]) == ("floor.unknown", "pickle")
    assert (admitted["event"], admitted["family"]) == ("admit", "dask")


def test_nothing_is_sealed_for_unknown(peer):
    link: OpenLink = peer.link
    for call in (
        lambda: link.seal(1, link.outbound(Kind.DATA)),
        lambda: link.permit_operation(link.outbound(Kind.DATA)),
        lambda: link.allowed(link.outbound(Kind.DATA)),
    ):
        with pytest.raises(PolicyDenied):
            call()


def test_a_link_takes_its_own_messages_only(peer, make_peer, doors):
    other = make_peer().greet()
    message = other.link.hear([])
    assert "Unverified" in repr(message)
    with pytest.raises(PolicyDenied):
        peer.link.admit(message, peer.link.inbound(Kind.DATA))
    near, _ = doors.links("alice", "scheduler", "demo")
    for forged in (message, Unverified((), near.session.id, 0)):
        with pytest.raises(PolicyDenied):
            near.admit(forged, Context("unknown", "alice", Kind.DATA))


# -- any bytes -------------------------------------------------------------------------------------

MESSAGES = [
    dumps(message)
    for message in (
        [{"op": "key-in-memory", "key": "k", "type": pickle.dumps(int)}, OK],
        [{"op": "task-erred", "key": "k", **failure()}],
        [{"op": "event", "topic": "t", "event": (0, sent([np.ones(3), {"a": (1, b"x")}]))}],
        {"status": "OK", "data": {"k": sent(np.ma.masked_array([1, 2], [0, 1]))}},
        {"a": ToPickle([1]), "b": {1, 2}, "c": sent({"x": np.zeros(2, "i4,f8")})},
    )
]


@draws(60)
@given(st.data())
def test_any_bytes_are_a_value_or_refused(make_peer, data):
    peer = make_peer().greet()
    frames = [bytearray(frame) for frame in data.draw(st.sampled_from(MESSAGES))]
    for _ in range(data.draw(st.integers(1, 4))):
        frame = data.draw(st.sampled_from(frames))
        if frame:
            at = data.draw(st.integers(0, len(frame) - 1))
            frame[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    if data.draw(st.booleans()):
        peer.stream()
    else:
        peer.conversation.note_sent({"op": "gather", "keys": ["k"]})
    with contextlib.suppress(SafeserError):
        peer.hear_frames(frames)
