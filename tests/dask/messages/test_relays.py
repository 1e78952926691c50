"""A relay decides what it passes on by its shape and family; whoever opens it checks it fully.

The scheduler of a cluster need not have the classes that its clients and workers registered.
"""

from __future__ import annotations

import pytest

from safeser.dask.contents.failures import Relayed
from safeser.errors import PayloadError, PolicyDenied
from tests.dask.registered import METRICS

THING = {"serializer": "dask", "type": "shop.things:Thing", "sub-header": {}}
OWN = {"serializer": "parcels", "sub-header": {"size": 1}}

POLICY = """\
safeser: 1
name: parcels
revision: 1
principals: {scheduler: {}, worker: {}, alice: {}}
families: [parcels]
contexts:
  - name: all
    sender: [scheduler, worker, alice]
    recipient: [scheduler, worker, alice]
    serializers: [dask, msgpack, parcels]
    deserializers: [dask, msgpack, parcels]
    operations: {grant: [basic, cluster]}
"""


def scattered(t, header, frames=(b"x",)):
    return {"op": "scatter", "data": {"x": t.Row(header, frames)}, "client": "Client-1"}


def test_a_relay_passes_on_what_it_has_no_class_for(talk):
    t = talk("alice").registered()
    got = t.attack(scattered(t, THING))
    assert isinstance(got["data"]["x"], Relayed)
    assert got["data"]["x"].sealed_header == THING


def test_a_scheduler_keeps_payloads_and_failures_unopened_and_opens_all_else(talk):
    row = talk("bob").Row(*talk("bob").in_msgpack([1]))
    t = talk("alice").registered()
    got = t.attack({"op": "scatter", "data": {"x": row}, "client": "Client-1"})
    assert isinstance(got["data"]["x"], Relayed)
    t = talk("worker").worker_stream()
    erred = {"op": "task-erred", "key": "x", "stimulus_id": "s", "run_id": 1, "exception": row}
    [got] = t.attack([erred])
    assert isinstance(got["exception"], Relayed)
    got = talk("worker").attack({"op": "heartbeat_worker", "metrics": {**METRICS, "x": row}})
    assert tuple(got["metrics"]["x"]) == (1,)


def test_a_family_that_policy_declares_passes_a_relay_without_it(talk):
    t = talk("alice", policy=POLICY).registered()
    relayed = t.attack(scattered(t, OWN))["data"]["x"]
    onward = talk("scheduler", "worker", POLICY)
    request = {"op": "update_data", "data": {"x": relayed}}
    [row] = onward.sent(onward.asker, request).rows
    assert (row.header, row.author) == (OWN, "alice")
    # The worker has no such family either, and says so.
    onward.refuses({"op": "update_data", "data": {"x": row}})


# --- what a relay carries is asked for by name, before it is sent ---------------------------------


@pytest.mark.parametrize("asked", ["direct", "relayed"])
def test_a_call_of_an_actor_that_is_refused_fails_and_is_not_waited_for(talk, asked):
    t = talk("bob")
    call = {"op": "actor_execute", "actor": "x", "function": "f", "reply": True}
    message = call if asked == "direct" else {"op": "proxy", "msg": call, "worker": "x"}
    assert t.asker.send(message) == []
    answer = t.asker.take_reply()
    assert answer["status"] == "error"
    assert isinstance(answer["exception"], PolicyDenied)
    assert t.asker.take_reply() is None


@pytest.mark.parametrize(
    ("said", "status", "cls"),
    [
        (PolicyDenied("no"), "error", PolicyDenied),
        # Dask's actor looks for it elsewhere, and says by itself that it cannot be reached.
        (OSError("timed out"), "uncaught-error", OSError),
        (None, "error", PayloadError),  # its result is of no class that is known here
    ],
)
def test_a_call_of_an_actor_that_fails_elsewhere_fails_as_well(talk, said, status, cls):
    t = talk("alice")
    t.request({"op": "proxy", "msg": {"op": "actor_execute"}, "worker": "x", "reply": True})
    if said is None:
        answer = t.attack_back({"status": "OK", "result": t.Row(THING, (b"x",))})
    else:
        answer = t.reply({"status": "uncaught-error", "exception": said, "traceback": None})
    assert (answer["status"], type(answer["exception"])) == (status, cls)


# --- refusals of the server that a relay asks -----------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        PolicyDenied("no", rule="a.b", fix="Do that.").decided_by("lab revision 1", "worker"),
        *(ValueError("no"), OSError("lost"), RuntimeError("x")),
    ],
    ids=lambda said: type(said).__name__,
)
def test_a_refusal_is_raised_as_itself_where_a_relay_asked_and_all_else_left_to_dask(talk, said):
    # Dask would raise an Exception of its text, since nothing is opened there.
    t = talk("scheduler", "worker")
    t.request({"op": "update_data", "data": {}, "reply": True})
    failed = {"status": "uncaught-error", "exception": said, "traceback": None}
    if not isinstance(said, PolicyDenied):
        assert isinstance(t.reply(failed)["exception"], Relayed)
        return
    with pytest.raises(PolicyDenied) as caught:
        t.reply(failed)
    assert str(caught.value) == str(said)
    # The process that is told next adds the note.
    assert not caught.value.__notes__
    assert caught.value.logged


# --- text that peers write ------------------------------------------------------------------------

STEERING = "\x1b]0;owned\x07\x9b31m"


def test_no_text_of_a_peers_steers_a_terminal(talk):
    t = talk("bob").client_stream()
    got = t.attack_back(
        [
            {"op": "cancelled-keys", "keys": ["x"], "reason": STEERING, "msg": STEERING},
            {"op": "stream-start", "warning": STEERING},
        ]
    )
    assert "\\x1b" in got[0]["msg"]
    for element in got:
        assert not any(c in str(element) for c in "\x1b\x07\x9b")
    t = talk("alice")
    t.request({"op": "who_has", "keys": [], "reply": True})
    failed = {"status": "uncaught-error", "exception": None, "traceback": None}
    got = t.attack_back(
        {**failed, "exception_text": STEERING, "traceback_text": "a\nb\t" + STEERING}
    )
    assert got["traceback_text"].startswith("a\nb\t\\x1b")
    assert not any(c in str(got) for c in "\x1b\x07\x9b")
