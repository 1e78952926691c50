"""What a client sends beside its graphs, and which of them its futures need."""

from __future__ import annotations

import gc

import pytest
from dask._task_spec import Task, TaskRef
from distributed.client import FutureState
from distributed.protocol.serialize import Serialized, ToPickle

from safeser.dask.clients.sealing import Sealing
from safeser.dask.clients.sent_definitions import Sent, SentGraph
from safeser.dask.sealed.statement import SignedStatement
from tests.dask.sealed.graphs import written


class Holding(Sealing):
    """As much of a client as keeps what it submitted: futures and graphs."""

    def __init__(self, doors):
        self.begin_to_keep()
        self.alice, self.audience = doors.identity("alice"), doors.identity("scheduler").public
        self.futures = {}

    def submits(self, **tasks):
        """Submit *tasks*, with a future for each, as FutureReuse notes it; return its id."""
        self._call.named = set()
        graph = Serialized(*written(tasks, self.alice, self.audience, keys=self._call.named))
        sent = SentGraph(graph.frames, None, sealed=graph.header)
        sent.stated = self._stated(graph)
        for key in tasks:
            state = self.futures.setdefault(key, FutureState(key))
            if self._kept.find(key, state) is None:
                self._kept.keep(key, Sent(state, sent))
        return SignedStatement.parse(graph.frames[0]).statement.graph

    def releases(self, *keys):
        for key in keys:
            del self.futures[key]
            self._kept.drop(key)


@pytest.fixture
def client(doors):
    return Holding(doors)


def task(key, *needs):
    return Task(key, max, 0, 1, *map(TaskRef, needs))


def test_a_held_future_may_need_the_graphs_that_are_released(client):
    """Its worker may be lost, and then it is computed from the beginning."""
    first = client.submits(a=task("a"))
    second = client.submits(b=task("b", "a"))
    third = client.submits(c=task("c", "b"), d=task("d", "b"))
    client.submits(e=task("e"))
    client.releases("a", "b", "d", "e")
    assert client.graphs_behind("c") == {first, second, third}
    client.releases("c")
    assert client.graphs_behind("c") == frozenset()
    assert len(client._kept) == 0


def test_a_graph_in_which_a_task_is_there_already_needs_that_one(client):
    """The scheduler goes on with the task that it has."""
    first = client.submits(a=task("a"))
    second = client.submits(a=task("a"), b=task("b", "a"))
    client.releases("a")
    assert client.graphs_behind("b") == {first, second}


def test_a_long_chain_is_followed_without_recursion(client):
    client.submits(k0=task("k0"))
    for number in range(1, 1500):
        client.submits(**{f"k{number}": task(f"k{number}", f"k{number - 1}")})
        client.releases(f"k{number - 1}")
    assert len(client.graphs_behind("k1499")) == 1500
    # Nothing of it is left, or was ever in the way of the interpreter's stack.
    client.releases("k1499")
    gc.collect()
    assert len(client._kept) == 0


def test_graphs_that_are_not_sealed_are_not_kept_by_an_id(client):
    assert client._stated(Serialized({"serializer": "pickle"}, [b""])) is None


# -- what a client sends beside a graph, and what it leaves out ------------------------------------


class Said:
    def __init__(self):
        self.said = []

    def _send_to_scheduler(self, message):
        self.said.append(message)


class Sends(Sealing, Said):
    """As much of a client as sends a graph."""


@pytest.mark.parametrize("is_signed", [True, False])
@pytest.mark.parametrize(
    ("annotations", "left"), [({}, None), ({"priority": 1}, {"priority": 1})], ids=["none", "some"]
)
def test_what_is_empty_beside_a_graph_is_not_sent(alice, audience, is_signed, annotations, left):
    client = Sends()
    client.begin_to_keep()
    if is_signed:
        graph = written({"a": Task("a", len, ())}, alice, audience)
        annotations = {**annotations, "workers": len}  # functions were called when it was written
    else:
        graph = {"serializer": "pickle"}, [b""]
    message = {"op": "update-graph", "expr_ser": Serialized(*graph), "keys": {"a"}}
    beside = {"annotations": annotations, "code": (), "span_metadata": {"collections": []}}
    before = message | {name: ToPickle(each) for name, each in beside.items()}
    client._send_to_scheduler(dict(before))
    [said] = client.said
    assert "code" not in said
    assert said["span_metadata"] is before["span_metadata"]
    assert (said["annotations"].data if "annotations" in said else None) == left
    # What submit says of every graph is no payload beside a signed one.
    of_futures = ToPickle({"collections": [{"type": "Future"}]})
    client._send_to_scheduler({**before, "span_metadata": of_futures})
    assert client.said[1]["span_metadata"] == (of_futures.data if is_signed else of_futures)


class Queued:
    """As much of Dask's client as sends: it keeps what it cannot send yet, and passes it again."""

    def _send_to_scheduler(self, message):
        self.said.append(message)


@pytest.mark.parametrize("annotations", [{}, {"priority": 3}], ids=["none", "some"])
def test_a_graph_is_sent_once_more_when_the_client_is_connected_again(doors, annotations):
    client = object.__new__(type("Client", (Sealing, Queued), {"said": []}))
    client.begin_to_keep()
    alice, scheduler = doors.identity("alice"), doors.identity("scheduler").public
    graph = Serialized(*written({"x": task("x")}, alice, scheduler))
    parts = {"annotations": ToPickle(annotations), "code": ToPickle(()), "span_metadata": {}}
    client._send_to_scheduler({"op": "update-graph", "expr_ser": graph, **parts})
    client._send_to_scheduler(client.said[0])
    first, again = (
        {**each, "annotations": each.get("annotations", ToPickle({})).data} for each in client.said
    )
    assert first == again
    assert first["annotations"] == annotations
