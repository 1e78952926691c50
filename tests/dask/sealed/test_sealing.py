"""What a client says of its graphs: beside them, and when their statements are due again."""

from __future__ import annotations

import asyncio
import gc
import logging
from types import SimpleNamespace

import pytest
from dask._task_spec import Task, TaskRef
from distributed.client import FutureState
from distributed.comm.core import CommClosedError
from distributed.protocol.serialize import Serialized, ToPickle

from safeser.dask.clients import sealing
from safeser.dask.clients.sealing import Sealing
from safeser.dask.clients.sent_definitions import Sent, SentGraph
from safeser.dask.scheduler import statement_renewals
from safeser.dask.scheduler.statement_renewals import Renewals
from safeser.dask.sealed.node import nodes
from safeser.dask.sealed.statement import LIFETIME, RENEWED_AFTER, SignedStatement
from safeser.gate.key_pairs import PrivateKey
from safeser.identity import Identity
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import POLICY
from tests.dask.sealed.graphs import written

NOW = 1_800_000_000


class Holding(Sealing):
    """As much of a client as renews statements: futures, a clock, and what was sent."""

    def __init__(self, doors, policy=POLICY):
        self.begin_to_keep()
        self.doors = doors
        self.link, _ = doors.links("alice", "scheduler", policy)
        self.futures, self.status, self.said = {}, "running", []
        self.other = None

    def _identity(self):
        return self.other or super()._identity()

    def _policy_link(self):
        return self.link

    def _send_to_scheduler(self, message):
        self.said.append(message)

    def submits(self, **tasks):
        """Submit *tasks*, with a future for each, as FutureReuse notes it."""
        self._call.named, self._call.signer = set(), self._identity().verifying
        audience = self.doors.identity("scheduler").public
        graph = Serialized(*written(tasks, self._identity(), audience, keys=self._call.named))
        sent = SentGraph(graph.frames, None, sealed=graph.header)
        sent.stated = self._stated(graph)
        for key in tasks:
            state = self.futures.setdefault(key, FutureState(key))
            if self._kept.find(key, state) is None:
                self._kept.keep(key, Sent(state, sent))
        return SignedStatement.parse(graph.frames[0]).statement

    def releases(self, *keys):
        for key in keys:
            del self.futures[key]
            self._kept.drop(key)

    def looks(self):
        """Return what it renews now."""
        self.said.clear()
        self._renew_statements()
        assert all(each["op"] == "renew-statement" for each in self.said)
        return [SignedStatement.parse(each["statement"]) for each in self.said]


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    shown = SimpleNamespace(now=NOW)
    fixed = SimpleNamespace(time=lambda: shown.now)
    for module in ("safeser.dask.clients.sealing", "safeser.dask.sealed.graph"):
        monkeypatch.setattr(f"{module}.time", fixed)
    return lambda seconds: setattr(shown, "now", NOW + seconds)


@pytest.fixture
def client(doors):
    return Holding(doors)


def task(key, *needs):
    return Task(key, max, 0, 1, *map(TaskRef, needs))


def roots(renewed):
    return {each.statement.root for each in renewed}


# -- a client -------------------------------------------------------------------------------------


def test_each_graph_of_which_a_future_is_held_is_renewed_once_when_it_is_due(client, clock):
    first = client.submits(a=task("a"), b=task("b"))
    clock(RENEWED_AFTER - 1)
    second = client.submits(c=task("c"))
    assert client.looks() == []
    assert 4 * RENEWED_AFTER <= LIFETIME  # three renewals may come to nothing
    clock(RENEWED_AFTER)
    [renewed] = client.looks()
    assert renewed.verify()
    assert renewed.statement.says_same(first)
    assert renewed.statement.issued == NOW + RENEWED_AFTER
    assert renewed.statement.expires == NOW + RENEWED_AFTER + LIFETIME
    assert client.looks() == []
    clock(2 * RENEWED_AFTER)
    renewed = client.looks()
    assert roots(renewed) == {first.root, second.root}
    assert {each.statement.issued for each in renewed} == {NOW + 2 * RENEWED_AFTER}


def test_what_another_thread_submits_while_it_looks_is_renewed(client, clock, monkeypatch):
    client.submits(a=task("a"))
    client.releases("a")
    clock(RENEWED_AFTER)
    looked, submitted = client._kept.held, []

    def held(futures):
        found = looked(futures)
        submitted.append(client.submits(b=task("b")))
        return found

    monkeypatch.setattr(client._kept, "held", held)
    assert client.looks() == []
    monkeypatch.setattr(client._kept, "held", looked)
    clock(2 * RENEWED_AFTER)
    assert roots(client.looks()) == {submitted[0].root}


def test_what_a_held_future_needs_is_renewed_too(client, clock):
    """Its worker may be lost, and then it is computed from the beginning."""
    first = client.submits(a=task("a"))
    second = client.submits(b=task("b", "a"))
    third = client.submits(c=task("c", "b"), d=task("d", "b"))
    client.submits(e=task("e"))
    client.releases("a", "b", "d", "e")
    clock(RENEWED_AFTER)
    assert roots(client.looks()) == {first.root, second.root, third.root}
    client.releases("c")
    clock(2 * RENEWED_AFTER)
    assert client.looks() == []
    assert len(client._kept) == 0


def test_a_graph_in_which_a_task_is_there_already_needs_that_one(client, clock):
    """The scheduler goes on with the task that it has."""
    first = client.submits(a=task("a"))
    second = client.submits(a=task("a"), b=task("b", "a"))
    client.releases("a")
    clock(RENEWED_AFTER)
    assert roots(client.looks()) == {first.root, second.root}


def test_a_long_chain_is_renewed_without_recursion_and_a_part_at_a_time(client, clock, monkeypatch):
    monkeypatch.setattr(sealing, "_AT_ONCE", 700)
    client.submits(k0=task("k0"))
    for number in range(1, 1500):
        client.submits(**{f"k{number}": task(f"k{number}", f"k{number - 1}")})
        client.releases(f"k{number - 1}")
    clock(RENEWED_AFTER)
    found = [client.looks() for _ in range(4)]
    assert [len(each) for each in found] == [700, 700, 100, 0]
    assert len(roots(each for part in found for each in part)) == 1500
    # Nothing of it is left, or was ever in the way of the interpreter's stack.
    client.releases("k1499")
    gc.collect()
    assert client._kept.held(client.futures) == []


@pytest.mark.parametrize("status", ["pending", "finished", "error", "lost", "cancelled", "gone"])
def test_futures_that_were_cancelled_or_lost_with_the_connection_are_not_renewed(
    client, clock, status
):
    client.submits(a=task("a"))
    if status == "gone":  # when the connection is lost and when the scheduler restarts
        client.futures.clear()
    elif status == "cancelled":
        client.futures["a"].cancel()
    else:
        client.futures["a"].status = status
    clock(RENEWED_AFTER)
    assert len(client.looks()) == (status not in ("cancelled", "gone"))


def test_while_it_connects_it_waits(client, clock):
    client.submits(a=task("a"))
    clock(RENEWED_AFTER)
    client.status = "connecting"
    assert client.looks() == []
    client.status, link, client.link = "running", client.link, None
    assert client.looks() == []
    client.link = link
    assert len(client.looks()) == 1


def test_where_policy_grants_no_renewal_none_is_sent(doors, clock):
    text = POLICY.replace(
        "grant: [basic, diagnose, control, worker-run, worker-plugins]}\n  - name: engineers-fetch",
        "grant: [register-client, update-graph]}\n  - name: engineers-fetch",
    )
    assert text != POLICY
    client = Holding(doors, text)
    client.submits(a=task("a"))
    clock(RENEWED_AFTER)
    assert client.looks() == []


def test_a_graph_during_whose_writing_the_key_was_replaced_is_signed_by_the_other_one(
    client, doors, clock, monkeypatch
):
    stated = client._stated

    def replaced(graph):
        client.other = doors.identity("alice", "new")
        return stated(graph)

    client.submits(a=task("a"))
    client.other = doors.identity("alice", "new")
    assert len(client.looks()) == 1
    client.other = None
    monkeypatch.setattr(client, "_stated", replaced)
    submitted = client.submits(b=task("b"))
    assert submitted.signer != client.other.verifying
    [renewed] = client.looks()
    assert renewed.statement.says_same(submitted)
    assert renewed.statement.signer == client.other.verifying
    assert client.looks() == []


def test_a_new_key_that_a_roster_does_not_list_yet_is_tried_again_soon(client, doors, clock):
    """The scheduler sends no answer, and the first key may be retired within the hour."""
    client.submits(a=task("a"))
    client.other = doors.identity("alice", "new")
    tried = []
    for minute in range(24 * 60):
        clock(60 * minute)
        tried += [minute] * len(client.looks())
    # Each time after twice as long as before, and then as ever.
    assert tried == [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 871, 1231]
    assert (tried[-1] - tried[-2]) * 60 == RENEWED_AFTER


def test_a_new_key_signs_all_graphs_before_it_signs_one_again(client, doors, clock, monkeypatch):
    monkeypatch.setattr(sealing, "_AT_ONCE", 2)
    for key in "abcde":
        client.submits(**{key: task(key)})
    client.other = doors.identity("alice", "new")
    found = []
    for minute in range(3):
        clock(60 * minute)
        found += client.looks()
    assert {each.statement.signer for each in found} == {client.other.verifying}
    assert len(found) == 6
    assert len(roots(found)) == 5


def test_a_key_that_cannot_sign_is_one_warning_an_hour(client, clock, caplog):
    caplog.set_level(logging.WARNING)
    client.submits(a=task("a"))
    client.other = Identity("alice", PrivateKey.generate())
    for seconds in (0, 60, 120):
        clock(seconds)
        assert client.looks() == []
    assert len(caplog.records) == 1
    assert "not renewed" in caplog.text
    client.other = None
    clock(180)
    client.looks()
    clock(RENEWED_AFTER)
    assert len(client.looks()) == 1


def test_graphs_that_are_not_sealed_have_no_statement(client, alice, audience):
    assert client._stated(Serialized({"serializer": "pickle"}, [b""])) is None
    client.link = None  # as on a cluster without safeser
    assert client._identity() is None
    client._call.named = set()
    assert client._stated(Serialized(*written({"x": task("x")}, alice, audience))) is None
    assert client.looks() == []


def test_the_client_s_loop_looks_again_and_again_until_it_is_stopped(client, clock, monkeypatch):
    monkeypatch.setattr(sealing, "_EVERY", 0.001)
    client._periodic_callbacks = {}
    client.submits(a=task("a"))
    clock(RENEWED_AFTER)

    async def loop():
        client._look_for_due()
        while not client.said:
            await asyncio.sleep(0.001)
        for each in client._periodic_callbacks.values():
            each.stop()

    asyncio.run(asyncio.wait_for(loop(), 30))
    assert [each["op"] for each in client.said] == ["renew-statement"]


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


# -- a scheduler ----------------------------------------------------------------------------------


class Loop:
    def __init__(self):
        self.later, self.pauses = [], []

    def add_callback(self, function, *args):
        function(*args)

    def call_later(self, seconds, function):
        self.pauses.append(seconds)
        self.later.append(function)

    def passes(self):
        later, self.later = self.later, []
        for each in later:
            each()
        return len(later)


class Stream:
    def __init__(self, link, *, closed=False):
        self.comm, self.closed, self.said = SimpleNamespace(link=link), closed, []

    def send(self, message):
        if self.closed:
            raise CommClosedError
        self.said.append(message)


class Scheduler:
    def __init__(self):
        self.loop = Loop()
        self.workers, self.stream_comms = {}, {}

    def has(self, name, link, *specs, **options):
        tasks = [SimpleNamespace(run_spec=spec) for spec in specs]
        self.workers[name] = SimpleNamespace(processing=tasks)
        self.stream_comms[name] = Stream(link, **options)
        return self.stream_comms[name]


@pytest.fixture
def scheduler():
    return Scheduler()


@pytest.fixture
def told(scheduler, monkeypatch):
    monkeypatch.setattr(statement_renewals, "perf_counter", lambda: 0.0)
    return Renewals(scheduler, None)


@pytest.fixture
def to_worker(doors):
    return Talk(doors, "worker", "scheduler", POLICY).far


def test_workers_with_tasks_of_a_graph_are_told_of_its_renewal(scheduler, told, to_worker, sealed):
    one, other = (sealed({i: task(i) for i in range(3)}) for _ in range(2))
    first, second = list(nodes(one).values()), list(nodes(other).values())
    both = scheduler.has("both", to_worker, *first[:2], second[0], None, Task("x", sum, [1]))
    none = scheduler.has("none", to_worker, second[1])
    closed = scheduler.has("closed", to_worker, first[2], closed=True)
    scheduler.has("unknown", None, first[2])
    del scheduler.stream_comms["unknown"]
    unsafe = scheduler.has("unsafe", None, first[2])
    last = scheduler.has("last", to_worker, first[2])
    for _ in range(5):
        told.note(one.current)
    assert scheduler.loop.passes() == 1
    message = {"op": "statement-renewed", "statement": one.signed.packed}
    assert both.said == last.said == [message]
    assert none.said == closed.said == unsafe.said == []
    # Each again, and no more than once in a while.
    assert scheduler.loop.passes() == 0
    told.note(one.current)
    told.note(other.current)
    assert scheduler.loop.passes() == 1
    assert len(both.said) == 3
    assert len(none.said) == 1
    assert scheduler.loop.pauses == [statement_renewals.PAUSE] * 2


def test_looking_whom_to_tell_takes_little_of_a_scheduler_s_time(
    scheduler, told, to_worker, sealed, monkeypatch
):
    """One author may have as many tasks there as memory holds, and renew all the time."""
    graph = sealed({"x": task("x")})
    worker = scheduler.has("worker", to_worker, *nodes(graph).values())
    monkeypatch.setattr(statement_renewals, "perf_counter", iter([0.0, 0.5, 0.5, 0.501]).__next__)
    for _ in range(2):
        told.note(graph.current)
        assert scheduler.loop.passes() == 1
    told.note(graph.current)
    assert scheduler.loop.pauses == [statement_renewals.PAUSE, 50.0, statement_renewals.PAUSE]
    assert len(worker.said) == 2


def test_a_worker_to_whom_policy_does_not_let_it_be_said_is_not_told(
    doors, scheduler, told, sealed
):
    text = POLICY.replace(
        "operations: {grant: [basic, cluster, control, diagnose, worker-run, worker-plugins]}\n"
        "  - name: scheduler-and-nanny",
        "operations: {grant: [compute-task]}\n  - name: scheduler-and-nanny",
    )
    assert text != POLICY
    far = Talk(doors, "worker", "scheduler", text).far
    graph = sealed({"x": task("x")})
    stream = scheduler.has("worker", far, *nodes(graph).values())
    told.note(graph.current)
    assert scheduler.loop.passes() == 1
    assert stream.said == []


def test_a_scheduler_that_is_gone_tells_no_worker(sealed):
    gone = Scheduler()
    told, loop, current = Renewals(gone, None), gone.loop, sealed({"x": task("x")}).current
    told.note(current)
    del gone
    gc.collect()
    assert loop.passes() == 1
    told.note(current)


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
