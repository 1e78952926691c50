"""Copies that a worker never gets: whoever asked for them hears of it, and nobody waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler

from safeser.dask import copies
from safeser.dask.copies import ATTEMPTS, end_copies


class Copying:
    """A scheduler that never listened, whose workers answer as they are told."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(dashboard_address="127.0.0.1:0", dashboard=False)
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
    monkeypatch.setattr(copies, "_PAUSE", 0)


FAILS = {"status": "partial-fail", "keys": ("k",)}


async def until(copying: Copying, turns: int) -> Any:
    """Copy as Dask's ``replicate`` does at its core, no more than *turns* times."""
    for _ in range(turns):
        await copying.scheduler.gather_on_worker("b", {"k": ["a"], "l": ["a"]})
    return "asked for ever"


@pytest.mark.parametrize("answer", [FAILS, OSError("lost")], ids=["refused", "lost"])
@pytest.mark.parametrize("ends", [False, True], ids=["stock", "ended"])
def test_copying_ends(answer, ends):
    async def main() -> None:
        copying = Copying()
        copying.answers["b"] = answer
        scheduler = copying.scheduler

        async def replicate(**request: Any) -> Any:
            return await until(copying, 10)

        scheduler.replicate = replicate
        if ends:
            end_copies(scheduler)
            handler = scheduler.handlers["replicate"]
            assert handler is scheduler.replicate
            end_copies(scheduler)
            assert scheduler.replicate is handler
            with pytest.raises(RuntimeError, match=r"could not be copied to b in 3 attempts"):
                await handler(keys=["k"])
            assert len(copying.asked) == ATTEMPTS
            # Each request has attempts of its own, and so has what asks without one.
            with pytest.raises(RuntimeError):
                await handler(keys=["k"])
            assert len(copying.asked) == 2 * ATTEMPTS
            assert await until(copying, 5) == "asked for ever"
        else:
            assert await scheduler.replicate() == "asked for ever"

    asyncio.run(asyncio.wait_for(main(), 30))


def test_what_arrives_and_what_is_forgotten_ends_nothing():
    async def main() -> None:
        copying = Copying()
        scheduler = copying.scheduler
        scheduler.add_replica = lambda task, worker: None

        async def replicate(**request: Any) -> Any:
            return await until(copying, 10)

        scheduler.replicate = replicate
        end_copies(scheduler)
        assert await scheduler.replicate() == "asked for ever"
        copying.answers["b"] = FAILS
        del scheduler.tasks["k"]
        assert await scheduler.replicate() == "asked for ever"

    asyncio.run(asyncio.wait_for(main(), 30))


def test_what_is_no_scheduler_is_left_alone():
    other = SimpleNamespace()
    end_copies(other)
    assert not vars(other)
