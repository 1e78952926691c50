"""Speaking for somebody else on a connection of one's own."""

from __future__ import annotations

import pytest

from safeser.errors import PayloadError
from safeser.families import serialize


def row_of(t, value):
    header, frames = serialize(value, ["dask", "msgpack"])
    return t.Row(header, tuple(frames))


@pytest.mark.parametrize(
    ("asker", "operation", "field"),
    [("bob", "register-client", "client"), ("worker", "register-worker", "address")],
)
@pytest.mark.parametrize("form", ["eager", "opaque", "missing", "none", "tuple", "number"])
def test_whoever_registers_has_a_plain_name(talk, asker, operation, field, form):
    # A reference equals every other reference to the same row, whatever is in the row.
    t = talk(asker)
    row = row_of(t, "Client-of-bob")
    who = {"eager": t.Eager(row), "opaque": row, "none": None, "tuple": ("a",), "number": 1}
    message = {"op": operation, "reply": False, "versions": {}, field: who.get(form)}
    if form == "missing":
        del message[field]
    assert t.attack(message) is t.SKIP
    assert t.refused_by_server == ["stream.identity"]
    assert len(t.answers) == 1


@pytest.mark.parametrize(
    ("asker", "field", "element"),
    [
        ("bob", "client", {"op": "client-releases-keys", "keys": ("k",)}),
        ("worker", "worker", {"op": "add-keys", "keys": ("k",)}),
    ],
)
def test_an_element_names_nobody_by_a_payload(talk, asker, field, element):
    t = talk(asker)
    t = t.client_stream("me") if asker == "bob" else t.worker_stream("me")
    for form in (t.Eager(row_of(t, "me")), t.Eager(row_of(t, "you")), row_of(t, "me"), ("me",)):
        assert t.attack([{**element, field: form}]) is t.SKIP
        assert t.refused_by_server[-1] == "stream.identity"


def test_a_refused_handshake_is_recorded(doors, talk):
    t = type(talk("bob"))(doors, "bob", "scheduler", "demo")
    with pytest.raises(PayloadError, match="handshake"):
        t.attack({"pickle-protocol": 5})
    assert t.refused_by_server == ["payload.handshake"]
