"""Speaking for somebody else on a connection of one's own."""

from __future__ import annotations

import pytest

from safeser.errors import PayloadError, PolicyDenied
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
    "name",
    [
        "safeser://127.0.0.1:2",
        "tcp://node:2",
        "127.0.0.1:2",
        "localhost:2",
        "127.0.0.1",
        "::1",
        "[::1]:2",
        "fe80::1%eth0",
    ],
)
def test_no_worker_is_called_like_another_ones_address(talk, name):
    # Dask's scheduler takes an address for a worker's name before it takes it for an address.
    t = talk("worker")
    own = {"op": "register-worker", "reply": False, "address": "safeser://127.0.0.1:1"}
    assert t.attack({**own, "name": name}) is t.SKIP
    assert t.refused_by_server == ["stream.name"]


@pytest.mark.parametrize("name", ["safeser://127.0.0.1:1", "first", "cluster-1:0", 5, "5", ""])
def test_a_worker_has_its_own_name(talk, name):
    t = talk("worker")
    own = {"op": "register-worker", "reply": False, "address": "safeser://127.0.0.1:1"}
    assert t.attack({**own, "name": name})["name"] == name


@pytest.mark.parametrize(
    ("asker", "field", "element"),
    [
        ("bob", "client", {"op": "client-releases-keys", "keys": ("k",)}),
        ("worker", "worker", {"op": "add-keys", "keys": ("k",)}),
    ],
)
def test_an_element_names_nobody_by_a_payload(talk, asker, field, element):
    t = talk(asker)
    t = t.client_stream("Client-me") if asker == "bob" else t.worker_stream("me")
    for form in (t.Eager(row_of(t, "me")), t.Eager(row_of(t, "you")), row_of(t, "me"), ("me",)):
        assert t.attack([{**element, field: form}]) is t.SKIP
        assert t.refused_by_server[-1] == "stream.identity"


def test_a_refused_handshake_is_recorded(doors, talk):
    t = type(talk("bob"))(doors, "bob", "scheduler", "demo")
    with pytest.raises(PayloadError, match="handshake"):
        t.attack({"pickle-protocol": 5})
    assert t.refused_by_server == ["payload.handshake"]


@pytest.mark.parametrize("asker", ["alice", "bob"])
@pytest.mark.parametrize("operation", ["register-client", "scatter", "queue_put", "broadcast"])
def test_a_workers_key_does_not_pass_for_the_schedulers(talk, asker, operation):
    # Dask connects to an address; a thief of a worker's key may be the one who listens there.
    t = talk(asker, "worker")
    message = {"op": operation, "client": "Client-1", "reply": False, "msg": {"op": "identity"}}
    with pytest.raises(PolicyDenied, match="not granted"):
        t.request(message)
    assert t.attack(message) is t.SKIP


@pytest.mark.parametrize("asker", ["alice", "bob"])
def test_users_fetch_from_workers(talk, asker):
    t = talk(asker, "worker")
    assert t.request({"op": "get_data", "keys": ["k"], "who": None})["op"] == "get_data"
