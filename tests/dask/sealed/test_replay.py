"""A client that recreates an error runs the task that failed, whatever the scheduler names."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from safeser.dask.clients import replay
from safeser.dask.sealed.node import VerifiedTask
from safeser.errors import PolicyDenied


class Signed(VerifiedTask):
    """As much of a verified task as says what it depends on."""

    __slots__ = ()
    graph = b"held"

    def __init__(self, key, dependencies):
        self.key, self._dependencies = key, dependencies


class Told:
    """In place of Dask's client and its scheduler, which blames *cause* for all tasks.

    :param inputs: signed dependencies of each task.
    """

    seals = True
    graphs = frozenset({b"held", b"needed"})

    def __init__(self, inputs, cause):
        self.inputs, self.cause, self.asked = inputs, cause, []
        self.scheduler, self.extensions = self, {}

    async def get_runspec(self, key):
        self.asked.append(key)
        return Signed(key, frozenset(self.inputs.get(key, ())))

    async def get_error_cause(self, keys):
        return self.cause

    def graphs_behind(self, key):
        return frozenset() if key == "of another program" else self.graphs

    def _policy_link(self):
        def refusal(_context, rule, reason, *, fix):
            return PolicyDenied(reason, rule=rule, fix=fix)

        return SimpleNamespace(inbound=lambda _kind: None, refusal=refusal)


CHAIN = {number: (number + 1,) for number in range(100)}


@pytest.fixture
def looked(monkeypatch):
    """Return what looks for the cause why futures of keys failed; it returns where it looked."""
    monkeypatch.setattr(replay, "_MOST", 9)

    def made(told, *keys):
        futures = [SimpleNamespace(key=key, status="error") for key in keys]
        monkeypatch.setattr(replay, "futures_of", lambda _: futures)
        monkeypatch.setattr(
            replay.ReplayTaskClient, "_get_errored_future", lambda *_: told.get_error_cause(keys)
        )
        assert asyncio.run(replay.Replay(told)._get_errored_future(None)) == told.cause
        return told.asked

    return made


def test_a_failed_task_itself_is_looked_for_nowhere(looked):
    assert looked(Told(CHAIN, 99), *range(100)) == []


def test_a_task_below_is_looked_for_from_the_first_that_failed(looked):
    assert looked(Told(CHAIN, 53), 50, 0, 20) == [50, 51, 52]


def test_the_failed_ones_count_nothing(looked):
    below = {number: (number + 1000,) for number in range(50)} | {1000: ("cause",)}
    assert looked(Told(below, "cause"), *range(50)) == [0, 1000]


@pytest.mark.parametrize(("cause", "is_found"), [(9, True), (10, False)])
def test_it_looks_at_so_many_tasks(looked, cause, is_found):
    told = Told(CHAIN, cause)
    if is_found:
        assert looked(told, 0) == list(range(9))
        return
    with pytest.raises(PolicyDenied, match="does not depend on") as caught:
        looked(told, 0)
    assert caught.value.rule == "sealed.moved"
    assert told.asked == list(range(9))


def test_a_task_for_which_another_is_blamed_is_not_followed(looked):
    told = Told({0: (1, 2, 3), 3: ("cause",)}, "cause")
    blamed = {(8,): "another", (9,): None, (1,): "another", (2,): np.array(["cause", "a"])}

    async def cause_of(keys):
        return blamed.get(tuple(keys), "cause")

    told.get_error_cause = cause_of
    assert looked(told, 8, 9, 0) == [0, 3]


def test_a_task_of_many_inputs_is_one_task(looked):
    told = Told({0: range(1, 30_000), 29_999: ("cause",)}, "cause")

    async def blamed(keys):
        return "cause" if keys[0] in (0, 29_999) else None

    told.get_error_cause = blamed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay.ReplayTaskClient, "_get_errored_future", lambda *_: blamed([0]))
        patch.setattr(replay, "futures_of", lambda _: [SimpleNamespace(key=0, status="error")])
        asyncio.run(replay.Replay(told)._get_errored_future(None))
    assert told.asked == [0, 29_999]


def test_where_all_was_looked_at_the_scheduler_lied(looked):
    told = Told({0: (1, 2), 1: (2,)}, "victim")
    with pytest.raises(PolicyDenied, match="does not depend on") as caught:
        looked(told, 0)
    assert caught.value.rule == "sealed.moved"
    assert told.asked in ([0, 1], [0, 2])


@pytest.mark.parametrize("cause", [np.zeros(2), np.array(["a"]), pd.DataFrame({"a": [1]}), [1], {}])
def test_what_is_no_key_is_blamed_for_nothing(looked, cause):
    with pytest.raises(PolicyDenied, match="no key") as caught:
        looked(Told(CHAIN, cause), 0)
    assert caught.value.rule == "sealed.moved"


@pytest.mark.parametrize("graphs", [{b"held"}, {b"other"}, set()])
def test_a_task_of_an_earlier_graph_is_another_one(looked, graphs):
    """The same key was submitted before; without a future that is held, any graph will do."""
    told = Told({0: (1,), 1: ("cause",)}, "cause")
    told.graphs = frozenset(graphs)
    if graphs == {b"other"}:
        with pytest.raises(PolicyDenied, match="submitted before under the same key"):
            looked(told, 0)
    else:
        assert looked(told, 0) == [0, 1]


def test_the_graphs_are_those_of_the_future_that_failed_by_it(looked):
    """One future is held of another graph, and one came by a name: the latter is blamed."""
    told = Told({"of another program": ("cause",)}, "cause")
    told.graphs = frozenset({b"other"})

    async def blamed(keys):
        return "cause" if keys[-1] == "of another program" else None

    told.get_error_cause = blamed
    assert looked(told, "held", "of another program") == ["of another program"]


def test_what_was_remembered_of_a_key_gives_way_to_a_future_that_is_held(monkeypatch):
    """An asynchronous program may ask for a cause and not recreate it."""
    told = Told({}, "cause")

    async def signed(_replay, key):
        return Signed(key, frozenset())

    monkeypatch.setattr(replay.ReplayTaskClient, "_get_task_runspec", signed)
    client = replay.Replay(told)
    client._graphs["cause"] = frozenset({b"earlier"})
    assert asyncio.run(client._get_task_runspec("cause")).key == "cause"
    client._graphs["of another program"] = frozenset({b"earlier"})
    with pytest.raises(PolicyDenied, match="submitted before"):
        asyncio.run(client._get_task_runspec("of another program"))
    assert client._graphs == {}
