"""One principal that never says that its data came leaves a worker's other slots to others."""

from __future__ import annotations

import asyncio
from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.utils import has_keyword
from distributed.worker import Worker

from safeser.dask.transfers import share_transfers


class Serving(Worker):
    """A worker of eight slots, whose askers say that the data came when they are told to."""

    def __init__(self, limit: Any = 8) -> None:
        self.handlers = {"get_data": self.get_data}
        self.transfer_outgoing_count_limit = limit
        self.came = asyncio.Event()

    def __del__(self) -> None: ...

    async def get_data(self, comm: Any, keys: Any, who: Any = None, serializers: Any = None) -> Any:
        await self.came.wait()
        if keys == ("broken",):
            raise OSError("the connection ended")
        return keys


def asks(worker: Any, peer: str | None, *keys: str) -> Any:
    link = None if peer is None else SimpleNamespace(peer=peer, local="worker")
    comm = SimpleNamespace() if link is None else SimpleNamespace(link=link)
    return asyncio.ensure_future(worker.handlers["get_data"](comm, keys=keys))


BUSY = {"status": "busy"}


@pytest.mark.parametrize(("limit", "share"), [(8, 4), (3, 1)])
def test_nobody_holds_more_than_half(run, limit, share):
    async def main():
        worker = Serving(limit)
        share_transfers(worker)
        held = [asks(worker, "mallory", "k") for _ in range(share)]
        await asyncio.sleep(0)
        assert [await asks(worker, "mallory", "k") for _ in range(3)] == [BUSY] * 3
        others = [asks(worker, peer, "k") for peer in ("bob", "worker", None)]
        await asyncio.sleep(0)
        worker.came.set()
        assert await asyncio.gather(*held, *others) == [("k",)] * (share + 3)
        assert await asks(worker, "mallory", "again") == ("again",)

    run(main())


@pytest.mark.parametrize(("limit", "shares"), [(8, [4, 2, 0]), (10, [5, 2, 1, 0]), (1, [1, 0])])
def test_several_who_work_together_leave_the_rest_to_the_workers(run, limit, shares):
    async def main():
        worker = Serving(limit)
        share_transfers(worker)
        held = []
        for number, share in enumerate(shares):
            held += [asks(worker, f"mallory-{number}", "k") for _ in range(share)]
            await asyncio.sleep(0)
            assert await asks(worker, f"mallory-{number}", "k") == BUSY
        assert sum(shares) == len(held) == limit - limit // 4
        held.append(asks(worker, "worker", "k"))
        await asyncio.sleep(0)
        worker.came.set()
        assert await asyncio.gather(*held) == [("k",)] * len(held)

    run(main())


def test_other_workers_and_unlimited_ones_are_as_they_were(run):
    async def main():
        for worker, peer in ((Serving(), "worker"), (Serving(False), "bob")):
            share_transfers(worker)
            held = [asks(worker, peer, "k") for _ in range(20)]
            await asyncio.sleep(0)
            worker.came.set()
            assert await asyncio.gather(*held) == [("k",)] * 20

    run(main())


def test_a_transfer_that_fails_gives_its_slot_back(run):
    async def main():
        worker = Serving(2)
        share_transfers(worker)
        worker.came.set()
        for _ in range(5):
            with pytest.raises(OSError, match="ended"):
                await asks(worker, "bob", "broken")
        assert await asks(worker, "bob", "k") == ("k",)

    run(main())


def test_it_takes_what_dask_hands_to_the_handler_in_its_place(run):
    async def main():
        worker = Serving()
        share_transfers(worker)
        handler = worker.handlers["get_data"]
        assert [*signature(handler).parameters] == [*signature(worker.get_data).parameters]
        assert [*signature(handler).parameters] == [*signature(Worker.get_data).parameters][1:]
        assert has_keyword(handler, "serializers")

    run(main())


def test_only_a_worker_has_transfers():
    other = SimpleNamespace(handlers={})
    share_transfers(other)
    assert other.handlers == {}
