"""Profiles: what can be sent of deep ones, and what a scheduler makes of what workers say."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from distributed import Scheduler
from distributed.diagnostics.task_stream import alphas, colors, prefix

from safeser.dask import profiled
from safeser.dask.profiled import bound_profiles
from safeser.operations.shapes import ACTIONS
from safeser.values import Limits

NOW = 1_000_000.0


def test_the_known_actions_are_those_that_dask_draws():
    assert set(colors) == set(alphas) == set(prefix) == ACTIONS


def node(name, depth):
    children = {f"{name}x": node(f"{name}x", depth - 1)} if depth > 1 else {}
    return {"identifier": name, "description": {}, "count": 1, "children": children}


def depth_of(profile):
    return 1 + max(map(depth_of, profile["children"].values()), default=0)


@pytest.mark.parametrize("depth", [1, 48, 49, 50, 300])
def test_deep_profiles_are_cut(depth):
    whole = node("r", depth)
    server = SimpleNamespace(handlers={"profile": lambda **_: whole})
    bound_profiles(server, Limits())
    told = asyncio.run(server.handlers["profile"]())
    assert depth_of(told) == min(depth, 49)
    assert depth_of(whole) == depth
    assert told["count"] == 1
    if depth <= 49:
        assert told == whole


def test_each_worker_s_is_cut():
    async def stock(**asked):
        assert asked == {"merge_workers": False, "workers": ["w"]}
        return {"w": node("r", 300)}

    server = SimpleNamespace(handlers={"profile": stock})
    bound_profiles(server, Limits(max_depth=10))
    wrapped = server.handlers["profile"]
    bound_profiles(server, Limits())
    assert server.handlers["profile"] is wrapped
    told = asyncio.run(wrapped(merge_workers=False, workers=["w"]))
    assert depth_of(told["w"]) == 4


def test_what_has_no_profile_is_left_alone():
    bound_profiles(object(), Limits())
    nothing = SimpleNamespace(handlers={})
    bound_profiles(nothing, Limits())
    assert nothing.handlers == {}


@pytest.fixture
def asked(monkeypatch):
    """Return what a scheduler tells of *answers*, by address."""
    monkeypatch.setattr(profiled, "time", lambda: NOW)
    scheduler = Scheduler(dashboard_address="127.0.0.1:0", dashboard=False)
    scheduler.http_server.stop()
    # It never opens: tests that follow look for schedulers that are open in this process.
    Scheduler._instances.discard(scheduler)
    bound_profiles(scheduler, Limits())
    scheduler.task_prefixes = {"sum": None, "inc": None}

    def ask(answers, **arguments):
        def rpc(address):
            async def profile_metadata(start, stop):
                if isinstance(answers[address], Exception):
                    raise answers[address]
                return answers[address]

            return SimpleNamespace(profile_metadata=profile_metadata)

        scheduler.rpc = rpc
        scheduler.workers = dict.fromkeys(answers)
        return asyncio.run(scheduler.get_profile_metadata(**arguments))

    return ask


def test_the_times_of_all_workers_are_added_up(asked):
    one = {"counts": [(NOW - 2.5, 3), (NOW, 1)], "keys": [(NOW - 2.5, {"sum": 3}), (NOW, {})]}
    two = {"counts": [(NOW - 2.1, 4)], "keys": [(NOW - 0.5, {"inc": 2, "sum": 1})]}
    told = asked({"a": one, "b": two, "c": OSError()}, profile_cycle_interval="1s")
    assert told["counts"] == [(NOW - 3, 7), (NOW, 1)]
    assert told["keys"] == {
        "sum": [[NOW - 3, 3], [NOW - 1, 1]],
        "inc": [[NOW - 3, 0], [NOW - 1, 2]],
    }
    assert asked({"a": one, "b": two}, workers=["b", "gone"])["counts"] == [(NOW - 3, 4)]


def test_what_they_invent_takes_no_more(asked):
    """Twenty thousand names at twenty thousand times made 29 gigabytes of lists."""
    names = {f"k{number}": 1 for number in range(20_000)}
    times = [(NOW - number, {"sum": 1}) for number in range(20_000)]
    told = asked({"a": {"counts": [(at, 1) for at, _ in times], "keys": [(NOW, names), *times]}})
    assert told["keys"].keys() == {"sum"}
    assert len(told["keys"]["sum"]) == len(told["counts"]) == 1002
    later = {"counts": [(NOW + 61, 1)], "keys": [(NOW + 61, {"sum": 1})]}
    assert asked({"a": later}) == {"counts": [], "keys": {}}


@pytest.fixture
def stacks():
    """Return a scheduler, its tasks by key, and what it asks workers for."""
    scheduler = Scheduler(dashboard_address="127.0.0.1:0", dashboard=False)
    scheduler.http_server.stop()
    Scheduler._instances.discard(scheduler)  # as above
    asked = []

    def rpc(address):
        async def call_stack(keys):
            asked.append((address, None if keys is None else sorted(keys)))
            return dict.fromkeys(keys or (), ("a call",))

        return SimpleNamespace(call_stack=call_stack)

    scheduler.rpc = rpc
    bound_profiles(scheduler, Limits())
    return scheduler, scheduler.tasks, asked


class Task:
    def __init__(self, key, state, *dependencies):
        self.key, self.state, self.dependencies = key, state, dependencies
        self.processing_on = SimpleNamespace(address="w")


def test_a_task_that_waits_is_looked_at_once(stacks):
    """Forty levels, each of two tasks that wait for both of the level before: 2**40 ways."""
    scheduler, tasks, asked = stacks
    row = [Task("one", "processing"), Task("two", "memory")]
    tasks.update({each.key: each for each in row})
    for level in range(40):
        row = [Task((level, side), "waiting", *row) for side in range(2)]
        tasks.update({each.key: each for each in row})
    handler = scheduler.handlers["call_stack"]
    assert asyncio.run(handler(keys=[(39, 0), (39, 1)])) == {"w": {"one": ("a call",)}}
    assert asked == [("w", ["one"])]
    assert asyncio.run(handler(keys=["one", "one"])) == {"w": {"one": ("a call",)}}
    assert asyncio.run(handler(keys=["two"])) == {}
    with pytest.raises(KeyError):
        asyncio.run(handler(keys=["gone"]))


def test_all_call_stacks_are_told(stacks):
    scheduler, _, asked = stacks
    scheduler.workers = {"v": None}
    assert asyncio.run(scheduler.get_call_stack()) == {}
    assert asked == [("v", None)]
