"""Renewals of statements on their way to the scheduler: who renews which, and what changes."""

from __future__ import annotations

import contextlib
import gc
from dataclasses import replace

import pytest
from dask._task_spec import Task
from distributed.protocol.serialize import Serialized

from safeser.dask.contents import opened_graph
from safeser.dask.sealed.renewal import Statements
from safeser.dask.sealed.statement import LIFETIME, SignedStatement
from safeser.errors import AuditError
from safeser.identity import Identity, KeyState, PrivateKey, SigningKey
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import POLICY
from tests.dask.sealed.graphs import written
from tests.dask.sealed.renewing import TOMORROW, TWO, altered, later
from tests.dask.sealed.test_submissions import submission
from tests.dask.sealed.test_verification import (
    rosters,
    run,
)

pytestmark = pytest.mark.usefixtures("clock")


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
        graph = opened_graph.SERIALIZATION[1](None, update["expr_ser"].frames)
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


def test_a_graph_that_is_gone_is_renewed_quietly(submitted, alice):
    renewed = later(submitted.first, alice)
    del submitted.node
    gc.collect()
    said = [{"op": "renew-statement", "statement": renewed.packed}]
    assert submitted.talk.request(said) is Talk.SKIP
    assert submitted.talk.refused_by_server == []
    assert submitted.renewed == []
    assert len(submitted.talk.server._statements) == 0


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


@pytest.mark.parametrize("state", [KeyState.RETIRED, KeyState.PENDING])
def test_a_key_that_does_not_count_renews_nothing(doors, submitted, alice, state):
    lines = rosters(doors, alice={"state": state})
    submitted.talk.far.channel = doors.channel("scheduler", POLICY, roster=lines)
    said = {"op": "renew-statement", "statement": later(submitted.first, alice).packed}
    submitted.talk.attack([said])
    assert submitted.talk.refused_by_server == ["sealed.author"]
    assert submitted.signed == submitted.first


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
    row = Talk.Row(header, tuple(frames))
    said = {"op": "renew-statement", "statement": renewed.packed}
    beside = {"op": "heartbeat-client", "client": "Client-1"}
    got = submitted.talk.attack([{**submission(header, frames), "expr_ser": row}, said, beside])
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
