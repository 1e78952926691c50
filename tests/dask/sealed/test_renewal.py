"""Renewed statements: what takes the place of a graph's statement, on a scheduler and on a worker.

No test waits for a clock: each sets the time that statements are compared with.
"""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from dask._task_spec import Task, TaskRef
from distributed.protocol.serialize import Serialized

from safeser.dask.contents import opened_graph
from safeser.dask.sealed.node import nodes
from safeser.dask.sealed.renewal import Statements
from safeser.dask.sealed.statement import LIFETIME, RENEWED_AFTER, SignedStatement
from safeser.errors import AuditError, ConfigError, PolicyDenied
from safeser.gate.key_pairs import PrivateKey
from safeser.identity import Identity, KeyState, Roster, RosterEntry, SigningKey
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import DAY, POLICY
from tests.dask.sealed.graphs import written
from tests.dask.sealed.test_verification import Ran, Stream, row_of, run, submission
from tests.refusal import refusal

NOW = int(time.time())
pytestmark = pytest.mark.usefixtures("clock")


#: With a second author, and one who looks.
TWO = POLICY.replace("  bob: ", "  carol: {groups: [engineers]}\n  bob: ", 1)
TOMORROW = NOW + LIFETIME


def later(signed, identity, after=RENEWED_AFTER):
    """Return *signed* renewed by *identity*, *after* so many seconds."""
    return signed.statement.renewed_by(identity, signed.statement.issued + after)


def altered(signed, identity, **changed):
    """Return a changed statement with a valid signature of *identity*."""
    statement = later(signed, identity).statement
    return replace(statement, **changed).signed_by(identity)


@pytest.fixture
def clock(monkeypatch):
    """Return a function that sets the time of the verifier, at first that of the first renewal.

    Graphs are signed at ``NOW``.
    """
    shown = SimpleNamespace(now=NOW + RENEWED_AFTER)
    fixed = SimpleNamespace(time=lambda: shown.now)
    monkeypatch.setattr("safeser.dask.sealed.verification.time", fixed)
    monkeypatch.setattr("safeser.dask.sealed.graph.time", SimpleNamespace(time=lambda: NOW))
    return lambda seconds: setattr(shown, "now", NOW + seconds)


@pytest.fixture
def signed(sealed):
    return sealed({"x": Task("x", int)}).signed


@pytest.mark.parametrize(
    ("after", "until"),
    [(1000, 1000 + LIFETIME), (0, LIFETIME + 1), (-10, LIFETIME + 1)],
)
def test_a_renewed_statement_says_the_same_for_longer(doors, signed, alice, after, until):
    first = signed.statement
    for identity in (alice, doors.identity("alice", "new")):
        renewed = later(signed, identity, after)
        assert renewed.verify()
        assert renewed.statement.signer == identity.verifying
        assert renewed.statement.says_same(first)
        assert renewed.statement.expires == first.issued + until
        assert renewed.statement.is_current(first.issued + max(after, 0))
        assert SignedStatement.parse(renewed.packed) == renewed
    for identity in (doors.identity("bob"), Identity("alice", PrivateKey.generate())):
        with pytest.raises(ConfigError):
            later(signed, identity)


OTHER = {
    "author": "carol",
    "audience": PrivateKey.generate().public,
    "graph": bytes(16),
    "size": 2,
    "root": bytes(32),
}


# -- what is kept of statements -------------------------------------------------------------------


def test_the_later_statement_of_a_graph_counts_for_all_of_its_tasks(signed, alice):
    statements, renewed = Statements(), later(signed, alice)
    current = statements.of(signed)
    assert statements.of(signed) is current
    assert statements.renew(renewed) is current
    assert current.signed == renewed
    # One that is the same or earlier changes nothing, whatever order they come in.
    assert statements.renew(renewed) is None
    assert statements.renew(signed) is None
    assert statements.of(signed) is current
    assert current.signed == renewed
    # Neither does it take a message to itself: a task may bring the later one.
    last = later(renewed, alice)
    assert statements.of(last) is current
    assert current.signed == last


def test_a_statement_is_forgotten_with_the_last_task_of_its_graph(signed, alice):
    statements = Statements()
    current = statements.of(signed)
    assert len(statements) == 1
    del current
    gc.collect()
    assert len(statements) == 0
    statements.check(later(signed, alice))
    assert statements.renew(later(signed, alice)) is None
    assert len(statements) == 0


@pytest.mark.parametrize("name", sorted({*OTHER} - {"graph"}))
def test_no_other_graph_takes_the_id_of_one_that_is_there(signed, name):
    statements = Statements()
    current = statements.of(signed)
    said = replace(signed.statement, **{name: OTHER[name]}, expires=signed.statement.expires + 9)
    other = SignedStatement(said, b"", bytes(64))
    assert not said.says_same(signed.statement)
    for ask in (statements.of, statements.check, statements.renew):
        with refusal(PolicyDenied, "sealed.graph-id"):
            ask(other)
    assert current.signed == signed


# -- to a worker ----------------------------------------------------------------------------------


@pytest.fixture
def stream(doors):
    return Stream(doors)


@pytest.fixture
def graph(sealed):
    """A graph of alice's with a task that waits for the other one."""
    return sealed({"x": Task("x", run), "y": Task("y", sum, TaskRef("x"))})


def told(stream, packed):
    """Say *packed* to the worker as its scheduler would."""
    return stream.talk.attack_back([{"op": "statement-renewed", "statement": packed}])


def test_a_task_that_waits_runs_after_its_first_statement_is_over(stream, graph, alice, clock):
    made = nodes(graph)
    queued = stream.honest(made["x"])["run_spec"]
    waiting = stream.honest(made["y"])["run_spec"]
    renewed = later(graph.signed, alice)
    assert (
        stream.talk.reply([{"op": "statement-renewed", "statement": renewed.packed}]) is Talk.SKIP
    )
    clock(LIFETIME + 1)
    with pytest.raises(Ran):
        queued({})
    assert waiting({"x": [1, 2]}) == 3
    assert stream.refusals == []
    clock(LIFETIME + RENEWED_AFTER + 1)
    for task, inputs in ((queued, {}), (waiting, {"x": [1, 2]})):
        with refusal(PolicyDenied, "sealed.expired"):
            task(inputs)


@pytest.mark.parametrize("how", ["handed over", "sent later", "its first statement again"])
def test_a_renewal_counts_for_all_tasks_of_its_graph(stream, graph, alice, clock, how):
    made = nodes(graph)
    waiting = stream.honest(made["y"])["run_spec"]
    if how == "its first statement again":
        told(stream, later(graph.signed, alice).packed)
        [got] = stream.hostile(row_of(made["x"]), key="x")
    else:
        graph.current.take(later(graph.signed, alice))
        clock(LIFETIME + 1 if how == "handed over" else RENEWED_AFTER)
        got = stream.honest(made["x"])
    clock(LIFETIME + 1)
    with pytest.raises(Ran):
        got["run_spec"]({})
    assert waiting({"x": [1, 2]}) == 3


def of_another_graph(graph, alice, doors, sealed):
    other = later(sealed({"x": Task("x", run)}).signed, alice).statement
    return replace(other, graph=graph.signed.statement.graph).signed_by(alice)


def by_the_scheduler(graph, alice, doors, sealed):
    own = doors.identity("scheduler")
    return replace(later(graph.signed, alice).statement, signer=own.verifying).signed_by(own)


#: What a hostile scheduler says of a graph whose task its worker has, and by which rule it ends:
#: a worker asks what a scheduler asks (see below).
HOSTILE = {
    "of another graph": (of_another_graph, "sealed.graph-id"),
    "by the scheduler": (by_the_scheduler, "sealed.author"),
    "longer than statements are": (
        lambda graph, alice, *_: altered(graph.signed, alice, expires=NOW + 11 * LIFETIME),
        "sealed.statement",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_scheduler_renews_nothing(stream, graph, alice, doors, sealed, clock, name):
    forge, rule = HOSTILE[name]
    statement = forge(graph, alice, doors, sealed)
    task = stream.honest(nodes(graph)["x"])["run_spec"]
    assert told(stream, statement.packed) is Talk.SKIP
    assert stream.refusals == [rule]
    with pytest.raises(Ran):  # nothing else is disturbed
        task({})
    clock(LIFETIME + 1)
    with refusal(PolicyDenied, "sealed.expired"):
        task({})


def test_no_author_whom_policy_does_not_list_renews_anything(doors, graph, alice):
    stream = Stream(doors, POLICY.replace("authors: [group:engineers]", "authors: [bob]"))
    assert told(stream, later(graph.signed, alice).packed) is Talk.SKIP
    assert stream.refusals == ["author.relayed"]


def test_a_retired_key_renews_nothing_and_another_of_its_author_s_does(doors, graph, clock):
    successor = doors.identity("alice", "new")
    stream = Stream(doors)
    task = stream.honest(nodes(graph)["x"])["run_spec"]
    channel = stream.talk.near.channel
    lines = doors.roster(stream.talk.near.policy, alice={"state": KeyState.RETIRED}).entries
    channel.adopt(roster=Roster((*lines, RosterEntry.of(successor, created=DAY))))
    with refusal(PolicyDenied, "sealed.author"):
        task({})
    told(stream, later(graph.signed, doors.identity("alice")).packed)
    assert stream.refusals[-1] == "sealed.author"
    told(stream, later(graph.signed, successor).packed)
    with pytest.raises(Ran):
        task({})


# -- to the scheduler -----------------------------------------------------------------------------


class Submitted:
    """A graph of alice's on a scheduler, and what clients say to it about the statement."""

    def __init__(self, doors, policy=TWO):
        self.doors = doors
        self.renewed = []
        self.statements = Statements()
        self.talk = self.of("alice", policy)
        audience = doors.identity("scheduler").public
        header, frames = written({"x": Task("x", run)}, doors.identity("alice"), audience)
        [update] = self.talk.request(
            [submission(header, frames, expr_ser=Serialized(header, frames))]
        )
        graph = opened_graph.own_functions(None)[1](None, update["expr_ser"].frames)
        [self.node] = graph.__dask_graph__().values()
        self.first = self.node.graph.signed

    def of(self, name, policy):
        # Streams of all clients share the statements of one scheduler.
        options = {"renewed": self.renewed.append, "statements": self.statements}
        talk = Talk(self.doors, name, "scheduler", policy, server_options=options)
        return talk.greet().client_stream()

    @property
    def signed(self):
        return self.node.call.signed

    def refused(self, statement, rule, *, talk=None):
        """Check that nothing changes by *statement* but the log, and that the stream goes on."""
        talk = talk or self.talk
        before = len(talk.refused_by_server)
        beside = {"op": "heartbeat-client", "client": "Client-1"}
        said = {"op": "renew-statement", "statement": statement}
        assert talk.attack([said, beside]) == (beside,)
        assert talk.refused_by_server[before:] == [rule]
        assert talk.server.take_answers() == []
        assert self.signed == self.first
        assert self.renewed == []


@pytest.fixture
def submitted(doors):
    return Submitted(doors)


def test_an_author_renews_the_statement_of_its_graph(submitted, alice):
    renewed = later(submitted.first, alice)
    for _ in range(2):  # a second time changes nothing, and is no error
        got = submitted.talk.request([{"op": "renew-statement", "statement": renewed.packed}])
        assert got is Talk.SKIP  # Dask has no handler for it
    assert submitted.signed == renewed
    assert [each.signed for each in submitted.renewed] == [renewed]
    assert submitted.talk.refused_by_server == []
    # It is in the log before it counts.
    events = submitted.talk.far.audit.events
    assert all(each["permitted"] for each in events if each["operation"] == "renew-statement")


def early(signed, alice):
    first = signed.statement
    return altered(signed, alice, issued=first.issued + 10, expires=first.expires)


def own(signed, identity, by, **changed):
    said = replace(altered(signed, identity).statement, signer=by.verifying, **changed)
    return said.signed_by(by)


THIEF = Identity("alice", PrivateKey.generate(), SigningKey.generate())

#: What is said of alice's graph: (by whose stream, the statement, by which rule it ends).
FORGED = {
    "another root": ("alice", lambda s, a, _: altered(s, a, root=bytes(32)), "sealed.graph-id"),
    "another's name": ("alice", lambda s, a, _: altered(s, a, author="carol"), "sealed.author"),
    "not valid yet": (
        "alice",
        lambda s, a, _: altered(s, a, issued=TOMORROW, expires=TOMORROW + LIFETIME),
        "sealed.expired",
    ),
    "no later": ("alice", lambda s, a, _: early(s, a), "sealed.renewal"),
    "a thief's": ("alice", lambda s, *_: later(s, THIEF), "sealed.author"),
    "bob's with her key": (
        "alice",
        lambda s, a, other: later(s, a).statement.signed_by(other("bob")),
        "sealed.signature",
    ),
    "her own on carol's stream": ("carol", lambda s, a, _: later(s, a), "sealed.author"),
    "carol's": (
        "carol",
        lambda s, a, other: own(s, a, other("carol"), author="carol"),
        "sealed.graph-id",
    ),
    "on bob's stream": ("bob", lambda s, a, _: later(s, a), "operation.not-granted"),
}


@pytest.mark.parametrize("name", FORGED)
def test_no_other_statement_takes_its_place(doors, submitted, alice, name):
    who, forge, rule = FORGED[name]
    statement = forge(submitted.first, alice, doors.identity)
    talk = submitted.talk if who == "alice" else submitted.of(who, TWO)
    submitted.refused(statement.packed, rule, talk=talk)


def test_what_is_no_statement_is_one_clear_error(submitted, alice):
    packed = later(submitted.first, alice).packed
    submitted.refused(bytes([packed[0] ^ 1]) + packed[1:], "sealed.signature")
    submitted.refused(bytes(200), "sealed.statement")
    submitted.refused("text", "operation.field-shape")
    assert submitted.talk.attack([{"op": "renew-statement"}]) is Talk.SKIP
    assert submitted.talk.refused_by_server[-1] == "sealed.statement"


def test_under_code_there_is_nothing_to_renew(doors, signed, alice):
    talk = Talk(doors, "alice", "scheduler", "demo").greet().client_stream()
    said = {"op": "renew-statement", "statement": later(signed, alice).packed}
    assert talk.attack([said]) is Talk.SKIP
    assert talk.refused_by_server == ["context.family"]


def under_id(taken, author, audience):
    """Return a graph of *author* that has the id *taken*."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safeser.dask.sealed.graph.secrets.token_bytes", lambda _: taken)
        return written({"y": Task("y", run)}, author, audience)


def test_a_graph_under_an_id_that_another_graph_has_is_refused(doors, submitted, audience):
    carol = submitted.of("carol", TWO)
    header, frames = under_id(submitted.first.statement.graph, doors.identity("carol"), audience)
    got = carol.request(
        [submission(header, frames, expr_ser=Serialized(header, frames), client="Client-1")]
    )
    assert got is Talk.SKIP
    assert carol.refused_by_server == ["sealed.graph-id"]
    assert submitted.signed == submitted.first


def test_a_renewal_beside_a_graph_that_takes_its_id_does_not_end_the_stream(
    submitted, audience, alice
):
    """When it was judged, there was no graph of that id yet."""
    header, frames = under_id(bytes(range(16)), alice, audience)
    renewed = altered(SignedStatement.parse(frames[0]), alice, root=bytes(32))
    said = {"op": "renew-statement", "statement": renewed.packed}
    beside = {"op": "heartbeat-client", "client": "Client-1"}
    got = submitted.talk.attack([submission(header, frames), said, beside])
    assert [each["op"] for each in got] == ["update-graph", "heartbeat-client"]
    assert submitted.talk.refused_by_server == ["sealed.graph-id"]


def test_what_is_not_recorded_renews_nothing(submitted, alice, monkeypatch):
    def fails(*_):
        raise AuditError("the disk is full")

    monkeypatch.setattr(submitted.talk.far.audit, "record_all", fails)
    monkeypatch.setattr(submitted.talk.far.audit, "record", fails)
    renewed = later(submitted.first, alice).packed
    with contextlib.suppress(AuditError):
        submitted.talk.request([{"op": "renew-statement", "statement": renewed}])
    assert submitted.signed == submitted.first
