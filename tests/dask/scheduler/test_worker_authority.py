"""Workers of a scheduler of Dask's own that say what is not theirs to say.

Each attack is made on a scheduler as it comes, too: where it does nothing there any more, its mend
here can go.
"""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.comm.core import CommClosedError

from safeser.dask.scheduler import named_addresses, worker_authority
from tests.dask.registered import METRICS, Cluster, Comm, address, erred, on


@pytest.fixture(params=["stock", "guarded"])
def guarded(request) -> bool:
    return bool(request.param == "guarded")


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

    monkeypatch.setattr(named_addresses, "resolve_address", resolve_address)
    monkeypatch.setattr(named_addresses, "_lookups", AtOnce())

    async def main(c: Cluster) -> None:
        await c.register(1, nanny=address(9))
        other = await c.register(2, "other", nanny=spelt)
        assert other.said[0]["exception"].rule == "worker.nanny"
        # Its own worker, started anew, may come before the old one is known to be gone.
        await c.register(5, nanny=spelt)
        assert address(5) in c.scheduler.workers
        await c.register(3, "other", nanny="safeser://node.invalid:8")
        # Where the name leads later is nobody's business.
        assert c.scheduler.workers[address(3)].nanny == address(8)
        await c.register(4, "other", nanny="safeser://192.0.2.1:9")
        assert address(4) in c.scheduler.workers

    on(doors, True, main)


def test_nobody_takes_the_nanny_of_a_worker_that_is_started_again(doors, monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(worker_authority, "monotonic", lambda: clock.now)
    monkeypatch.setattr(worker_authority, "_MOST_HELD", 1)

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
        clock.now += worker_authority.HELD_SECONDS
        await c.register(5, nanny=address(7))
        await c.register(4, "other", nanny=address(9))
        assert set(c.scheduler.workers) == {address(4), address(5)}

    on(doors, True, main)


def test_who_has_no_link_is_nobody_in_particular(doors):
    async def main(c: Cluster) -> None:
        await c.register(1, comm=Comm())
        assert (await c.ask("heartbeat_worker", None, **beat(1)))["status"] == "OK"
        said = await c.ask("heartbeat_worker", c.link("any"), **beat(1))
        assert said["exception"].rule == "worker.another"
        c.running("k", 1)
        c.scheduler.stream_handlers["task-erred"](**erred("k", 5))
        assert c.scheduler.tasks["k"].state == "processing"

    on(doors, True, main)


# --- what is said of them ------------------------------------------------------------------------


def beat(port: int, **changed: Any) -> dict[str, Any]:
    return {"address": address(port), "resolve_address": False, "metrics": METRICS, **changed}


def test_nobody_is_removed_twice(doors):
    async def main(c: Cluster) -> None:
        worker = await c.register(1)
        request = {"address": address(1), "stimulus_id": "s"}
        assert await c.ask("unregister", worker.link, **request) == "OK"
        assert await c.ask("unregister", worker.link, **request) == "already-removed"
        assert await c.ask("unregister", c.link("other"), **request) == "already-removed"
        said = await c.ask("heartbeat_worker", c.link("other"), **beat(1))
        assert said == {"status": "missing"}

        def nobody(*_: Any) -> None:
            raise ValueError("no address")

        c.scheduler.coerce_address = nobody
        with pytest.raises(ValueError, match="no address"):  # as Dask says it
            await c.ask("unregister", worker.link, address="nobody", stimulus_id="s")

    on(doors, True, main)
