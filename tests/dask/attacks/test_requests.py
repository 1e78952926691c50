"""Requests whose attack takes more than one message; all others are rows of the tables."""

from __future__ import annotations

import pickle

import msgpack
import pytest

from safeser.dask.messages.conversation import Conversation
from safeser.errors import PayloadError, PolicyDenied
from tests.refusal import refusal


def test_granted_code_arrives_byte_for_byte(talk):
    t = talk("alice")
    code = pickle.dumps(print)
    got = t.request({"op": "run_function", "function": code, "args": b"", "kwargs": b""})
    assert got["function"] == code
    assert t.far.audit.events[-1]["family"] == "cloudpickle"


def test_what_is_not_granted_is_raised_where_it_would_be_sent(talk):
    relayed = {"op": "broadcast", "msg": {"op": "get_data", "keys": ["k"]}, "reply": True}
    for who, at, message, rule in (
        ("bob", "scheduler", {"op": "amm_handler", "method": "stop"}, "operation.not-granted"),
        ("bob", "worker", {"op": "register-client", "client": "c"}, "operation.not-granted"),
        ("bob", "scheduler", relayed, "operation.relayed"),
    ):
        with refusal(PolicyDenied, rule):
            talk(who, at).request(message)


@pytest.mark.parametrize("code", [1, 2])
def test_hashable_places_hold_hashable_values(talk, code):
    t = talk("bob")
    table = msgpack.packb([[{"serializer": "msgpack"}, 1, None, False]])
    reference = msgpack.packb(msgpack.ExtType(code, b"\0\0\0\0"))
    member = msgpack.packb(msgpack.ExtType(3, b"\x91" + reference))
    key = b"\x81" + reference + b"\x01"
    for odd in (member, key):
        body = b"\x82\xa2op\xa8identity\xa1x" + odd
        got = t.raw(body, table, msgpack.packb([1, 2]))
        assert got is t.SKIP or code == 1  # unopened, a payload is only passed on


GREETING = {"compression": None, "pickle-protocol": 5, "python": (3, 11, 7)}


@pytest.mark.parametrize(
    "body",
    [
        *({}, [], "hello", {"op": "identity"}, {"pickle-protocol": 5}),
        *({**GREETING, "python": version} for version in ("3.11", [3, "x"], [True, 1])),
        *({**GREETING, "pickle-protocol": number} for number in (3, 1000, "5")),
    ],
)
def test_a_handshake_that_is_none_is_refused_and_recorded(doors, body):
    near, far = doors.links("bob", "scheduler", "demo")
    conversation = Conversation(far, server=None, opens=True)
    with refusal(PayloadError, "payload.handshake"):
        conversation.receive(far.verify(near.session.seal(b"", [msgpack.packb(body)])), None)
    assert far.audit.rules == ["payload.handshake"]
