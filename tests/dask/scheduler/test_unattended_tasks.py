"""What a client left to its scheduler, once no key of its principal may speak any more."""

from __future__ import annotations

import gc
from types import SimpleNamespace

from safeser.dask.scheduler.cancellation import Cancellation
from safeser.dask.scheduler.conflicts import Owners
from safeser.dask.servers import Served
from safeser.operations import Server


class Scheduler:
    """As much of Dask's as matters: what it goes on with by itself."""

    def __init__(self, owners):
        tasks = [SimpleNamespace(key=key) for key in owners]
        self.clients = {"fire-and-forget": SimpleNamespace(wants_what=tasks)}
        self.loop = SimpleNamespace(add_callback=lambda call, *args: call(*args))
        self.released = []

    def client_releases_keys(self, *, keys, client, stimulus_id):
        self.released.append((client, keys))


def told(scheduler, owners):
    tell = []
    channel = SimpleNamespace(when_silenced=tell.append)
    known = Served(role=Server.SCHEDULER, channel=channel)
    known.part(scheduler, Owners).of = lambda task: owners[task.key]
    known.part(scheduler, Cancellation)
    return tell[0]


OWNERS = {"a": "alice", "b": "bob", "c": "alice"}


def test_what_a_silenced_principal_left_is_released_and_nothing_else():
    scheduler = Scheduler(OWNERS)
    tell = told(scheduler, OWNERS)
    tell(frozenset({"carol"}))
    assert scheduler.released == []
    tell(frozenset({"alice"}))
    assert scheduler.released == [("fire-and-forget", ["a", "c"])]
    scheduler.clients.clear()
    tell(frozenset({"bob"}))
    assert len(scheduler.released) == 1


def test_a_scheduler_that_is_gone_or_whose_loop_is_closed_is_left_alone():
    scheduler = Scheduler(OWNERS)

    def closed(*_):
        raise RuntimeError("the loop is closed")

    scheduler.loop.add_callback = closed
    tell = told(scheduler, OWNERS)
    tell(frozenset({"alice"}))
    assert scheduler.released == []
    del scheduler
    gc.collect()
    tell(frozenset({"alice"}))
