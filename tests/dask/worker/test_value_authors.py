"""Whose values a worker has, and to which peers it gives them, without sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.worker_state_machine import AcquireReplicasEvent, ComputeTaskEvent

from safeser.dask.messages.author_statements import StatedKeys, stated, stated_by, stating
from safeser.dask.scheduler.request_authority import require_authority
from safeser.dask.worker import value_authors as module
from safeser.dask.worker.value_authors import Authors
from safeser.errors import PolicyDenied
from safeser.operations import Server
from tests.dask.patched import Peer, serve, with_rows

POLICY = (Path(__file__).parents[1] / "values" / "values.yaml").read_text()


class Holder:
    """As much of a worker as is asked for values."""

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
        self.channel = doors.channel("worker", POLICY)
        is_scheduler = "scheduler".__eq__
        self.known = serve(self.worker, Server.WORKER, self.channel, is_scheduler=is_scheduler)
        self.authors = self.known.part(self.worker, Authors)
        self.authors.note({"theirs": "carol", "both": "erin", "actor": "carol"})

    def comm(self, peer: str) -> Any:
        _, far = self.doors.links(peer, "worker", POLICY)
        return Peer(far)

    def asked(self, peer: str, *keys: str, **said: Any) -> list[str]:
        """Return which of *keys* the worker looks for."""
        request: dict[str, Any] = {"op": "get_data", "keys": list(keys), **said}
        require_authority(self.known, self.worker, self.comm(peer), request)
        assert request.keys() == {"op", "keys"}
        return list(request["keys"])


@pytest.fixture
def rig(doors: Any) -> Rig:
    return Rig(doors)


@pytest.mark.parametrize("peer", ["worker", "scheduler", "vera", "erin"])
def test_who_may_read_all_values_is_given_them(rig, peer):
    assert rig.asked(peer, "theirs", "lost", "gone") == ["theirs", "lost", "gone"]
    for said in ({"author": "erin"}, {"authors": {"theirs": "erin", "gone": "carol"}}):
        # Another author's value is meant, which is not here.
        kept = ["both", "gone"]
        assert rig.asked(peer, "theirs", "both", "gone", **said) == kept


@pytest.mark.parametrize("keys", [["theirs"], ["gone"], []])
def test_a_client_that_may_not_read_all_values_is_given_none(rig, keys):
    for peer in ("alice", "carol"):
        with pytest.raises(PolicyDenied, match="every author") as caught:
            rig.asked(peer, *keys)
        assert caught.value.rule == "values.direct"


@pytest.mark.parametrize("operation", ["actor_execute", "actor_attribute"])
def test_an_actor_answers_who_may_read_its_authors_values(rig, operation):
    request = {"op": operation, "actor": "actor"}
    for peer in ("carol", "erin", "worker", "scheduler"):
        require_authority(rig.known, rig.worker, rig.comm(peer), request)
    for actor in ("actor", "unknown", None):
        with pytest.raises(PolicyDenied, match=r"values\.direct"):
            require_authority(rig.known, rig.worker, rig.comm("alice"), {**request, "actor": actor})


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
