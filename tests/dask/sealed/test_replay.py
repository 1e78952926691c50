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
from tests.refusal import refusal


class Signed(VerifiedTask):
    """As much of a verified task as says what it depends on."""

    __slots__ = ()
    graph = b"held"

    def __init__(self, key, dependencies):
        self.key, self._dependencies = key, dependencies


class Told:
    """In place of Dask's client and its scheduler, which blames *cause* for all tasks.

    :param inputs: signed dependencies of each task.
    :param blamed: for whose failures it blames others.
    """

    seals = True

    def __init__(self, inputs, cause, *, graphs=frozenset({b"held", b"needed"}), blamed=None):
        self.inputs, self.cause, self.asked = inputs, cause, []
        self.graphs, self.blamed = graphs, blamed or {}
        self.scheduler, self.extensions = self, {}

    async def get_runspec(self, key):
        self.asked.append(key)
        return Signed(key, frozenset(self.inputs.get(key, ())))

    async def get_error_cause(self, keys):
        return self.blamed.get(keys[0], self.cause) if len(keys) == 1 else self.cause

    def graphs_behind(self, key):
        return frozenset() if key == "of another program" else self.graphs

    def _policy_link(self):
        def refusal(_context, rule, reason, *, fix):
            return PolicyDenied(reason, rule=rule, fix=fix)

        return SimpleNamespace(inbound=lambda _kind: None, refusal=refusal)


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


CHAIN = {number: (number + 1,) for number in range(100)}
ONE = {0: (1,), 1: ("cause",)}
MANY = {0: range(1, 30_000), 29_999: ("cause",)}
BELOW = {number: (number + 1000,) for number in range(50)} | {1000: ("cause",)}
OTHERS = {8: "another", 9: None, 1: "another", 2: np.array(["cause", "a"])}
HELD, OTHER = frozenset({b"held"}), frozenset({b"other"})

#: (inputs of tasks, whom the scheduler blames, which failed, where it looks, what else it says).
FOUND = {
    "a failed task itself": (CHAIN, 99, range(100), [], {}),
    "a task below, from the first that failed": (CHAIN, 53, (50, 0, 20), [50, 51, 52], {}),
    "the failed ones count nothing": (BELOW, "cause", range(50), [0, 1000], {}),
    "as many tasks as it looks at": (CHAIN, 9, (0,), list(range(9)), {}),
    "not below a task for which another is blamed": (
        *({0: (1, 2, 3), 3: ("cause",)}, "cause", (8, 9, 0), [0, 3]),
        {"blamed": OTHERS},
    ),
    "a task of many inputs is one": (
        *(MANY, "cause", (0,), [0, 29_999]),
        {"blamed": dict.fromkeys(range(1, 29_999))},
    ),
    "a graph of a future that is held": (ONE, "cause", (0,), [0, 1], {"graphs": HELD}),
    "any graph without such a future": (ONE, "cause", (0,), [0, 1], {"graphs": frozenset()}),
    # One future is held of another graph, and one came by a name: the latter is blamed.
    "the graph of the future that failed by it": (
        {"of another program": ("cause",)},
        "cause",
        ("held", "of another program"),
        ["of another program"],
        {"graphs": OTHER, "blamed": {"held": None}},
    ),
}
#: The same, of a scheduler that lies, and why it is refused.
LIES = {
    "more tasks than it looks at": (CHAIN, 10, "does not depend on", {}),
    "a task that nothing depends on": ({0: (1,)}, "victim", "does not depend on", {}),
    # The same key was submitted before.
    "an earlier graph": (ONE, "cause", "submitted before under the same key", {"graphs": OTHER}),
    **{
        f"no key: {type(cause).__name__} {at}": (CHAIN, cause, "no key", {})
        for at, cause in enumerate(
            [np.zeros(2), np.array(["a"]), pd.DataFrame({"a": [1]}), [1], {}]
        )
    },
}


@pytest.mark.parametrize("name", FOUND)
def test_how_far_it_looks_for_a_cause(looked, name):
    inputs, cause, failed, where, more = FOUND[name]
    assert looked(Told(inputs, cause, **more), *failed) == where


@pytest.mark.parametrize("name", LIES)
def test_a_cause_that_the_scheduler_made_up_is_refused(looked, name):
    inputs, cause, why, more = LIES[name]
    told = Told(inputs, cause, **more)
    with refusal(PolicyDenied, "sealed.moved", match=why):
        looked(told, 0)
    assert len(told.asked) <= 9


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
