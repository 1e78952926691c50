"""Requests that are safeser's own are decided as any other, and answered without Dask."""

from __future__ import annotations

import pytest

from safeser import pickles
from safeser.errors import PolicyDenied
from safeser.trace import counting as module
from safeser.trace import probe
from safeser.trace.counting import Counting

ASK = {"op": "serialization_counts", "trace": "a", "seconds": 60, "reply": True}


@pytest.fixture(autouse=True)
def counting(monkeypatch):
    made = Counting()
    monkeypatch.setattr(module, "counting", made)
    yield made
    probe.remove(made)


@pytest.mark.parametrize(("asker", "server"), [("alice", "scheduler"), ("scheduler", "worker")])
def test_it_is_decided_recorded_and_answered(talk, counting, asker, server):
    t = talk(asker, server)
    assert t.request(ASK) is t.SKIP
    assert t.answers == [{"status": "OK", "process": counting.process, "counts": ()}]
    pickles.dumps([1])
    t.request({**ASK, "seconds": 0})
    [[action, family, number, *_]] = t.answers[0]["counts"]
    assert (action, family, number) == ("serialize", "pickle", 1)
    assert (asker, server, "serialization_counts", "permit", True) in t.far.audit.counts
    # The connection goes on.
    assert t.request({"op": "identity", "reply": True})["op"] == "identity"
    assert t.reply({"id": "a"}) == {"id": "a"}


@pytest.mark.parametrize(
    ("asker", "server"), [("bob", "scheduler"), ("alice", "worker"), ("worker", "worker")]
)
def test_who_is_not_granted_it_is_refused_and_nothing_is_counted(talk, asker, server):
    t = talk(asker, server)
    with pytest.raises(PolicyDenied):
        t.request(ASK)
    t.refuses(ASK)
    assert not probe.is_traced()


def test_a_relay_asks_no_worker_for_who_may_not_ask_the_scheduler(talk):
    t = talk("bob")
    t.refuses({"op": "broadcast", "msg": {**ASK, "reply": True}, "reply": True})
    assert not probe.is_traced()


@pytest.mark.parametrize(
    "fields",
    [
        {"trace": 5},
        {"trace": "x" * 1001},
        {"trace": "\x1b[2J"},
        {"trace": None},
        {"seconds": float("inf")},
        {"seconds": float("nan")},
        {"seconds": "60"},
        {"seconds": 1 << 60},
        {"more": 1},
    ],
)
def test_fields_of_another_shape_are_refused(talk, fields):
    talk("alice").refuses({**ASK, **fields})
    assert not probe.is_traced()


@pytest.mark.parametrize("missing", ["trace", "seconds"])
def test_fields_that_are_missing_are_refused(talk, missing):
    talk("alice").refuses({name: value for name, value in ASK.items() if name != missing})
