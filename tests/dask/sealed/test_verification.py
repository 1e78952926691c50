"""Whose signature counts where, on both ways: from an author to a scheduler, and to a worker.

The scheduler here holds its own keys and says what it likes. Nothing that it says may run but what
a listed author signed for it, as it was signed, and each refusal is in the worker's log.
"""

from __future__ import annotations

import pickle
import sys
import time
import types
from dataclasses import replace

import msgpack
import pytest
from dask._task_spec import Alias, DataNode, Task, TaskRef
from distributed.protocol.serialize import ToPickle

from safeser.dask.contents import opened_graph
from safeser.dask.sealed.call import Sent
from safeser.dask.sealed.node import Sealed, VerifiedTask, nodes
from safeser.dask.sealed.statement import LIFETIME
from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.key_pairs import PrivateKey
from safeser.identity import Identity, KeyState, SigningKey
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import POLICY
from tests.dask.sealed.graphs import written
from tests.refusal import refusal

HEADER = {"serializer": "sealed"}
PICKLE = {"serializer": "pickle", "writeable": []}


class Ran(Exception):
    """What every task here raises where it runs."""


def run(*_):
    raise Ran


def element(key="x", who_has=None, **changed):
    return {
        "op": "compute-task",
        "key": key,
        "priority": (0, 1),
        "stimulus_id": "s",
        "run_id": 1,
        "who_has": who_has or {},
        "nbytes": dict.fromkeys(who_has or {}, 1),
        "resource_restrictions": {},
        "actor": False,
        "annotations": {},
        **changed,
    }


class Stream:
    """A worker and a scheduler that it registered with."""

    def __init__(self, doors, policy=POLICY, **options):
        self.talk = Talk(doors, "worker", "scheduler", policy, **options).greet().worker_stream()

    def honest(self, node, **changed):
        who_has = dict.fromkeys(node.dependencies, ("safeser://127.0.0.1:1",))
        told = element(node.key, who_has, **{"run_spec": ToPickle(node), **changed})
        [got] = self.talk.reply([told])
        return got

    def hostile(self, row, **changed):
        made = element(**{"run_spec": Talk.Eager(row), **changed})
        got = self.talk.attack_back([made])
        return got

    @property
    def refusals(self):
        return self.talk.refused_by_asker


def does_not_run(got):
    """Check that nothing of the author's is in what Dask's worker gets."""
    if got is Talk.SKIP:
        return
    for each in got:
        task = each.get("run_spec")
        assert not isinstance(task, VerifiedTask)
        if task is not None and callable(task):
            with pytest.raises(SafeserError):
                task({})


@pytest.fixture
def stream(doors):
    return Stream(doors)


@pytest.fixture
def author(doors, sealed):
    """Return what seals one task that raises :class:`Ran` as *name*, whose key may be another."""

    def made(name="alice", tasks=None, *, identity=None, **options):
        graph = sealed(tasks or {"x": Task("x", run)}, identity or doors.identity(name), **options)
        return nodes(graph)

    return made


def row_of(node, **changed):
    """Return the task as a scheduler sends it that has the worker forget all that it kept."""
    first, *parts = Sent().frames(replace(node.call, **changed))
    *told, _ = msgpack.unpackb(first, strict_map_key=False)
    return Talk.Row(HEADER, (msgpack.packb([*told, True], use_bin_type=True), *parts))


def test_what_a_listed_author_signed_runs(stream, author):
    got = stream.honest(author()["x"])
    assert type(got["run_spec"]) is VerifiedTask
    with pytest.raises(Ran):
        got["run_spec"]({})
    assert not stream.refusals
    [admitted] = [each for each in stream.talk.near.audit.events if each["permitted"]]
    assert (admitted["author"], admitted["family"]) == ("alice", "sealed")
    # So do the frames of a hostile scheduler: what attacks below have changed is all that is wrong.
    [got] = stream.hostile(row_of(author()["x"]))
    with pytest.raises(Ran):
        got["run_spec"]({})


class By:
    """What a scheduler that was taken over has to forge tasks from."""

    def __init__(self, doors, author):
        self.author, self.identity = author, doors.identity
        self.scheduler = doors.identity("scheduler")
        self.node = author()["x"]
        self.call = self.node.call
        self.head = replace(self.call.head, digests=(b"d" * 32,))

    def sealed(self, name="alice", **options):
        return row_of(self.author(name, **options)["x"])

    def restated(self, by, **changed):
        """Return the call under another statement, which *by* signed."""
        statement = replace(self.call.signed.statement, **changed)
        return row_of(self.node, signed=statement.signed_by(by))

    def issued(self, after):
        at = int(time.time()) + after
        return self.restated(self.identity("alice"), issued=at, expires=at + LIFETIME)

    def signature(self, signature):
        return row_of(self.node, signed=replace(self.call.signed, signature=signature))


THIEF = SigningKey.generate()
PRINT = (pickle.dumps(print),)

#: Tasks that no listed author signed as they are, by the rule by which each ends.
FORGED = {
    # The scheduler's own identity has a signing key, too: a thief of it signs by that.
    "author.relayed": {
        "by the scheduler": lambda by: by.sealed("scheduler"),
        "by a guest": lambda by: by.sealed("bob"),
    },
    "sealed.author": {
        "scheduler as alice": lambda by: by.restated(by.scheduler, signer=by.scheduler.verifying),
        "not listed": lambda by: by.sealed(identity=by.identity("alice", signing=THIEF)),
    },
    "sealed.audience": {
        "for another cluster": lambda by: by.sealed(audience=PrivateKey.generate().public),
        "for a worker": lambda by: by.sealed(audience=by.identity("worker").public),
    },
    "sealed.expired": {
        "long ago": lambda by: by.issued(-LIFETIME - 10),
        "not yet": lambda by: by.issued(1000),
    },
    "sealed.signature": {
        "scheduler with her key": lambda by: by.restated(by.scheduler),
        "no signature": lambda by: by.signature(bytes(64)),
        "a signature for no purpose": lambda by: by.signature(
            by.identity("alice").sign(by.call.signed.data)
        ),
    },
    # No other part of a task may be exchanged either: see test_call.py.
    "sealed.inclusion": {
        "another definition": lambda by: row_of(by.node, definitions=PRINT),
        "another head": lambda by: row_of(by.node, head=by.head, definitions=PRINT),
    },
}


@pytest.mark.parametrize(
    ("rule", "name"), [(rule, name) for rule, forms in FORGED.items() for name in forms]
)
def test_a_forged_task_does_not_run(stream, author, doors, rule, name):
    does_not_run(stream.hostile(FORGED[rule][name](By(doors, author))))
    assert stream.refusals == [rule]


@pytest.mark.parametrize("key", ["y", ("x", 0), 0, None])
def test_a_task_runs_under_no_other_key(stream, author, key):
    does_not_run(stream.hostile(row_of(author()["x"]), key=key))
    assert stream.refusals[-1] in ("sealed.moved", "operation.field-shape")


def test_a_task_runs_with_all_of_its_inputs_and_gets_no_others(stream, author):
    node = author(tasks={"x": Task("x", run, TaskRef("a"), TaskRef("b"))})["x"]
    for keys in ((), ("a",), ("a", "c")):
        who_has = dict.fromkeys(keys, ("safeser://127.0.0.1:1",))
        nbytes = dict.fromkeys(keys, 1)
        does_not_run(stream.hostile(row_of(node), who_has=who_has, nbytes=nbytes))
        assert stream.refusals[-1:] == ["sealed.moved"]
    got = stream.honest(node)
    with pytest.raises(Ran):
        got["run_spec"]({"a": 1, "b": 2})


FORMS = ("bare", "opaque", "eager", "cloudpickle", "bytes", "eager-bytes", "author", "failed")


@pytest.mark.parametrize("name", FORMS)
def test_an_unsealed_task_does_not_run(stream, forms, name):
    does_not_run(stream.talk.attack_back([element(run_spec=forms[name])]))
    assert stream.refusals


@pytest.mark.parametrize(
    "changed", [{}, {"run_spec": [1]}, {"run_spec": Talk.Row(*Talk.in_msgpack({"x": 1}))}]
)
def test_plain_data_is_no_task(stream, changed):
    does_not_run(stream.talk.attack_back([element(**changed)]))
    assert stream.refusals == ["sealed.required"]


def test_where_pickles_of_data_pass_no_task_does(doors):
    """A policy may let data through by restricted pickle: a class that it lists is no task."""
    text = POLICY.replace(
        "    submission: sealed\n    serializers: [dask, msgpack]\n"
        "    deserializers: [dask, msgpack]\n    operations: {grant: [basic, cluster,",
        "    submission: sealed\n    serializers: [dask, msgpack, pickle]\n"
        "    deserializers: [dask, msgpack, pickle]\n"
        "    pickle: {profile: [data, functions]}\n"
        "    operations: {grant: [basic, cluster,",
    )
    assert text != POLICY
    stream = Stream(doors, text)
    for task in (Task("x", len, [1]), len, Alias("x", "y"), DataNode("x", 1), {"a": 1}):
        row = Talk.Row(PICKLE, (pickle.dumps(task),))
        does_not_run(stream.talk.attack_back([element(run_spec=Talk.Eager(row))]))
        assert stream.refusals[-1] == "sealed.required"


def test_under_code_an_unsealed_task_runs(doors):
    stream = Stream(doors, "demo")
    row = Talk.Row({**PICKLE, "serializer": "cloudpickle"}, (pickle.dumps(Task("x", len, [1])),))
    [got] = stream.talk.attack_back([element(run_spec=Talk.Eager(row))])
    assert got["run_spec"]({}) == 1


def test_a_sealed_task_needs_a_policy_that_says_sealed(doors, author):
    for text in (
        "demo",
        POLICY.replace("    submission: sealed\n", "", 1)
        .replace("    authors: [group:engineers]\n", "", 1)
        .replace(", worker-run, worker-plugins]}", "]}", 1),
    ):
        stream = Stream(doors, text)
        does_not_run(stream.hostile(row_of(author()["x"])))
        assert stream.refusals


@pytest.mark.parametrize(
    "made",
    [
        *(
            lambda row, field=field: element(**{field: row, "run_spec": Talk.Eager(row)})
            for field in ("key", "priority", "actor", "span_id")
        ),
        lambda row: element(annotations={"x": row}, run_spec=Talk.Eager(row)),
        lambda row: element(nbytes={"x": row}, run_spec=Talk.Eager(row)),
        lambda row: {"op": "acquire-replicas", "data": Talk.Eager(row)},
        lambda row: {"op": "steal-request", "run_spec": Talk.Eager(row)},
        # A failure in the place of a task: what an honest scheduler says if it may not send it.
        lambda row: element(run_spec=Talk.Eager(Talk.Row(HEADER, (b"",), None, True))),
    ],
)
def test_a_sealed_payload_stands_in_no_other_place(stream, author, made):
    does_not_run(stream.talk.attack_back([made(row_of(author()["x"]))]))
    assert stream.refusals


def test_a_sealed_payload_stands_in_no_request(doors, author):
    talk = Talk(doors, "scheduler", "worker", POLICY).greet()
    for row in (row_of(author()["x"]), Talk.Eager(row_of(author()["x"]))):
        talk.refuses({"op": "run", "function": row, "wait": True, "reply": True})
        talk.refuses({"op": "update_data", "data": {"x": row}, "report": False, "reply": True})


def test_one_refused_task_takes_no_other_with_it(stream, author):
    """The peer keeps what came with a task that it refuses: both ends have the same numbers.

    What the scheduler may not send was never sent, so neither were its definitions.
    """
    good = author(tasks={i: Task(i, run, [i] * 65) for i in range(5)})
    bad = author("bob", tasks={"b": Task("b", run, "other")})["b"]
    stream.honest(good[0])
    sent = stream.talk.server.sent
    row = Talk.Row(HEADER, tuple(sent.frames(bad.call)))
    does_not_run(stream.talk.attack_back([element(run_spec=Talk.Eager(row))]))
    sent.commit()
    for batch in ([good[1]], [bad], [good[2], bad, good[3], bad, good[4]]):
        told = [element(node.key, run_spec=ToPickle(node)) for node in batch]
        for node, got in zip(batch, stream.talk.reply(told), strict=True):
            if node is bad:
                does_not_run([got])
            else:
                with pytest.raises(Ran):
                    got["run_spec"]({})
    assert "author.relayed" in stream.talk.refused_by_server


# -- while it waits -------------------------------------------------------------------------------


SUBMITS = "sender: group:engineers\n    recipient: scheduler\n    submission: sealed\n"
#: What changes while a task waits: (how, by which rule the task ends).
MEANWHILE = [
    ({"state": KeyState.RETIRED}, "sealed.author"),
    (("authors: [group:engineers]", "authors: [group:guests]"), "author.relayed"),
    ((SUBMITS, SUBMITS.replace("engineers", "guests")), "sealed.author"),
    (LIFETIME + 1, "sealed.expired"),
]


@pytest.mark.parametrize(("change", "rule"), MEANWHILE)
def test_a_task_that_counts_no_longer_does_not_run(
    doors, stream, author, monkeypatch, change, rule
):
    task = stream.honest(author()["x"])["run_spec"]
    near = stream.talk.near
    if isinstance(change, dict):
        near.channel.adopt(roster=doors.roster(near.policy, alice=change))
    elif isinstance(change, tuple):
        assert change[0] in POLICY
        text = POLICY.replace(*change).replace("revision: 1", "revision: 2")
        near.channel.adopt(policy=doors.policy(text))
    else:
        later = time.time() + change
        monkeypatch.setattr("safeser.dask.sealed.verification.time.time", lambda: later)
    before = len(near.audit.rules)
    with refusal(PolicyDenied, rule):
        task({})
    assert near.audit.rules[before:] == [rule]
    # Neither does anything else open it.
    for name in ("func", "args", "kwargs"):
        with pytest.raises(PolicyDenied):
            getattr(task, name)
    with pytest.raises(PolicyDenied):
        pickle.dumps(task)


def test_plugins_and_executors_get_the_call_that_was_verified(stream, author):
    tasks = {"x": Task("x", lambda v, k: (v, k), [], k=1)}
    task = stream.honest(author(tasks=tasks)["x"])["run_spec"]
    assert task.func(1, 2) == (1, 2)
    assert (task.args, task.kwargs, task({})) == (([],), {"k": 1}, ([], 1))
    assert "alice" in repr(task)
    assert task.__sizeof__() > 0
    task = stream.honest(author(tasks={"x": Task("x", len, [1, 2])})["x"])["run_spec"]
    assert pickle.loads(pickle.dumps(task))({}) == 2


def test_a_definition_that_is_not_installed_here_is_one_clear_error(stream, author, monkeypatch):
    module = types.ModuleType("only_of_the_author")
    exec("def f(): return 1", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_of_the_author", module)
    task = stream.honest(author(tasks={"x": Task("x", module.f)})["x"])["run_spec"]
    monkeypatch.delitem(sys.modules, "only_of_the_author")
    with refusal(SafeserError, "families.build") as caught:
        task({})
    assert "ModuleNotFoundError" in caught.value.message


def test_a_task_that_waits_for_inputs_is_opened_when_it_arrives_and_asks_again(
    doors, stream, author
):
    node = author(tasks={"x": Task("x", sum, TaskRef("a"))})["x"]
    task = stream.honest(node)["run_spec"]
    assert task._opened is not None
    near = stream.talk.near
    near.channel.adopt(roster=doors.roster(near.policy, alice={"state": KeyState.RETIRED}))
    with refusal(PolicyDenied, "sealed.author"):
        task({"a": [1, 2]})


# -- to a scheduler: what is refused, and what it gets as data -------------------------------------


#: Who knows alice's name and no key that a roster lists.
UNLISTED = Identity("alice", PrivateKey.generate(), SigningKey.generate())


def submission(header, frames, **changed):
    return {
        "op": "update-graph",
        "expr_ser": Talk.Row(header, tuple(frames)),
        "keys": ["x"],
        "internal_priority": None,
        "submitting_task": None,
        "fifo_timeout": "100ms",
        "actors": None,
        "code": (),
        "annotations": {},
        "span_metadata": None,
        **changed,
    }


@pytest.fixture
def submitted(doors):
    """Return what one principal submits that another signed, as the scheduler reads it."""

    scheduler = doors.identity("scheduler").public

    def made(
        author="alice", sender="alice", *, policy=POLICY, identity=None, audience=None, **changed
    ):
        talk = Talk(doors, sender, "scheduler", policy).greet().client_stream()
        signer = identity or doors.identity(author)
        header, frames = written({"x": Task("x", run)}, signer, audience or scheduler)
        return talk, talk.attack([submission(header, frames, **changed)])

    return made


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, None),
        ({"identity": UNLISTED}, "sealed.author"),
        ({"author": "bob", "sender": "bob"}, "operation.not-granted"),
        ({"author": "bob"}, "sealed.author"),
        ({"author": "scheduler"}, "sealed.author"),
        ({"author": "alice", "sender": "bob"}, "operation.not-granted"),
        ({"audience": PrivateKey.generate().public}, "sealed.audience"),
        ({"policy": "demo"}, "context.family"),
        ({"annotations": {"priority": 1 << 63}}, "submission.annotation"),
    ],
)
def test_what_may_not_be_submitted_is_refused(submitted, options, rule):
    talk, got = submitted(**options)
    if rule is None:
        [update] = got
        assert opened_graph.is_opened(update["expr_ser"])
        built = opened_graph.own_functions(None)[1](None, update["expr_ser"].frames)
        assert all(isinstance(task, Sealed) for task in built.__dask_graph__().values())
        assert not talk.refused_by_server
    else:
        assert got is Talk.SKIP
        assert talk.refused_by_server[-1] == rule


@pytest.mark.parametrize(
    "options", [{"author": "bob", "sender": "bob"}, {"author": "bob"}, {"policy": "demo"}]
)
def test_nothing_is_decompressed_of_what_may_not_be_submitted(submitted, monkeypatch, options):
    monkeypatch.setattr("safeser.dask.sealed.arrival.parse", lambda *_: pytest.fail("it was read"))
    _, got = submitted(**options)
    assert got is Talk.SKIP


@pytest.mark.parametrize("name", FORMS)
def test_an_unsealed_graph_is_not_opened(doors, forms, name):
    talk = Talk(doors, "alice", "scheduler", POLICY).greet().client_stream()
    got = talk.attack([submission({}, [], expr_ser=forms[name])])
    assert got is Talk.SKIP
    assert talk.refused_by_server


def test_a_sealed_graph_stands_in_no_other_field(doors, alice, audience):
    talk = Talk(doors, "alice", "scheduler", POLICY).greet().client_stream()
    header, frames = written({"x": Task("x", run)}, alice, audience)
    row = Talk.Row(header, tuple(frames))
    for field in ("annotations", "code"):
        talk.refuses([submission(header, frames, **{field: {"x": row}})])
    talk = Talk(doors, "alice", "scheduler", POLICY).greet()
    talk.refuses({"op": "scatter", "data": {"x": row}, "reply": True})
