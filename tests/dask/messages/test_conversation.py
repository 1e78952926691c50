"""What honest peers say arrives as Dask expects it; state decides what may be said next."""

from __future__ import annotations

import contextlib
import logging
import pickle
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest
from dask._task_spec import Task
from distributed.core import clean_exception
from distributed.protocol import Serialized, to_serialize
from distributed.protocol.serialize import Pickled, Serialize, ToPickle

from safeser.dask.messages.conversation import Conversation
from safeser.dask.messages.sending import may_be_large
from safeser.dask.wire.bounded_repr import has_bounded_repr
from safeser.errors import PayloadError, PolicyDenied
from tests.refusal import refusal

GREETING = {"compression": None, "pickle-protocol": 5, "python": (3, 11, 7)}


# --- Dask's handshake -------------------------------------------------------------------------


def test_a_handshake_with_a_payload_is_refused_unread(doors, talk, marker):
    near, far = doors.links("alice", "scheduler", "demo")
    conversation = Conversation(far, server=None, opens=True)
    evil = talk("alice").Row({"serializer": "pickle", "writeable": []}, (marker.pickle,))
    for leaf in (evil, type(talk("alice")).Eager(evil)):
        frames = type(talk("alice")).forged({**GREETING, "note": leaf})
        with pytest.raises(PayloadError):
            conversation.receive(far.verify(near.session.seal(b"", frames)), None)


def test_only_what_is_known_of_a_handshake_reaches_dask(doors, talk):
    near, far = doors.links("alice", "scheduler", "demo")
    conversation = Conversation(far, server=None, opens=True)
    frames = type(talk("alice")).forged({**GREETING, "compression": "lz4", "safeser-server": 5})
    assert conversation.receive(far.verify(near.session.seal(b"", frames)), None) == GREETING


# --- requests and replies -------------------------------------------------------------------


def test_a_callers_serializers_narrow_what_is_sent(talk):
    t = talk("alice")
    message = {"op": "scatter", "data": {"x": to_serialize(_Local())}}
    with pytest.raises(PayloadError):
        t.request(message, serializers=["dask", "msgpack"])
    got = t.request(message)
    assert got["data"]["x"].sealed_header["serializer"] in ("pickle", "cloudpickle")


class _Local:
    """What only a pickle carries."""

    def __reduce__(self):
        return _Local, ()


def test_a_callers_deserializers_narrow_what_is_opened(talk):
    t = talk("worker", "worker")
    for narrow in (["msgpack"], ["dask", "msgpack"]):
        t.request({"op": "get_data", "keys": ["x"], "reply": True})
        row = t.Row({"serializer": "pickle", "writeable": []}, (pickle.dumps(1),))
        with refusal(PolicyDenied, "caller.deserializers"):
            t.attack_back({"status": "OK", "data": {"x": row}}, narrow)


def test_a_connections_own_deserializers_are_the_bound(talk):
    t = talk("alice", deserializers=["msgpack"])
    t.request({"op": "gather", "keys": ["x"], "reply": True})
    with pytest.raises(PolicyDenied):
        t.reply({"status": "OK", "data": {"x": to_serialize(np.arange(3))}}, ["dask", "msgpack"])


def test_values_are_sent_however_dask_wraps_them(talk):
    t = talk("scheduler", "worker")
    t.request({"op": "get_data", "keys": ["x"], "reply": True})
    for sent, opened in ((np.int64(3), 3), (ToPickle({1: 2}), {1: 2}), (Serialize([1]), [1])):
        got = t.request({"op": "update_data", "data": {"x": sent}})
        assert got == {"op": "update_data", "data": {"x": opened}}


@pytest.mark.parametrize(
    "leaf",
    [
        Pickled({"pickled-obj": b"x"}, []),
        Serialized({"serializer": "dask", "type-serialized": b"x"}, [b""]),
        object(),
    ],
)
def test_what_dask_serialized_by_itself_is_not_passed_on(talk, leaf):
    t = talk("alice")
    with pytest.raises(PayloadError) as caught:
        t.request({"op": "scatter", "data": {"x": leaf}})
    # Only a server without safeser's conversation would hold such bytes of a peer's.
    assert not isinstance(leaf, Pickled) or caught.value.rule == "payload.pickled"


# --- refused requests -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "answers"),
    [
        ({"op": "run_function", "reply": True}, 1),
        ({"op": "run_function", "reply": False}, 0),
        ({"op": "register-worker", "address": "x", "reply": False}, 1),  # who registers waits
    ],
)
def test_a_refused_request_is_answered_if_somebody_waits_and_the_connection_goes_on(
    talk, more, answers
):
    t = talk("bob")
    assert t.attack({"function": b"x", **more}) is t.SKIP
    assert t.refused_by_server == ["operation.not-granted"]
    assert len(t.answers) == answers
    for answer in t.answers:
        assert answer["status"] == "uncaught-error"
        _, error, _ = clean_exception(answer["exception"], answer["traceback"])
        assert (type(error), error.rule) == (PolicyDenied, "operation.not-granted")
    assert t.request({"op": "who_has", "keys": []})["op"] == "who_has"
    assert t.answers == []


# --- streams ---------------------------------------------------------------------------------


def test_a_client_stream_carries_graphs_up_and_results_down(talk):
    t = talk("alice").client_stream()
    graph = Serialized({"serializer": "pickle", "writeable": ()}, [pickle.dumps({"x": 1})])
    [got] = t.request([{"op": "update-graph", "expr_ser": graph, "keys": {"x"}}])
    assert type(got["expr_ser"]) is Serialized
    assert got["expr_ser"].header == {"serializer": "pickle", "writeable": ()}
    assert pickle.loads(got["expr_ser"].frames[0]) == {"x": 1}
    [down] = t.reply([{"op": "key-in-memory", "key": "x", "type": "builtins.int"}])
    made = pickle.loads(down["type"])
    assert (made.__module__, made.__qualname__) == ("builtins", "int")
    assert made is not int


def test_a_worker_stream_carries_tasks_down_and_results_up(talk, caplog):
    t = talk("worker").worker_stream()
    task = Task("x", sum, [1, 2])
    [got] = t.reply([{"op": "compute-task", "key": "x", "run_spec": ToPickle(task)}])
    assert got["run_spec"] == task
    finished = {
        "op": "task-finished",
        "key": "x",
        "type": pickle.dumps(int),
        "typename": "int",
        "worker": "safeser://127.0.0.1:1",
    }
    [got] = t.request([finished])
    assert got["type"] == "int"
    # The result goes on without it: no error tells of this refusal, and the log does.
    with caplog.at_level(logging.WARNING, "safeser.dask"):
        [got] = t.attack([{**finished, "type": t.Row({"serializer": "none-such"}, (b"",))}])
    assert got["type"] is None
    assert "Refused from worker" in caplog.text


def test_an_unknown_element_is_not_sent_and_one_of_its_own_needs_no_batch(talk):
    t = talk("alice").client_stream()
    assert t.attack({"op": "heartbeat-client"}) == ({"op": "heartbeat-client"},)
    assert t.reply([{"op": "no-such"}, {"no": 1}, {"op": "close"}]) == ({"op": "close"},)


def test_large_messages_are_handed_to_another_thread(monkeypatch):
    large = b"x" * (20 << 20)
    assert may_be_large({"op": "scatter", "data": large})
    assert may_be_large([{"op": "log-event", "msg": {"a": (1, [large])}}])
    assert may_be_large({large: 1})
    assert may_be_large({"data": to_serialize(large)})
    assert may_be_large({"many": [large[: 1 << 20]] * 300})  # more than are counted one by one
    assert not may_be_large({"data": to_serialize(1), "keys": {"a"}, "more": list(range(300))})
    # What most messages are takes no question to Dask.
    monkeypatch.delattr("safeser.dask.messages.sending.safe_sizeof")
    assert not may_be_large({"op": "identity"})
    assert not may_be_large([{"op": "task-finished", "nbytes": 28, "startstops": ({"a": 1.5},)}])
    graph = {"op": "update-graph", "keys": {"x"}, "span_metadata": ToPickle({"collections": []})}
    assert not may_be_large([{**graph, "expr_ser": Serialized({}, [b"x"])}])


@pytest.mark.parametrize(
    ("asked", "said", "told"),
    [
        ({"op": "register-worker", "address": "safeser://127.0.0.1:1"}, PolicyDenied("no"), True),
        ({"op": "register_nanny", "address": "safeser://127.0.0.1:1"}, PolicyDenied("no"), True),
        ({"op": "register-worker", "address": "safeser://127.0.0.1:1"}, ValueError("no"), False),
        ({"op": "identity", "reply": True}, PolicyDenied("no"), False),
    ],
)
def test_a_process_that_may_not_register_is_told_so_apart(talk, asked, said, told):
    heard = []
    asker = "nanny" if asked["op"] == "register_nanny" else "worker"
    t = talk(asker, registration_refused=heard.append)
    t.request(asked)
    with contextlib.suppress(PolicyDenied, ValueError):
        t.reply({"status": "uncaught-error", "exception": said, "traceback": None})
    assert [str(each) for each in heard] == ([str(said)] if told else [])


@pytest.mark.parametrize("value", [OrderedDict(a=1), Counter("a"), defaultdict(int), np.add])
def test_no_size_bounds_the_text_of_other_objects(value):
    assert not has_bounded_repr(value)
