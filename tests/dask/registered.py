"""A scheduler that never listened, with workers and nannies that say what they like to it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from distributed import Scheduler
from distributed import comm as comms
from distributed.comm.core import CommClosedError
from distributed.core import Status, _expects_comm

from safeser.operations import Server
from tests.dask.patched import asked, serve

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


comms.Comm.register(Comm)


class Cluster:
    """A scheduler that never listened, and peers of it that are workers and nannies."""

    def __init__(self, doors: Any, *, guarded: bool, policy: str = "dask-cluster") -> None:
        self.doors = doors
        self.guarded = guarded
        self.policy = policy
        self.scheduler = Scheduler(dashboard_address="127.0.0.1:0", dashboard=False)
        self.scheduler.http_server.stop()
        # It never opens: tests that follow look for schedulers that are open in this process.
        Scheduler._instances.discard(self.scheduler)
        self.scheduler.status = Status.running
        self._under_way: list[Any] = []
        if guarded:
            serve(self.scheduler, Server.SCHEDULER, doors.channel("scheduler", policy))

    def link(self, key: str, peer: str = "worker", policy: str | None = None) -> Any:
        near, far = self.doors.links(peer, "scheduler", policy or self.policy)
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
        said = asked(self.scheduler, self.scheduler.handlers, Comm(link), op, **request)
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


def erred(key: str, port: int, run_id: int = 7) -> dict[str, Any]:
    said = {"exception": "chosen", "traceback": None, "exception_text": "", "traceback_text": ""}
    return {"key": key, "worker": address(port), "run_id": run_id, "stimulus_id": "s", **said}


def finished(key: str, port: int, run_id: int = 7) -> dict[str, Any]:
    told = {"nbytes": 1, "type": None, "typename": "int", "startstops": (), "metadata": {"x": 1}}
    return {"key": key, "worker": address(port), "run_id": run_id, "stimulus_id": "s", **told}


def on(doors: Any, guarded: bool, what: Any, **options: Any) -> Any:
    async def made() -> Any:
        cluster = Cluster(doors, guarded=guarded, **options)
        try:
            return await what(cluster)
        finally:
            await cluster.end()

    return asyncio.run(asyncio.wait_for(made(), 30))
