"""Renewed statements: what takes the place of a graph's statement, on a scheduler and on a worker.

No test waits for a clock: each sets the time that statements are compared with.
"""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
from dask._task_spec import Task, TaskRef

from safeser.channel import Channel
from safeser.dask.sealed.node import nodes
from safeser.dask.sealed.renewal import Statements
from safeser.dask.sealed.statement import LIFETIME, RENEWED_AFTER, SignedStatement
from safeser.errors import ConfigError, PolicyDenied, SafeserError
from safeser.identity import Identity, KeyState, PrivateKey, Roster, RosterEntry
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import NOW, POLICY
from tests.dask.sealed.renewing import altered, later
from tests.dask.sealed.test_verification import (
    DAY,
    Ran,
    Stream,
    rosters,
    row_of,
    run,
)

pytestmark = pytest.mark.usefixtures("clock")


@pytest.mark.parametrize(
    ("after", "until"),
    [(1000, 1000 + LIFETIME), (0, LIFETIME + 1), (-10, LIFETIME + 1)],
)
def test_a_renewed_statement_says_the_same_for_longer(doors, signed, alice, after, until):
    """By any key of the author's: the same graph, and an expiry that is later."""
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
        with pytest.raises(PolicyDenied) as caught:
            ask(other)
        assert caught.value.rule == "sealed.graph-id"
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
    """Queued, or waiting for inputs: both were handed over before the renewal."""
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
        with pytest.raises(PolicyDenied) as caught:
            task(inputs)
        assert caught.value.rule == "sealed.expired"


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
#: a worker asks what a scheduler asks (test_renewal_requests.py).
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
    with pytest.raises(PolicyDenied) as caught:
        task({})
    assert caught.value.rule == "sealed.expired"


def test_no_author_whom_policy_does_not_list_renews_anything(doors, graph, alice):
    stream = Stream(doors, POLICY.replace("authors: [group:engineers]", "authors: [bob]"))
    assert told(stream, later(graph.signed, alice).packed) is Talk.SKIP
    assert stream.refusals == ["author.relayed"]


def test_a_retired_key_renews_nothing_and_another_of_its_author_s_does(doors, graph, clock):
    """The key of the first statement is retired after its author has signed by the next one."""
    successor = doors.identity("alice", "new")
    stream = Stream(doors)
    task = stream.honest(nodes(graph)["x"])["run_spec"]
    channel = stream.talk.near.channel
    assert isinstance(channel, Channel)
    lines = rosters(doors, alice={"state": KeyState.RETIRED}).entries
    channel.adopt(roster=Roster((*lines, RosterEntry.of(successor, created=DAY))))
    with pytest.raises(PolicyDenied) as caught:
        task({})
    assert caught.value.rule == "sealed.author"
    told(stream, later(graph.signed, doors.identity("alice")).packed)
    assert stream.refusals[-1] == "sealed.author"
    told(stream, later(graph.signed, successor).packed)
    with pytest.raises(Ran):
        task({})


def test_a_worker_keeps_nothing_of_graphs_whose_tasks_it_does_not_have(stream, sealed, alice):
    kept = stream.talk.asker._statements
    for number in range(50):
        signed = sealed({number: Task(number, run)}).signed
        assert told(stream, later(signed, alice).packed) is Talk.SKIP
    assert len(kept) == 0
    assert stream.refusals == []
    graph = sealed({i: Task(i, run) for i in range(20)})
    tasks = [stream.honest(node)["run_spec"] for node in nodes(graph).values()]
    assert len(kept) == 1
    del tasks
    gc.collect()
    assert len(kept) == 0


def test_no_graph_on_a_worker_takes_the_id_of_another(stream, graph, sealed, alice):
    task = stream.honest(nodes(graph)["x"])["run_spec"]
    with pytest.MonkeyPatch.context() as patch:
        taken = graph.signed.statement.graph
        patch.setattr("safeser.dask.sealed.graph.secrets.token_bytes", lambda _: taken)
        other = nodes(sealed({"z": Task("z", run)}))["z"]
    [got] = stream.hostile(row_of(other), key="z")
    with pytest.raises(SafeserError) as caught:
        got["run_spec"]({})
    assert caught.value.rule == "sealed.graph-id"
    with pytest.raises(Ran):
        task({})


def test_a_renewal_is_no_element_of_a_client_s_stream_or_request(doors, graph, alice):
    packed = later(graph.signed, alice).packed
    for sender, op in (("alice", "statement-renewed"), ("worker", "renew-statement")):
        talk = Talk(doors, sender, "scheduler", POLICY).greet()
        talk = talk.client_stream() if sender == "alice" else talk.worker_stream()
        assert talk.attack([{"op": op, "statement": packed}]) is Talk.SKIP
        assert talk.refused_by_server == ["operation.unknown"]
    for server in ("scheduler", "worker"):
        for op in ("renew-statement", "statement-renewed"):
            talk = Talk(doors, "alice", server, POLICY).greet()
            talk.refuses({"op": op, "statement": packed})
