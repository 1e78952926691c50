"""Keys that a client wants and that are not there.

Each attack is made on a scheduler as it comes, too: where it does nothing there any more, its mend
here can go.
"""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest

from safeser.operations import Server
from tests.dask.patched import serve
from tests.dask.visitors import VIEWER, Visited


def on(doors: Any, guarded: bool, what: Any) -> Any:
    async def made() -> Any:
        visited = Visited()
        if guarded:
            channel = doors.channel("scheduler", "dask-cluster")
            serve(visited.scheduler, Server.SCHEDULER, channel)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            return what(visited), len(said)

    return asyncio.run(made())


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_bypass_each_unknown_key_is_a_warning(doors, guarded):
    def wants(visited: Visited) -> None:
        keys = [f"nowhere-{number}" for number in range(1000)]
        visited.hear("client-desires-keys", keys=keys, client=VIEWER)
        visited.scheduler.client_desires_keys(keys, "published-d")  # as its extensions call it
        assert not visited.scheduler.tasks
        assert "published-d" in visited.scheduler.clients

    _, said = on(doors, guarded, wants)
    assert said == (0 if guarded else 2000)


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_a_known_key_is_wanted_as_by_dask(doors, guarded):
    def wants(visited: Visited) -> bool:
        task = visited.task("k")
        visited.hear("client-desires-keys", keys=("k", "nowhere"), client=VIEWER)
        return visited.scheduler.clients[VIEWER] in task.who_wants

    wanted, _ = on(doors, guarded, wants)
    assert wanted
