"""Deep profiles are cut to what a message can hold."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from safeser.gate.values import Limits
from safeser.operations import Server
from tests.dask.patched import Peer, serve, with_rows


def node(name, depth):
    children = {f"{name}x": node(f"{name}x", depth - 1)} if depth > 1 else {}
    return {"identifier": name, "description": {}, "count": 1, "children": children}


def depth_of(profile):
    return 1 + max(map(depth_of, profile["children"].values()), default=0)


TARGETS = ("distributed.scheduler:Scheduler.get_profile", "distributed.worker:Worker.get_profile")


class Profiled:
    """A server whose profile is *whole*, or that of one worker."""

    def __init__(self, whole, limits=None):
        self.whole = whole
        if limits is not None:
            serve(self, Server.WORKER, SimpleNamespace(policy=SimpleNamespace(limits=limits)))

    async def get_profile(self, workers=None, merge_workers=True):
        return self.whole if merge_workers else {"w": self.whole}


@pytest.fixture(params=TARGETS)
def profiled(request):
    return with_rows(Profiled, request.param)


@pytest.mark.parametrize("depth", [1, 48, 49, 50, 300])
def test_deep_profiles_are_cut(profiled, depth):
    whole = node("r", depth)
    told = asyncio.run(profiled(whole, Limits()).get_profile(Peer()))
    assert depth_of(told) == min(depth, 49)
    assert depth_of(whole) == depth
    assert told["count"] == 1
    if depth <= 49:
        assert told == whole


def test_each_workers_is_cut(profiled):
    server = profiled(node("r", 300), Limits(max_depth=10))
    told = asyncio.run(server.get_profile(Peer(), merge_workers=False, workers=["w"]))
    assert depth_of(told["w"]) == 4


def test_what_a_server_asks_itself_and_what_others_are_asked_is_whole(profiled):
    for server, said in (
        (profiled(node("r", 300), Limits()), ()),
        (profiled(node("r", 300), Limits()), (["w"],)),
        (profiled(node("r", 300)), (Peer(),)),
    ):
        assert depth_of(asyncio.run(server.get_profile(*said))) == 300
