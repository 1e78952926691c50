"""Deep profiles are cut to what a message can hold."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from distributed.diagnostics.task_stream import alphas, colors, prefix

from safeser.dask.profiles import cut_profiles
from safeser.operations.shapes import ACTIONS
from safeser.values import Limits


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
    cut_profiles(server, Limits())
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
    cut_profiles(server, Limits(max_depth=10))
    wrapped = server.handlers["profile"]
    cut_profiles(server, Limits())
    assert server.handlers["profile"] is wrapped
    told = asyncio.run(wrapped(merge_workers=False, workers=["w"]))
    assert depth_of(told["w"]) == 4


def test_what_has_no_profile_is_left_alone():
    cut_profiles(object(), Limits())
    nothing = SimpleNamespace(handlers={})
    cut_profiles(nothing, Limits())
    assert nothing.handlers == {}
