"""Requests of a peer with a valid session: each attack is refused, unopened, and answered.

Every payload here would make a file when it is unpickled; the fixture ``marker`` fails a test in
which that happened. Where Dask would unpickle a field, its own functions are used on what it gets.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import msgpack
import pytest

from safeser.dask.messages.conversation import Conversation
from safeser.errors import PayloadError, PolicyDenied

TRUSTED_WITHOUT_CODE = (Path(__file__).parents[1] / "trusted_without_code.yaml").read_text()

FORMS = ("opaque", "eager", "cloudpickle", "failed", "author")
ALL = ("bare", "bytes", "eager-bytes", *FORMS)

PICKLE = {"serializer": "pickle", "writeable": []}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("asker", "server", "policy"),
    [
        ("bob", "scheduler", "demo"),
        ("bob", "worker", "demo"),
        ("worker", "scheduler", "demo"),
        ("alice", "scheduler", "demo"),
        ("scheduler", "worker", "demo"),
        ("scheduler", "nanny", "demo"),
    ],
)
def test_no_pickle_stands_in_a_field_that_has_none(talk, forms, form, asker, server, policy):
    t = talk(asker, server, policy)
    for message in (
        {"op": "identity", "note": forms[form]},
        {"op": "identity", "deep": {"er": [forms[form]]}},
    ):
        t.refuses(message)


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize(
    "message",
    [
        {"op": "run_function", "function": None},
        {"op": "run_function", "kwargs": None, "function": b""},
        {"op": "feed", "function": b"", "setup": None, "teardown": b"", "interval": 1},
        {"op": "register_scheduler_plugin", "plugin": None, "name": "x", "idempotent": True},
        {"op": "register_worker_plugin", "plugin": None, "name": "x", "idempotent": True},
        {"op": "workers_to_close", "key": None},
        {"op": "retire_workers", "key": None},
        {"op": "broadcast", "msg": {"op": "run", "function": None}},
        {"op": "broadcast", "msg": {"op": "plugin-add", "plugin": [{"deep": None}]}},
        {"op": "proxy", "msg": {"op": "run", "args": None}, "worker": "x"},
    ],
)
def test_what_a_handler_would_unpickle_needs_a_grant_of_code(talk, forms, message, form):
    t = talk("bob", policy=TRUSTED_WITHOUT_CODE)
    t.refuses(_filled(message, forms[form]))


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize(
    "message",
    [
        {"op": "run", "function": None},
        {"op": "run_coroutine", "function": b"", "args": None},
        {"op": "plugin-add", "plugin": None, "name": "x"},
    ],
)
def test_nor_does_a_worker_open_it(talk, forms, message, form):
    t = talk("bob", "worker", TRUSTED_WITHOUT_CODE)
    t.refuses(_filled(message, forms[form]))


def _filled(value, evil):
    if value is None:
        return evil
    if isinstance(value, dict):
        return {key: _filled(item, evil) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, evil) for item in value]
    return value


@pytest.mark.parametrize("form", ["bytes", "eager-bytes", "opaque", "eager"])
def test_even_with_a_grant_a_bare_pickle_is_bare(talk, forms, form):
    # Where Dask's handler expects bytes, a payload would be judged as something else than is run.
    t = talk("alice")
    t.refuses({"op": "run_function", "function": forms[form]})


def test_granted_code_arrives_byte_for_byte(talk):
    t = talk("alice")
    code = pickle.dumps(print)
    got = t.request({"op": "run_function", "function": code, "args": b"", "kwargs": b""})
    assert got["function"] == code
    assert t.far.audit.events[-1]["family"] == "cloudpickle"


@pytest.mark.parametrize("nested", [{}, {"op": 5}, {"op": "no-such"}, "x", None, 5])
def test_a_relay_without_a_known_operation_is_refused(talk, nested):
    t = talk("alice")
    t.refuses({"op": "broadcast", "msg": nested})


_RELAYED = {
    "run": {"function": b"", "wait": True},
    "upload_file": {"filename": "x.py", "data": b"x", "load": True},
    "plugin-add": {"plugin": b"", "name": "x"},
    "plugin-remove": {"name": "x"},
    "terminate": {"reason": "x"},
    "actor_execute": {"actor": "x", "function": "x"},
    "dump_state": {},
}


@pytest.mark.parametrize("relay", [{"op": "broadcast"}, {"op": "proxy", "worker": "x"}])
@pytest.mark.parametrize("inner", _RELAYED)
def test_a_relay_carries_only_what_its_sender_may_ask_for(talk, relay, inner):
    # Nothing else is wrong with these: fields and shapes are those of honest requests.
    t = talk("bob")
    t.refuses({**relay, "msg": {"op": inner, **_RELAYED[inner]}})
    assert t.refused_by_server == ["operation.not-granted"]


@pytest.mark.parametrize("relay", [{"op": "broadcast"}, {"op": "proxy", "worker": "x"}])
@pytest.mark.parametrize("inner", ["broadcast", "proxy", "compute-task"])
def test_a_relay_carries_no_relay_and_no_element(talk, relay, inner):
    t = talk("alice")
    t.refuses({**relay, "msg": {"op": inner, "msg": {"op": "identity"}}})
    assert t.refused_by_server == ["operation.unknown"]


@pytest.mark.parametrize("relay", [{"op": "broadcast"}, {"op": "proxy", "worker": "x"}])
@pytest.mark.parametrize("who", ["alice", "bob"])
@pytest.mark.parametrize(
    "inner",
    [
        {"op": "update_data", "data": {"k": 1}},
        {"op": "gather", "who_has": {"k": ["safeser://127.0.0.1:1"]}},
        {"op": "get_data", "keys": ["k"]},
        {"op": "free_keys", "keys": ["k"], "stimulus_id": "x"},
        {"op": "shuffle_receive", "shuffle_id": "x", "run_id": 1, "data": b""},
        {"op": "shuffle_inputs_done", "shuffle_id": "x", "run_id": 1},
    ],
    ids=lambda inner: inner["op"],
)
def test_no_relay_brings_values_to_workers_in_the_schedulers_name(talk, who, relay, inner):
    t = talk(who)
    with pytest.raises(PolicyDenied, match="no relay carries"):
        t.asker.send({**relay, "msg": inner, "reply": True})
    t.refuses({**relay, "msg": inner})
    assert t.refused_by_server == ["operation.relayed"]


def test_a_relay_carries_what_its_sender_may_ask_for(talk):
    t = talk("bob")
    got = t.attack({"op": "broadcast", "msg": {"op": "identity"}})
    assert got["msg"] == {"op": "identity"}


@pytest.mark.parametrize(
    "message",
    [
        {"op": "upload_file", "filename": "../x.py", "data": b"import os"},
        {"op": "echo", "data": 1},
        {"op": "connection_stream"},
        {"op": "dump_cluster_state_to_url", "url": "file:///tmp/x"},
        {"op": "restart"},
        {"op": "no-such-operation"},
        {"op": "update-graph"},
        {"op": "OK"},
        {"op": 5},
        {"op": None},
        {},
        [],
        "identity",
        None,
    ],
)
def test_what_is_not_granted_or_known_is_refused(talk, message):
    talk("bob").refuses(message)


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


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("form", ["bare", "opaque", "eager", "bytes"])
def test_shards_are_opened_until_nothing_is_left_to_unpickle(talk, marker, layers, form):
    t = talk("worker", "worker")
    data = marker.pickle
    for _ in range(layers - 1):
        data = pickle.dumps(data)
    if form == "bytes":
        data = t.Row(*t.in_msgpack(data))
    elif form != "bare":
        row = t.Row(PICKLE, (pickle.dumps(data),))
        data = t.Eager(row) if form == "eager" else row
    got = t.attack({"op": "shuffle_receive", "data": data, "shuffle_id": "s", "run_id": 1})
    assert got is t.SKIP
    assert t.refused_by_server


@pytest.mark.parametrize("form", ["bare", "bytes", "pickle"])
def test_honest_shards_arrive(talk, form):
    t = talk("worker", "worker")
    shards = [(0, [1, 2]), (1, [3])]
    data = pickle.dumps(shards)
    if form != "bare":
        data = t.Row(*t.in_msgpack(data)) if form == "bytes" else t.Row(PICKLE, (data,))
    got = t.attack({"op": "shuffle_receive", "data": data, "shuffle_id": "s", "run_id": 1})
    assert got["data"] == shards


def test_greetings_are_not_requests(doors):
    near, far = doors.links("bob", "scheduler")
    conversation = Conversation(far, server=None, opens=False)
    frames = near.session.seal(b"", [msgpack.packb({"op": "identity"})])
    with pytest.raises(PayloadError):
        conversation.receive(far.verify(frames), None)


# --- a worker's word to another ------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["dask-cluster", "demo", "default"])
@pytest.mark.parametrize(
    "request_",
    [
        {"op": "gather", "who_has": {"x": ["safeser://127.0.0.1:1"]}},
        {"op": "free_keys", "keys": ["x"], "stimulus_id": "s"},
        {"op": "update_data", "data": {"x": 1}},
        {"op": "shuffle_inputs_done", "shuffle_id": "x", "run_id": 1},
    ],
    ids=["gather", "free_keys", "update_data", "shuffle_inputs_done"],
)
def test_what_a_worker_does_for_its_scheduler_no_other_worker_is_granted(talk, policy, request_):
    # The values that it fetches, it takes for the results of the tasks of those names.
    t = talk("worker", "worker", policy=policy)
    t.refuses(request_)
    assert t.refused_by_server == ["operation.not-granted"]
    t = talk("scheduler", "worker", policy=policy)
    assert t.attack(request_)["op"] == request_["op"]


# --- one handler, two groups ---------------------------------------------------------------------


def amm(method, **more):
    return {"op": "amm_handler", "method": method, **more}


@pytest.mark.parametrize("method", ["start", "stop", "run_once"])
def test_who_has_no_control_does_not_steer_the_memory_manager(talk, method):
    t = talk("bob")
    with pytest.raises(PolicyDenied, match="operation amm_handler is not granted"):
        t.request(amm(method))
    t.refuses(amm(method))
    assert t.refused_by_server[-1] == "operation.not-granted"
    assert t.far.audit.events[-1]["operation"] == "amm_handler"


def test_who_may_connect_may_ask_whether_it_runs(talk):
    for asker in ("bob", "alice"):
        assert talk(asker).request(amm("running"))["method"] == "running"


@pytest.mark.parametrize("method", ["start", "stop", "run_once"])
def test_who_has_control_does(talk, method):
    assert talk("alice").request(amm(method))["method"] == method


@pytest.mark.parametrize(
    "method", ["__init__", "add_policy", "policies", "_run_policies", "", 5, None]
)
@pytest.mark.parametrize("asker", ["alice", "bob"])
def test_no_other_attribute_is_looked_up(talk, asker, method):
    talk(asker).refuses(amm(method))


@pytest.mark.parametrize("asker", ["alice", "bob"])
def test_nor_by_a_payload_in_place_of_the_name(talk, asker):
    t = talk(asker)
    for method in ("stop", "__init__", "add_policy"):
        row = t.Row(*t.in_msgpack(method))
        for form in (row, t.Eager(row)):
            if (asker, method) == ("alice", "stop"):
                continue
            t.refuses(amm(form))


def test_what_the_table_calls_a_row_is_no_operation(talk):
    talk("alice").refuses({"op": "amm_running", "method": "running"})


@pytest.mark.parametrize("method", ["running", "stop"])
def test_no_relay_carries_it(talk, method):
    talk("alice").refuses({"op": "broadcast", "msg": amm(method)})
