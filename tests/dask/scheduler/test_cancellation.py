"""Whom cancelling hits, and who is told of it.

Each attack is made on a scheduler as it comes, too: where it does nothing there any more, its mend
here can go.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from distributed.core import _expects_comm
from distributed.utils import has_keyword, iscoroutinefunction

from safeser.dask.patches import PATCHES
from safeser.dask.scheduler.conflicts import Owners
from safeser.dask.servers import part_of
from safeser.operations import Server
from tests.dask.patched import original, serve
from tests.dask.visitors import VIEWER, Shared, Visited, shared


def test_force_reaches_what_nobody_else_wants(doors):
    def cancels(s: Shared) -> None:
        s.task("alices", "Client-alice")
        s.task("both", "Client-alice", "Client-bob")
        s.task("kept", "published-k")
        assert s.cancel("bob", "alices", "both", "kept", "nowhere", force=True) == []
        assert s.links["bob"].audit.rules == ["key.cancel"]
        assert s.links["bob"].audit.events[0]["operation"] == "cancel-keys"
        assert s.cancel("alice", "alices", force=True) == ["alices"]
        assert s.links["alice"].audit.rules == []
        assert s.cancel("bob", "both", force=False) == []
        assert s.cancel("carol", "both", "kept", force=True) == ["both", "kept"]
        assert s.links["carol"].audit.rules == []
        # A client that is no peer cancels as ever.
        s.task("more", "Client-alice")
        assert s.cancel("viewer", "more", force=True) == ["more"]

    shared(doors, cancels)


def test_force_reaches_nothing_of_others_by_what_it_depends_on(doors):
    def cancels(s: Shared) -> None:
        first, second = s.task("first", "Client-bob"), s.task("second", "Client-alice")
        second.add_dependency(first)
        s.cancel("bob", "first", force=True)
        assert "second" in s.scheduler.tasks
        assert {each.client_key for each in second.who_wants} == {"Client-alice"}

    shared(doors, cancels)


def test_bypass_others_are_told_of_what_they_want_alone(doors):
    """A future whose graph is still on its way ended by another one's cancelling of that key."""

    def cancels(s: Shared) -> None:
        told: dict[str, list[Any]] = {}

        def note(msg: Any, ts: Any = None, client: Any = None) -> None:
            if msg["op"] == "cancelled-keys" and ts is None:
                told.setdefault(client or "everybody", []).extend(msg["keys"])

        s.join("Client-again", s.links["bob"])
        owners = part_of(s.scheduler, Owners)
        owners.of_client = lambda name: "bob" if name == "Client-again" else name[7:]
        s.scheduler.report = note
        bobs = {"Client-bob", "Client-again"}
        s.task("k", "Client-bob")
        assert s.cancel("bob", "k", force=False) == ["k"]
        assert told.keys() == bobs
        told.clear()
        first, second = s.task("first", "Client-alice"), s.task("second", "Client-bob")
        third = s.task("third", "Client-alice")
        for one in (second, third):
            one.add_dependency(first)
        third.add_dependency(second)
        assert s.cancel("carol", "first", "nowhere", force=True) == ["first", "second", "third"]
        assert told.keys() == {"Client-alice", "Client-bob", "Client-carol"}
        told.clear()
        s.task("own", VIEWER)
        assert s.cancel("viewer", "own", force=False) == ["own"]
        assert told == {"everybody": ["own"]}

    shared(doors, cancels)


def needed(visited: Visited, client: str) -> Any:
    """Return a task of *client*, on which another one of it depends, and one that nobody wants."""
    mine = visited.task("mine", client)
    for one in (
        visited.scheduler.new_task("theirs", None, "released"),
        visited.task("more", client),
    ):
        one.add_dependency(mine)
    return mine


def test_bypass_what_depends_on_a_key_and_nobody_wants_ends_no_cancelling(doors):
    def cancels(s: Shared) -> None:
        stock = Visited()
        needed(stock, VIEWER)
        with pytest.raises(AssertionError):
            stock.scheduler.stimulus_cancel(["mine"], VIEWER, False, "r", "m")
        mine = needed(s, "Client-alice")
        assert s.cancel("alice", "mine", force=False) == ["more"]
        assert not mine.who_wants  # needed by what is somebody else's
        assert s.cancel("nobody", "mine", force=True) == []

    shared(doors, cancels)


def handlers():
    """Return the rows that replace a method of a server's class, by which Dask's loop is served."""
    of_servers = ("distributed.scheduler:S", "distributed.worker:W")
    return [each for each in PATCHES if each.target.startswith(of_servers)]


@pytest.mark.parametrize("row", handlers(), ids=lambda each: each.target.partition(":")[2])
def test_handlers_that_are_replaced_are_handed_what_dasks_own_are(row):
    """Dask looks at a handler's parameters: one hidden behind ``**`` is never passed at all."""
    own = original(row.target)
    here = row.replacement(own)
    assert has_keyword(own, "serializers") == has_keyword(here, "serializers")
    assert iscoroutinefunction(own) == iscoroutinefunction(here)
    # Some of ours ask for the connection, too, to know who speaks.
    ours, theirs = (partial(each, object()) for each in (here, own))
    assert _expects_comm(ours) or not _expects_comm(theirs)


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_retrying_data_of_others_loses_none(doors, guarded):
    async def main() -> None:
        scheduler = Visited().scheduler
        if guarded:
            serve(scheduler, Server.SCHEDULER, doors.channel("scheduler", "demo"))
        scheduler.update_data(who_has={"data": ()}, nbytes={"data": 1})
        scheduler.client_desires_keys(["data"], VIEWER)
        scheduler.handlers["retry"](keys=("data", "nothing")[: 1 + guarded], client="bob")
        assert ("data" in scheduler.tasks) is guarded

    asyncio.run(asyncio.wait_for(main(), 30))
