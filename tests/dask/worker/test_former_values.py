"""Copies of a key's former value, when the key is another author's task by now.

The one rule: each attempt is made on Dask's state alone as well, which takes the former value.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from distributed.worker import Worker
from distributed.worker_state_machine import (
    AcquireReplicasEvent,
    ComputeTaskEvent,
    ExecuteSuccessEvent,
    GatherDepSuccessEvent,
    UpdateDataEvent,
    WorkerState,
)

from safeser.dask.messages.author_statements import StatedKeys, stated
from safeser.dask.servers import part_of
from safeser.dask.worker.value_authors import Authors
from safeser.errors import PolicyDenied
from safeser.operations import Server
from tests.dask.patched import Peer, serve, with_rows
from tests.dask.registered import address
from tests.refusal import refusal

POLICY = """
safeser: 1
name: former
revision: 1
principals: {scheduler: {}, worker: {}, alice: {}, bob: {}}
contexts:
  - name: tasks
    sender: scheduler
    recipient: worker
    authors: [alice, bob]
    submission: sealed
    operations: {grant: [basic, cluster]}
  - name: users
    sender: [alice, bob, worker]
    recipient: [scheduler, worker]
    submission: sealed
    operations: {grant: [basic, cluster]}
"""
WARNS = POLICY.replace(
    "sender: [alice, bob, worker]",
    "key_conflicts: {definition: warn}\n    sender: [alice, bob, worker]",
)

HERE, FIRST, SECOND = address(1), address(2), address(3)


class Stated(Worker):
    """A worker that is nothing but its state, and what it fetches from."""

    def __init__(self) -> None:
        self.state = WorkerState(nthreads=1, address=HERE)
        self.sent: list[Any] = []
        self.asked: list[Any] = []
        self.others: dict[str, Any] = {}

    def __del__(self) -> None: ...

    @property
    def data(self) -> Any:  # type: ignore[override]
        return self.state.data

    def batched_send(self, msg: dict[str, Any]) -> None:
        self.sent.append(msg)

    def handle_stimulus(self, *events: Any) -> None:
        for instruction in self.state.handle_stimulus(*events):
            if hasattr(instruction, "op"):
                self.batched_send(instruction.to_dict())

    def update_data(self, data: Any, stimulus_id: Any = None) -> Any:
        self.handle_stimulus(UpdateDataEvent(data=data, stimulus_id=stimulus_id or "brought"))
        return {"status": "OK"}

    async def gather(self, who_has: Any) -> Any:
        self.asked.append(stated({"op": "get_data", "keys": list(who_has)}))
        await asyncio.sleep(0)
        missing = [key for key in who_has if key not in self.data]
        self.update_data({key: self.others[key] for key in missing}, stimulus_id="gathered")
        return {"status": "OK"}

    async def gather_dep(self, worker: str, to_gather: Any) -> Any:
        return stated({"op": "get_data", "keys": list(to_gather)})


_METHODS = ("handle_stimulus", "update_data", "gather", "gather_dep", "batched_send")
Guarded = with_rows(Stated, *(f"distributed.worker:Worker.{name}" for name in _METHODS))


class Site:
    """One worker, beside its scheduler and its users."""

    def __init__(self, doors: Any, *, guarded: bool = True, policy: str = POLICY) -> None:
        self.doors, self.policy = doors, policy
        self.worker = Guarded() if guarded else Stated()
        if guarded:
            channel = doors.channel("worker", policy)
            self.known = serve(self.worker, Server.WORKER, channel, is_scheduler="scheduler".__eq__)

    @property
    def state(self) -> WorkerState:
        return self.worker.state

    @property
    def authors(self) -> Authors:
        return self.known.part(self.worker, Authors)

    def comm(self, peer: str) -> Any:
        return Peer(self.doors.links(peer, "worker", self.policy)[1])

    def hears(self, event: Any) -> None:
        self.worker.handle_stimulus(event)

    def state_of(self, key: str) -> str:
        task = self.state.tasks.get(key)
        return "forgotten" if task is None else task.state

    def sent(self, name: str) -> list[Any]:
        return [each for each in self.worker.sent if each["op"] == name]

    def has_copy(self, key: str, value: Any = "alice's", *, author: str = "alice") -> None:
        """Have the worker fetch *value* for a task that is over by now."""
        self.hears(acquire(author, **{key: [FIRST]}))
        self.hears(fetched(FIRST, **{key: value}))
        assert self.state.data[key] == value


def _stated(who_has: dict[str, Any], author: str | None, authors: dict[str, str]) -> StatedKeys:
    keys = StatedKeys(who_has)
    keys.author, keys.authors = author, authors
    return keys


def compute(key: str, author: str, run_id: int, **needs: list[str]) -> ComputeTaskEvent:
    event = ComputeTaskEvent.dummy(key, run_id=run_id, who_has=needs, stimulus_id="compute")
    object.__setattr__(event, "who_has", _stated(needs, author, {}))
    return event


def acquire(author: str, **who_has: list[str]) -> AcquireReplicasEvent:
    keys = _stated(who_has, None, dict.fromkeys(who_has, author))
    nbytes = dict.fromkeys(who_has, 1)
    return AcquireReplicasEvent(who_has=keys, nbytes=nbytes, stimulus_id="acquire")


def fetched(worker: str, **values: Any) -> GatherDepSuccessEvent:
    return GatherDepSuccessEvent(
        worker=worker, total_nbytes=len(values), data=values, stimulus_id="fetched"
    )


both = pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])


# --- tasks ---------------------------------------------------------------------------------------


@both
def test_a_former_value_is_not_reported_as_the_result_of_a_task(doors, guarded):
    site = Site(doors, guarded=guarded)
    site.has_copy("k")
    site.hears(compute("k", "bob", 7))
    reported = [(each["key"], each["run_id"]) for each in site.sent("task-finished")]
    assert reported == ([] if guarded else [("k", 7)])
    assert site.state_of("k") == ("executing" if guarded else "memory")
    assert ("k" in site.state.data) is not guarded


@both
def test_a_former_actor_is_not_the_task_that_has_its_key(doors, guarded):
    site = Site(doors, guarded=guarded)
    made = compute("k", "alice", 6)
    object.__setattr__(made, "actor", True)
    site.hears(made)
    site.hears(ExecuteSuccessEvent.dummy("k", "an actor", run_id=6, stimulus_id="done"))
    assert site.state.actors["k"] == "an actor"
    site.hears(compute("k", "bob", 7))
    assert (site.state.actors.get("k") is None) is guarded


def test_a_value_of_the_same_author_is_there_as_ever(doors):
    site = Site(doors)
    site.has_copy("k")
    site.hears(compute("k", "alice", 7))
    site.hears(compute("uses", "bob", 8, other=[SECOND]))
    site.hears(acquire("alice", k=[SECOND]))
    assert site.state.data["k"] == "alice's"
    assert [each["run_id"] for each in site.sent("task-finished")] == [7]


# --- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("how", ["needed", "copied"])
@both
def test_a_former_value_is_no_copy_and_is_fetched_anew(doors, guarded, how, there):
    site = Site(doors, guarded=guarded)
    if there:
        site.has_copy("k")
    else:  # on its way
        site.hears(acquire("alice", k=[FIRST]))
        assert site.state_of("k") == "flight"
    if how == "needed":
        site.hears(compute("uses", "bob", 7, k=[SECOND]))
    else:
        site.hears(acquire("bob", k=[SECOND]))
    if not there:
        site.hears(fetched(FIRST, k="alice's"))
    assert ("k" in site.state.data) is not guarded
    if guarded:
        assert site.state.tasks["k"].coming_from == SECOND
        site.hears(fetched(SECOND, k="bob's"))
        assert site.state.data["k"] == "bob's"
        assert how == "copied" or site.state_of("uses") == "executing"


def test_a_worker_says_whose_copy_it_has(doors):
    site = Site(doors)
    site.has_copy("k")
    [said] = site.sent("add-keys")
    assert (said["keys"], said["author"]) == (["k"], "alice")
    site.hears(compute("k", "bob", 7))
    assert [each["key"] for each in site.sent("release-worker-data")] == ["k"]
    assert all("author" not in each for each in site.sent("release-worker-data"))


def test_a_worker_says_whose_value_it_fetches(doors):
    site = Site(doors)
    site.authors.note({"k": "alice", "l": "bob"})

    def said(*keys: str) -> Any:
        asked = asyncio.run(site.worker.gather_dep(FIRST, list(keys)))
        return {name: value for name, value in asked.items() if name.startswith("author")}

    assert said("k") == {"author": "alice"}
    assert said("k", "l", "m") == {"authors": {"k": "alice", "l": "bob"}}
    assert said("m") == {}
    # Where keys can be taken, whose a value is is open.
    site = Site(doors, policy=WARNS)
    site.authors.note({"k": "alice"})
    assert said("k") == {}


# --- what is gathered and brought ----------------------------------------------------------------


def gather(site: Site, key: str, author: str, meanwhile: Any = None) -> Any:
    async def both_at_once() -> Any:
        asking = asyncio.ensure_future(
            site.worker.gather(site.comm("scheduler"), who_has={key: []}, authors={key: author})
        )
        await asyncio.sleep(0)
        if meanwhile is not None:
            meanwhile()
        return await asking

    return asyncio.run(both_at_once())


def test_a_former_value_is_not_kept_in_the_place_of_what_is_to_be_gathered(doors):
    site = Site(doors)
    site.has_copy("k")
    site.worker.others = {"k": "bob's"}
    assert gather(site, "k", "bob") == {"status": "OK"}
    assert site.state.data["k"] == "bob's"
    assert site.authors.of("k") == "bob"
    assert site.worker.asked == [{"op": "get_data", "keys": ["k"], "author": "bob"}]


def test_what_is_gathered_is_of_the_author_for_whom_it_was_asked(doors):
    site = Site(doors)
    site.worker.others = {"k": "alice's"}
    reply = gather(site, "k", "alice", lambda: site.hears(compute("k", "bob", 7)))
    assert reply == {"status": "partial-fail", "keys": ["k"]}
    assert site.state_of("k") == "executing"
    assert site.authors.of("k") == "bob"


def test_data_that_the_scheduler_brings_takes_the_place_of_a_former_value(doors):
    site = Site(doors)
    site.has_copy("k")
    site.worker.update_data(site.comm("scheduler"), data={"k": "bob's"}, author="bob")
    assert (site.state.data["k"], site.authors.of("k")) == ("bob's", "bob")


def test_a_client_brings_no_data_in_the_place_of_anothers_value(doors):
    site = Site(doors)
    site.has_copy("k")
    with refusal(PolicyDenied, "key.definition", match="another author"):
        site.worker.update_data(site.comm("bob"), data={"k": "bob's", "l": 1})
    assert (site.state.data, site.authors.of("k")) == ({"k": "alice's"}, "alice")
    site.worker.update_data(site.comm("alice"), data={"k": "more", "l": 1})
    assert (site.state.data["l"], site.authors.of("l")) == (1, "alice")
    site.hears(compute("t", "alice", 7))
    with pytest.raises(PolicyDenied, match="another author"):
        site.worker.update_data(site.comm("bob"), data={"t": "bob's"})
    assert (site.state_of("t"), site.authors.of("t")) == ("executing", "alice")


@pytest.mark.parametrize("came", [{}, {"k": "alice's"}])
@both
def test_data_that_is_brought_stays_when_what_was_on_its_way_arrives(doors, guarded, came):
    site = Site(doors, guarded=guarded)
    site.hears(acquire("alice", k=[FIRST]))
    said = {"author": "bob"} if guarded else {}
    brings = (site.comm("scheduler"),) if guarded else ()
    site.worker.update_data(*brings, data={"k": "bob's"}, **said)
    site.hears(fetched(FIRST, **came))
    # Dask lets go of it where the answer has no such value.
    assert (site.state.data.get("k") == "bob's") is (guarded or bool(came))


def test_a_client_does_where_keys_can_be_taken_and_the_first_value_stays(doors):
    site = Site(doors, policy=WARNS)
    site.has_copy("k")
    site.worker.update_data(site.comm("bob"), data={"k": "bob's", "l": 1})
    assert (site.state.data["k"], site.authors.of("k")) == ("alice's", "alice")
    assert site.authors.of("l") == "bob"


def test_a_worker_that_is_not_registered_does_as_dask_does():
    worker = Guarded()
    assert part_of(worker, Authors) is None
    worker.others = {"k": 1}
    assert asyncio.run(worker.gather(who_has={"k": []})) == {"status": "OK"}
    worker.batched_send({"op": "add-keys", "keys": ["k"]})
    assert worker.sent == [{"op": "add-keys", "keys": ["k"]}]
    assert asyncio.run(worker.gather_dep(FIRST, ["k"])) == {"op": "get_data", "keys": ["k"]}
