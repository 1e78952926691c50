"""A peer with a valid session says what it likes: each attack is refused, unopened, and answered.

Every payload here would make a file when it is unpickled; the fixture ``marker`` fails a test in
which that happened. Where Dask would unpickle a field, its own functions are used on what it gets.
"""

from __future__ import annotations

import pickle

import msgpack
import pytest
from distributed.core import clean_exception
from distributed.protocol.serialize import deserialize

from safeser.dask.conversation import Conversation
from safeser.errors import PayloadError, PolicyDenied, SafeserError

PICKLE = {"serializer": "pickle", "writeable": []}

#: Like ``demo``, but guests are trusted with authority by name and with no pickle at all.
TRUSTED_WITHOUT_CODE = """
safeser: 1
name: authority
revision: 1
principals: {scheduler: {}, worker: {}, nanny: {}, alice: {}, bob: {}}
contexts:
  - name: down
    sender: scheduler
    recipient: [worker, nanny]
    submission: code
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {grant: [basic, cluster, run, plugins, control]}
  - name: up
    sender: [worker, nanny]
    recipient: scheduler
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {grant: [basic, cluster]}
  - name: between
    sender: worker
    recipient: worker
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    pickle: {profile: [data]}
    operations: {grant: [basic, cluster]}
  - name: guests
    sender: [alice, bob]
    recipient: [scheduler, worker]
    submission: code
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {grant: [basic, run, plugins, control]}
  - name: results
    sender: [scheduler, worker]
    recipient: [alice, bob]
    kinds: [admin, data]
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {grant: [basic, restart]}
"""


def in_msgpack(data):
    """Return the row of a payload of family msgpack that holds nothing but bytes."""
    return {"serializer": "msgpack"}, (msgpack.packb(data),)


@pytest.fixture
def forms(talk, marker):
    """Return the ways in which a pickle can stand in a field."""
    row = talk("bob").Row
    eager = talk("bob").Eager
    evil = marker.pickle
    pickled = row(PICKLE, (evil,))
    return {
        "bare": evil,
        "opaque": pickled,
        "eager": eager(pickled),
        "cloudpickle": row({**PICKLE, "serializer": "cloudpickle"}, (evil,)),
        "bytes": row(*in_msgpack(evil)),
        "eager-bytes": eager(row(*in_msgpack(evil))),
        "failed": row(PICKLE, (evil,), None, True),
        "author": row(PICKLE, (evil,), "alice"),
    }


FORMS = ("opaque", "eager", "cloudpickle", "failed", "author")
ALL = ("bare", "bytes", "eager-bytes", *FORMS)


def assert_refused(t, message):
    before = len(t.refused_by_server)
    assert t.attack(message) is t.SKIP
    assert len(t.refused_by_server) > before
    for answer in t.answers:
        if isinstance(answer, dict) and isinstance(answer["exception"], Exception):
            clean_exception(answer["exception"], answer["traceback"])


# --- requests ---------------------------------------------------------------------------------


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
        assert_refused(t, message)


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
    assert_refused(t, _filled(message, forms[form]))


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
    assert_refused(t, _filled(message, forms[form]))


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
    assert_refused(t, {"op": "run_function", "function": forms[form]})


def test_granted_code_arrives_byte_for_byte(talk):
    t = talk("alice")
    code = pickle.dumps(print)
    got = t.request({"op": "run_function", "function": code, "args": b"", "kwargs": b""})
    assert got["function"] == code
    assert t.far.audit.events[-1]["family"] == "cloudpickle"


@pytest.mark.parametrize("nested", [{}, {"op": 5}, {"op": "no-such"}, "x", None, 5])
def test_a_relay_without_a_known_operation_is_refused(talk, nested):
    t = talk("alice")
    assert_refused(t, {"op": "broadcast", "msg": nested})


@pytest.mark.parametrize("relay", ["broadcast", "proxy"])
@pytest.mark.parametrize(
    "inner", ["run", "upload_file", "plugin-add", "terminate", "broadcast", "proxy", "compute-task"]
)
def test_a_relay_carries_only_what_its_sender_may_ask_for(talk, relay, inner):
    t = talk("bob")
    assert_refused(t, {"op": relay, "msg": {"op": inner, "msg": {"op": "identity"}}})


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
    assert_refused(talk("bob"), message)


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


# --- shuffles ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("form", ["bare", "opaque", "eager", "bytes"])
def test_shards_are_opened_until_nothing_is_left_to_unpickle(talk, marker, layers, form):
    t = talk("worker", "worker")
    data = marker.pickle
    for _ in range(layers - 1):
        data = pickle.dumps(data)
    if form == "bytes":
        data = t.Row(*in_msgpack(data))
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
        data = t.Row(*in_msgpack(data)) if form == "bytes" else t.Row(PICKLE, (data,))
    got = t.attack({"op": "shuffle_receive", "data": data, "shuffle_id": "s", "run_id": 1})
    assert got["data"] == shards


# --- replies ----------------------------------------------------------------------------------


def asks(talk, asker="alice", server="scheduler", policy="demo", **message):
    t = talk(asker, server, policy)
    t.request({"op": "identity", "reply": True, **message})
    return t


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize("field", ["exception", "traceback"])
def test_errors_in_replies_are_never_unpickled(talk, forms, form, field):
    t = asks(talk)
    reply = {"status": "uncaught-error", "exception": None, "traceback": None, field: forms[form]}
    try:
        got = t.attack_back(reply)
    except SafeserError:
        return
    clean_exception(got["exception"] or "none", got["traceback"])


@pytest.mark.parametrize("form", ["opaque", "eager", "cloudpickle"])
def test_no_pickle_comes_back_to_a_client(talk, forms, form):
    t = asks(talk)
    for reply in (forms[form], {"x": forms[form]}, [[forms[form]]]):
        with pytest.raises(PolicyDenied):
            t.attack_back(reply)
    assert t.refused_by_asker.count("context.family") == 3


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize(
    ("operation", "around"),
    [
        ("register_worker_plugin", lambda error: {"w": error}),
        ("register_nanny_plugin", lambda error: {"w": error}),
        ("unregister_worker_plugin", lambda error: {"w": error}),
        ("queue_get", lambda error: error),
        ("queue_get", lambda error: [error]),
        ("variable_get", lambda error: error),
        ("broadcast", lambda error: {"w": error}),
        ("broadcast", lambda error: {"w": error["exception"]}),
        ("run_function", lambda error: error),
        ("proxy", lambda error: error),
    ],
)
def test_errors_inside_replies_are_never_unpickled(talk, forms, operation, around, form):
    t = talk("alice")
    extra = {"msg": {"op": "identity"}} if operation in ("broadcast", "proxy") else {}
    t.asker.send({"op": operation, "plugin": b"", "name": "x", "reply": True, **extra})
    error = {"status": "error", "type": "Future", "state": "erred", "exception": forms[form]}
    try:
        got = t.attack_back(around({**error, "traceback": None}))
    except SafeserError:
        return
    _as_dask_reads(got)


def _as_dask_reads(reply):
    """Do to errors anywhere in *reply* what Dask's client does to them."""
    if isinstance(reply, dict):
        if "exception" in reply:
            clean_exception(reply["exception"], reply.get("traceback"))
        for item in reply.values():
            _as_dask_reads(item)
    elif isinstance(reply, tuple | list):
        for item in reply:
            _as_dask_reads(item)
    elif isinstance(reply, bytes):  # Client.run takes bytes for an exception
        pickle.loads(reply)


@pytest.mark.parametrize("form", ["bare", "bytes", "eager-bytes", "eager"])
def test_types_in_replies_are_never_unpickled(talk, forms, form):
    t = talk("alice")
    t.request({"op": "get_task_stream", "start": None, "reply": True})
    with pytest.raises(SafeserError):
        t.attack_back([{"key": "x", "type": forms[form]}])


@pytest.mark.parametrize("form", ALL)
def test_plugins_come_only_from_whoever_may_send_code(talk, forms, form):
    t = talk("worker", "scheduler", TRUSTED_WITHOUT_CODE)
    t.request({"op": "register_nanny", "address": "x", "reply": True})
    with pytest.raises(SafeserError):
        t.attack_back({"status": "OK", "nanny-plugins": {"x": forms[form]}})


def test_a_reply_to_nothing_is_refused(talk):
    t = talk("alice")
    with pytest.raises(SafeserError):
        t.attack_back({"status": "OK"})


def test_a_failed_row_raises_its_text_without_control_characters(talk):
    t = asks(talk, op="gather", keys=["x"])
    row = t.Row(*in_msgpack("because\x1b[2J" + "x" * 10_000), None, True)
    with pytest.raises(PayloadError) as caught:
        t.attack_back({"status": "OK", "data": {"x": row}})
    assert caught.value.rule == "peer.unsent"
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("author", ["scheduler", "alice", "worker", "nobody", "any", "unknown"])
def test_an_authors_name_adds_nothing(talk, marker, author):
    t = asks(talk, op="gather", keys=["x"])
    with pytest.raises(PolicyDenied):
        t.attack_back({"data": {"x": t.Row(PICKLE, (marker.pickle,), author)}})
    up = talk("alice")
    if author != "alice":
        assert_refused(up, {"op": "scatter", "data": {"x": up.Row(PICKLE, (b"",), author)}})


# --- streams ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "element",
    [
        {"op": "task-finished", "key": "x", "worker": "w", "nbytes": 1, "type": None},
        {"op": "task-finished", "key": "x", "worker": "w", "type": b"x"},
        {"op": "task-erred", "key": "x", "exception": None},
        {"op": "add-keys", "keys": ["x"]},
        {"op": "long-running", "key": "x"},
        {"op": "log-event", "topic": "warn", "msg": {}},
        {"op": "compute-task", "key": "x"},
        {"op": "key-in-memory", "key": "x"},
        {"op": "register-worker"},
    ],
)
def test_a_client_says_nothing_that_only_workers_say(talk, element):
    for who in ("alice", "bob"):
        assert_refused(talk(who).client_stream(), [element])


@pytest.mark.parametrize(
    "element",
    [
        {"op": "update-graph", "keys": ["x"]},
        {"op": "client-desires-keys", "keys": ["x"], "client": "Client-1"},
        {"op": "cancel-keys", "keys": ["x"]},
        {"op": "close-client"},
    ],
)
def test_a_worker_says_nothing_that_only_clients_say(talk, element):
    assert_refused(talk("worker").worker_stream(), [element])


def test_a_client_speaks_for_no_other(talk):
    t = talk("bob").client_stream("Client-1")
    for other in ("Client-2", None, 5, ["Client-1"]):
        assert_refused(t, [{"op": "client-releases-keys", "keys": ["x"], "client": other}])
    assert set(t.refused_by_server) == {"stream.identity"}


def test_a_worker_speaks_for_no_other(talk):
    t = talk("worker").worker_stream("safeser://127.0.0.1:1")
    for element in (
        {"op": "task-finished", "key": "x", "type": "int"},
        {"op": "task-finished", "key": "x", "type": b"x"},
        {"op": "task-erred", "key": "x", "exception": None},
        {"op": "add-keys", "keys": ["x"]},
    ):
        assert_refused(t, [{**element, "worker": "safeser://127.0.0.1:2"}])
    assert set(t.refused_by_server) == {"stream.identity"}


def test_an_element_that_is_not_granted_has_no_substitute(talk):
    policy = TRUSTED_WITHOUT_CODE.replace("{grant: [basic, cluster]}", "{grant: [register-worker]}")
    t = talk("worker", policy=policy).worker_stream()
    assert_refused(t, [{"op": "task-finished", "key": "x", "type": "int"}])


@pytest.mark.parametrize("form", ALL)
def test_a_refused_graph_fails_its_futures_and_nothing_else(talk, forms, form):
    t = talk("bob").client_stream()
    keys = ["x", ("y", 1), None]
    got = t.attack(
        [{"op": "update-graph", "expr_ser": forms[form], "keys": keys}, {"op": "heartbeat-client"}]
    )
    assert got == ({"op": "heartbeat-client"},)
    [answer] = t.answers
    assert [element["key"] for element in answer[:2]] == ["x", ("y", 1)]
    for element in answer:
        assert element["op"] == "task-erred"
        assert isinstance(element["exception"], PolicyDenied)
        clean_exception(element["exception"], element["traceback"])
    assert t.refused_by_server[0] == "submission.none"


@pytest.mark.parametrize("keys", [None, 5, "xy", {"x": 1}, []])
def test_a_refused_graph_without_keys_is_only_refused(talk, keys):
    t = talk("bob").client_stream()
    assert_refused(t, [{"op": "update-graph", "keys": keys}])
    assert t.answers == []


@pytest.mark.parametrize("form", ["bytes", "failed", "eager-bytes"])
def test_a_graph_is_one_granted_pickle_or_none(talk, forms, form):
    t = talk("alice").client_stream()
    assert_refused(t, [{"op": "update-graph", "expr_ser": forms[form], "keys": ["x"]}])
    [[element]] = t.answers
    assert element["key"] == "x"


@pytest.mark.parametrize("form", ALL)
def test_types_from_workers_are_names_or_nothing(talk, forms, form):
    t = talk("worker").worker_stream()
    got = t.attack([{"op": "task-finished", "key": "x", "type": forms[form], "nbytes": 8}])
    assert got == ({"op": "task-finished", "key": "x", "type": None, "nbytes": 8},)
    assert t.refused_by_server


@pytest.mark.parametrize("form", ALL)
def test_errors_from_workers_are_data_or_nothing(talk, forms, form):
    t = talk("worker").worker_stream()
    got = t.attack([{"op": "task-erred", "key": "x", "exception": forms[form], "traceback": b"x"}])
    if got is t.SKIP:
        return
    [element] = got
    assert element["traceback"] is None
    # What the scheduler passes on, a client refuses or reads as data.
    down = talk("bob").client_stream()
    seen = down.reply([{**element, "op": "task-erred"}])
    for each in () if seen is down.SKIP else seen:
        clean_exception(each["exception"], each["traceback"])


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize("field", ["message", "category"])
def test_warnings_are_text(talk, forms, form, field):
    event = {"message": "careful", "category": "builtins:UserWarning", field: forms[form]}
    up = talk("worker").worker_stream()
    assert_refused(up, [{"op": "log-event", "topic": "warn", "msg": event}])
    down = talk("bob").client_stream()
    assert down.attack_back([{"op": "event", "topic": "warn", "event": [1.0, event]}]) is down.SKIP
    rpc = talk("bob")
    if form in ("bare", *FORMS):
        assert_refused(rpc, {"op": "log_event", "topic": "warn", "msg": event})


@pytest.mark.parametrize(
    "event", [None, 5, [1], [1, 2], [1, {"message": 5}], [1, {}], {"message": "x"}]
)
def test_a_warning_that_is_none_is_left_out(talk, event):
    t = talk("bob").client_stream()
    assert t.attack_back([{"op": "event", "topic": "warn", "event": event}]) is t.SKIP


@pytest.mark.parametrize(
    ("category", "shown"),
    [
        ("builtins:DeprecationWarning", DeprecationWarning),
        ("builtins:print", UserWarning),
        ("builtins:Warning.mro", UserWarning),
        ("os:system", UserWarning),
        ("builtins:ValueError", UserWarning),
        (None, UserWarning),
    ],
)
def test_a_warnings_category_is_a_builtin_warning(talk, category, shown):
    t = talk("bob").client_stream()
    event = [1.0, {"message": "m", "category": category, "more": b"x"}]
    [got] = t.attack_back([{"op": "event", "topic": "warn", "event": event}])
    assert pickle.loads(got["event"][1]["category"]) is shown
    assert set(got["event"][1]) == {"message", "category"}


@pytest.mark.parametrize("form", ALL)
def test_types_at_a_client_are_made_here(talk, forms, form):
    t = talk("bob").client_stream()
    [got] = t.attack_back([{"op": "key-in-memory", "key": "x", "type": forms[form]}])
    assert got["key"] == "x"
    assert got["type"] is None


@pytest.mark.parametrize(
    "name", ["builtins.int", "os.system", "a" * 5000, "", "..", "x:y.z", "\x1b[2J", "é.ü"]
)
def test_a_type_at_a_client_is_only_its_name(talk, name):
    t = talk("bob").client_stream()
    [got] = t.attack_back([{"op": "key-in-memory", "key": "x", "type": name}])
    made = pickle.loads(got["type"])
    assert isinstance(made, type)
    assert made.__bases__ == (object,)
    assert len(made.__qualname__) <= 200


@pytest.mark.parametrize("form", ALL)
def test_errors_at_a_client_fail_that_future_only(talk, forms, form):
    t = talk("bob").client_stream()
    [first, second] = t.attack_back(
        [
            {"op": "task-erred", "key": "x", "exception": forms[form], "traceback": b"x"},
            {"op": "key-in-memory", "key": "y", "type": None},
        ]
    )
    assert (first["op"], first["key"]) == ("task-erred", "x")
    _, error, traceback = clean_exception(first["exception"], first["traceback"])
    assert isinstance(error, Exception)
    assert traceback is None
    assert second["key"] == "y"


@pytest.mark.parametrize("form", ALL)
def test_a_status_does_not_end_a_clients_report_loop(talk, forms, form):
    t = talk("bob").client_stream()
    element = {"op": "lost-data", "key": "x", "status": "error", "traceback": None}
    got = t.attack_back([{**element, "exception": forms[form]}])
    if got is not t.SKIP:
        assert "status" not in got[0]
        clean_exception(got[0]["exception"], got[0]["traceback"])
    assert t.attack_back({"status": "error", "exception": forms[form]}) is t.SKIP


@pytest.mark.parametrize("form", FORMS)
def test_a_task_from_a_scheduler_that_may_send_no_code_fails(talk, forms, form):
    t = talk("worker", policy=TRUSTED_WITHOUT_CODE).worker_stream()
    got = t.attack_back(
        [
            {"op": "compute-task", "key": "x", "run_spec": forms[form], "who_has": {"k": ["w"]}},
            {"op": "free-keys", "keys": ["z"]},
        ]
    )
    assert [element["op"] for element in got] == ["compute-task", "free-keys"]
    assert got[0]["who_has"] == {"k": ("w",)}
    with pytest.raises(PolicyDenied):
        got[0]["run_spec"]()


@pytest.mark.parametrize("key", [None, 1.5, ["x"], {"x": 1}])
def test_a_refused_element_without_a_key_is_left_out(talk, forms, key):
    t = talk("worker", policy=TRUSTED_WITHOUT_CODE).worker_stream()
    element = {"op": "compute-task", "key": key, "run_spec": forms["opaque"]}
    got = t.attack_back([element])
    assert got is t.SKIP or key == ["x"]  # lists are tuples here, which are keys


# --- anything ---------------------------------------------------------------------------------


def test_what_a_scheduler_relays_no_code_of_dasks_can_open(talk):
    # Dask's own plugins for installing packages do this with what workers answer.
    t = talk("scheduler", "worker")
    t.request({"op": "plugin-add", "plugin": b"", "name": "x", "reply": True})
    row = t.Row(PICKLE, (pickle.dumps({"a": 1}),))
    relayed = t.attack_back({"status": "error", "exception": row, "traceback": None})["exception"]
    with pytest.raises(Exception, match="safeser"):
        deserialize(relayed.header, relayed.frames)


def test_greetings_are_not_requests(doors):
    near, far = doors.links("bob", "scheduler")
    conversation = Conversation(far, server=None, opens=False)
    frames = near.session.seal(b"", [msgpack.packb({"op": "identity"})])
    with pytest.raises(PayloadError):
        conversation.receive(far.verify(frames), None)
