"""As much of a scheduler as the guard of keys touches, and clients that submit to it."""

from __future__ import annotations

import asyncio
import operator
from types import SimpleNamespace
from typing import Any

from dask._task_spec import Task
from distributed.comm.core import CommClosedError
from distributed.scheduler import ClientState, TaskGroup, TaskPrefix, TaskState

from safeser.dask.client_ids import ClientIds
from safeser.dask.scheduler.key_conflicts import Guard
from safeser.gate.values import Context, Kind
from safeser.operations import Server
from tests.dask.patched import serve, with_rows

POLICY = """
safeser: 1
name: keys
revision: 1
principals: {scheduler: {}, worker: {}, alice: {}, bob: {}, carol: {}}
contexts:
  - name: workers
    sender: worker
    recipient: scheduler
    submission: sealed
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    operations: {grant: [register-worker, update-graph]}
    values: [alice, bob, carol]
  - name: bob
    sender: bob
    recipient: scheduler
    submission: sealed
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    operations: {grant: [update-graph]}
    key_conflicts: {definition: warn, principal: refuse}
    values: [alice, carol, worker]
  - name: others
    sender: [alice, carol]
    recipient: scheduler
    submission: sealed
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    operations: {grant: [update-graph, scatter, update_data]}
    values: [alice, bob, carol, worker, scheduler]
  - name: down
    sender: scheduler
    recipient: [alice, bob, carol]
  - name: bring-with-code
    sender: alice
    recipient: worker
    submission: code
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [dask, msgpack, pickle, cloudpickle]
    operations: {grant: [update_data]}
  - name: bring
    sender: carol
    recipient: worker
    deserializers: [dask, msgpack]
    operations: {grant: [update_data]}
"""


class Way:
    """As much of a link as the guard asks: who is there, and how what comes is matched."""

    def __init__(self, peer: str, **way: Any) -> None:
        self.peer = peer
        self._way = {"transport": "safeser", "same_host": True, **way}

    def inbound(self, kind: Kind, operation: str) -> Context:
        return Context(self.peer, "scheduler", kind, operation, **self._way)

    def note_reading(self, context: Context, authors: set[str]) -> None:
        """The log of these tests has conflicts alone."""


class Stream:
    def __init__(self, peer: str, **way: Any) -> None:
        self.comm = SimpleNamespace(link=Way(peer, **way))
        self.sent: list[dict[str, Any]] = []
        self.closed = False

    def send(self, message: dict[str, Any]) -> None:
        if self.closed:
            raise CommClosedError
        self.sent.append(message)


class Fake:
    """As much of Dask's scheduler as the guard touches."""

    def __init__(self) -> None:
        self.tasks: dict[Any, TaskState] = {}
        self.unrunnable: dict[TaskState, float] = {}
        self.clients: dict[str, ClientState] = {}
        self.client_comms: dict[str, Stream] = {}
        self.stream_comms: dict[str, Any] = {}
        self.on_its_way: Any = None
        self.handlers = {"update_data": self.update_data, "scatter": self.scatter}
        self.stream_handlers = {
            "update-graph": self.update_graph,
            "update-data": self.update_data,
        }
        self.reported: list[Any] = []
        self.freed: list[Any] = []
        self.events: list[Any] = []

    def join(self, principal: str, **way: Any) -> str:
        client = f"Client-{principal}"
        self.clients[client] = ClientState(client)
        self.client_comms[client] = Stream(principal, **way)
        return client

    def new_task(self, key: Any, spec: Any, state: Any, computation: Any = None) -> TaskState:
        made = TaskState(key, spec, state, TaskGroup("g", TaskPrefix("g")), validate=False)
        self.tasks[key] = made
        return made

    def _create_taskstate_from_graph(self, *, dsk: Any, keys: Any, client: str, **_: Any) -> Any:
        for key in dsk:
            if key not in self.tasks:
                self.new_task(key, dsk[key], "released")
            if key in keys:
                self.tasks[key].who_wants = {self.clients[client]}
        return {"tasks": len(dsk)}

    async def update_graph(self, client: str, keys: Any, *, dsk: Any, **rest: Any) -> None:
        beside = {"ordered": {}, "global_annotations": None, "annotations_by_type": {}}
        self._create_taskstate_from_graph(dsk=dsk, keys=keys, client=client, **beside, **rest)

    def update_data(self, *, who_has: Any, nbytes: Any, client: Any = None) -> str:
        for key in who_has:
            if key not in self.tasks:
                self.new_task(key, None, "memory")
        return "noted"

    async def scatter(self, *, data: Any, client: str, **_: Any) -> Any:
        if self.on_its_way is not None:
            await self.on_its_way()
        return self.update_data(who_has=dict.fromkeys(data, ()), nbytes={}, client=client)

    def report(self, msg: Any, ts: Any = None, client: Any = None) -> None:
        self.reported.append(msg)

    def coerce_address(self, address: str) -> str:
        return address

    def worker_send(self, address: str, message: Any) -> None:
        self.freed.append((address, message["keys"]))

    def log_event(self, topics: Any, message: Any) -> None:
        self.events.append(message["status"])


_SCHEDULER = "distributed.scheduler:Scheduler"
Guarded = with_rows(
    Fake,
    f"{_SCHEDULER}.update_graph",
    f"{_SCHEDULER}._create_taskstate_from_graph",
    "distributed.scheduler:SchedulerState.new_task",
    f"{_SCHEDULER}.update_data",
    f"{_SCHEDULER}.scatter",
    f"{_SCHEDULER}.report",
)


class Setup:
    def __init__(self, doors: Any, policy: str = POLICY) -> None:
        self.fake = Guarded()
        self.channel = doors.channel("scheduler", policy)
        self.ids = ClientIds()
        known = serve(self.fake, Server.SCHEDULER, self.channel, client_ids=self.ids)
        self.guard = known.part(self.fake, Guard)
        self.names = {name: self.fake.join(name) for name in ("alice", "bob", "carol", "worker")}

    def submit(self, who: str, dsk: dict[Any, Any], *keys: Any, **rest: Any) -> list[Any]:
        """Submit as the client stream does; return what the client is told."""
        client = self.names.get(who, who)
        update = self.fake.stream_handlers["update-graph"]
        asyncio.run(update(client=client, keys=set(keys or dsk), dsk=dsk, **rest))
        stream = self.fake.client_comms.get(client)
        told, kept = (list(stream.sent), stream) if stream else ([], None)
        if kept:
            kept.sent.clear()
        return told

    @property
    def rules(self) -> list[str]:
        audit = self.channel.audit
        return [one["rule"] for one in audit.events] + [one[3] for one in audit.counts]


def add(key: Any, *args: Any) -> dict[Any, Any]:
    return {key: Task(key, operator.add, *args)}


def operations(told: list[Any]) -> list[str]:
    return [one["op"] for one in told]
