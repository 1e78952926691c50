"""Copies that a worker never gets: whoever asked for them hears of it, and nobody waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler

from safeser.dask.groups import replication
from safeser.dask.groups.replication import ATTEMPTS
from safeser.operations import Server
from tests.dask.patched import serve, with_rows


class Turning(Scheduler):
    """A scheduler that copies as Dask's ``replicate`` does at its core, ten times at most."""

    async def replicate(self, **_: Any) -> Any:
        return await until(self, 10)


async def until(scheduler: Any, turns: int) -> Any:
    for _ in range(turns):
        await scheduler.gather_on_worker("b", {"k": ["a"], "l": ["a"]})
    return "asked for ever"


Replaced = with_rows(Turning, "distributed.scheduler:Scheduler.replicate")


class Copying:
    """A scheduler that never listened, whose workers answer as they are told."""

    def __init__(self, doors: Any, *, ends: bool) -> None:
        self.scheduler: Any = Replaced(dashboard_address="127.0.0.1:0", dashboard=False)
        if ends:
            serve(self.scheduler, Server.SCHEDULER, doors.channel("scheduler", "dask-cluster"))
        self.scheduler.http_server.stop()
        # It never opens: tests that follow look for schedulers that are open in this process.
        Scheduler._instances.discard(self.scheduler)
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {}
        self.scheduler.rpc = self.rpc
        self.scheduler.workers = {address: Held(address) for address in ("a", "b", "c")}
        for key in ("k", "l"):
            task = self.scheduler.new_task(key, None, "memory")
            task.who_has = {self.scheduler.workers["a"]}

    def rpc(self, addr: str) -> Any:
        async def gather(who_has: Any) -> Any:
            self.asked.append(addr)
            said = self.answers.get(addr, {"status": "OK"})
            if isinstance(said, Exception):
                raise said
            return said

        return SimpleNamespace(gather=gather)


class Held:
    def __init__(self, address: str) -> None:
        self.address = address

    def add_replica(self, task: Any) -> None: ...


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(replication, "_PAUSE", 0)


FAILS = {"status": "partial-fail", "keys": ("k",)}


@pytest.mark.parametrize("answer", [FAILS, OSError("lost")], ids=["refused", "lost"])
@pytest.mark.parametrize("ends", [False, True], ids=["stock", "ended"])
def test_copying_ends(doors, answer, ends):
    async def main() -> None:
        copying = Copying(doors, ends=ends)
        copying.answers["b"] = answer
        handler = copying.scheduler.handlers["replicate"]
        if not ends:
            assert await handler(keys=["k"]) == "asked for ever"
            return
        with pytest.raises(RuntimeError, match=r"could not be copied to b in 3 attempts"):
            await handler(keys=["k"])
        assert len(copying.asked) == ATTEMPTS
        # Each request has attempts of its own, and so has what asks without one.
        with pytest.raises(RuntimeError):
            await copying.scheduler.replicate(keys=["k"])
        assert len(copying.asked) == 2 * ATTEMPTS
        assert await until(copying.scheduler, 5) == "asked for ever"

    asyncio.run(asyncio.wait_for(main(), 30))


def test_what_arrives_and_what_is_forgotten_ends_nothing(doors):
    async def main() -> None:
        copying = Copying(doors, ends=True)
        scheduler = copying.scheduler
        scheduler.add_replica = lambda task, worker: None
        assert await scheduler.replicate(["k"]) == "asked for ever"
        copying.answers["b"] = FAILS
        del scheduler.tasks["k"]
        assert await scheduler.replicate(["k"]) == "asked for ever"

    asyncio.run(asyncio.wait_for(main(), 30))
