"""A scheduler that was taken over runs no code on workers under ``dask-cluster``."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import pickle
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from dask._task_spec import Task
from distributed.protocol.serialize import ToPickle

from safeser.dask.sealed.call import HEADER, Sent
from safeser.dask.sealed.graph import parse
from safeser.dask.sealed.node import nodes
from safeser.dask.sealed.value import MAGIC, Requests, SignedValue, sign_request
from safeser.errors import PolicyDenied
from safeser.identity import Identity, PrivateKey, SigningKey
from safeser.policy.ready import locate
from safeser.values import Limits
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import SigningDoors
from tests.dask.sealed.graphs import written


def signed_by(author, task):
    """Return *task* as the scheduler hands it out, signed by *author* for its cluster."""
    doors = SigningDoors()
    audience = doors.identity("scheduler").public
    call = nodes(parse(*written({"x": task}, doors.identity(author), audience), Limits()))["x"].call
    return Talk.Row(HEADER, tuple(Sent().frames(call)))


# --- functions and plugins -----------------------------------------------------------------------


def run_by(author, function):
    doors = SigningDoors()
    audience = doors.identity("scheduler").public
    signed = sign_request(
        {"run.function": pickle.dumps(function)}, doors.identity(author), audience
    )
    return {"op": "run", "function": signed["run.function"], "wait": True}


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
def test_a_function_that_an_engineer_signed_runs_once_in_each_server(recipient):
    def connected(taken):
        options = {"taken": taken}
        return Talk(SigningDoors(), "scheduler", recipient, "dask-cluster", server_options=options)

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
        SigningDoors(), "carol", "scheduler", "dask-cluster", server_options={"taken": taken}
    ).greet()
    message = {"op": "broadcast", "msg": run_by("carol", len), "workers": None}
    passed = scheduler.attack(message)["msg"]
    assert passed["function"] == message["msg"]["function"]
    worker = Talk(
        SigningDoors(), "scheduler", "worker", "dask-cluster", server_options={"taken": taken}
    ).greet()
    assert worker.attack(passed)["function"] == pickle.dumps(len)


FUNCTION = pickle.dumps(len)
WHOLE = {"function": FUNCTION, "args": pickle.dumps(((),)), "kwargs": pickle.dumps({})}


def signed_parts(parts=WHOLE, by=None, audience=None):
    """Return the parts of a request to run a function, as carol signs them, by their fields."""
    purposes = {f"run.{field}": data for field, data in parts.items()}
    audience = audience or SigningDoors().identity("scheduler").public
    done = sign_request(purposes, by or SigningDoors().identity("carol"), audience)
    return {purpose.removeprefix("run."): value for purpose, value in done.items()}


class Parts:
    """What a hostile scheduler makes of carol's signed request to run a function."""

    def __init__(self, marker):
        self.pickle = marker.pickle
        self.signed = signed_parts()
        self.again = signed_parts()
        self.one = signed_parts({"function": FUNCTION})

    def another_pickle(self):
        return self.signed["function"].removesuffix(FUNCTION) + self.pickle

    def another_author(self):
        parts = signed_parts(by=SigningDoors().identity("bob"))
        return {field: value.replace(b"bob", b"eve", 1) for field, value in parts.items()}

    def swapped(self):
        return {**self.signed, "function": self.signed["args"], "args": self.signed["function"]}

    def of_yesterday(self):
        with pytest.MonkeyPatch.context() as patched:
            earlier = SimpleNamespace(time=lambda: time.time() - 24 * 3600)
            patched.setattr("safeser.dask.sealed.value.time", earlier)
            return signed_parts()

    def of_a_plugin(self):
        audience = SigningDoors().identity("scheduler").public
        return sign_request({PLUGIN: FUNCTION}, SigningDoors().identity("carol"), audience)[PLUGIN]

    def payload(self):
        return Talk.Row(*Talk.in_msgpack(self.pickle))


PLUGIN = "plugin-add.plugin:p"
STRANGER = Identity("carol", PrivateKey.generate(), SigningKey.generate())

OTHERS = ("scheduler", "worker", "nanny", "alice", "dashboard")

#: Requests to run a function that carol did not sign as they are, by the rule by which each ends.
CHANGED = {
    "author.relayed": {
        name: lambda _, name=name: signed_parts(by=SigningDoors().identity(name)) for name in OTHERS
    },
    "sealed.signature": {
        "another pickle": lambda its: {**its.signed, "function": its.another_pickle()},
        "another author": lambda its: its.another_author(),
    },
    "sealed.request": {
        "mixed with another": lambda its: {**its.signed, "args": its.again["args"]},
        "fewer parts": lambda its: {**its.signed, "args": ...},
        "a part that is nothing": lambda its: {**its.signed, "args": None},
        "text": lambda its: {**its.signed, "function": its.pickle.decode("latin1")},
        "an unsigned part": lambda its: {**its.signed, "args": its.pickle},
    },
    "context.family": {
        "one part more": lambda its: {**its.one, "args": its.pickle},
        "a list": lambda its: {**its.signed, "function": [its.signed["function"], its.pickle]},
    },
    "sealed.value": {"what looks signed": lambda its: {"function": MAGIC + its.pickle}},
    "sealed.place": {
        "swapped fields": lambda its: its.swapped(),
        "of a plugin": lambda its: {"function": its.of_a_plugin()},
    },
    "raw.payload": {"a payload": lambda its: {**its.signed, "function": its.payload()}},
    "sealed.audience": {
        "another cluster's": lambda _: signed_parts(audience=PrivateKey.generate().public)
    },
    "sealed.author": {"by a key that no roster lists": lambda _: signed_parts(by=STRANGER)},
    "sealed.expired": {"of yesterday": lambda its: its.of_yesterday()},
}


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
def test_a_whole_request_reaches_its_handler(recipient):
    server = Talk(SigningDoors(), "scheduler", recipient, "dask-cluster").greet()
    got = server.attack({"op": "run", "wait": True, **signed_parts()})
    assert {field: got[field] for field in WHOLE} == WHOLE
    assert server.refused_by_server == []


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
@pytest.mark.parametrize(
    ("rule", "name"), [(rule, name) for rule, forms in CHANGED.items() for name in forms]
)
def test_no_request_that_was_changed_does(marker, recipient, rule, name):
    server = Talk(SigningDoors(), "scheduler", recipient, "dask-cluster").greet()
    changed = CHANGED[rule][name](Parts(marker)).items()
    parts = {field: value for field, value in changed if value is not ...}
    server.refuses({"op": "run", "wait": True, **parts})
    assert server.refused_by_server == [rule]


@pytest.mark.parametrize(
    ("recipient", "op", "field", "rule"),
    [
        ("worker", "run_coroutine", "function", "sealed.place"),
        ("worker", "plugin-add", "plugin", "sealed.place"),
        ("nanny", "plugin_add", "plugin", "sealed.place"),
    ],
)
def test_a_function_to_run_counts_in_no_other_operation(recipient, op, field, rule):
    server = Talk(SigningDoors(), "scheduler", recipient, "dask-cluster").greet()
    request = {"op": op, field: signed_parts({"function": FUNCTION})["function"]}
    server.refuses({**request, "name": "p"} if field == "plugin" else request)
    assert server.refused_by_server == [rule]


REGISTRATIONS = {
    "worker": ({"op": "register-worker", "reply": False}, "worker-plugins", "plugin-add"),
    "nanny": ({"op": "register_nanny"}, "nanny-plugins", "plugin_add"),
}


@pytest.fixture(params=REGISTRATIONS)
def registered(request):
    """Return what answers the registration of a worker or nanny with plugins, and what it takes."""
    asked, field, operation = REGISTRATIONS[request.param]
    own = Talk(SigningDoors(), request.param, "scheduler", "dask-cluster").greet()
    own.request({**asked, "address": "safeser://127.0.0.1:1"})

    def answered(plugins, signed_for):
        audience = SigningDoors().identity("scheduler").public
        signed = {}
        for name, author in plugins.items():
            purposes = {f"{operation}.plugin:{signed_for}": pickle.dumps(name)}
            [signed[name]] = sign_request(purposes, author, audience).values()
        return own.attack_back({"status": "OK", field: signed})[field]

    answered.own = own
    return answered


#: Plugins that a scheduler hands over: (name, author, key, the name that was signed, rule).
PLUGINS = [
    *((name, "carol", "", name, None) for name in ("p", "n" * 65, "a\nb", "a.b", "")),
    ("p", "scheduler", "", "p", "author.relayed"),
    ("p", "worker", "", "p", "author.relayed"),
    ("old", "carol", "retired", "old", "sealed.author"),
    ("q", "carol", "", "p", "sealed.place"),
    ("over", "carol", "", "over", "sealed.expired"),
]


@pytest.mark.parametrize(("name", "author", "key", "signed", "rule"), PLUGINS)
def test_which_plugins_a_process_takes_that_registers(
    registered, monkeypatch, name, author, key, signed, rule
):
    """One that is refused keeps no process from starting, and no other plugin from it."""
    if rule == "sealed.expired":
        later = SimpleNamespace(time=lambda: time.time() + 31 * 24 * 3600)
        monkeypatch.setattr("safeser.dask.sealed.verification.time", later)
    taken = registered({name: SigningDoors().identity(author, key)}, signed_for=signed)
    assert taken == ({name: pickle.dumps(name)} if rule is None else {})
    assert registered.own.refused_by_asker == ([] if rule is None else [rule])


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("peer", REGISTRATIONS)
def test_a_plugin_goes_to_no_process_whose_context_does_not_take_its_author(peer, accepted):
    asked, field, operation = REGISTRATIONS[peer]
    text = locate("dask-cluster").read_text()
    text = text.replace("  carol:", "  dave: {}\n  carol:")
    if not accepted:
        text = text.replace("authors: [group:engineers]", "authors: [dave]")
    doors = SigningDoors()
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


#: What a client asks, who signed the task ``x`` that it gets, and by which rule it is refused.
ASKED = [
    ("x", "get_runspec", "carol", None),
    ("y", "get_runspec", "carol", "sealed.moved"),
    (("x",), "get_runspec", "carol", "sealed.moved"),
    (None, "get_runspec", "carol", "sealed.moved"),
    ("x", "get_error_cause", "carol", "sealed.moved"),
    ("x", "get_metadata", "carol", "sealed.moved"),
    ("x", "get_runspec", "bob", "sealed.author"),
    ("x", "get_runspec", "scheduler", "sealed.author"),
]


@pytest.mark.parametrize(("key", "name", "author", "rule"), ASKED)
def test_a_client_opens_the_task_that_it_asked_for_and_no_other(key, name, author, rule):
    client = Talk(SigningDoors(), "carol", "scheduler", "dask-cluster").greet()
    client.request({"op": name, "key": key, "reply": True})
    row = signed_by(author, Task("x", lambda: 42))
    if rule is None:
        assert client.attack_back(row)() == 42
    else:
        with pytest.raises(PolicyDenied) as caught:
            client.attack_back(row)
        assert caught.value.rule == rule
    assert client.refused_by_asker == ([] if rule is None else [rule])


# --- what an author makes a scheduler hand out ----------------------------------------------------


def handed_out(talk, key, task, *, copies=1):
    """Have the scheduler hand out a task of carol's, whose definitions are named so many times."""
    doors = SigningDoors()
    identity, audience = doors.identity("carol"), doors.identity("scheduler").public
    graph = parse(*written({key: task}, identity, audience), Limits())
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
    talk = Talk(SigningDoors(), "worker", "scheduler", policy).greet().worker_stream()
    assert talk.near.policy.limits.max_refs == 2000
    assert handed_out(talk, "a", Task("a", operator.add, 1, 2))() == 3
    refused = handed_out(talk, "b", Task("b", operator.mul, 1, 2), copies=3000)
    with pytest.raises(Exception, match="max_refs"):
        refused()
    assert handed_out(talk, "c", Task("c", operator.sub, 1, 2))() == -1
    assert handed_out(talk, "d", Task("d", operator.mul, 3, 2))() == 6
    assert handed_out(talk, "e", Task("e", operator.add, 3, 2))() == 5
