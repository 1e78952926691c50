"""Whose signature counts where, on both ways: from an author to a scheduler, and to a worker.

The scheduler here holds its own keys and says what it likes. Nothing that it says may run but what
a listed author signed for it, as it was signed, and each refusal is in the worker's log.
"""

from __future__ import annotations

import datetime
import pickle
import time
from dataclasses import replace

import msgpack
import pytest
from dask._task_spec import Alias, DataNode, Task, TaskRef
from distributed.protocol.serialize import ToPickle

from safeser.channel import Channel
from safeser.dask.sealed.call import Sent
from safeser.dask.sealed.node import VerifiedTask, nodes
from safeser.dask.sealed.statement import LIFETIME
from safeser.dask.sealed.verification import require_signed
from safeser.errors import PolicyDenied, SafeserError
from safeser.identity import KeyState, PrivateKey, Roster, RosterEntry, SigningKey
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import POLICY

HEADER = {"serializer": "sealed"}
PICKLE = {"serializer": "pickle", "writeable": []}
DAY = datetime.date(2026, 1, 1)


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


def restated(node, identity, **changed):
    """Return *node*'s call under another statement."""
    call = node.call
    return replace(call, signed=replace(call.signed.statement, **changed).signed_by(identity))


def test_what_a_listed_author_signed_runs(stream, author):
    got = stream.honest(author()["x"])
    assert type(got["run_spec"]) is VerifiedTask
    with pytest.raises(Ran):
        got["run_spec"]({})
    assert not stream.refusals
    [admitted] = [each for each in stream.talk.near.audit.events if each["permitted"]]
    assert (admitted["author"], admitted["family"]) == ("alice", "sealed")


def test_a_hostile_scheduler_s_frames_run_as_well_where_they_are_honest(stream, author):
    """What all attacks below have changed is what they are refused for."""
    [got] = stream.hostile(row_of(author()["x"]))
    with pytest.raises(Ran):
        got["run_spec"]({})


def refused(stream, row, rule, **changed):
    does_not_run(stream.hostile(row, **changed))
    assert stream.refusals[-1:] == [rule]


@pytest.mark.parametrize("name", ["scheduler", "worker", "nanny", "bob"])
def test_a_principal_that_the_context_does_not_list_is_no_author(stream, author, doors, name):
    """The scheduler's own identity has a signing key, too: a thief of it signs by that."""
    refused(stream, row_of(author(name)["x"]), "author.relayed")


@pytest.mark.parametrize("name", ["scheduler", "bob"])
def test_nobody_signs_in_another_s_name(stream, author, doors, name):
    liar = doors.identity(name)
    node = author()["x"]
    in_the_name = restated(node, liar, signer=liar.verifying)
    refused(stream, row_of(node, signed=in_the_name.signed), "sealed.author")
    with_the_key = restated(node, liar)
    refused(stream, row_of(node, signed=with_the_key.signed), "sealed.signature")


def test_a_key_that_no_roster_lists_signs_nothing(stream, author, doors):
    thief = doors.identity("alice", signing=SigningKey.generate())
    refused(stream, row_of(author(identity=thief)["x"]), "sealed.author")


def test_a_statement_for_another_scheduler_does_not_count(stream, author, doors):
    for audience in (PrivateKey.generate().public, doors.identity("worker").public):
        refused(stream, row_of(author(audience=audience)["x"]), "sealed.audience")


def test_a_statement_counts_from_its_issue_to_its_expiry(stream, author, alice):
    now = int(time.time())
    for issued in (now - LIFETIME - 10, now + 1000):
        call = restated(author()["x"], alice, issued=issued, expires=issued + LIFETIME)
        refused(stream, row_of(author()["x"], signed=call.signed), "sealed.expired")


def test_a_signature_over_something_else_does_not_count(stream, author, alice):
    node = author()["x"]
    signed = node.call.signed
    for signature in (bytes(64), alice.sign(signed.data), alice.sign(b"x" + signed.data)):
        changed = replace(signed, signature=signature)
        refused(stream, row_of(node, signed=changed), "sealed.signature")


def test_a_leaf_of_another_graph_does_not_run_under_this_statement(stream, author):
    one, two = author()["x"], author(tasks={"x": Task("x", run, 1)})["x"]
    refused(stream, row_of(one, signed=two.call.signed), "sealed.inclusion")
    refused(stream, row_of(one, leaf=two.call.leaf), "sealed.inclusion")


def test_another_tree_head_or_definition_does_not_run(stream, author):
    node = author()["x"]
    call = node.call
    tree = msgpack.packb([2, "x", False, [1, 0], [5], []])
    refused(stream, row_of(node, leaf=call.leaf._replace(tree=tree)), "sealed.inclusion")
    other = pickle.dumps(print)
    refused(stream, row_of(node, definitions=(other,)), "sealed.inclusion")
    head = replace(call.head, digests=(b"d" * 32,))
    refused(stream, row_of(node, head=head, definitions=(other,)), "sealed.inclusion")


@pytest.mark.parametrize("key", ["y", ("x", 0), 0, None])
def test_a_task_runs_under_no_other_key(stream, author, key):
    does_not_run(stream.hostile(row_of(author()["x"]), key=key))
    assert stream.refusals[-1] in ("sealed.moved", "operation.field-shape")


def test_a_task_runs_with_all_of_its_inputs_and_gets_no_others(stream, author):
    tasks = {"x": Task("x", run, TaskRef("a"), TaskRef("b"))}
    node = author(tasks=tasks)["x"]
    for keys in ((), ("a",), ("a", "c")):
        who_has = dict.fromkeys(keys, ("safeser://127.0.0.1:1",))
        nbytes = dict.fromkeys(keys, 1)
        refused(stream, row_of(node), "sealed.moved", who_has=who_has, nbytes=nbytes)
    got = stream.honest(node)
    with pytest.raises(Ran):
        got["run_spec"]({"a": 1, "b": 2})


FORMS = ("bare", "opaque", "eager", "cloudpickle", "bytes", "eager-bytes", "author", "failed")


@pytest.mark.parametrize("name", FORMS)
def test_an_unsealed_task_does_not_run(stream, forms, name):
    got = stream.talk.attack_back([element(run_spec=forms[name])])
    does_not_run(got)
    assert stream.refusals


@pytest.mark.parametrize("value", [None, 5, "x", [1], {"x": 1}, b"x", True])
def test_plain_data_is_no_task(stream, value):
    does_not_run(stream.talk.attack_back([element(run_spec=value)]))
    row = Talk.Row(*Talk.in_msgpack(value))
    does_not_run(stream.talk.attack_back([element(run_spec=row)]))
    assert stream.refusals == ["sealed.required"] * 2


def test_a_task_without_a_run_spec_is_refused(stream):
    does_not_run(stream.talk.attack_back([element()]))
    assert stream.refusals == ["sealed.required"]


def test_where_pickles_of_data_pass_no_task_does(doors, author):
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
    """The control: the same message, and another policy."""
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


@pytest.mark.parametrize("field", ["annotations", "key", "priority", "nbytes", "actor", "span_id"])
def test_a_sealed_payload_stands_in_no_other_field(stream, author, field):
    node = author()["x"]
    row = row_of(node)
    value = {"x": row} if field in ("annotations", "nbytes") else row
    changed = {field: value, "run_spec": Talk.Eager(row)}
    does_not_run(stream.talk.attack_back([element(**changed)]))
    assert stream.refusals


@pytest.mark.parametrize(
    "op", ["acquire-replicas", "free-keys", "steal-request", "close", "unknown"]
)
def test_a_sealed_payload_stands_in_no_other_element(stream, author, op):
    row = row_of(author()["x"])
    for field in ("run_spec", "keys", "key", "data"):
        does_not_run(stream.talk.attack_back([{"op": op, field: Talk.Eager(row)}]))
        assert stream.refusals


@pytest.mark.parametrize(
    "message",
    [
        {"op": "run", "function": "row", "wait": True},
        {"op": "plugin-add", "plugin": "row", "name": "p"},
        {"op": "actor_execute", "actor": "x", "function": "f", "args": "row", "kwargs": "row"},
        {"op": "update_data", "data": {"x": "row"}, "report": False},
        {"op": "upload_file", "filename": "f.py", "data": "row", "load": True},
        {"op": "gather", "who_has": {"x": "row"}},
    ],
)
def test_a_sealed_payload_stands_in_no_request(doors, author, message):
    talk = Talk(doors, "scheduler", "worker", POLICY).greet()
    for row in (row_of(author()["x"]), Talk.Eager(row_of(author()["x"]))):
        said = {
            k: {"x": row} if isinstance(v, dict) else row if v == "row" else v
            for k, v in message.items()
        }
        talk.refuses({**said, "reply": True})


def test_a_failure_in_the_place_of_a_task_says_why(stream):
    """An honest scheduler says so where it may not send a task."""
    row = Talk.Row({"serializer": "sealed"}, (b"",), None, True)
    does_not_run(stream.hostile(row))
    assert stream.refusals


def test_one_refused_task_takes_no_other_with_it(stream, author):
    """The peer keeps what came with a task that it refuses: both ends have the same numbers."""
    good = author(tasks={i: Task(i, run, i) for i in range(3)})
    bad = author("bob", tasks={"x": Task("x", run, "other")})["x"]
    stream.honest(good[0])
    sent = stream.talk.server.sent
    got = stream.talk.attack_back(
        [element(run_spec=Talk.Eager(Talk.Row(HEADER, tuple(sent.frames(bad.call)))))]
    )
    does_not_run(got)
    sent.commit()
    for key in (1, 2):
        with pytest.raises(Ran):
            stream.honest(good[key])["run_spec"]({})


def test_a_task_that_the_scheduler_may_not_send_takes_no_other_with_it(stream, author):
    """It was never sent, so neither were its definitions: later numbers must not count them."""
    bad = author("bob", tasks={"b": Task("b", run, "other")})["b"]
    good = author(tasks={i: Task(i, run, [i] * 65) for i in range(3)})
    for node in (good[0], bad, good[1], bad, good[2]):
        got = stream.honest(node)
        if node is bad:
            does_not_run([got])
        else:
            with pytest.raises(Ran):
                got["run_spec"]({})
    assert "author.relayed" in stream.talk.refused_by_server


def test_a_batch_of_good_and_bad_tasks(stream, author):
    bad = author("bob", tasks={"b": Task("b", run, "other")})["b"]
    good = author(tasks={i: Task(i, run, i) for i in range(3)})
    batch = [good[0], bad, good[1], bad, good[2]]
    got = stream.talk.reply([element(node.key, run_spec=ToPickle(node)) for node in batch])
    ran = 0
    for each in got:
        if isinstance(each["run_spec"], VerifiedTask):
            with pytest.raises(Ran):
                each["run_spec"]({})
            ran += 1
    assert ran == 3


# -- while it waits -------------------------------------------------------------------------------


def rosters(doors, **states):
    lines = []
    for name in ("scheduler", "worker", "nanny", "alice", "bob"):
        entry = RosterEntry.of(doors.identity(name), created=DAY)
        lines.append(replace(entry, **states.get(name, {})))
    return Roster(tuple(lines))


STATES = {
    "retired": ({"state": KeyState.RETIRED}, False),
    "pending": ({"state": KeyState.PENDING}, False),
    "verify-only": ({"state": KeyState.VERIFY_ONLY}, True),
    "over": ({"not_after": datetime.date(2026, 1, 2)}, False),
    "not begun": ({"not_before": datetime.date(2999, 1, 1)}, False),
    "without a signing key": ({"verifying": None}, False),
}


@pytest.mark.parametrize("name", STATES)
def test_what_counts_is_the_roster_of_whoever_asks(doors, author, name):
    changed, counts = STATES[name]
    channel = doors.channel("worker", POLICY, roster=rosters(doors, alice=changed))
    signed = author()["x"].call.signed
    if counts:
        assert require_signed(signed, channel, scheduler="scheduler") == "alice"
        return
    with pytest.raises(PolicyDenied) as caught:
        require_signed(signed, channel, scheduler="scheduler")
    assert caught.value.rule == "sealed.author"


@pytest.mark.parametrize("name", ["retired", "pending", "over"])
def test_a_task_whose_author_was_retired_meanwhile_does_not_run(doors, stream, author, name):
    task = stream.honest(author()["x"])["run_spec"]
    near = stream.talk.near
    assert isinstance(near.channel, Channel)
    near.channel.adopt(roster=rosters(doors, alice=STATES[name][0]))
    before = len(near.audit.rules)
    with pytest.raises(PolicyDenied) as caught:
        task({})
    assert caught.value.rule == "sealed.author"
    assert near.audit.rules[before:] == ["sealed.author"]
    # Neither does anything else open it.
    for look in (
        lambda: task.func,
        lambda: task.args,
        lambda: task.kwargs,
        lambda: pickle.dumps(task),
    ):
        with pytest.raises(PolicyDenied):
            look()


SUBMITS = "sender: group:engineers\n    recipient: scheduler\n    submission: sealed\n"
WITHDRAWN = {
    "author.relayed": ("authors: [group:engineers]", "authors: [group:guests]"),
    "sealed.author": (SUBMITS, SUBMITS.replace("engineers", "guests")),
}


@pytest.mark.parametrize("rule", WITHDRAWN)
def test_a_task_whose_policy_was_withdrawn_meanwhile_does_not_run(stream, author, doors, rule):
    task = stream.honest(author()["x"])["run_spec"]
    near = stream.talk.near
    assert WITHDRAWN[rule][0] in POLICY
    text = POLICY.replace(*WITHDRAWN[rule]).replace("revision: 1", "revision: 2")
    near.channel.adopt(policy=doors.policy(text))
    with pytest.raises(PolicyDenied) as caught:
        task({})
    assert caught.value.rule == rule
    assert near.audit.rules[-1] == rule


def test_a_task_that_waited_past_its_expiry_does_not_run(stream, author, monkeypatch):
    task = stream.honest(author()["x"])["run_spec"]
    later = time.time() + LIFETIME + 1
    monkeypatch.setattr("safeser.dask.sealed.verification.time.time", lambda: later)
    with pytest.raises(PolicyDenied) as caught:
        task({})
    assert caught.value.rule == "sealed.expired"


def test_a_plugin_looks_at_the_call_that_runs(stream, author):
    changing = []
    task = stream.honest(author(tasks={"x": Task("x", lambda v, k: (v, k), changing, k=1)})["x"])[
        "run_spec"
    ]
    assert task.func(1, 2) == (1, 2)
    assert task.args == ([],)
    assert task.kwargs == {"k": 1}
    assert task({}) == ([], 1)
    assert "alice" in repr(task)
    assert task.__sizeof__() > 0


def test_a_worker_s_own_executor_gets_what_was_verified(stream, author):
    task = stream.honest(author(tasks={"x": Task("x", len, [1, 2])})["x"])["run_spec"]
    assert pickle.loads(pickle.dumps(task))({}) == 2


def test_a_definition_that_is_not_installed_here_is_one_clear_error(stream, author, monkeypatch):
    import sys
    import types

    module = types.ModuleType("only_of_the_author")
    exec("def f(): return 1", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_of_the_author", module)
    task = stream.honest(author(tasks={"x": Task("x", module.f)})["x"])["run_spec"]
    monkeypatch.delitem(sys.modules, "only_of_the_author")
    with pytest.raises(SafeserError) as caught:
        task({})
    assert caught.value.rule == "families.build"
    assert "ModuleNotFoundError" in caught.value.message


def test_a_task_that_waits_for_inputs_is_opened_when_it_arrives_and_asks_again(
    doors, stream, author
):
    """Its module may register the classes of those inputs."""
    node = author(tasks={"x": Task("x", sum, TaskRef("a"))})["x"]
    task = stream.honest(node)["run_spec"]
    assert task._opened is not None
    near = stream.talk.near
    near.channel.adopt(roster=rosters(doors, alice=STATES["retired"][0]))
    with pytest.raises(PolicyDenied) as caught:
        task({"a": [1, 2]})
    assert caught.value.rule == "sealed.author"
