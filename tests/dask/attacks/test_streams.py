"""Stream elements of a peer with a valid session: one that is refused fails alone.

Every payload here would make a file when it is unpickled; the fixture ``marker`` fails a test in
which that happened. Where Dask would unpickle a field, its own functions are used on what it gets.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from distributed.core import clean_exception

from safeser.errors import PolicyDenied

TRUSTED_WITHOUT_CODE = (Path(__file__).parents[1] / "trusted_without_code.yaml").read_text()

FORMS = ("opaque", "eager", "cloudpickle", "failed", "author")
ALL = ("bare", "bytes", "eager-bytes", *FORMS)


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
        talk(who).client_stream().refuses([element])


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
    talk("worker").worker_stream().refuses([element])


def test_a_client_speaks_for_no_other(talk):
    t = talk("bob").client_stream("Client-1")
    for other in ("Client-2", None, 5, ["Client-1"]):
        t.refuses([{"op": "client-releases-keys", "keys": ["x"], "client": other}])
    assert set(t.refused_by_server) == {"stream.identity"}


def test_who_submits_may_fire_and_forget_and_guests_keep_nothing(talk):
    element = {"op": "client-desires-keys", "keys": ["x"], "client": "fire-and-forget"}
    t = talk("alice").client_stream("Client-1")
    [got] = t.attack([element])
    assert got["client"] == "fire-and-forget"
    t.refuses([{**element, "op": "client-releases-keys"}])
    guest = talk("bob").client_stream("Client-1")
    guest.refuses([element])
    assert set(t.refused_by_server + guest.refused_by_server) == {"stream.identity"}


@pytest.mark.parametrize("client", ["fire-and-forget", "queue-q", "variable-v", "published-d"])
def test_nobody_registers_as_what_the_scheduler_keeps_keys_under(talk, client):
    # Leaving would release what others published, and take what all tasks need from the scheduler.
    t = talk("bob")
    t.refuses({"op": "register-client", "client": client, "reply": False, "versions": {}})
    t.refuses({"op": "gather", "keys": ["x"], "client": client})
    t.refuses({"op": "queue_put", "name": "q", "data": 1, "client": client})
    assert t.refused_by_server[0] == t.refused_by_server[2] == "stream.client-id"


def test_a_worker_speaks_for_no_other(talk):
    t = talk("worker").worker_stream("safeser://127.0.0.1:1")
    for element in (
        {"op": "task-finished", "key": "x", "type": "int"},
        {"op": "task-finished", "key": "x", "type": b"x"},
        {"op": "task-erred", "key": "x", "exception": None},
        {"op": "add-keys", "keys": ["x"]},
    ):
        t.refuses([{**element, "worker": "safeser://127.0.0.1:2"}])
    assert set(t.refused_by_server) == {"stream.identity"}


def test_an_element_that_is_not_granted_has_no_substitute(talk):
    policy = TRUSTED_WITHOUT_CODE.replace("{grant: [basic, cluster]}", "{grant: [register-worker]}")
    t = talk("worker", policy=policy).worker_stream()
    t.refuses([{"op": "task-finished", "key": "x", "type": "int"}])


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
    t.refuses([{"op": "update-graph", "keys": keys}])
    assert t.answers == []


@pytest.mark.parametrize("form", ["bytes", "failed", "eager-bytes"])
def test_a_graph_is_one_granted_pickle_or_none(talk, forms, form):
    t = talk("alice").client_stream()
    t.refuses([{"op": "update-graph", "expr_ser": forms[form], "keys": ["x"]}])
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
    up.refuses([{"op": "log-event", "topic": "warn", "msg": event}])
    down = talk("bob").client_stream()
    assert down.attack_back([{"op": "event", "topic": "warn", "event": [1.0, event]}]) is down.SKIP
    rpc = talk("bob")
    if form in ("bare", *FORMS):
        rpc.refuses({"op": "log_event", "topic": "warn", "msg": event})


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
