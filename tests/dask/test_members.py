"""Workers of a scheduler of Dask's own that say what is not theirs to say.

Each attack is made on a scheduler as it comes, too: where it does nothing there any more, its mend
here can go.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler
from distributed.comm.core import CommClosedError
from distributed.core import Status, _expects_comm

from safeser.dask import addresses, members
from safeser.dask.members import know_workers

METRICS = {
    "memory": 0,
    "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
    "digests_total_since_heartbeat": {},
    "spilled_bytes": {"memory": 0, "disk": 0},
}


class Comm:
    """A connection that says nothing until it is closed."""

    name = peer_address = "a peer"

    def __init__(self, link: Any = None, *, breaks: bool = False) -> None:
        self.link = link
        self.said: list[Any] = []
        self.breaks = breaks
        self._closed = asyncio.Event()

    async def write(self, message: Any, **_: Any) -> int:
        if self.breaks:
            raise CommClosedError("cut")
        self.said.append(message)
        return 1

    async def read(self, **_: Any) -> Any:
        await self._closed.wait()
        raise CommClosedError("closed")

    async def close(self) -> None:
        self._closed.set()

    def abort(self) -> None:
        self._closed.set()

    def closed(self) -> bool:
        return self._closed.is_set()


class Cluster:
    """A scheduler that never listened, and peers of it that are workers and nannies."""

    def __init__(self, doors: Any, *, guarded: bool) -> None:
        self.doors = doors
        self.guarded = guarded
        self.scheduler = Scheduler(dashboard_address="127.0.0.1:0", dashboard=False)
        self.scheduler.http_server.stop()
        # It never opens: tests that follow look for schedulers that are open in this process.
        Scheduler._instances.discard(self.scheduler)
        self.scheduler.status = Status.running
        self._under_way: list[Any] = []
        if guarded:
            know_workers(self.scheduler)
            know_workers(self.scheduler)

    def link(self, key: str, peer: str = "worker") -> Any:
        near, far = self.doors.links(peer, "scheduler", "dask-cluster")
        del near
        far.session = SimpleNamespace(peer_key=SimpleNamespace(text=key))
        return far

    async def register(
        self, port: int, key: str = "one", *, comm: Comm | None = None, **changed: Any
    ) -> Comm:
        comm = comm or Comm(self.link(key))
        request = {
            "address": address(port),
            "status": "running",
            "server_id": f"Worker-{port}",
            "nthreads": 1,
            "name": f"w{port}",
            "resolve_address": False,
            "now": 0.0,
            "resources": {},
            "memory_limit": 1 << 30,
            "metrics": METRICS,
            "services": {},
            "local_directory": "",
            "versions": {},
            "nanny": None,
            "extra": {},
            "stimulus_id": "s",
            **changed,
        }
        handler = self.scheduler.handlers["register-worker"]
        assert _expects_comm(handler)
        assert handler.__name__
        task = asyncio.ensure_future(handler(comm, **request))
        self._under_way.append(task)
        for _ in range(20):  # until it waits for what the worker says
            await asyncio.sleep(0)
        comm.task = task
        return comm

    async def ask(self, op: str, link: Any, **request: Any) -> Any:
        handler = self.scheduler.handlers[op]
        said = handler(Comm(link), **request) if _expects_comm(handler) else handler(**request)
        return await said if asyncio.iscoroutine(said) else said

    def running(self, key: str, port: int) -> Any:
        """Return a task that the worker at *port* computes."""
        scheduler = self.scheduler
        state = scheduler.workers[address(port)]
        task = scheduler.new_task(key, None, "released")
        task.state, task.processing_on, task.run_id = "processing", state, 7
        state.processing.add(task)
        return task

    def held(self, key: str, *ports: int) -> Any:
        """Return a task whose result the workers at *ports* have, as far as they are there."""
        task = self.scheduler.new_task(key, None, "memory")
        task.set_nbytes(1)
        for port in ports:
            state = self.scheduler.workers.get(address(port))
            if state is not None:
                self.scheduler.add_replica(task, state)
        return task

    async def end(self) -> None:
        self.scheduler.status = Status.closed
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)


def address(port: int) -> str:
    return f"safeser://127.0.0.1:{port}"


@pytest.fixture(params=["stock", "guarded"])
def guarded(request) -> bool:
    return bool(request.param == "guarded")


def on(doors: Any, guarded: bool, what: Any) -> Any:
    async def made() -> Any:
        cluster = Cluster(doors, guarded=guarded)
        try:
            return await what(cluster)
        finally:
            await cluster.end()

    return asyncio.run(asyncio.wait_for(made(), 30))


# --- who there is --------------------------------------------------------------------------------


def test_no_worker_is_taken_for_another(doors, guarded):
    async def main(c: Cluster) -> None:
        await c.register(1)
        victim = c.scheduler.workers[address(1)]
        second = await c.register(2, server_id="Worker-1", name="evil")
        # Dask tells them apart by the id that each gave itself.
        equal = [ws for ws in c.scheduler.workers.values() if ws == victim]
        assert len(equal) == (1 if guarded else 2)
        await second.close()
        await second.task
        # When one of them leaves, the other one is given nothing any more.
        assert (victim in c.scheduler.running) is guarded
        if guarded:
            [said] = second.said
            assert said["exception"].rule == "worker.id"
            assert second.link.audit.rules == ["worker.id"]
            await c.register(2)
            assert address(2) in c.scheduler.workers

    on(doors, guarded, main)


def test_nothing_is_left_of_a_registration_that_ends_half_way(doors, guarded):
    async def main(c: Cluster) -> None:
        # Shapes refuse such a report before it comes here; so may anything else end it there.
        half = await c.register(1, metrics={})
        with pytest.raises(KeyError):
            await half.task
        cut = await c.register(2, comm=Comm(c.link("one"), breaks=True))
        with pytest.raises(CommClosedError):
            await cut.task
        left = set(c.scheduler.workers)
        assert left == (set() if guarded else {address(1), address(2)})
        if guarded:
            assert not c.scheduler.running
            assert not c.scheduler.aliases
            assert not c.scheduler.stream_comms
            await c.register(1)
            assert address(1) in c.scheduler.workers
        else:
            # What moves values, and has workers retire, looks at all workers, and stops for good.
            for error in (KeyError, AssertionError):
                with pytest.raises(error):
                    c.scheduler.extensions["amm"].run_once()

    on(doors, guarded, main)


def test_who_is_there_stays_when_the_same_address_comes_again(doors, guarded):
    async def main(c: Cluster) -> None:
        first = await c.register(1)
        again = await c.register(1, "other", server_id="Worker-else", name="else")
        with pytest.raises(ValueError, match="already exists"):
            await again.task
        assert c.scheduler.workers[address(1)].server_id == "Worker-1"
        taken = await c.register(2, "other", name="w1")
        await taken.task
        assert taken.said[0]["message"] == "name taken, w1"
        assert address(2) not in c.scheduler.workers
        assert (await c.ask("heartbeat_worker", first.link, **beat(1)))["status"] == "OK"

    on(doors, guarded, main)


def test_a_nanny_is_that_of_who_named_it_first(doors):
    async def main(c: Cluster) -> None:
        await c.register(1, nanny=address(9))
        other = await c.register(2, "other", nanny=address(9))
        assert other.said[0]["exception"].rule == "worker.nanny"
        # Its own worker, started anew, may come before the old one is known to be gone.
        await c.register(3, nanny=address(9))
        assert set(c.scheduler.workers) == {address(1), address(3)}

    on(doors, True, main)


@pytest.mark.parametrize(
    "spelt",
    [
        "safeser://localhost:9",
        "safeser://127.0.0.1:09",
        "safeser://127.0.0.2:9",
        "safeser://0.0.0.0:9",
        "safeser://[::1]:9",
        "safeser://[::ffff:127.0.0.1]:9",
        "127.0.0.1:9",
        "safeser://node.invalid:9",
    ],
)
def test_a_nanny_is_known_however_it_is_spelt(doors, monkeypatch, spelt):
    def resolve_address(address: str) -> str:
        return address.replace("node.invalid", "127.0.0.1")

    class AtOnce:
        def submit(self, call: Any, *args: Any) -> Future[Any]:
            done: Future[Any] = Future()
            done.set_result(call(*args))
            return done

    monkeypatch.setattr(addresses, "resolve_address", resolve_address)
    monkeypatch.setattr(addresses, "_lookups", AtOnce())

    async def main(c: Cluster) -> None:
        await c.register(1, nanny=address(9))
        other = await c.register(2, "other", nanny=spelt)
        assert other.said[0]["exception"].rule == "worker.nanny"
        await c.register(3, "other", nanny="safeser://node.invalid:8")
        # Where the name leads later is nobody's business.
        assert c.scheduler.workers[address(3)].nanny == address(8)
        await c.register(4, "other", nanny="safeser://192.0.2.1:9")
        assert address(4) in c.scheduler.workers

    on(doors, True, main)


def test_nobody_takes_the_nanny_of_a_worker_that_is_started_again(doors, monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(members, "monotonic", lambda: clock.now)
    monkeypatch.setattr(members, "_MOST_HELD", 1)

    async def leaves(c: Cluster, comm: Comm) -> None:
        await comm.close()
        await comm.task

    async def main(c: Cluster) -> None:
        await leaves(c, await c.register(1, nanny=address(9)))
        await leaves(c, await c.register(6, nanny=address(8)))  # of too many
        other = await c.register(2, "other", nanny=address(9))
        assert other.said[0]["exception"].rule == "worker.nanny"
        again = await c.register(3, nanny=address(9))
        # Whoever is refused holds nothing.
        taken = await c.register(4, "other", name="w3", nanny=address(7))
        assert taken.said[0]["message"] == "name taken, w3"
        await leaves(c, again)
        clock.now += members.HELD_SECONDS
        await c.register(5, nanny=address(7))
        await c.register(4, "other", nanny=address(9))
        assert set(c.scheduler.workers) == {address(4), address(5)}

    on(doors, True, main)


def test_who_has_no_link_is_nobody_in_particular(doors):
    async def main(c: Cluster) -> None:
        await c.register(1, comm=Comm())
        assert (await c.ask("heartbeat_worker", None, **beat(1)))["status"] == "OK"
        assert (await c.ask("heartbeat_worker", c.link("any"), **beat(1)))["status"] == "OK"
        c.running("k", 1)
        c.scheduler.stream_handlers["task-erred"](**erred("k", 5))
        assert c.scheduler.tasks["k"].state == "processing"

    on(doors, True, main)


# --- what is said of them ------------------------------------------------------------------------


def beat(port: int, **changed: Any) -> dict[str, Any]:
    return {"address": address(port), "resolve_address": False, "metrics": METRICS, **changed}


@pytest.mark.parametrize("by", ["one", "other"])
def test_a_worker_speaks_for_itself(doors, guarded, by):
    async def main(c: Cluster) -> None:
        await c.register(1)
        await c.register(2)
        state = c.scheduler.workers[address(1)]
        link = c.link(by)
        taken = by == "one" or not guarded
        said = await c.ask("heartbeat_worker", link, **beat(1, resources={"GPU": 8.0}))
        assert (said["status"] == "OK") is taken
        assert (state.resources == {"GPU": 8.0}) is taken
        # By its name as well.
        said = await c.ask("heartbeat_worker", link, **beat(1, address="w1"))
        assert (said["status"] == "OK") is taken
        c.held("k", 2)
        c.scheduler.request_acquire_replicas(address(1), ["k"], stimulus_id="s")
        await c.ask("add_keys", link, worker=address(1), keys=["k"])
        assert bool(state.has_what) is taken
        said = await c.ask("shuffle_get", link, id="x", worker=address(1))
        assert (said["status"] == "error") is taken  # there is none
        await c.ask("unregister", link, address="w1", stimulus_id="s")
        assert (address(1) not in c.scheduler.workers) is taken
        if not taken:
            assert set(link.audit.rules) == {"worker.another"}

    on(doors, guarded, main)


def test_its_nanny_removes_it_and_nobody_is_removed_twice(doors):
    async def main(c: Cluster) -> None:
        await c.register(1)
        nanny = c.link("the nanny's", "nanny")
        assert (await c.ask("heartbeat_worker", nanny, **beat(1)))["status"] == "uncaught-error"
        request = {"address": address(1), "stimulus_id": "s"}
        assert await c.ask("unregister", nanny, **request) == "OK"
        assert await c.ask("unregister", nanny, **request) == "already-removed"
        said = await c.ask("heartbeat_worker", nanny, **beat(1))
        assert said == {"status": "missing"}

        def nobody(*_: Any) -> None:
            raise ValueError("no address")

        c.scheduler.coerce_address = nobody
        with pytest.raises(ValueError, match="no address"):  # as Dask says it
            await c.ask("unregister", nanny, address="nobody", stimulus_id="s")

    on(doors, True, main)


# --- what they say of tasks ----------------------------------------------------------------------


def erred(key: str, port: int, run_id: int = 7) -> dict[str, Any]:
    said = {"exception": "chosen", "traceback": None, "exception_text": "", "traceback_text": ""}
    return {"key": key, "worker": address(port), "run_id": run_id, "stimulus_id": "s", **said}


def finished(key: str, port: int, run_id: int = 7) -> dict[str, Any]:
    told = {"nbytes": 1, "type": None, "typename": "int", "startstops": (), "metadata": {"x": 1}}
    return {"key": key, "worker": address(port), "run_id": run_id, "stimulus_id": "s", **told}


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
        await c.register(2, comm=Comm(c.link("another", "carol")))
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
            c.scheduler.gather_on_worker(address(2), {"k": [address(1)], "gone": []}).close()
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
        if guarded:  # what is behind the guard was taken when it was made
            c = Cluster(c.doors, guarded=False)
        c.scheduler.handlers[name] = lambda **request: asked.append(request)
        if guarded:
            know_workers(c.scheduler)
            worker = await c.register(1)
        request = {"keys": ["k"], "workers": [address(1)]}
        await c.ask(name, worker.link, **request)
        assert bool(asked) is not guarded
        await c.ask(name, c.link("another's key"), **request)
        await c.ask(name, c.link("alice's", "alice"), **request)
        await c.ask(name, None, **request)
        if guarded:
            assert worker.link.audit.rules == ["worker.copies"]
            assert len(asked) == 2
        await c.end()

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


def test_what_is_no_scheduler_or_shuffles_nothing_is_left_alone(doors):
    other = SimpleNamespace(handlers={})
    know_workers(other)
    assert other.handlers == {}

    async def main(c: Cluster) -> None:
        del c.scheduler.extensions["shuffle"]
        know_workers(c.scheduler)
        await c.register(1)
        assert address(1) in c.scheduler.workers

    on(doors, False, main)
