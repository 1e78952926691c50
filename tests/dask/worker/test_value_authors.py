"""Whose values a worker gives to which peer, without sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Worker
from distributed.shuffle import _core, _scheduler_plugin, _worker_plugin
from distributed.worker_state_machine import AcquireReplicasEvent, ComputeTaskEvent

from safeser.dask.contents.failures import Failure
from safeser.dask.worker import value_authors as module
from safeser.dask.messages.author_statements import StatedKeys, stated, stated_by, stating
from safeser.dask.worker.value_authors import Authors, handing, require_receiver
from safeser.dask.scheduler.readers import Readers
from safeser.dask.messages.replies import with_withheld
from safeser.dask.scheduler.request_authority import require_authority
from safeser.errors import PolicyDenied
from safeser.operations import Server
from tests.dask.patched import Peer, row, serve, with_rows

POLICY = (Path(__file__).parent / "values.yaml").read_text()

ENGINEERS = "worker-engineers"


class Holder:
    """As much of an engineers' worker as is asked for values."""

    def __init__(self) -> None:
        self.data = dict.fromkeys(("theirs", "both", "lost"), 1)
        tasks = dict.fromkeys((*self.data, "actor"))
        self.state = SimpleNamespace(tasks=tasks, actors={"actor": 1})

    async def gather(self, who_has: Any) -> str:
        return "fetched"

    def update_data(self, data: Any, stimulus_id: Any = None) -> str:
        return "stored"


Held = with_rows(
    Holder, "distributed.worker:Worker.gather", "distributed.worker:Worker.update_data"
)


class Rig:
    def __init__(self, doors: Any) -> None:
        self.doors = doors
        self.worker = Held()
        self.channel = doors.channel(ENGINEERS, POLICY)
        is_scheduler = "scheduler".__eq__
        self.known = serve(self.worker, Server.WORKER, self.channel, is_scheduler=is_scheduler)
        self.authors = self.known.part(self.worker, Authors)
        self.authors.note({"theirs": "carol", "both": "erin", "actor": "carol"})

    def comm(self, peer: str) -> Any:
        _, far = self.doors.links(peer, ENGINEERS, POLICY)
        comm = Peer(far)
        comm.conversation = SimpleNamespace(withheld={"old": 1})
        return comm

    def asked(self, peer: str, *keys: str) -> tuple[list[str], list[str]]:
        """Return which of *keys* the worker looks for, and for which it says why it does not."""
        comm, request = self.comm(peer), {"op": "get_data", "keys": list(keys)}
        require_authority(self.known, self.worker, comm, request)
        return request["keys"], list(comm.conversation.withheld)


@pytest.fixture
def rig(doors: Any) -> Rig:
    return Rig(doors)


@pytest.mark.parametrize(
    ("peer", "kept", "withheld"),
    [
        ("worker-engineers", ["theirs", "both", "lost", "gone"], []),
        ("scheduler", ["theirs", "both", "lost", "gone"], []),
        ("worker-analysts", ["both"], ["theirs", "lost"]),
        ("carol", ["theirs"], []),
        ("vera", ["theirs", "both"], []),
        ("alice", [], []),
    ],
)
def test_a_peer_gets_values_of_authors_that_it_may_read(rig, peer, kept, withheld):
    assert rig.asked(peer, "theirs", "both", "lost", "gone") == (kept, withheld)


@pytest.mark.parametrize("peer", ["worker-engineers", "scheduler", "worker-analysts", "carol"])
@pytest.mark.parametrize(
    "said",
    [{"author": "erin"}, {"authors": {"theirs": "erin", "both": "erin", "gone": "carol"}}],
)
def test_who_means_the_value_of_another_author_is_not_given_a_former_one(rig, peer, said):
    comm, request = rig.comm(peer), {"op": "get_data", "keys": ["theirs", "both", "gone"], **said}
    require_authority(rig.known, rig.worker, comm, request)
    kept = {"carol": [], "worker-analysts": ["both"]}.get(peer, ["both", "gone"])
    assert request == {"op": "get_data", "keys": kept}
    # What is not meant is not there, rather than refused.
    assert "theirs" not in comm.conversation.withheld


def test_reasons_are_few_where_refused_keys_are_many(rig):
    keys = [f"k-{number}" for number in range(50)]
    rig.worker.data = dict.fromkeys(keys, 1)
    comm, request = rig.comm("worker-analysts"), {"op": "get_data", "keys": keys}
    require_authority(rig.known, rig.worker, comm, request)
    withheld = comm.conversation.withheld
    assert list(withheld) == keys
    assert len({id(each) for each in withheld.values()}) == 20
    assert all(isinstance(each, Failure) and each.failed for each in withheld.values())


def test_a_reply_without_values_stays_as_it_is():
    assert with_withheld({"status": "busy"}, {"k": 1}) == {"status": "busy"}
    assert with_withheld({"status": "OK", "data": {"a": 0}}, {"k": 1})["data"] == {"a": 0, "k": 1}


@pytest.mark.parametrize("operation", ["actor_execute", "actor_attribute"])
def test_an_actor_answers_who_may_read_its_authors_values(rig, operation):
    request = {"op": operation, "actor": "actor"}
    for peer in ("carol", "vera", "worker-engineers", "scheduler"):
        require_authority(rig.known, rig.worker, rig.comm(peer), request)
    for peer in ("alice", "worker-analysts"):
        with pytest.raises(PolicyDenied, match=r"values\.author"):
            require_authority(rig.known, rig.worker, rig.comm(peer), request)


# --- who says whose a value is -------------------------------------------------------------------


def computing(keys: StatedKeys, spec: Any = None) -> Any:
    event = object.__new__(ComputeTaskEvent)
    event.key, event.who_has, event.run_spec = "task", keys, spec
    return event


def test_the_scheduler_states_the_authors_of_a_task_and_of_its_inputs(rig):
    element = {"who_has": {"x": [], "y": []}, "author": "carol", "authors": {"y": "erin"}}
    StatedKeys.taken_from(element)
    assert element == {"who_has": {"x": [], "y": []}}
    rig.authors.note(stated_by(computing(element["who_has"])))
    assert list(map(rig.authors.of, ("task", "x", "y"))) == ["carol", "carol", "erin"]


def test_who_signed_a_task_counts_more_than_what_the_scheduler_says(rig):
    element = {"who_has": {}, "author": "alice"}
    StatedKeys.taken_from(element)
    event = computing(element["who_has"], SimpleNamespace(author="carol"))
    rig.authors.note(stated_by(event))
    assert rig.authors.of("task") == "carol"


def test_copies_are_of_the_stated_authors(rig):
    element = {"who_has": {"x": []}, "authors": {"x": "carol"}}
    StatedKeys.taken_from(element)
    event = AcquireReplicasEvent(who_has=element["who_has"], nbytes={}, stimulus_id="")
    rig.authors.note(stated_by(event))
    assert rig.authors.of("x") == "carol"


def test_an_event_that_states_nothing_changes_nothing(rig):
    event = AcquireReplicasEvent(who_has={"theirs": []}, nbytes={}, stimulus_id="")
    rig.authors.note(stated_by(event))
    assert rig.authors.of("theirs") == "carol"


@pytest.mark.parametrize(("peer", "author"), [("scheduler", "carol"), ("erin", None)])
def test_who_asks_a_worker_to_fetch_says_nothing_of_authors_but_its_scheduler(rig, peer, author):
    said = {"who_has": {"x": []}, "authors": {"x": "carol"}}
    assert asyncio.run(rig.worker.gather(rig.comm(peer), **said)) == "fetched"
    assert rig.authors.of("x") == author


@pytest.mark.parametrize(
    ("peer", "said", "author"),
    [("scheduler", "carol", "carol"), ("scheduler", None, None), ("erin", "alice", "erin")],
)
def test_data_is_of_who_brings_it_or_as_the_scheduler_says(rig, peer, said, author):
    rig.worker.update_data(rig.comm(peer), data={"x": 1}, author=said)
    assert rig.authors.of("x") == author


def test_a_worker_that_fetches_by_itself_states_nothing(rig):
    assert rig.worker.update_data(data={"x": 1}) == "stored"
    assert rig.authors.of("x") is None


def test_keys_that_are_gone_are_forgotten(rig):
    for number in range(3 * module._SPARE):
        rig.authors.note({("k", number): "carol"})
    assert len(rig.authors._of) <= 2 * module._SPARE
    assert rig.authors.of("theirs") == "carol"


def test_one_request_states_authors_and_no_other():
    with stating("gather", authors={"x": "carol"}):
        assert stated({"op": "gather", "who_has": {}})["authors"] == {"x": "carol"}
        assert stated({"op": "identity"}) == {"op": "identity"}
    assert stated({"op": "gather"}) == {"op": "gather"}


# --- shards --------------------------------------------------------------------------------------


def test_shards_go_to_peers_that_may_read_them(rig):
    shards = {"op": "shuffle_receive"}
    for author, peers in {"carol": (ENGINEERS,), "erin": (ENGINEERS, "worker-analysts")}.items():
        with handing("s", author):
            for peer in peers:
                require_receiver(rig.comm(peer).link, shards)
    for author in ("carol", None):
        with handing("s", author), pytest.raises(PolicyDenied, match="shuffle s"):
            require_receiver(rig.comm("worker-analysts").link, shards)
    with handing("s", None):
        require_receiver(rig.comm("worker-analysts").link, {"op": "identity"})


class Manager:
    def __init__(self, worker: Any, plan: Any) -> None:
        self._plugin, self._plan = SimpleNamespace(worker=worker), plan

    async def _fetch(self, shuffle_id: str, key: Any = None) -> Any:
        return self._plan


class Run:
    def __init__(self, worker: Any, run_id: int) -> None:
        self.id, self.run_id = "s", run_id
        self.rpc = SimpleNamespace(server=lambda: worker)

    async def _send(self, address: str, shards: Any) -> Any:
        return module._handing.get()


def replaced(cls: type, target: str) -> Any:
    return with_rows(cls, target)


def test_a_worker_learns_from_the_plan_whose_a_shuffle_is(rig):
    manager = replaced(Manager, f"{_worker_plugin.__name__}:_ShuffleRunManager._fetch")
    plan = SimpleNamespace(run_id=3, author="carol")
    assert asyncio.run(manager(rig.worker, plan)._fetch("s")) is plan
    assert rig.authors.of_shuffle("s", 3) == "carol"
    assert rig.authors.of_shuffle("s", 2) is None
    run = replaced(Run, f"{_core.__name__}:ShuffleRun._send")
    assert asyncio.run(run(rig.worker, 3)._send("a", [])) == ("s", "carol")
    assert asyncio.run(run(rig.worker, 4)._send("a", [])) == ("s", None)
    assert asyncio.run(run(object.__new__(Worker), 4)._send("a", [])) is None


def test_shuffles_that_are_long_over_are_forgotten(rig):
    for number in range(module._SPARE + 1):
        rig.authors.note_shuffle(str(number), 1, "carol")
    assert rig.authors.of_shuffle("0", 1) is None
    assert rig.authors.of_shuffle("1", 1) == "carol"


class Plugin:
    def __init__(self, worker: Any) -> None:
        self.worker = worker

    async def _get_shuffle_run(self, shuffle_id: str, run_id: int) -> None:
        if shuffle_id == "gone":
            raise KeyError(shuffle_id)

    async def shuffle_receive(self, shuffle_id: str, run_id: int, data: Any) -> str:
        return f"received {data}"


@pytest.mark.parametrize(
    ("peer", "author", "taken"),
    [
        (ENGINEERS, None, True),
        ("worker-analysts", "erin", True),
        ("worker-analysts", "carol", False),
        ("worker-analysts", None, False),
    ],
)
@pytest.mark.parametrize("shuffle", ["s", "gone"])
def test_shards_are_taken_from_peers_that_may_read_the_others(rig, peer, author, taken, shuffle):
    plugin = replaced(Plugin, f"{_worker_plugin.__name__}:ShuffleWorkerPlugin.shuffle_receive")
    if author is not None:
        rig.authors.note_shuffle(shuffle, 1, author)
    said = {"shuffle_id": shuffle, "run_id": 1, "data": "x"}
    receive = plugin(rig.worker).shuffle_receive(rig.comm(peer), **said)
    if taken:
        assert asyncio.run(receive) == "received x"
    else:
        with pytest.raises(PolicyDenied, match=r"values\.author"):
            asyncio.run(receive)


def test_a_worker_of_its_own_takes_shards_as_dask_does():
    plugin = replaced(Plugin, f"{_worker_plugin.__name__}:ShuffleWorkerPlugin.shuffle_receive")
    said = {"shuffle_id": "s", "run_id": 1, "data": "x"}
    assert asyncio.run(plugin(object.__new__(Worker)).shuffle_receive(**said)) == "received x"


class Planner:
    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def _create(self, shuffle_id: str, key: Any, worker: str) -> Any:
        return SimpleNamespace(run_id=1)


def test_the_plan_of_a_shuffle_says_who_submitted_it(doors):
    scheduler = SimpleNamespace(tasks={_core.barrier_key("s"): "barrier"})
    scheduler = type("Scheduler", (), {"tasks": scheduler.tasks})()
    known = serve(scheduler, Server.SCHEDULER, doors.channel("scheduler", POLICY))
    known.part(scheduler, Readers).owner_of = {"barrier": "carol"}.__getitem__
    planner = replaced(Planner, f"{_scheduler_plugin.__name__}:ShuffleSchedulerPlugin._create")
    assert planner(scheduler)._create("s", "k", "w").author == "carol"
    other = planner(object.__new__(Worker))._create("s", "k", "w")
    assert not hasattr(other, "author")
    assert row(f"{_scheduler_plugin.__name__}:ShuffleSchedulerPlugin._create").needed
