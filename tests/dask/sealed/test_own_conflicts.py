"""What a scheduler does about keys that one author's clients submit twice, without sockets."""

from __future__ import annotations

import operator

import pytest
from dask._task_spec import Alias, Task, TaskRef

from safeser.dask.sealed.node import nodes
from tests.dask.submissions import Setup, add, operations


@pytest.fixture
def setup(doors):
    return Setup(doors)


@pytest.fixture
def submit(setup, sealed, doors):
    """Return what submits tasks as a client of an author does, and what that client is told."""

    def made(who, tasks, *keys):
        return setup.submit(who, nodes(sealed(tasks, author=doors.identity(who))), *keys)

    return made


def adder(by, line=1):
    def add(value):
        return value + by

    add.__code__ = add.__code__.replace(co_firstlineno=line)
    return add


def call(key, function, *args):
    return {key: Task(key, function, *args)}


def message(told):
    return told["event"][1]["message"]


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (call("k", adder(1), 1), call("k", adder(1), 2), "(argument 1: 2 instead of 1)"),
        (call("k", adder(1), [1, adder(1)]), call("k", adder(1), [1, adder(2)]), "(argument 1[1])"),
        (
            call("k", adder(1), TaskRef("x")),
            {"k": Alias("k", "x")},
            "(another key's result instead of a call)",
        ),
    ],
)
def test_another_definition_of_one_s_own_is_refused_and_named(setup, submit, first, second, place):
    submit("alice", first)
    [told] = submit("alice", second)
    assert told["op"] == "task-erred"
    text = str(told["exception"].data)
    assert f"with another definition {place}" in text
    assert "'k', submitted by 'alice', was first submitted by 'alice'" in text
    assert setup.rules == ["key.definition"]
    assert submit("alice", first) == []


def test_another_definition_of_one_s_own_is_a_warning_where_policy_says_so(setup, submit):
    submit("bob", call("k", adder(1), 1))
    [told] = submit("bob", call("k", adder(2), 1))
    assert "another definition (function). Its result is used. Name another key" in message(told)
    assert setup.rules == ["key.definition"]
    assert setup.channel.audit.events[0]["event"] == "warn"


@pytest.mark.parametrize("who", ["alice", "bob"])
def test_what_cannot_be_compared_is_a_warning_under_any_policy(setup, submit, who):
    submit(who, call("k", adder(1), iter({1})))
    assert submit(who, call("k", adder(1), iter({1}))) == []
    [told] = submit(who, call("k", adder(1), iter({2})))
    assert "with a definition that could not be compared. Its result is used." in message(told)
    assert setup.rules == ["key.definition"]
    assert setup.channel.audit.events[0]["event"] == "warn"


def test_what_is_fused_now_and_was_not_before_is_no_conflict(setup, submit):
    parts = [Task("y", adder(1), TaskRef("in")), Task("x", adder(2), TaskRef("y"))]
    apart = {each.key: each for each in parts}
    fused = {"x": Task.fuse(*parts, key="x")}
    source = {"in": Task("in", operator.add, 1, 2)}
    for graph in (apart, fused, apart, fused):
        assert submit("alice", source | graph, "x") == []
    assert setup.rules == []


def test_sealed_and_other_tasks_are_never_the_same(setup, submit):
    setup.submit("alice", add("k", 1, 2))
    [told] = submit("alice", add("k", 1, 2))
    assert told["op"] == "task-erred"


def test_what_cannot_be_compared_does_not_hide_what_differs(submit):
    submit("alice", call("a", adder(1), iter({1})) | call("k", adder(1), 1))
    told = submit("alice", call("a", adder(1), iter({2})) | call("k", adder(2), 1))
    assert operations(told) == ["task-erred"]
    assert "key 'k'" in str(told[0]["exception"].data)
