"""Requests that are safeser's own are decided as any other, and answered without Dask."""

from __future__ import annotations

import pytest

from safeser import pickles
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
