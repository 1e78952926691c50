"""A scheduler that never listened, and those who visit it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from distributed import Scheduler
from distributed.scheduler import ClientState

from safeser.dask.client_ids import ClientIds
from safeser.operations import Server
from tests.dask.patched import serve

VIEWER = "Client-viewer"


class Stream:
    def __init__(self, link: Any = None) -> None:
        self.comm = SimpleNamespace(link=link)
        self.sent: list[Any] = []

    def send(self, *messages: Any) -> None:
        self.sent += messages


class Visited:
    """A scheduler that never listened, and whom it knows."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(dashboard_address="127.0.0.1:0", dashboard=False)
        self.scheduler.http_server.stop()
        # It never opens: tests that follow look for schedulers that are open in this process.
        Scheduler._instances.discard(self.scheduler)
        self.join(VIEWER)

    def join(self, client: str, link: Any = None) -> None:
        self.scheduler.clients[client] = ClientState(client)
        self.scheduler.client_comms[client] = Stream(link)

    def task(self, key: str, *wanting: str) -> Any:
        task = self.scheduler.new_task(key, None, "released")
        self.scheduler.client_desires_keys([key], "variable-other" if not wanting else wanting[0])
        for client in wanting[1:]:
            self.scheduler.client_desires_keys([key], client)
        return task

    def hear(self, op: str, **fields: Any) -> Any:
        return self.scheduler.stream_handlers[op](**fields)


POLICY = """
safeser: 1
name: force
revision: 1
principals: {scheduler: {}, alice: {}, bob: {}, carol: {}}
contexts:
  - name: carol
    sender: carol
    recipient: scheduler
    operations: {grant: [basic, restart]}
  - name: others
    sender: [alice, bob]
    recipient: scheduler
    operations: {grant: [basic]}
  - name: down
    sender: scheduler
    recipient: [alice, bob, carol]
"""


class Shared(Visited):
    def __init__(self, doors: Any) -> None:
        super().__init__()
        self.links = {}
        ids = ClientIds()
        channel = doors.channel("scheduler", POLICY)
        serve(self.scheduler, Server.SCHEDULER, channel, client_ids=ids)
        for who in ("alice", "bob", "carol"):
            self.links[who] = doors.links(who, "scheduler", POLICY)[1]
            assert ids.claim(f"Client-{who}", who)
            self.join(f"Client-{who}", self.links[who])

    def cancel(self, who: str, *keys: str, force: bool) -> list[str]:
        before = set(self.scheduler.tasks)
        told = {"client": f"Client-{who}", "reason": "r", "msg": "m"}
        self.hear("cancel-keys", keys=keys, force=force, **told)
        return sorted(before - set(self.scheduler.tasks))


def shared(doors: Any, what: Any) -> None:
    async def made() -> None:
        what(Shared(doors))

    asyncio.run(made())
