"""Requests that wait end when whoever asked has left, and nobody loses anything by it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status

from safeser.dask import waiting
from safeser.dask.waiting import end_with_their_askers
from tests.dask.visitors import Visited, on


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(waiting, "_SECONDS", 0.001)


class Asker:
    """One connection, which its end closes."""

    def __init__(self) -> None:
        self.gone = False

    def closed(self) -> bool:
        return self.gone


def begin(visited: Visited, op: str, asker: Asker, **request: Any) -> Any:
    return asyncio.ensure_future(visited.scheduler.handlers[op](asker, **request))


WAITING = [
    ("variable_get", {"name": "v", "client": "Client-1", "timeout": None}),
    ("queue_get", {"name": "q", "timeout": None}),
    ("event_wait", {"name": "e", "timeout": None}),
    ("semaphore_acquire", {"name": "s", "timeout": None, "lease_id": "mine"}),
    ("multi_lock_acquire", {"locks": ("a", "b"), "id": "mine", "timeout": None, "num_locks": 2}),
]


async def prepared(visited: Visited) -> Any:
    end_with_their_askers(visited.scheduler)
    end_with_their_askers(visited.scheduler)
    await visited.ask("queue_create", name="q")
    await visited.ask("semaphore_register", name="s", max_leases=1, lease_timeout=None)
    here = Asker()
    for op, given in (
        ("semaphore_acquire", {"name": "s", "timeout": None, "lease_id": "theirs"}),
        (
            "multi_lock_acquire",
            {"locks": ("a", "b"), "id": "theirs", "timeout": None, "num_locks": 2},
        ),
    ):
        assert await begin(visited, op, here, **given) is True
    return here


@pytest.mark.parametrize(("op", "given"), WAITING, ids=[op for op, _ in WAITING])
def test_who_left_waits_no_more(op, given, caplog):
    async def leaves(visited: Visited) -> None:
        await prepared(visited)
        asker = Asker()
        asked = begin(visited, op, asker, **given)
        await asyncio.sleep(0.01)
        assert not asked.done()
        before = len(asyncio.all_tasks())
        asker.gone = True
        assert await asked is Status.dont_reply
        assert len(asyncio.all_tasks()) < before
        extensions = visited.scheduler.extensions
        assert extensions["semaphores"].metrics["pending"]["s"] == 0
        assert extensions["multi_locks"].requests.keys() == {"theirs"}
        assert "e" not in extensions["events"]._events

    on(True, leaves)
    assert "Traceback" not in caplog.text


def test_what_they_waited_for_is_left_to_others():
    async def leaves(visited: Visited) -> None:
        here = await prepared(visited)
        asker = Asker()
        asked = [begin(visited, op, asker, **given) for op, given in WAITING]
        await asyncio.sleep(0.01)
        asker.gone = True
        await asyncio.wait(asked)
        others = [
            begin(visited, op, here, **{k: "other" if v == "mine" else v for k, v in given.items()})
            for op, given in WAITING
        ]
        await asyncio.sleep(0.01)
        await visited.ask("variable_set", name="v", data=1)
        await visited.ask("queue_put", name="q", data=2)
        await visited.ask("event_set", name="e")
        await visited.ask("semaphore_release", name="s", lease_id="theirs")
        await visited.ask("multi_lock_release", id="theirs")
        values, item, *rest = await asyncio.gather(*others)
        assert (values["value"], item["value"], rest) == (1, 2, [True, True, True])

    on(True, leaves)


def test_errors_and_the_end_of_the_server_pass_through():
    async def fails(visited: Visited) -> None:
        here = await prepared(visited)
        with pytest.raises(RuntimeError, match="not known"):
            await begin(visited, "semaphore_acquire", here, name="none", lease_id=1)
        asked = begin(visited, "event_wait", here, name="e", timeout=None)
        await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert "e" not in visited.scheduler.extensions["events"]._events
        # A semaphore that was closed, or a lock that was let go of, needs nothing put right.
        for op, given in WAITING[3:]:
            visited.scheduler.handlers[op].__self__._left(**{**given, "name": "x", "id": "x"})

    on(True, fails)


def test_there_may_be_no_such_handlers():
    end_with_their_askers(SimpleNamespace())

    async def without(visited: Visited) -> None:
        for op, _ in WAITING:
            del visited.scheduler.handlers[op]
        end_with_their_askers(visited.scheduler)
        assert not {op for op, _ in WAITING} & visited.scheduler.handlers.keys()

    on(True, without)
