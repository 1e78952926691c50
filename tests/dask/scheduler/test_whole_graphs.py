"""Graphs and data that Dask's scheduler takes in half way: they leave nothing behind.

Each attack is made on a scheduler as it comes, too: where it does nothing there any more, its mend
here can go.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from dask._task_spec import Task, TaskRef
from distributed import Scheduler
from distributed.scheduler import ClientState

from safeser.errors import PayloadError
from safeser.operations import Server
from tests.dask.patched import Peer, serve


def scheduler_of(doors: Any, *, guarded: bool) -> Any:
    made: Any = Scheduler(dashboard_address="127.0.0.1:0", dashboard=False)
    made.http_server.stop()
    # It never opens: tests that follow look for schedulers that are open in this process.
    Scheduler._instances.discard(made)
    for client in ("alice", "bob"):
        made.clients[client] = ClientState(client)
    if guarded:
        serve(made, Server.SCHEDULER, doors.channel("scheduler", "demo"))
    made.update_data(who_has={"data": ()}, nbytes={"data": 1})
    made.client_desires_keys(["data"], "alice")
    return made


def submit(scheduler: Any, dsk: dict[Any, Any], *keys: Any, client: str, **said: Any) -> Any:
    return scheduler._create_taskstate_from_graph(
        **{
            "start": 0.0,
            "dsk": dsk,
            "keys": set(keys),
            "ordered": {key: at for at, key in enumerate(dsk)},
            "client": client,
            "annotations_by_type": {},
            "global_annotations": None,
            "stimulus_id": "s",
            "submitting_task": None,
            "span_metadata": {"collections": []},
            **said,
        }
    )


def many(name: str) -> dict[Any, Any]:
    """Return tasks that wait in Dask's queue where no worker is, and one that needs them."""
    parts = {(name, at): Task((name, at), operator.add, 1, at) for at in range(4)}
    return {**parts, f"all-{name}": Task(f"all-{name}", max, *map(TaskRef, parts))}


def with_either(attack: Callable[[Any, bool], None]) -> Any:
    @pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
    def test(doors: Any, guarded: bool) -> None:
        async def main() -> None:
            attack(scheduler_of(doors, guarded=guarded), guarded)

        asyncio.run(asyncio.wait_for(main(), 30))

    return test


@with_either
def test_bypass_tasks_without_a_place_in_the_order(scheduler, guarded):
    order = {("evil", 0): 3, "of another task": 1}
    if not guarded:
        with pytest.raises(TypeError):
            submit(scheduler, many("evil"), "all-evil", client="bob", ordered=order)
        with pytest.raises(TypeError):  # everybody's
            submit(scheduler, many("mine"), "all-mine", client="alice")
        return
    submit(scheduler, many("evil"), "all-evil", client="bob", ordered=order)
    submit(scheduler, many("mine"), "all-mine", client="alice")
    assert {task.state for key, task in scheduler.tasks.items() if key != "data"} == {
        "queued",
        "waiting",
    }
    assert scheduler.tasks["evil", 0].priority[2] == 3
    assert scheduler.tasks["evil", 1].priority[2] == 0
    assert [scheduler.queued.pop().key[0] for _ in range(8)].count("mine") == 4


BESIDE: dict[str, dict[str, Any]] = {
    "no time": {"fifo_timeout": "abc"},
    "no task": {"submitting_task": "data"},
    "no actor": {"actors": ["nothing"]},
    "no resources": {"annotations_by_type": {"resources": {("evil", 0): [1]}}},
}


@pytest.mark.parametrize("said", BESIDE)
def test_bypass_half_of_a_graph_stays(doors, said):
    def attack(scheduler: Any, guarded: bool) -> None:
        submit(scheduler, {"known": Task("known", max, TaskRef("data"))}, "known", client="alice")
        graph = many("evil") | {"more": Task("more", max, TaskRef("known"))}
        told: list[Any] = []
        scheduler.client_comms["bob"] = SimpleNamespace(send=told.append)
        with pytest.raises(Exception):  # noqa: B017 - whatever Dask says of it
            submit(scheduler, graph, "all-evil", "more", client="bob", **BESIDE[said])
        kept = {"known", "data"}
        assert (scheduler.tasks.keys() == kept) is guarded
        if guarded:
            assert not scheduler.clients["bob"].wants_what
            assert not scheduler.tasks["known"].dependents
            assert "cancelled-keys" not in {one["op"] for one in told}
            submit(scheduler, many("evil"), "all-evil", client="alice")
            assert scheduler.tasks["all-evil"].state == "waiting"

    for guarded in (False, True):

        async def main(guarded: bool = guarded) -> None:
            attack(scheduler_of(doors, guarded=guarded), guarded)

        asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("client", ["bob", None])
@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_bypass_data_at_a_worker_that_is_not_there_takes_its_key(doors, guarded, client):
    async def main() -> None:
        scheduler = scheduler_of(doors, guarded=guarded)
        with pytest.raises(KeyError):
            scheduler.update_data(
                *([Peer()] if guarded else []),
                who_has={"data": [], "k": ["safeser://127.0.0.1:1"]},
                nbytes={},
                client=client,
            )
        assert ("k" in scheduler.tasks) is not guarded
        assert scheduler.tasks["data"].state == "memory"

    asyncio.run(asyncio.wait_for(main(), 30))


UNSENDABLE = {
    "key": ({"\udc80": Task("\udc80", operator.add, 1, 2)}, {}),
    "part of a key": ({("x", "\udc80"): Task(("x", "\udc80"), operator.add, 1, 2)}, {}),
    "number": ({("x", 1 << 64): Task(("x", 1 << 64), operator.add, 1, 2)}, {}),
    "annotation": (many("x"), {"global_annotations": {"file": ["\udc80"]}}),
    "annotations": (many("x"), {"annotations_by_type": {"file": {"all-x": {"\udc80": 1}}}}),
}


@pytest.mark.parametrize("what", UNSENDABLE)
def test_no_task_is_taken_that_no_worker_could_be_sent(doors, run, what):
    dsk, said = UNSENDABLE[what]

    async def main():
        scheduler = scheduler_of(doors, guarded=True)
        before = set(scheduler.tasks)
        with pytest.raises(PayloadError) as caught:
            submit(scheduler, dsk, *dsk, client="bob", **said)
        assert caught.value.rule == "payload.unsendable"
        assert set(scheduler.tasks) == before
        stock = scheduler_of(doors, guarded=False)
        submit(stock, dsk, *dsk, client="bob", **said)
        assert dsk.keys() <= stock.tasks.keys(), "the control did not run"

    run(main())


def test_what_travels_as_a_payload_is_taken(doors, run):
    async def main():
        scheduler = scheduler_of(doors, guarded=True)
        dsk = {("x", 1, 1.5): Task(("x", 1, 1.5), operator.add, 1, 2)}
        beside = {"global_annotations": {"object": object(), "deep": [{"a": {1, "\u00e9"}}]}}
        submit(scheduler, dsk, *dsk, client="bob", **beside)
        assert dsk.keys() <= scheduler.tasks.keys()

    run(main())
