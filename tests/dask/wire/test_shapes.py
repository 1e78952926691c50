"""Fields that a handler does not take, and values that it would misbehave on, do not reach it."""

from __future__ import annotations

import pytest

from safeser.dask.client_ids import ClientIds
from safeser.dask.wire.reader import Reference
from safeser.dask.wire.shapes import check_built, check_fields
from safeser.errors import PayloadError, PolicyDenied
from safeser.operations import Channel, Server, lookup

REPORT = {
    "op": "task-finished",
    "key": "x",
    "stimulus_id": "s",
    "run_id": 1,
    "metadata": {},
    "nbytes": 28,
    "type": "int",
    "typename": "int",
    "startstops": [{"action": "disk-write", "start": 1.0, "stop": 2.0}],
    "thread": 7,
    "status": "OK",
}


UNKNOWN, SHAPE, GRANTED = (
    "operation.unknown-field",
    "operation.field-shape",
    "operation.not-granted",
)

#: Who asks whom, what, and the rule.
REFUSED = [
    ("bob", "scheduler", {"op": "identity", "comm": 1}, UNKNOWN),
    ("bob", "scheduler", {"op": "gather", "keys": ["x"], 5: "x"}, UNKNOWN),
    ("bob", "scheduler", {"op": "broadcast", "msg": {"op": "identity", "comm": 1}}, UNKNOWN),
    ("bob", "worker", {"op": "get_data", "keys": ["x"], "max_connections": 9}, UNKNOWN),
    ("scheduler", "nanny", {"op": "run", "function": b"", "self": 1}, UNKNOWN),
    ("bob", "scheduler", {"op": "who_has", "keys": "abc"}, SHAPE),
    ("bob", "scheduler", {"op": "who_has", "keys": [], "reply": []}, SHAPE),
    ("bob", "scheduler", {"op": "gather", "keys": ["x"], "serializers": "pickle"}, SHAPE),
    ("bob", "scheduler", {"op": "update_data", "who_has": {"x": ["tcp://a:1"]}}, SHAPE),
    ("bob", "scheduler", {"op": "proxy", "msg": {"op": "identity"}, "worker": "tcp://a:1"}, SHAPE),
    ("alice", "scheduler", {"op": "broadcast", "msg": {"op": "call_stack", "keys": "a"}}, SHAPE),
    ("scheduler", "worker", {"op": "gather", "who_has": {"x": ["tcp://attacker:1"]}}, SHAPE),
    # Who may not ask hears that first.
    ("bob", "scheduler", {"op": "restart", "nonsense": 1}, GRANTED),
    ("bob", "scheduler", {"op": "proxy", "msg": {"op": "run", "x": 1}}, GRANTED),
]


@pytest.mark.parametrize(("asker", "server", "message", "rule"), REFUSED)
def test_what_a_handler_does_not_take_is_refused(talk, asker, server, message, rule):
    t = talk(asker, server)
    t.refuses(message)
    assert t.refused_by_server == [rule]


@pytest.mark.parametrize("relayed", [True, False])
def test_an_uploaded_file_stays_in_its_folder_and_its_sender_hears_how_to_name_it(talk, relayed):
    upload = {"op": "upload_file", "filename": "../x.py", "data": b"x", "load": False}
    t = talk("client", "scheduler" if relayed else "worker", policy="trusted")
    t.refuses({"op": "broadcast", "msg": upload} if relayed else upload)
    assert t.refused_by_server == ["operation.field-shape"]
    said = str(t.answers[0]["exception"])
    assert ("msg.filename" if relayed else "filename") in said
    assert "without any folder" in said


@pytest.mark.parametrize("form", ["data", "object"])
def test_a_payload_stands_for_no_name(talk, form):
    t = talk("alice")
    row = t.Row(*t.in_msgpack({"x": 1} if form == "object" else None))
    for message in (
        {"op": "who_has", "keys": [t.Eager(row)]},
        {"op": "proxy", "msg": {"op": "identity"}, "worker": row},
        {"op": "broadcast", "msg": {"op": "get_story", "keys_or_stimuli": row}},
    ):
        t.refuses(message)
        assert t.refused_by_server.pop() == "operation.field-shape"


def test_a_request_names_no_client_of_another_principals(talk):
    ids = ClientIds()
    alice, again, bob = talk("alice"), talk("alice"), talk("bob")
    for connection in (alice, again, bob):
        connection.server._identity._client_ids = ids
    alice.client_stream("Client-alice")
    message = {"op": "scatter", "data": {}, "client": "Client-alice"}
    bob.refuses(message)
    assert bob.refused_by_server.pop() == "stream.client-id"
    assert again.attack(message) == message
    named = bob.Eager(bob.Row(*bob.in_msgpack("Client-alice")))
    bob.refuses({"op": "scatter", "data": {}, "client": named})
    # Nor one that nobody has registered.
    bob.refuses({"op": "scatter", "data": {}, "client": "Client-bob"})
    assert bob.refused_by_server.pop() == "stream.client-id"
    bob.registered("Client-bob")
    assert bob.attack({"op": "scatter", "data": {}, "client": "Client-bob"}) is not bob.SKIP


# --- streams ------------------------------------------------------------------------------------


def test_an_element_that_would_end_a_stream_is_left_out(talk):
    elements = (
        {"op": "client-desires-keys", "keys": "abc"},
        {"op": "client-releases-keys", "keys": {"x": 1}},
        {"op": "update-data", "who_has": {"x": ["tcp://a:1"]}, "nbytes": {}},
        {"op": "cancel-keys", "keys": ["x"], "force": "no"},
        {"op": "subscribe-topic", "topic": ["x"]},
        {"op": "heartbeat-client", "stimulus_id": "x"},
        {"op": "report-key", "key": "x", "ts": 1},
    )
    t = talk("alice").client_stream()
    assert t.attack([*elements, {"op": "heartbeat-client"}]) == ({"op": "heartbeat-client"},)
    assert len(t.refused_by_server) == len(elements)


@pytest.mark.parametrize("change", [{"nbytes": float("nan")}, {"metadata": ["x"]}, {"cause": "y"}])
def test_a_report_that_makes_no_sense_becomes_a_failure_of_its_task(talk, change):
    t = talk("worker").worker_stream()
    t.refuses([{**REPORT, **change, "key": None}])  # which names no task
    [element] = t.attack([{**REPORT, **change}])
    assert element["op"] == "task-erred"
    assert (element["key"], element["run_id"]) == ("x", 1)
    assert element["exception"].sealed_header == {"serializer": "error"}
    row = lookup(Server.SCHEDULER, Channel.STREAM, "task-erred")
    assert element.keys() - {"op"} <= set(row.takes)
    assert all(row.takes[name](value) for name, value in element.items() if name != "op")


def test_a_task_that_makes_no_sense_fails_where_it_should_have_run(talk):
    t = talk("worker").worker_stream()
    task = {"op": "compute-task", "key": "x", "run_id": 1, "stimulus_id": "s"}
    task |= {"author": "alice", "authors": {"y": "carol"}}
    [element] = t.attack_back([{**task, "priority": "high", "who_has": {"y": ["tcp://a:1"]}}])
    taken = {*lookup(Server.WORKER, Channel.STREAM, "compute-task").takes, "op"}
    assert taken - {"author", "authors"} == element.keys()
    assert element["who_has"] == {}
    assert t.attack_back([{**task, "key": None}]) is t.SKIP
    with pytest.raises(PolicyDenied):
        element["run_spec"]()
    assert t.refused_by_asker == ["operation.field-shape"] * 2


def test_a_client_is_told_nothing_that_makes_no_sense(talk):
    t = talk("bob").client_stream()
    assert t.attack_back(
        [{"op": "cancelled-keys", "keys": "abc"}, {"op": "lost-data", "x": 1}]
    ) is (t.SKIP)
    [element] = t.attack_back([{"op": "task-erred", "key": "x", "exception": None, "why": 1}])
    assert isinstance(element["exception"], PolicyDenied | PayloadError)


@pytest.mark.parametrize(("value", "passes"), [(None, True), ("x", True), (5.5, False)])
def test_a_payload_for_a_field_that_may_be_none_is_asked_again(value, passes):
    row = lookup(Server.SCHEDULER, Channel.RPC, "events")
    assert not check_fields(row, {"op": "events", "topic": None}, payloads=True)
    later = check_fields(row, {"op": "events", "topic": Reference(0, eager=False)}, payloads=True)
    built = {"op": "events", "topic": value}
    if passes:
        check_built(later, built)
    else:
        with pytest.raises(PayloadError):
            check_built(later, built)
