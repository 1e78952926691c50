"""Replies of a peer with a valid session: nothing in them is unpickled, errors least of all.

Every payload here would make a file when it is unpickled; the fixture ``marker`` fails a test in
which that happened. Where Dask would unpickle a field, its own functions are used on what it gets.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from distributed.core import clean_exception
from distributed.protocol.serialize import deserialize

from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.families.errors import wire

TRUSTED_WITHOUT_CODE = (Path(__file__).parents[1] / "trusted_without_code.yaml").read_text()

FORMS = ("opaque", "eager", "cloudpickle", "failed", "author")
ALL = ("bare", "bytes", "eager-bytes", *FORMS)

PICKLE = {"serializer": "pickle", "writeable": []}


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


def test_an_error_that_is_told_as_text_steers_no_terminal(talk):
    # clean_exception makes an Exception of text, whose traceback is printed as it is.
    steering = "\x1b[2J\r\u202e"
    reply = {"status": "uncaught-error", "exception": steering, "traceback": None}
    told = [asks(talk).attack_back(reply)["exception"]]
    erred = {"op": "task-erred", "key": "x", "exception": steering, "traceback": None}
    told += [each["exception"] for each in talk("alice").client_stream().attack_back([erred])]
    assert told == ["\\x1b[2J\\r\\u202e"] * 2


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
    row = t.Row(*t.in_msgpack("because\x1b[2J" + "x" * 10_000), None, True)
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
        up.refuses({"op": "scatter", "data": {"x": up.Row(PICKLE, (b"",), author)}})


def test_what_a_scheduler_relays_no_code_of_dasks_can_open(talk):
    # Dask's own plugins for installing packages do this with what workers answer.
    t = talk("scheduler", "worker")
    t.request({"op": "plugin-add", "plugin": b"", "name": "x", "reply": True})
    row = t.Row(PICKLE, (pickle.dumps({"a": 1}),))
    relayed = t.attack_back({"status": "error", "exception": row, "traceback": None})["exception"]
    with pytest.raises(Exception, match="safeser"):
        deserialize(relayed.header, relayed.frames)


@pytest.mark.parametrize("form", ALL)
def test_a_pickle_for_an_error_fails_the_value_that_was_asked_for(talk, forms, form):
    """Whoever waits for it hears why; an error that says nothing would be asked for for ever."""
    t = talk("scheduler", "worker")
    t.request({"op": "get_data", "keys": ["x"], "who": None, "reply": True})
    got = t.attack_back({"status": "uncaught-error", "exception": forms[form], "traceback": None})
    down = asks(talk, op="gather", keys=["x"])
    with pytest.raises(PayloadError) as caught:
        down.reply(got)
    assert caught.value.rule == "peer.unsent"


def test_a_failure_that_may_pass_is_left_to_dask(talk):
    t = talk("scheduler", "worker")
    t.request({"op": "get_data", "keys": ["x"], "who": None, "reply": True})
    row = t.Row({"serializer": "error"}, (wire.encode(wire.to_data(OSError("gone"))),))
    got = t.attack_back({"status": "uncaught-error", "exception": row, "traceback": None})
    assert got["status"] == "uncaught-error"


@pytest.mark.parametrize("answer", [{"status": "busy"}, {"status": "OK", "data": {"x": 1}}])
def test_what_is_one_arrives(talk, answer):
    for asker in ("scheduler", "alice"):
        t = talk(asker, "worker")
        t.request({"op": "get_data", "keys": ["x"], "who": None, "reply": True})
        assert t.attack_back(answer) == answer


def test_an_honest_state_is_told(talk):
    worker = {"id": "Worker-5f0a4a1e-2a0c", "config": {"x": 1}, "tasks": {}}
    t = asks(talk, "scheduler", "worker", op="dump_state", exclude=())
    assert t.reply(worker) == worker
    assert t.reply({"tasks": {}}) == {"tasks": {}}
    told = {"scheduler": {"id": "x"}, "workers": {"a": worker, "b": "OSError()"}, "versions": {}}
    t = asks(talk, "alice", op="get_cluster_state", exclude=())
    assert t.reply(told) == told
    for none in ({"workers": []}, [], "x"):
        with pytest.raises(PayloadError):
            t.attack_back(none)


def test_why_there_are_no_samples_is_told(talk):
    t = asks(talk, op="memory_sampler_stop", key="k")
    error = {"status": "uncaught-error", "exception": ValueError("gone"), "traceback": None}
    assert str(t.reply(error)["exception"]) == "gone"
