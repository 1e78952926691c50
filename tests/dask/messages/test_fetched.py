"""Values of one reply: one that is refused fails alone, with its reason."""

from __future__ import annotations

import asyncio
import logging
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from distributed.worker import Worker
from distributed.worker_state_machine import (
    GatherDepSuccessEvent,
    WorkerState,
)

from safeser.dask.contents.failures import Relayed
from safeser.dask.messages import fetched
from safeser.dask.messages.fetched import Unfetched
from safeser.errors import PayloadError, SafeserError
from safeser.families.errors import wire
from safeser.operations import Server
from tests.dask.attacks.rows import PICKLE
from tests.dask.attacks.rows import WITHOUT_CODE as TRUSTED_WITHOUT_CODE
from tests.dask.patched import serve, with_rows

#: Malformed ways to write a value, and by which rule each is refused.
MALFORMED = {
    "no frames": ({"serializer": "dask"}, ()),
    "no pickle": (PICKLE, (b"\x80\x04no pickle",)),
    "no family": ({"serializer": "no-such-family"}, (b"x",)),
    "no msgpack": ({"serializer": "msgpack"}, (b"\xc1",)),
}

#: Workers send their scheduler nothing.
NOTHING_UP = """safeser: 1
name: down
revision: 1
principals: {scheduler: {}, worker: {}}
contexts:
  - name: asks
    sender: scheduler
    recipient: worker
    operations: {grant: [basic]}
  - name: greets
    sender: worker
    recipient: scheduler
    kinds: [admin]
"""


def asking(talk, asker="scheduler", keys=("a", "b", "c"), policy="demo"):
    t = talk(asker, "worker", policy)
    t.request({"op": "get_data", "keys": [*keys], "who": None, "reply": True})
    return t


def refused(link):
    return [each for each in link.audit.events if not each["permitted"]]


def admitted(link):
    return [each["where"] for each in link.audit.events if each["event"] == "admit"]


def good(t, value):
    return t.Row(*t.in_msgpack(value))


def why(failure):
    return wire.decode(failure.frames[0])


@pytest.fixture
def takes_parts():
    """Fetch as a worker's state does."""
    token = fetched._TAKES_PARTS.set(True)
    yield
    fetched._TAKES_PARTS.reset(token)


# --- at the scheduler ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["pickle", *MALFORMED])
def test_of_three_values_the_one_that_is_refused_fails_alone(talk, marker, form):
    t = asking(talk, policy=TRUSTED_WITHOUT_CODE if form == "pickle" else "demo")
    bad = (PICKLE, (marker.pickle,)) if form == "pickle" else MALFORMED[form]
    data = {"a": good(t, 1), "b": t.Row(*bad), "c": good(t, 3)}
    got = t.attack_back({"status": "OK", "data": data})["data"]
    assert {key: value.failed for key, value in got.items()} == {"a": False, "b": True, "c": False}
    assert all(isinstance(value, Relayed) for value in got.values())
    assert got["a"].author == "worker"
    assert got["b"].author == "scheduler"  # who refused it, and says why
    [record] = refused(t.near)
    assert record["rule"] == why(got["b"]).state[0]
    assert record["where"] == ("byte 2 (0x6e)" if form == "no pickle" else "data.b")
    assert admitted(t.near) == ["data.a", "data.c"]


def test_a_value_of_several_payloads_fails_as_one(talk, marker):
    t = asking(talk, keys="ab")
    data = {"a": good(t, 1), "b": [good(t, 2), {"x": t.Row(PICKLE, (marker.pickle,))}]}
    got = t.attack_back({"status": "OK", "data": data})["data"]
    assert not got["a"].failed
    assert got["b"].failed
    assert admitted(t.near) == ["data.a", "data.b[0]"]  # which is decided, and then not loaded


class Quarrels:
    def __hash__(self):
        return 1

    def __eq__(self, other):
        raise RuntimeError("no")


@pytest.mark.parametrize("keys", [[[1], 2], [Quarrels(), Quarrels()]], ids=["list", "quarrels"])
def test_a_value_whose_keys_cannot_be_keys_fails_alone(talk, takes_parts, monkeypatch, keys):
    t = asking(talk, "worker", keys="ab")
    made = iter([1, *keys])
    monkeypatch.setattr(fetched, "load_part", lambda *_, **__: next(made))
    inner = dict.fromkeys([t.Eager(good(t, 2)), t.Eager(good(t, 3))], 4)
    got = t.attack_back({"status": "OK", "data": {"a": good(t, 1), "b": inner}})["data"]
    assert got["a"] == 1
    assert got["b"].error.rule == "payload.key"
    assert [each["rule"] for each in refused(t.near)] == ["payload.key"]


@pytest.mark.parametrize("stray", ["field", "payload", "key", "sender"])
def test_what_is_wrong_beside_the_values_fails_all(talk, marker, stray):
    t = asking(talk, keys="ab", policy=NOTHING_UP if stray == "sender" else "demo")
    reply = {"status": "OK", "data": {"a": good(t, 1), "b": good(t, 2)}}
    more = {"field": {"stray": 1}, "payload": {"keys": t.Row(PICKLE, (marker.pickle,))}}
    frames = t.forged({**reply, **more.get(stray, {})})
    if stray == "key":  # a payload is one
        row = t.Row({"serializer": "msgpack"}, (b"\x01",))
        frames = t.forged({"status": "OK", "data": {"key": row, "b": row}})
        packed = frames[0].replace(b"\xa3key\xd6", b"\xd6", 1)
        reference = packed[(at := packed.index(b"\xd6")) : at + 6]
        frames[0] = packed.replace(reference, reference + b"\x01", 1)
    got = t.carried_back(frames)["data"]
    assert set(got) == {"a", "b"}
    assert all(value.failed for value in got.values())
    [record] = refused(t.near)
    assert stray != "sender" or record["rule"] == "context.none"
    assert stray == "key" or admitted(t.near) == []


@pytest.mark.parametrize(("broken", "failed"), [("admit", [True, True]), ("refuse", [False, True])])
def test_what_cannot_be_recorded_is_not_passed_on(talk, marker, broken, failed):
    t = asking(talk, keys="ab")
    t.near.audit.broken = {broken}
    data = {"a": good(t, 1), "b": t.Row(PICKLE, (marker.pickle,))}
    got = t.attack_back({"status": "OK", "data": data})["data"]
    assert [value.failed for value in got.values()] == failed
    if broken == "admit":
        assert [why(got[key]).type for key in "ab"] == ["safeser.errors:AuditError"] * 2


def test_many_refusals_of_one_reply_are_soon_over_and_say_so_once(talk, caplog):
    t = asking(talk)
    number = 10_000
    bad = t.Row({"serializer": "no-such-family"}, (b"x",))
    data = {"good": good(t, 1), **{str(key): bad for key in range(number)}}
    with caplog.at_level(logging.INFO, "safeser.dask"):
        got = t.attack_back({"status": "OK", "data": data})["data"]
    # The exception that is raised says it; a user who reads it needs no second text.
    assert {each.levelno for each in caplog.records[:100]} == {logging.INFO}
    assert sum(value.failed for value in got.values()) == number
    assert not got["good"].failed
    assert len(caplog.records) <= 101
    assert len(refused(t.near)) <= 101
    assert len(t.near.audit.counts) >= number - 101
    assert why(got["50"]).state[1].startswith("data.50")
    assert why(got["9999"]).state[0] == "families.serializer"
    assert got["9998"] is got["9999"]  # ten thousand errors of their own would take half a minute


# --- at a worker --------------------------------------------------------------------------------


def test_every_value_is_recorded_before_one_is_opened(talk, takes_parts, monkeypatch):
    t = asking(talk, "worker")
    real = fetched.load_part

    def noted(*arguments):
        t.near.audit.note("load")
        return real(*arguments)

    monkeypatch.setattr(fetched, "load_part", noted)
    rows = {key: t.Row(PICKLE, (pickle.dumps(key),)) for key in "ac"}
    t.attack_back({"status": "OK", "data": {**rows, "b": t.Row({"serializer": "dask"}, ())}})
    assert t.near.audit.order == ["admit", "admit", "refuse", "load", "load"]


def test_a_worker_has_the_others_and_the_reason_of_each(talk, marker, takes_parts):
    t = asking(talk, "worker", keys="abcd")
    array = np.arange(3)
    t.attack_back({"status": "OK", "data": {}})
    t.request({"op": "get_data", "keys": [*"abcd"], "who": None, "reply": True})
    row = t.Row({"serializer": "error"}, (wire.encode(wire.to_data(OSError("gone"))),), None, True)
    pickled = t.Row(PICKLE, (pickle.dumps(array.tolist()),))
    data = {"a": pickled, "b": t.Row(PICKLE, (marker.pickle,)), "c": good(t, 3), "d": row}
    got = t.attack_back({"status": "OK", "data": data})["data"]
    assert got["a"] == [0, 1, 2]
    assert got["c"] == 3
    assert isinstance(got["b"], Unfetched)
    assert got["b"].error.where == "data.b"
    assert got["d"].error.rule == "peer.unsent"  # found when it was built
    assert t.asker.take_answers() == []  # Dask says by itself that the reply has come


def test_whoever_cannot_tell_a_failed_value_has_the_error(talk, marker):
    """Dask's code elsewhere would take what stands in for the value itself."""
    t = asking(talk, "worker", keys="ab")
    data = {"a": good(t, 1), "b": t.Row(PICKLE, (marker.pickle,))}
    with pytest.raises(SafeserError) as caught:
        t.attack_back({"status": "OK", "data": data})
    assert caught.value.where == "data.b"


PEER = "safeser://127.0.0.1:2"


def gathering(keys):
    """Return a worker's state that waits for *keys*."""
    from distributed.worker_state_machine import ComputeTaskEvent

    state = WorkerState(address="safeser://127.0.0.1:1", validate=True)
    who_has = {key: [PEER] for key in keys}
    state.handle_stimulus(ComputeTaskEvent.dummy("x", who_has=who_has, stimulus_id="ask"))
    return state


class Gatherer(Worker):
    """A worker as far as it gathers."""

    def __init__(self, event, *, guarded=True):
        self.event = event
        self.seen = None
        if guarded:
            serve(self, Server.WORKER, SimpleNamespace())

    async def gather_dep(self, *args, **kwargs):
        self.seen = fetched.takes_parts()
        return self.event


Asking = with_rows(Gatherer, "distributed.worker:Worker.gather_dep")


def fetch(worker):
    return asyncio.run(worker.gather_dep(PEER, ("a", "b"), 10, stimulus_id="s"))


def test_a_workers_state_fails_the_one_and_keeps_the_others():
    state = gathering("abc")
    refusal = PayloadError("test.refused")
    size = state.transfer_incoming_bytes
    success = GatherDepSuccessEvent(
        worker=PEER,
        total_nbytes=size,
        data={"a": 1, "b": Unfetched(refusal), "c": 3},
        stimulus_id="got",
    )
    worker = Asking(success)
    event = fetch(worker)
    assert worker.seen
    assert not fetched.takes_parts()
    state.handle_stimulus(event)
    assert {key: state.tasks[key].state for key in "abc"} == {
        "a": "memory",
        "b": "error",
        "c": "memory",
    }
    assert state.data["a"] == 1
    assert "b" not in state.data
    assert "test.refused" in state.tasks["b"].exception_text
    assert state.transfer_incoming_bytes == 0
    assert not state.in_flight_workers
