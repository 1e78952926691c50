"""Families that a requester asks for by name: held against the policy of who answers."""

from __future__ import annotations

import pytest
from distributed.protocol import to_serialize

from safeser.errors import SerializationError
from tests.refusal import refusal


class Local:
    """What only a pickle carries."""

    def __reduce__(self):
        return Local, ()


ASKED = [["pickle", "cloudpickle"], ["pickle"], ["cloudpickle", "dask"], ["safeser-graph"], None]


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize(
    ("asker", "server", "request_", "field"),
    [
        ("bob", "worker", {"op": "get_data", "keys": ["x"]}, "data"),
        ("bob", "scheduler", {"op": "gather", "keys": ["x"]}, "data"),
        ("alice", "scheduler", {"op": "run_function", "function": b""}, "result"),
    ],
)
def test_it_is_held_against_the_policy_of_who_answers(talk, asker, server, request_, field, asked):
    t = talk(asker, server)
    t.request({**request_, "serializers": asked, "reply": True})
    # As Dask does: what the request names is handed to the write.
    value = to_serialize(Local())
    held = value if field == "result" else {"x": value}
    wire = t.server.send({"status": "OK", field: held}, asked)
    rows = t.parsed(wire, t.server).rows
    assert [(row.header["serializer"], row.failed) for row in rows] == [("error", True)]
    with refusal(SerializationError, "peer.unsent"):
        t.carried_back(wire)
    t.request({"op": "identity", "reply": True})
    assert t.reply({"status": "OK"}) == {"status": "OK"}
