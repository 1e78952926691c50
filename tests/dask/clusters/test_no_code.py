"""No pickle comes to a client, by any way: an error of its own does, and the next thing works.

Alice may run code on the cluster, and is sent none; bob finds what she left there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed.protocol import to_serialize

from safeser.errors import SerializationError

PROGRAM = Path(__file__).parents[1] / "programs" / "no_code.py"

UNSENT = "SerializationError", "peer.unsent"
FELL = "Exception", ""

#: By the step: which error it was, or what came.
ALICE = {
    "result": UNSENT,
    "gathered": ["peer.unsent", "peer.unsent", -3],
    "kept_type": [False, True],
    "error": FELL,
    "its_traceback": ["Exception", True, None],
    "warning": ["UserWarning"],
    "event": ["bytes", "int"],
    "event_kept": ["bytes", "int"],
    "actor_result": UNSENT,
    "actor_attribute": UNSENT,
    "plugin_reply": FELL,
    "queue_item": ["families.cannot-serialize", "families.cannot-serialize", 4],
    "variable": ["families.cannot-serialize", "families.cannot-serialize", 8],
    "future_in_a_variable": UNSENT,
    "dataset": UNSENT,
    "run_reply": UNSENT,
    "run_error": FELL,
    "run_on_scheduler_reply": UNSENT,
    "names_of_families": ["peer.unsent", "peer.unsent"],
}
BOB = dict.fromkeys(("future", "past the scheduler", "dataset", "names of families"), UNSENT)


@pytest.fixture(scope="module")
def walked(cluster, tmp_path_factory):
    """What each of them heard, one after the other."""
    opened = tmp_path_factory.mktemp("walk") / "opened"
    said = {}
    for who in ("alice", "bob"):
        ended = cluster.run(who, PROGRAM, cluster.address, who, str(opened), timeout=200)
        assert ended.code == 0, f"{ended.err}\n{cluster.logs()}"
        said[who] = ended.answer
    return said


STEPS = [("alice", step) for step in ALICE] + [("bob", step) for step in BOB]


@pytest.mark.cluster
@pytest.mark.parametrize(("who", "step"), STEPS)
def test_an_error_comes_in_its_place_and_the_client_goes_on(walked, who, step):
    kind, rule, came, soon, works_afterwards = walked[who][step]
    expected = {"alice": ALICE, "bob": BOB}[who][step]
    if isinstance(expected, tuple):
        assert (kind, rule) == expected, came
        assert "Trap" in came or "cloudpickle" in came
    else:
        assert (kind, came) == ("returned", expected)
    assert soon
    assert works_afterwards


@pytest.mark.cluster
@pytest.mark.parametrize("who", ["alice", "bob"])
def test_nothing_was_opened_there_and_it_would_have_been_seen(walked, who):
    assert walked[who]["opened here"] is False
    assert walked[who]["the trap works"] is True


# --- what a requester asks for by name ------------------------------------------------------------


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
    with pytest.raises(SerializationError) as caught:
        t.carried_back(wire)
    assert caught.value.rule == "peer.unsent"
    t.request({"op": "identity", "reply": True})
    assert t.reply({"status": "OK"}) == {"status": "OK"}


def test_where_policy_lets_it_leave_it_does(talk):
    """The positive control: a scheduler that asks a worker under a policy of trust."""
    t = talk("client", "worker", policy="trusted")
    t.request({"op": "get_data", "keys": ["x"], "serializers": ["cloudpickle"], "reply": True})
    wire = t.server.send({"status": "OK", "data": {"x": to_serialize(Local())}}, ["cloudpickle"])
    [row] = t.parsed(wire, t.server).rows
    assert row.header["serializer"] == "cloudpickle"
    assert type(t.carried_back(wire)["data"]["x"]) is Local
