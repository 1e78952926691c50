"""A scheduler that was taken over runs no code on workers under ``dask-cluster``."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import os
import pickle
import time
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import pytest
from dask._expr import LLGExpr
from dask._task_spec import Task
from distributed.protocol.serialize import ToPickle

from safeser.dask.sealed.call import HEADER, Sent
from safeser.dask.sealed.graph import parse, write_out
from safeser.dask.sealed.node import nodes
from safeser.dask.sealed.value import MAGIC, Requests, SignedValue, sign_request
from safeser.errors import PolicyDenied
from safeser.identity import Identity, PrivateKey, Roster, SigningKey
from safeser.policy.ready import locate
from safeser.values import Kind, Limits
from tests.conftest import Doors
from tests.dask.conftest import Talk

PICKLE = {"serializer": "pickle", "writeable": []}


class Signing(Doors):
    """Identities with signing keys, as ``keys init`` makes them for everybody."""

    def identity(self, principal, key="", *, signing=None):
        seed = super().identity(f"{principal}-signs", key).public.raw
        return super().identity(principal, key, signing=signing or SigningKey.from_bytes(seed))

    def roster(self, policy):
        lines = []
        for name in policy.principals:
            own = self.identity(name)
            lines.append(f"{own.public.text} {own.verifying.text} {name} active 2026-01-01")
        return Roster.parse("\n".join(lines) + "\n")


@pytest.fixture
def worker():
    """A worker that has registered with its scheduler, whose answers are the attacker's."""
    return Talk(Signing(), "worker", "scheduler", "dask-cluster").greet().worker_stream()


def handed(worker, run_spec, **more):
    [element] = worker.attack_back(
        [{"op": "compute-task", "key": "x", "run_spec": run_spec, **more}]
    )
    return element["run_spec"]


def signed_by(author, task):
    """Return *task* as the scheduler hands it out, signed by *author* for its cluster."""
    doors = Signing()
    audience = doors.identity("scheduler").public
    header, frames = write_out(LLGExpr({"x": task}), doors.identity(author), audience, Limits())
    header = {**header, "sizes": tuple(header["sizes"])}  # as msgpack is read
    call = nodes(parse(header, frames, Limits()))["x"].call
    return Talk.Row(HEADER, tuple(Sent().frames(call)))


def opening(path):
    return Task("x", open, str(path), "w")


def test_what_an_engineer_signed_runs(worker):
    assert handed(worker, signed_by("carol", Task("x", lambda: 42)))() == 42


@pytest.mark.parametrize(
    ("author", "rule"),
    [
        ("scheduler", "author.relayed"),
        ("alice", "author.relayed"),
        ("worker", "author.relayed"),
        ("nanny", "author.relayed"),
        ("dashboard", "author.relayed"),
    ],
)
def test_what_anybody_else_signed_does_not(worker, marker, author, rule):
    task = handed(worker, signed_by(author, opening(marker.path)))
    with pytest.raises(PolicyDenied):
        task()
    assert worker.refused_by_asker == [rule]


@pytest.mark.parametrize(
    ("author", "rules"),
    [
        ("carol", []),
        ("alice", ["author.relayed"]),
        ("dashboard", ["author.relayed"]),
        ("scheduler", ["author.relayed"]),
    ],
)
def test_only_statements_of_listed_authors_are_renewed(worker, author, rules):
    _, frames = write_out(
        LLGExpr({"x": Task("x", len, [])}),
        Signing().identity(author),
        Signing().identity("scheduler").public,
        Limits(),
    )
    renewal = [{"op": "statement-renewed", "statement": frames[0]}]
    assert worker.reply(renewal) is Talk.SKIP
    assert worker.refused_by_asker == rules
    assert worker.far.policy.permits_operation(
        worker.far.outbound(Kind.TASK, "statement-renewed")
    ).permitted


@pytest.mark.parametrize("family", ["pickle", "cloudpickle"])
@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_task_that_nobody_signed_is_no_code(worker, marker, family, dumps):
    header = {**PICKLE, "serializer": family}
    for data in (dumps(opening(marker.path)), marker.pickle, dumps(Task("x", os.system, "true"))):
        task = handed(worker, Talk.Row(header, (data,)))
        with pytest.raises(PolicyDenied):
            task()
    assert worker.refused_by_asker == ["sealed.required"] * 3


def test_functions_of_the_standard_library_are_no_data():
    server = Talk(Signing(), "scheduler", "worker", "dask-cluster").greet()
    row = Talk.Row(PICKLE, (pickle.dumps(operator.add),))
    server.refuses({"op": "update_data", "data": {"x": row}})
    assert server.refused_by_server == ["context.family"]


# --- functions and plugins -----------------------------------------------------------------------


def run_by(author, function):
    doors = Signing()
    audience = doors.identity("scheduler").public
    signed = sign_request(
        {"run.function": pickle.dumps(function)}, doors.identity(author), audience
    )
    return {"op": "run", "function": signed["run.function"], "wait": True}


def test_a_function_that_an_engineer_signed_reaches_its_handler():
    server = Talk(Signing(), "scheduler", "worker", "dask-cluster").greet()
    assert server.attack(run_by("carol", len))["function"] == pickle.dumps(len)


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
def test_a_function_that_an_engineer_signed_runs_once_in_each_server(recipient):
    def connected(taken):
        options = {"taken": taken}
        return Talk(Signing(), "scheduler", recipient, "dask-cluster", server_options=options)

    taken, request = Requests(), run_by("carol", len)
    first = connected(taken).greet()
    for server in (first, connected(Requests()).greet()):
        assert server.attack(request)["function"] == pickle.dumps(len)
    for server in (first, connected(taken).greet()):
        server.refuses(request)
        assert server.refused_by_server == ["sealed.replayed"]


def test_no_author_takes_up_what_is_remembered_of_another(monkeypatch):
    monkeypatch.setattr("safeser.dask.sealed.value._REMEMBERED", 2)
    taken = Requests()
    requests = [SignedValue.parse(run_by("carol", len)["function"]) for _ in range(3)]
    for each in requests[:2]:
        taken.take(each)
    with pytest.raises(PolicyDenied, match=r"of its author\n  rule: sealed\.replayed"):
        taken.take(requests[2])
    other = SignedValue.parse(run_by("dora", len)["function"])
    taken.take(other)
    taken.take(dataclasses.replace(other, request=requests[0].request))
    with pytest.raises(PolicyDenied):
        taken.take(other)


def test_a_scheduler_that_passes_a_function_on_keeps_nothing_of_it():
    taken = Requests()
    scheduler = Talk(
        Signing(), "carol", "scheduler", "dask-cluster", server_options={"taken": taken}
    ).greet()
    message = {"op": "broadcast", "msg": run_by("carol", len), "workers": None}
    passed = scheduler.attack(message)["msg"]
    assert passed["function"] == message["msg"]["function"]
    worker = Talk(
        Signing(), "scheduler", "worker", "dask-cluster", server_options={"taken": taken}
    ).greet()
    assert worker.attack(passed)["function"] == pickle.dumps(len)


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
@pytest.mark.parametrize("author", ["scheduler", "worker", "nanny", "alice", "dashboard"])
def test_a_function_that_anybody_else_signed_does_not(author, recipient):
    server = Talk(Signing(), "scheduler", recipient, "dask-cluster").greet()
    server.refuses(run_by(author, len))
    assert server.refused_by_server == ["author.relayed"]


FUNCTION = pickle.dumps(len)
WHOLE = {"function": FUNCTION, "args": pickle.dumps(((),)), "kwargs": pickle.dumps({})}


def signed_parts(parts=WHOLE, by=None, audience=None):
    """Return the parts of a request to run a function, as carol signs them, by their fields."""
    purposes = {f"run.{field}": data for field, data in parts.items()}
    audience = audience or Signing().identity("scheduler").public
    done = sign_request(purposes, by or Signing().identity("carol"), audience)
    return {purpose.removeprefix("run."): value for purpose, value in done.items()}


def with_another_pickle(marker):
    parts = signed_parts()
    return {**parts, "function": parts["function"].removesuffix(FUNCTION) + marker.pickle}


def with_another_author(marker):
    parts = signed_parts(by=Signing().identity("bob"))
    return {field: value.replace(b"bob", b"eve", 1) for field, value in parts.items()}


def mixed_with_another_request(marker):
    return {**signed_parts(), "args": signed_parts()["args"]}


def with_fewer_parts_than_were_signed(marker):
    return {field: value for field, value in signed_parts().items() if field != "args"}


def with_a_part_that_is_nothing(marker):
    return {**signed_parts(), "args": None}


def with_a_part_that_is_text(marker):
    return {**signed_parts(), "function": marker.pickle.decode("latin1")}


def with_an_unsigned_part(marker):
    return {**signed_parts(), "args": marker.pickle}


def with_one_part_more(marker):
    return {**signed_parts({"function": FUNCTION}), "args": marker.pickle}


def that_only_looks_signed(marker):
    return {"function": MAGIC + marker.pickle}


def with_swapped_fields(marker):
    parts = signed_parts()
    return {**parts, "function": parts["args"], "args": parts["function"]}


def in_a_list_with_another(marker):
    parts = signed_parts()
    return {**parts, "function": [parts["function"], marker.pickle]}


def as_a_payload(marker):
    return {**signed_parts(), "function": Talk.Row(*Talk.in_msgpack(marker.pickle))}


def for_another_cluster(marker):
    return signed_parts(audience=PrivateKey.generate().public)


def by_a_key_that_no_roster_lists(marker):
    return signed_parts(by=Identity("carol", PrivateKey.generate(), SigningKey.generate()))


def of_yesterday(marker):
    with pytest.MonkeyPatch.context() as patched:
        earlier = SimpleNamespace(time=lambda: time.time() - 24 * 3600)
        patched.setattr("safeser.dask.sealed.value.time", earlier)
        return signed_parts()


def of_a_plugin(marker):
    purpose, audience = "plugin-add.plugin:p", Signing().identity("scheduler").public
    signed = sign_request({purpose: FUNCTION}, Signing().identity("carol"), audience)
    return {"function": signed[purpose]}


CHANGED = [
    (with_another_pickle, "sealed.signature"),
    (with_another_author, "sealed.signature"),
    (mixed_with_another_request, "sealed.request"),
    (with_fewer_parts_than_were_signed, "sealed.request"),
    (with_a_part_that_is_nothing, "sealed.request"),
    (with_a_part_that_is_text, "sealed.request"),
    (with_an_unsigned_part, "sealed.request"),
    (with_one_part_more, "context.family"),
    (that_only_looks_signed, "sealed.value"),
    (with_swapped_fields, "sealed.place"),
    (of_a_plugin, "sealed.place"),
    (in_a_list_with_another, "context.family"),
    (as_a_payload, "raw.payload"),
    (for_another_cluster, "sealed.audience"),
    (by_a_key_that_no_roster_lists, "sealed.author"),
    (of_yesterday, "sealed.expired"),
]


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
def test_a_whole_request_reaches_its_handler(recipient):
    server = Talk(Signing(), "scheduler", recipient, "dask-cluster").greet()
    got = server.attack({"op": "run", "wait": True, **signed_parts()})
    assert {field: got[field] for field in WHOLE} == WHOLE
    assert server.refused_by_server == []


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
@pytest.mark.parametrize(
    ("changed", "rule"), CHANGED, ids=lambda each: getattr(each, "__name__", None)
)
def test_no_request_that_was_changed_does(marker, recipient, changed, rule):
    server = Talk(Signing(), "scheduler", recipient, "dask-cluster").greet()
    server.refuses({"op": "run", "wait": True, **changed(marker)})
    assert server.refused_by_server == [rule]


@pytest.mark.parametrize(
    ("recipient", "op", "field", "rule"),
    [
        ("worker", "run_coroutine", "function", "sealed.place"),
        ("worker", "plugin-add", "plugin", "sealed.place"),
        ("nanny", "plugin_add", "plugin", "sealed.place"),
        ("nanny", "run_coroutine", "function", "operation.unknown"),
        ("nanny", "plugin-add", "plugin", "operation.unknown"),
    ],
)
def test_a_function_to_run_counts_in_no_other_operation(recipient, op, field, rule):
    server = Talk(Signing(), "scheduler", recipient, "dask-cluster").greet()
    request = {"op": op, field: signed_parts({"function": FUNCTION})["function"]}
    server.refuses({**request, "name": "p"} if field == "plugin" else request)
    assert server.refused_by_server == [rule]


@pytest.mark.parametrize("author", ["carol", "scheduler", "worker"])
def test_whose_plugins_a_worker_takes_when_it_registers(author):
    doors = Signing()
    worker = Talk(doors, "worker", "scheduler", "dask-cluster").greet()
    worker.request({"op": "register-worker", "address": "safeser://127.0.0.1:1", "reply": False})
    pickles_ = {"plugin-add.plugin:p": pickle.dumps(len)}
    audience = doors.identity("scheduler").public
    [signed] = sign_request(pickles_, doors.identity(author), audience).values()
    message = {"status": "OK", "worker-plugins": {"p": signed}}
    taken = worker.attack_back(message)["worker-plugins"]
    assert taken == ({"p": pickle.dumps(len)} if author == "carol" else {})
    assert worker.refused_by_asker == ([] if author == "carol" else ["author.relayed"])


REGISTRATIONS = {
    "worker": ({"op": "register-worker", "reply": False}, "worker-plugins", "plugin-add"),
    "nanny": ({"op": "register_nanny"}, "nanny-plugins", "plugin_add"),
}


@pytest.fixture(params=REGISTRATIONS)
def registered(request):
    """Return what answers the registration of a worker or nanny with plugins, and what it takes."""
    asked, field, operation = REGISTRATIONS[request.param]
    own = Talk(Signing(), request.param, "scheduler", "dask-cluster").greet()
    own.request({**asked, "address": "safeser://127.0.0.1:1"})

    def answered(plugins, signed_for=None):
        audience = Signing().identity("scheduler").public
        signed = {}
        for name, author in plugins.items():
            purposes = {f"{operation}.plugin:{signed_for or name}": pickle.dumps(name)}
            [signed[name]] = sign_request(purposes, author, audience).values()
        return own.attack_back({"status": "OK", field: signed})[field]

    answered.own = own
    return answered


def test_a_plugin_of_a_retired_key_keeps_no_worker_from_starting(registered):
    doors = Signing()
    retired = doors.identity("carol", "retired")
    taken = registered({"old": retired, "p": doors.identity("carol")})
    assert taken == {"p": pickle.dumps("p")}
    assert registered.own.refused_by_asker == ["sealed.author"]


def test_a_plugin_that_is_over_keeps_no_worker_from_starting(registered, monkeypatch):
    later = SimpleNamespace(time=lambda: time.time() + 31 * 24 * 3600)
    monkeypatch.setattr("safeser.dask.sealed.verification.time", later)
    assert registered({"p": Signing().identity("carol")}) == {}
    assert registered.own.refused_by_asker == ["sealed.expired"]


@pytest.mark.parametrize("name", ["n" * 65, "a\nb", "a.b", ""])
def test_plugins_of_any_name_reach_workers_that_start_later(registered, name):
    assert registered({name: Signing().identity("carol")}) == {name: pickle.dumps(name)}
    assert registered.own.refused_by_asker == []


def test_a_worker_takes_no_plugin_that_stands_under_another_name(registered):
    assert registered({"q": Signing().identity("carol")}, signed_for="p") == {}
    assert registered.own.refused_by_asker == ["sealed.place"]


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("peer", REGISTRATIONS)
def test_a_plugin_goes_to_no_process_whose_context_does_not_take_its_author(peer, accepted):
    asked, field, operation = REGISTRATIONS[peer]
    text = locate("dask-cluster").read_text()
    text = text.replace("  carol:", "  dave: {}\n  carol:")
    if not accepted:
        text = text.replace("authors: [group:engineers]", "authors: [dave]")
    doors = Signing()
    t = Talk(doors, peer, "scheduler", text).greet()
    t.request({**asked, "address": "safeser://127.0.0.1:1"})
    purpose, audience = f"{operation}.plugin:p", doors.identity("scheduler").public
    signed = sign_request({purpose: b"secret"}, doors.identity("carol"), audience)
    plugins = {"p": signed[purpose], "unsigned": b"secret"}
    body, _ = t.sent(t.server, {"status": "OK", field: plugins})
    assert body[field] == ({"p": signed[purpose]} if accepted else {})
    assert t.refused_by_server == ["author.relayed"] * (not accepted) + ["context.family"]
    # It goes to those that are there already by a request.
    there = Talk(doors, "scheduler", peer, text).greet()
    request = {"op": operation, "plugin": signed[purpose], "name": "p"}
    with contextlib.nullcontext() if accepted else pytest.raises(PolicyDenied):
        there.asker.send(request)
    with pytest.raises(PolicyDenied):
        there.asker.send({**request, "plugin": b"secret"})


# --- what a client asked to have back -------------------------------------------------------------


def client_that_asks(key, name="get_runspec"):
    client = Talk(Signing(), "carol", "scheduler", "dask-cluster").greet()
    client.request({"op": name, "key": key, "reply": True})
    return client


def test_a_client_opens_the_task_that_it_asked_for():
    client = client_that_asks("x")
    assert client.attack_back(signed_by("carol", Task("x", lambda: 42)))() == 42
    assert client.refused_by_asker == []


@pytest.mark.parametrize(
    ("key", "name", "author", "rule"),
    [
        ("y", "get_runspec", "carol", "sealed.moved"),
        (("x",), "get_runspec", "carol", "sealed.moved"),
        (None, "get_runspec", "carol", "sealed.moved"),
        ("x", "get_error_cause", "carol", "sealed.moved"),
        ("x", "get_metadata", "carol", "sealed.moved"),
        ("x", "get_runspec", "bob", "sealed.author"),
        ("x", "get_runspec", "scheduler", "sealed.author"),
    ],
)
def test_a_client_opens_no_other_task(marker, key, name, author, rule):
    client = client_that_asks(key, name)
    with pytest.raises(PolicyDenied) as caught:
        client.attack_back(signed_by(author, opening(marker.path)))
    assert caught.value.rule == rule
    assert client.refused_by_asker == [rule]


# --- what an author makes a scheduler hand out ----------------------------------------------------


def handed_out(talk, key, task, *, copies=1):
    """Have the scheduler hand out a task of carol's, whose definitions are named so many times."""
    doors = Signing()
    identity, audience = doors.identity("carol"), doors.identity("scheduler").public
    header, frames = write_out(LLGExpr({key: task}), identity, audience, Limits())
    graph = parse({**header, "sizes": tuple(header["sizes"])}, frames, Limits())
    heads = tuple(dataclasses.replace(each, digests=each.digests * copies) for each in graph.heads)
    node = nodes(dataclasses.replace(graph, heads=heads))[key]
    [element] = talk.reply(
        [{"op": "compute-task", "key": key, "run_id": 1, "run_spec": ToPickle(node)}]
    )
    return element["run_spec"]


def test_a_task_that_a_worker_cannot_read_harms_no_other():
    """A worker that refuses its first frame keeps no definitions, and numbers later ones anew."""
    policy = (
        Path(locate("dask-cluster")).read_text().replace("max_refs: 1_000_000", "max_refs: 2000")
    )
    talk = Talk(Signing(), "worker", "scheduler", policy).greet().worker_stream()
    assert talk.near.policy.limits.max_refs == 2000
    assert handed_out(talk, "a", Task("a", operator.add, 1, 2))() == 3
    refused = handed_out(talk, "b", Task("b", operator.mul, 1, 2), copies=3000)
    with pytest.raises(Exception, match="max_refs"):
        refused()
    assert handed_out(talk, "c", Task("c", operator.sub, 1, 2))() == -1
    assert handed_out(talk, "d", Task("d", operator.mul, 3, 2))() == 6
    assert handed_out(talk, "e", Task("e", operator.add, 3, 2))() == 5
