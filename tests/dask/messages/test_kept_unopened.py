"""A scheduler keeps unopened only what Dask marks as a payload; anything else it opens, or refuses.

What it keeps in another place goes out with every answer about that place. One worker's report, or
one guest's event, that nobody can open would end those answers for everybody.
"""

from __future__ import annotations

import pytest

from safeser.dask.contents.failures import Relayed

ADDRESS = "safeser://127.0.0.1:1"
METRICS = {
    "memory": 1,
    "bandwidth": {"total": 1, "workers": {}, "types": {}},
    "digests_total_since_heartbeat": {},
    "spilled_bytes": {"memory": 0, "disk": 0},
}
POISON = {
    "unsent": ({"serializer": "msgpack"}, (b"\xa1x",), None, True),
    "unknown": ({"serializer": "dask", "type": "shop.things:Thing", "sub-header": {}}, (b"x",)),
    "another's": ({"serializer": "msgpack"}, (b"\xa1x",), "alice", True),
}


@pytest.fixture(params=POISON)
def poison(request, talk):
    return talk("bob").Row(*POISON[request.param])


def test_a_report_that_nobody_can_open_is_refused(talk, poison):
    t = talk("worker")
    for message in (
        {"op": "heartbeat_worker", "metrics": {**METRICS, "x": poison}},
        {"op": "heartbeat_worker", "host_info": {"x": poison}, "metrics": METRICS},
        {"op": "register-worker", "address": ADDRESS, "metrics": {**METRICS, "x": poison}},
        {"op": "register-worker", "address": ADDRESS, "versions": {"x": poison}},
        {"op": "register-worker", "address": ADDRESS, "extra": {"x": poison}},
    ):
        t.refuses(message)


def test_so_is_an_event_or_what_is_known_of_a_task(talk, poison):
    t = talk("worker").worker_stream()
    t.refuses([{"op": "log-event", "topic": "x", "msg": {"x": poison}, "worker": ADDRESS}])
    report = {
        "op": "task-finished",
        "key": "x",
        "stimulus_id": "s",
        "run_id": 1,
        "nbytes": 1,
        "metadata": {"x": poison},
        "typename": "int",
        "startstops": (),
        "status": "OK",
        "thread": 1,
    }
    [element] = t.attack([report])
    assert element["op"] == "task-erred"
    t = talk("bob")
    t.refuses({"op": "log_event", "topic": "x", "msg": poison})
    t.refuses({"op": "set_metadata", "keys": ["x"], "value": poison})
    t.refuses({"op": "register-client", "client": "Client-1", "versions": {"x": poison}})


def test_what_anybody_can_open_arrives_as_what_it_is(talk):
    t = talk("worker")
    row = t.Row(*t.in_msgpack([1]))
    got = t.attack({"op": "heartbeat_worker", "metrics": {**METRICS, "x": row}})
    assert tuple(got["metrics"]["x"]) == (1,)


def test_payloads_and_failures_stay_unopened(talk):
    t = talk("alice").registered()
    row = t.Row(*t.in_msgpack([1]))
    got = t.attack({"op": "scatter", "data": {"x": row}, "client": "Client-1"})
    assert isinstance(got["data"]["x"], Relayed)
    t = talk("worker").worker_stream()
    [got] = t.attack(
        [{"op": "task-erred", "key": "x", "stimulus_id": "s", "run_id": 1, "exception": row}]
    )
    assert isinstance(got["exception"], Relayed)
