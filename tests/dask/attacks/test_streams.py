"""What Dask reads on a stream in the place of what was refused, and all else about it."""

from __future__ import annotations

import pickle

import pytest
from distributed.core import clean_exception

from safeser.errors import PolicyDenied
from tests.dask.attacks.rows import ALL, FORMS, WITHOUT_CODE


def test_a_refused_graph_fails_its_futures_and_nothing_else(talk):
    t = talk("bob").client_stream()
    graph = {"op": "update-graph", "expr_ser": FORMS["opaque"], "keys": ["x", ("y", 1), None]}
    assert t.attack([graph, {"op": "heartbeat-client"}]) == ({"op": "heartbeat-client"},)
    [answer] = t.answers
    assert [element["key"] for element in answer[:2]] == ["x", ("y", 1)]
    for element in answer:
        assert element["op"] == "task-erred"
        assert isinstance(element["exception"], PolicyDenied)
        clean_exception(element["exception"], element["traceback"])
    for keys in (None, 5, "xy", {"x": 1}, []):
        t.refuses([{"op": "update-graph", "keys": keys}])
        assert t.answers == []


@pytest.mark.parametrize("form", ALL)
def test_types_are_names_or_nothing(talk, form):
    up, down = talk("worker").worker_stream(), talk("bob").client_stream()
    finished = {"op": "task-finished", "key": "x", "type": FORMS[form], "nbytes": 8}
    assert up.attack([finished]) == ({**finished, "type": None},)
    [got] = down.attack_back([{"op": "key-in-memory", "key": "x", "type": FORMS[form]}])
    assert (got["key"], got["type"]) == ("x", None)


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


def test_a_task_that_is_refused_fails_by_the_reason(talk):
    t = talk("worker", policy=WITHOUT_CODE).worker_stream()
    task = {"op": "compute-task", "key": "x", "run_spec": FORMS["opaque"], "who_has": {"k": ["w"]}}
    [got] = t.attack_back([task])
    assert got["who_has"] == {"k": ("w",)}
    with pytest.raises(PolicyDenied):
        got["run_spec"]()
