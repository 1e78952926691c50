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
from safeser.gate.key_pairs import PrivateKey
from safeser.gate.values import Limits
from safeser.identity import Identity, SigningKey
from safeser.policy.ready import locate
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import SigningDoors
from tests.dask.sealed.graphs import written
from tests.refusal import refusal

DOORS = SigningDoors()
CAROL, AUDIENCE = DOORS.identity("carol"), DOORS.identity("scheduler").public


def talk(asker, server, policy="dask-cluster", **options):
    return Talk(DOORS, asker, server, policy, server_options=options).greet()


# --- functions and plugins -----------------------------------------------------------------------


FUNCTION = pickle.dumps(len)
WHOLE = {"function": FUNCTION, "args": pickle.dumps(((),)), "kwargs": pickle.dumps({})}


def signed_parts(parts=WHOLE, by=CAROL, audience=AUDIENCE):
    """Return the parts of a request to run a function, as *by* signs them, by their fields."""
    purposes = {f"run.{field}": data for field, data in parts.items()}
    done = sign_request(purposes, by, audience)
    return {purpose.removeprefix("run."): value for purpose, value in done.items()}


def run_by(author):
    """Return a request to run a function that *author* signed."""
    return {
        "op": "run",
        "wait": True,
        **signed_parts({"function": FUNCTION}, DOORS.identity(author)),
    }


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
def test_a_function_that_an_engineer_signed_runs_once_in_each_server(recipient):
    taken, request = Requests(), run_by("carol")
    first = talk("scheduler", recipient, taken=taken)
    for server in (first, talk("scheduler", recipient, taken=Requests())):
        assert server.attack(request)["function"] == FUNCTION
    for server in (first, talk("scheduler", recipient, taken=taken)):
        server.refuses(request)
        assert server.refused_by_server == ["sealed.replayed"]


def test_no_author_takes_up_what_is_remembered_of_another(monkeypatch):
    monkeypatch.setattr("safeser.dask.sealed.value._REMEMBERED", 2)
    taken = Requests()
    requests = [SignedValue.parse(run_by("carol")["function"]) for _ in range(3)]
    for each in requests[:2]:
        taken.take(each)
    with pytest.raises(PolicyDenied, match=r"of its author\n  rule: sealed\.replayed"):
        taken.take(requests[2])
    other = SignedValue.parse(run_by("dora")["function"])
    taken.take(other)
    taken.take(dataclasses.replace(other, request=requests[0].request))
    with pytest.raises(PolicyDenied):
        taken.take(other)


def test_a_scheduler_that_passes_a_function_on_keeps_nothing_of_it():
    taken = Requests()
    scheduler = talk("carol", "scheduler", taken=taken)
    message = {"op": "broadcast", "msg": run_by("carol"), "workers": None}
    passed = scheduler.attack(message)["msg"]
    assert passed["function"] == message["msg"]["function"]
    worker = talk("scheduler", "worker", taken=taken)
    assert worker.attack(passed)["function"] == FUNCTION


class Parts:
    """What a hostile scheduler makes of carol's signed request to run a function."""

    def __init__(self, marker):
        self.pickle = marker.pickle
        self.signed = signed_parts()
        self.again = signed_parts()
        self.one = signed_parts({"function": FUNCTION})

    def of_yesterday(self):
        with pytest.MonkeyPatch.context() as patched:
            earlier = SimpleNamespace(time=lambda: time.time() - 24 * 3600)
            patched.setattr("safeser.dask.sealed.value.time", earlier)
            return signed_parts()


PLUGIN = "plugin-add.plugin:p"


STRANGER = Identity("carol", PrivateKey.generate(), SigningKey.generate())

#: Requests to run a function that carol did not sign as they are, by the rule by which each ends.
CHANGED = {
    "author.relayed": {
        name: lambda _, name=name: signed_parts(by=DOORS.identity(name))
        for name in ("scheduler", "nanny", "alice")
    },
    "sealed.signature": {
        "another pickle": lambda its: {
            **its.signed,
            "function": its.signed["function"].removesuffix(FUNCTION) + its.pickle,
        },
        "another author": lambda _: {
            field: value.replace(b"bob", b"eve", 1)
            for field, value in signed_parts(by=DOORS.identity("bob")).items()
        },
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
        "swapped fields": lambda its: {
            **its.signed,
            **{"function": its.signed["args"], "args": its.signed["function"]},
        },
        "of a plugin": lambda _: {
            "function": sign_request({PLUGIN: FUNCTION}, CAROL, AUDIENCE)[PLUGIN]
        },
    },
    "raw.payload": {
        "a payload": lambda its: {**its.signed, "function": Talk.Row(*Talk.in_msgpack(its.pickle))}
    },
    "sealed.audience": {
        "another cluster's": lambda _: signed_parts(audience=PrivateKey.generate().public)
    },
    "sealed.author": {"by a key that no roster lists": lambda _: signed_parts(by=STRANGER)},
    "sealed.expired": {"of yesterday": lambda its: its.of_yesterday()},
}


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
def test_a_whole_request_reaches_its_handler(recipient):
    server = talk("scheduler", recipient)
    got = server.attack({"op": "run", "wait": True, **signed_parts()})
    assert {field: got[field] for field in WHOLE} == WHOLE
    assert server.refused_by_server == []


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
@pytest.mark.parametrize(
    ("rule", "name"), [(rule, name) for rule, forms in CHANGED.items() for name in forms]
)
def test_no_request_that_was_changed_does(marker, recipient, rule, name):
    server = talk("scheduler", recipient)
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
        ("nanny", "run_coroutine", "function", "operation.unknown"),
    ],
)
def test_a_function_to_run_counts_in_no_other_operation(recipient, op, field, rule):
    server = talk("scheduler", recipient)
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
    own = talk(request.param, "scheduler")
    own.request({**asked, "address": "safeser://127.0.0.1:1"})

    def answered(plugins, signed_for):
        signed = {}
        for name, author in plugins.items():
            purposes = {f"{operation}.plugin:{signed_for}": pickle.dumps(name)}
            [signed[name]] = sign_request(purposes, author, AUDIENCE).values()
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
    taken = registered({name: DOORS.identity(author, key)}, signed_for=signed)
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
    t = talk(peer, "scheduler", text)
    t.request({**asked, "address": "safeser://127.0.0.1:1"})
    purpose = f"{operation}.plugin:p"
    signed = sign_request({purpose: b"secret"}, CAROL, AUDIENCE)
    plugins = {"p": signed[purpose], "unsigned": b"secret"}
    body, _ = t.sent(t.server, {"status": "OK", field: plugins})
    assert body[field] == ({"p": signed[purpose]} if accepted else {})
    assert t.refused_by_server == ["author.relayed"] * (not accepted) + ["context.family"]
    # It goes to those that are there already by a request.
    there = talk("scheduler", peer, text)
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
    client = talk("carol", "scheduler")
    client.request({"op": name, "key": key, "reply": True})
    graph = parse(
        *written({"x": Task("x", lambda: 42)}, DOORS.identity(author), AUDIENCE), Limits()
    )
    row = Talk.Row(HEADER, tuple(Sent().frames(nodes(graph)["x"].call)))
    if rule is None:
        assert client.attack_back(row)() == 42
    else:
        with refusal(PolicyDenied, rule):
            client.attack_back(row)
    assert client.refused_by_asker == ([] if rule is None else [rule])


# --- what an author makes a scheduler hand out ----------------------------------------------------


def handed_out(stream, key, task, *, copies=1):
    """Have the scheduler hand out a task of carol's, whose definitions are named so many times."""
    graph = parse(*written({key: task}, CAROL, AUDIENCE), Limits())
    heads = tuple(dataclasses.replace(each, digests=each.digests * copies) for each in graph.heads)
    node = nodes(dataclasses.replace(graph, heads=heads))[key]
    [element] = stream.reply(
        [{"op": "compute-task", "key": key, "run_id": 1, "run_spec": ToPickle(node)}]
    )
    return element["run_spec"]


def test_a_task_that_a_worker_cannot_read_harms_no_other():
    """A worker that refuses its first frame keeps no definitions, and numbers later ones anew."""
    policy = (
        Path(locate("dask-cluster")).read_text().replace("max_memory: 128MiB", "max_memory: 256000")
    )
    stream = talk("worker", "scheduler", policy).worker_stream()
    assert stream.near.policy.limits.elements == 2000
    assert handed_out(stream, "a", Task("a", operator.add, 1, 2))() == 3
    refused = handed_out(stream, "b", Task("b", operator.mul, 1, 2), copies=3000)
    with pytest.raises(Exception, match="max_memory"):
        refused()
    assert handed_out(stream, "c", Task("c", operator.sub, 1, 2))() == -1
    assert handed_out(stream, "d", Task("d", operator.mul, 3, 2))() == 6
    assert handed_out(stream, "e", Task("e", operator.add, 3, 2))() == 5
