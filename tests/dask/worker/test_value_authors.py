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
from tests.refusal import refusal

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
        with refusal(PolicyDenied, "values.direct", match="every author"):
            rig.asked(peer, *keys)


@pytest.mark.parametrize("operation", ["actor_execute", "actor_attribute"])
def test_an_actor_answers_who_may_read_its_authors_values(rig, operation):
    request = {"op": operation, "actor": "actor"}
    for peer in ("carol", "erin", "worker", "scheduler"):
        require_authority(rig.known, rig.worker, rig.comm(peer), request)
    for actor in ("actor", "unknown", None):
        with pytest.raises(PolicyDenied, match=r"values\.direct"):
            require_authority(rig.known, rig.worker, rig.comm("alice"), {**request, "actor": actor})


# --- who says whose a value is -------------------------------------------------------------------


def computing(keys: Any, spec: Any = None) -> Any:
    event = object.__new__(ComputeTaskEvent)
    event.key, event.who_has, event.run_spec = "task", keys, spec
    return event


def copying(keys: Any) -> Any:
    return AcquireReplicasEvent(who_has=keys, nbytes={}, stimulus_id="")


def signed(keys: Any) -> Any:
    return computing(keys, SimpleNamespace(author="carol"))


@pytest.mark.parametrize(
    ("said", "event", "authors"),
    [
        (
            {"who_has": {"x": [], "y": []}, "author": "carol", "authors": {"y": "erin"}},
            computing,
            {"task": "carol", "x": "carol", "y": "erin"},
        ),
        # Who signed a task counts more than what the scheduler says.
        ({"who_has": {}, "author": "alice"}, signed, {"task": "carol"}),
        ({"who_has": {"x": []}, "authors": {"x": "carol"}}, copying, {"x": "carol"}),
        ({"who_has": {"theirs": []}}, copying, {"theirs": "carol"}),  # which states nothing
    ],
)
def test_the_scheduler_states_the_authors_of_tasks_inputs_and_copies(rig, said, event, authors):
    element = {**said}
    StatedKeys.taken_from(element)
    assert element.keys() == {"who_has"}
    rig.authors.note(stated_by(event(element["who_has"])))
    assert {key: rig.authors.of(key) for key in authors} == authors


@pytest.mark.parametrize(("peer", "author"), [("scheduler", "carol"), ("erin", None)])
def test_who_asks_a_worker_to_fetch_says_nothing_of_authors_but_its_scheduler(rig, peer, author):
    said = {"who_has": {"x": []}, "authors": {"x": "carol"}}
    assert asyncio.run(rig.worker.gather(rig.comm(peer), **said)) == "fetched"
    assert rig.authors.of("x") == author


@pytest.mark.parametrize(
    ("peer", "said", "author"),
    [
        ("scheduler", "carol", "carol"),
        ("scheduler", None, None),
        ("erin", "alice", "erin"),
        (None, None, None),  # a worker that fetches by itself
    ],
)
def test_data_is_of_who_brings_it_or_as_the_scheduler_says(rig, peer, said, author):
    if peer is None:
        assert rig.worker.update_data(data={"x": 1}) == "stored"
    else:
        rig.worker.update_data(rig.comm(peer), data={"x": 1}, author=said)
    assert rig.authors.of("x") == author


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
