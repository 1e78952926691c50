"""Renewed statements: what takes the place of a graph's statement, on a scheduler and on a worker.

No test waits for a clock: each sets the time that statements are compared with.
"""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
from dask._task_spec import Task, TaskRef
from distributed.protocol.serialize import ToPickle

from safeser.channel import Channel
from safeser.dask.sealed.node import VerifiedTask, nodes
from safeser.dask.sealed.renewal import Current, Statements
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
    element,
    rosters,
    row_of,
    run,
)

pytestmark = pytest.mark.usefixtures("clock")


# -- the statement --------------------------------------------------------------------------------


def test_a_renewed_statement_says_the_same_for_longer(signed, alice):
    first, renewed = signed.statement, later(signed, alice, 1000)
    assert renewed.verify()
    assert renewed.statement.says_same(first)
    assert first.says_same(renewed.statement)
    assert renewed.statement.issued == first.issued + 1000
    assert renewed.statement.expires == first.issued + 1000 + LIFETIME
    assert SignedStatement.parse(renewed.packed) == renewed


@pytest.mark.parametrize("after", [0, -10])
def test_a_statement_that_is_renewed_within_a_second_expires_later(signed, alice, after):
    renewed = later(signed, alice, after).statement
    assert renewed.expires == signed.statement.expires + 1
    assert renewed.is_current(signed.statement.issued)


def test_another_key_of_the_author_s_renews_it(doors, signed):
    successor = doors.identity("alice", "new")
    renewed = later(signed, successor)
    assert renewed.statement.signer == successor.verifying != signed.statement.signer
    assert renewed.statement.says_same(signed.statement)
    assert renewed.verify()


def test_no_other_identity_renews_it(doors, signed):
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


@pytest.mark.parametrize("name", OTHER)
def test_another_graph_is_not_the_same(signed, name):
    assert not signed.statement.says_same(replace(signed.statement, **{name: OTHER[name]}))


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


def test_a_task_that_was_not_renewed_fails_with_one_clear_error(stream, graph, clock):
    task = stream.honest(nodes(graph)["x"])["run_spec"]
    clock(LIFETIME + 1)
    with pytest.raises(PolicyDenied) as caught:
        task({})
    assert caught.value.rule == "sealed.expired"
    assert "Submit it again" in caught.value.fix
    assert stream.refusals == ["sealed.expired"]


def test_a_task_that_is_sent_later_brings_the_renewal_to_those_that_wait(
    stream, graph, alice, clock
):
    made = nodes(graph)
    waiting = stream.honest(made["y"])["run_spec"]
    graph.current.take(later(graph.signed, alice))
    stream.honest(made["x"])
    clock(LIFETIME + 1)
    assert waiting({"x": [1, 2]}) == 3


def test_a_scheduler_sends_the_renewed_statement_from_then_on(stream, graph, alice, clock):
    graph.current.take(later(graph.signed, alice))
    clock(LIFETIME + 1)
    task = stream.honest(nodes(graph)["x"])["run_spec"]
    with pytest.raises(Ran):
        task({})


def test_a_task_with_the_first_statement_does_not_take_the_renewal_back(
    stream, graph, alice, clock
):
    first = graph.signed
    made = nodes(graph)
    waiting = stream.honest(made["y"])["run_spec"]
    told(stream, later(first, alice).packed)
    got = stream.hostile(row_of(made["x"]), key="x")
    assert isinstance(got[0]["run_spec"], VerifiedTask)
    clock(LIFETIME + 1)
    assert waiting({"x": [1, 2]}) == 3


def of_another_graph(graph, alice, doors, sealed):
    other = sealed({"x": Task("x", run)}).signed
    same_id = replace(later(other, alice).statement, graph=graph.signed.statement.graph)
    return same_id.signed_by(alice), "sealed.graph-id"


def by_the_scheduler(graph, alice, doors, sealed):
    own = doors.identity("scheduler")
    said = replace(later(graph.signed, alice).statement, signer=own.verifying)
    return said.signed_by(own), "sealed.author"


def as_the_scheduler(graph, alice, doors, sealed):
    own = doors.identity("scheduler")
    said = replace(later(graph.signed, alice).statement, author="scheduler", signer=own.verifying)
    return said.signed_by(own), "sealed.graph-id"


def with_alice_s_key_named(graph, alice, doors, sealed):
    return later(graph.signed, alice).statement.signed_by(doors.identity("scheduler")), (
        "sealed.signature"
    )


def for_another_cluster(graph, alice, doors, sealed):
    said = altered(graph.signed, alice, audience=PrivateKey.generate().public)
    return said, "sealed.graph-id"


def longer_than_statements_are(graph, alice, doors, sealed):
    said = altered(graph.signed, alice, expires=graph.signed.statement.expires + 10 * LIFETIME)
    return said, "sealed.statement"


def older(graph, alice, doors, sealed):
    statement = graph.signed.statement
    return altered(graph.signed, alice, issued=statement.issued, expires=NOW + 60), "sealed.renewal"


def of_tomorrow(graph, alice, doors, sealed):
    return later(graph.signed, alice, LIFETIME), "sealed.expired"


HOSTILE = [
    of_another_graph,
    by_the_scheduler,
    as_the_scheduler,
    with_alice_s_key_named,
    for_another_cluster,
    longer_than_statements_are,
    older,
    of_tomorrow,
]


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_scheduler_renews_nothing(stream, graph, alice, doors, sealed, clock, attack):
    task = stream.honest(nodes(graph)["x"])["run_spec"]
    statement, rule = attack(graph, alice, doors, sealed)
    assert told(stream, statement.packed) is Talk.SKIP
    assert stream.refusals == [rule]
    with pytest.raises(Ran):  # nothing else is disturbed
        task({})
    clock(LIFETIME + 1)
    with pytest.raises(PolicyDenied) as caught:
        task({})
    assert caught.value.rule == "sealed.expired"


def test_an_author_whom_policy_does_not_list_renews_nothing(doors, graph, alice):
    text = POLICY.replace("authors: [group:engineers]", "authors: [group:guests]")
    stream = Stream(doors, text)
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


def test_current_takes_only_what_expires_later(signed, alice):
    current = Current(signed)
    assert not current.take(signed)
    assert current.take(later(signed, alice))


def test_an_element_of_a_worker_that_has_no_tasks_is_dropped_with_others_kept(stream, graph, alice):
    node = nodes(graph)["x"]
    told_both = [
        {"op": "statement-renewed", "statement": later(graph.signed, alice).packed},
        element(run_spec=ToPickle(node)),
    ]
    [got] = stream.talk.reply(told_both)
    assert isinstance(got["run_spec"], VerifiedTask)
