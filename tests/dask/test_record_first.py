"""What cannot be recorded is neither opened nor handled, and ends no stream that others share."""

from __future__ import annotations

import pickle

import pytest

from safeser.dask import incoming
from safeser.errors import AuditError

PICKLE = {"serializer": "pickle", "writeable": []}


def test_a_request_that_cannot_be_recorded_is_answered(talk, marker):
    t = talk("alice")
    t.far.audit.broken = {"admit", "refuse"}
    assert t.attack({"op": "run_function", "function": marker.pickle}) is t.SKIP
    assert isinstance(t.answers[0]["exception"], AuditError)
    t.far.audit.broken = set()
    assert t.request({"op": "who_has", "keys": []})["op"] == "who_has"


def test_a_plain_request_that_cannot_be_counted_is_answered(talk):
    t = talk("bob")
    t.far.audit.broken = {"count"}
    assert t.request({"op": "who_has", "keys": []}) is t.SKIP
    assert isinstance(t.answers[0]["exception"], AuditError)


def test_an_element_that_cannot_be_recorded_is_replaced(talk, marker):
    t = talk("worker").worker_stream()
    t.near.audit.broken = {"admit", "refuse"}
    row = t.Row({**PICKLE, "serializer": "cloudpickle"}, (marker.pickle,))
    [task] = t.attack_back([{"op": "compute-task", "key": "x", "run_spec": row}])
    with pytest.raises(Exception, match="disk is full"):
        task["run_spec"]()


def test_a_graph_that_cannot_be_recorded_fails_its_futures(talk, marker):
    t = talk("alice").client_stream()
    t.far.audit.broken = {"admit"}
    graph = t.Row(PICKLE, (marker.pickle,))
    assert t.attack([{"op": "update-graph", "expr_ser": graph, "keys": ["x"]}]) is t.SKIP
    [[element]] = t.answers
    assert isinstance(element["exception"], AuditError)


def test_every_payload_of_a_message_is_recorded_before_one_is_opened(talk, monkeypatch):
    t = talk("scheduler", "worker")
    order = t.far.audit
    real = incoming._load

    def noted(*arguments):
        order.note("load")
        return real(*arguments)

    monkeypatch.setattr(incoming, "_load", noted)
    rows = {name: t.Row(PICKLE, (pickle.dumps(name),)) for name in "abc"}
    got = t.attack({"op": "update_data", "data": rows, "reply": True})
    assert got["data"] == {"a": "a", "b": "b", "c": "c"}
    assert order.order == ["admit"] * 3 + ["load"] * 3


def test_every_element_of_a_batch_is_recorded_before_one_is_opened(talk, monkeypatch):
    t = talk("worker").worker_stream()
    order = t.near.audit
    real = incoming._load

    def noted(*arguments):
        order.note("load")
        return real(*arguments)

    monkeypatch.setattr(incoming, "_load", noted)
    tasks = [
        {"op": "compute-task", "key": key, "run_spec": t.Row(PICKLE, (pickle.dumps(key),))}
        for key in "ab"
    ]
    assert [task["run_spec"] for task in t.attack_back(tasks)] == ["a", "b"]
    assert order.order == ["admit", "admit", "load", "load"]
