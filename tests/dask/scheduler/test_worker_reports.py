"""Workers of a scheduler of Dask's own that say of tasks, copies and shuffles what is not so.

Each attack is made on a scheduler as it comes, too: where it does nothing there any more, its mend
here can go.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.dask.registered import Cluster, Comm, address, erred, finished, on


@pytest.fixture(params=["stock", "guarded"])
def guarded(request) -> bool:
    return bool(request.param == "guarded")


# --- what they say of tasks ----------------------------------------------------------------------


def test_nobody_fails_what_another_worker_computes(doors, guarded):
    async def main(c: Cluster) -> None:
        await c.register(1)
        other = await c.register(2)
        task = c.running("k", 1)
        hear = c.scheduler.stream_handlers
        hear["task-erred"](**erred("k", 2, run_id=6))  # of an earlier run: Dask knows it
        assert task.state == "processing"
        hear["task-erred"](**erred("k", 2))
        assert (task.state == "processing") is guarded
        if not guarded:
            return
        hear["task-finished"](**finished("k", 2))
        assert task.state == "processing"
        assert not task.metadata
        assert other.link.audit.rules == ["worker.task"] * 2
        hear["task-erred"](**erred("unknown", 2))
        hear["task-finished"](**finished("k", 1))
        assert task.state == "forgotten"  # since nobody wants it
        given_to_none = c.scheduler.new_task("l", None, "waiting")
        hear["task-finished"](**finished("l", 2, run_id=given_to_none.run_id))
        assert not given_to_none.metadata
        assert other.link.audit.rules == ["worker.task"] * 3

    on(doors, guarded, main)


@pytest.mark.parametrize("state", ["ready", "released", "nonsense"])
def test_nobody_gives_up_what_another_worker_was_asked_for(doors, guarded, state):
    async def main(c: Cluster) -> None:
        await c.register(1)
        await c.register(2)
        other = await c.register(3)
        task = c.running("k", 1)
        task.priority = (0,)
        workers = c.scheduler.workers
        stealing = c.scheduler.extensions["stealing"]
        number = stealing.move_task_request(task, workers[address(1)], workers[address(2)])
        hear = c.scheduler.stream_handlers["steal-response"]
        said = {"key": "k", "state": state, "stimulus_id": number}
        if not guarded and state == "nonsense":
            with pytest.raises(ValueError, match="Unexpected"):
                hear(worker=address(3), **said)
            return
        hear(worker=address(3), **said)
        assert (task in stealing.in_flight) is guarded
        assert (task.processing_on is workers[address(1)]) is guarded
        if not guarded:
            return
        assert other.link.audit.rules == ["worker.task"]
        hear(worker=address(3), **{**said, "key": "gone"})
        hear(worker=address(1), **{**said, "state": "ready"})
        assert task.processing_on is workers[address(2)]
        hear(worker=address(3), **said)  # over: Dask notes it
        assert task.processing_on is workers[address(2)]

    on(doors, guarded, main)


# --- copies --------------------------------------------------------------------------------------


def holders(task: Any) -> set[str]:
    return {state.address for state in task.who_has or ()}


def test_nobody_claims_to_have_what_it_was_never_told_of(doors, guarded):
    # Whoever has a copy is asked for it, and Dask has all others drop theirs.
    async def main(c: Cluster) -> None:
        await c.register(1)
        other = await c.register(2)
        task = c.held("k", 1)
        hear = c.scheduler.stream_handlers["add-keys"]
        hear(worker=address(2), keys=["k", "gone"], stimulus_id="s")
        assert holders(task) == ({address(1)} if guarded else {address(1), address(2)})
        await c.ask("add_keys", other.link, worker=address(2), keys=["k"])
        task.run_id = 7
        c.scheduler.stream_handlers["task-finished"](**finished("k", 2))
        assert holders(task) == ({address(1)} if guarded else {address(1), address(2)})
        if guarded:
            assert other.link.audit.rules == ["worker.task"] * 3
        # Who has it says so again.
        hear(worker=address(1), keys=["k"], stimulus_id="s")
        assert address(1) in holders(task)

    on(doors, guarded, main)


def test_whoever_may_run_code_on_the_scheduler_is_believed(doors):
    async def main(c: Cluster) -> None:
        await c.register(1)
        await c.register(2, comm=Comm(c.link("another", "alice", "demo")))
        task = c.held("k", 1)
        c.scheduler.stream_handlers["add-keys"](worker=address(2), keys=["k"], stimulus_id="s")
        assert holders(task) == {address(1), address(2)}

    on(doors, True, main)


@pytest.mark.parametrize("how", ["for a task", "to compute", "to keep", "to copy"])
def test_what_a_worker_was_told_of_it_may_have(doors, how):
    async def main(c: Cluster) -> None:
        await c.register(1)
        await c.register(2)
        task = c.held("k", 1)
        if how == "to compute":
            running = c.running("r", 2)
            running.priority = (0,)
            c.scheduler._task_to_msg(running)
            running.state, running.processing_on = "memory", None
            task = running
        elif how == "for a task":
            running = c.running("r", 2)
            running.add_dependency(task)
            running.priority = (0,)
            c.scheduler._task_to_msg(running)
        elif how == "to keep":
            c.scheduler.request_acquire_replicas(address(2), ["k"], stimulus_id="s")
        else:
            asked = {"k": [address(1)], "gone": []}
            copying = asyncio.ensure_future(c.scheduler.gather_on_worker(address(2), asked))
            await asyncio.sleep(0)
            copying.cancel()
        told = {"worker": address(2), "keys": [task.key], "stimulus_id": "s"}
        c.scheduler.stream_handlers["add-keys"](**told)
        assert address(2) in holders(task)
        # Nothing of it is left for who comes later under that address.
        await c.scheduler.remove_worker(address(2), stimulus_id="s")

    on(doors, True, main)


@pytest.mark.parametrize("name", ["replicate", "rebalance"])
def test_a_worker_asks_for_no_copies(doors, guarded, name):
    async def main(c: Cluster) -> None:
        worker = await c.register(1)
        asked: list[Any] = []
        c.scheduler.handlers[name] = lambda **request: asked.append(request)
        request = {"keys": ["k"], "workers": [address(1)]}
        await c.ask(name, worker.link, **request)
        assert bool(asked) is not guarded
        await c.ask(name, c.link("another's key"), **request)
        await c.ask(name, c.link("carol's", "carol"), **request)
        await c.ask(name, c.link("a viewer's", "dashboard"), **request)
        await c.ask(name, None, **request)
        if guarded:
            assert worker.link.audit.rules == ["worker.copies"]
            assert len(asked) == 2  # of one who submits, and of this process itself

    on(doors, guarded, main)


# --- shuffles ------------------------------------------------------------------------------------


class Shuffling:
    """A shuffle that has begun: its barrier is computed at 1, its results belong to 1 and 2."""

    def __init__(self, cluster: Cluster) -> None:
        scheduler = cluster.scheduler
        self.barrier = cluster.running("shuffle-barrier-x", 1)
        self.output = scheduler.new_task("output", None, "waiting")
        self.output.add_dependency(self.barrier)
        self.bystander = scheduler.new_task("bystander", None, "waiting")
        self.ended: list[Any] = []
        places = SimpleNamespace(worker_for={0: address(1), 1: address(2)})
        active = SimpleNamespace(run_id=5, run_spec=places, id="x")
        active.participating_workers = {address(1)}
        scheduler.extensions["shuffle"].active_shuffles["x"] = active
        scheduler.broadcast = self.broadcast

    async def broadcast(self, **message: Any) -> dict[str, Any]:
        self.ended.append(message)
        return {address(1): None}


def restrict(**changed: Any) -> dict[str, Any]:
    return {"id": "x", "run_id": 5, "key": "output", "worker": address(2), **changed}


@pytest.mark.parametrize(
    "changed",
    [{"key": "bystander"}, {"worker": address(3)}, {"worker": "nowhere"}],
    ids=["another's task", "another place", "no place"],
)
def test_a_shuffle_places_its_own_tasks_where_they_belong(doors, guarded, changed):
    async def main(c: Cluster) -> None:
        for port in (1, 2, 3):
            await c.register(port)
        s = Shuffling(c)
        link = c.link("other")
        await c.ask("shuffle_restrict_task", link, **restrict(**changed))
        touched = [task for task in (s.output, s.bystander) if task.worker_restrictions]
        assert bool(touched) is not guarded
        if guarded:
            assert link.audit.rules == ["worker.shuffle"]
            stale = await c.ask("shuffle_restrict_task", link, **restrict(run_id=4))
            assert stale["status"] == "error"  # as Dask says it
            with pytest.raises(KeyError):
                await c.ask("shuffle_restrict_task", link, **restrict(key="gone"))
            assert (await c.ask("shuffle_restrict_task", link, **restrict()))["status"] == "OK"
            assert s.output.worker_restrictions == {address(2)}

    on(doors, guarded, main)


def test_a_barrier_is_there_when_its_own_worker_says_so(doors, guarded):
    async def main(c: Cluster) -> None:
        await c.register(1)
        s = Shuffling(c)
        request = {"id": "x", "run_id": 5, "consistent": True}
        other = c.link("other")
        await c.ask("shuffle_barrier", other, **request)
        assert bool(s.ended) is not guarded
        if not guarded:
            return
        assert other.audit.rules == ["worker.shuffle"]
        s.barrier.processing_on = None  # nobody computes it, not even who will
        await c.ask("shuffle_barrier", c.link("one"), **request)
        assert not s.ended
        s.barrier.processing_on = c.scheduler.workers[address(1)]
        await c.ask("shuffle_barrier", c.link("one"), **request)
        assert len(s.ended) == 1
        with pytest.raises(ValueError, match="does not match"):
            await c.ask("shuffle_barrier", other, **{**request, "run_id": 4})
        await c.ask("shuffle_barrier", None, **request)
        assert len(s.ended) == 2

    on(doors, guarded, main)
