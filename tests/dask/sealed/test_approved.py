"""Tasks of listed functions: what is signed, what a scheduler admits, and what a worker runs.

Each refusal has a twin that passes: the same message with what the policy lists.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask._expr import LLGExpr
from dask._task_spec import Alias, DataNode, List, Task, TaskRef, convert_legacy_graph
from dask.base import collections_to_expr
from distributed.shuffle._core import P2PBarrierTask

from safeser.dask.sealed import form
from safeser.dask.sealed.call import HEADER, Sent
from safeser.dask.sealed.definitions import Definitions, digest
from safeser.dask.sealed.graph import parse, reopened, write_out
from safeser.dask.sealed.node import nodes
from safeser.dask.sealed.opening import open_task
from safeser.dask.sealed.references import (
    ListedDefinitions,
    load_definition,
    require_signable,
    stands,
)
from safeser.dask.sealed.value import sign_request
from safeser.errors import PayloadError, PolicyDenied
from safeser.policy import Policy
from safeser.policy.ready import locate
from safeser.policy.signable import Signable
from safeser.values import Kind, Limits
from tests.dask.conftest import Talk
from tests.dask.sealed.test_hostile_scheduler import Signing

PROGRAMS = Path(__file__).parents[1] / "programs"
OPERATIONS = "operations: {grant: [basic]}\n  - name: analysts-fetch"
CLUSTER = locate("dask-cluster").read_text("utf-8")
assert CLUSTER.count(OPERATIONS) == 1
TRAIN = "mylib.models:train"
LISTED = frozenset({TRAIN, "mylib.models:double"})


def listing(*names):
    """Return ``dask-cluster`` with *names* listed for analysts."""
    allow = ", ".join(f'"{name}": reference' for name in names)
    return CLUSTER.replace(OPERATIONS, f"pickle: {{allow: {{{allow}}}}}\n    {OPERATIONS}")


POLICY = listing(*sorted(LISTED))


@pytest.fixture(scope="module", autouse=True)
def models():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROGRAMS))
        from mylib import models

        yield models
        for name in [each for each in sys.modules if each.partition(".")[0] == "mylib"]:
            patch.delitem(sys.modules, name)


class Claiming(ListedDefinitions):
    """A patched client's: refers to any name."""

    def add_function(self, function):
        return self._kept(function, b"@" + function.encode())


def definitions(names=LISTED, kind=ListedDefinitions):
    return kind(frozenset(names), "analysts", Limits())


def written(tasks, author="alice", into=None, **options):
    doors = Signing()
    return write_out(
        tasks if hasattr(tasks, "__dask_graph__") else LLGExpr(tasks),
        doors.identity(author),
        doors.identity("scheduler").public,
        Limits(),
        definitions=into,
        **options,
    )


def parsed(header, frames):
    return parse({**header, "sizes": tuple(header["sizes"])}, frames, Limits())


def call_of(tasks, author="alice", into=None, key="x", **options):
    return nodes(parsed(*written(tasks, author, into, **options)))[key].call


def row(call):
    return Talk.Row(HEADER, tuple(Sent().frames(call)))


@pytest.fixture
def worker():
    return Talk(Signing(), "worker", "scheduler", POLICY).greet().worker_stream()


@pytest.fixture
def scheduler():
    return Talk(Signing(), "alice", "scheduler", POLICY).greet().client_stream()


def handed(worker, call, **more):
    message = {"op": "compute-task", "key": "x", "run_spec": row(call), **more}
    [element] = worker.attack_back([message])
    return element["run_spec"]


def submitted(scheduler, tasks, into, **more):
    header, frames = written(tasks, into=into, **more)
    payload = scheduler.Row(header, tuple(frames))
    return scheduler.attack([{"op": "update-graph", "expr_ser": payload, "keys": ["x"]}])


def refused(scheduler, graph):
    """Submit *graph*, of which the scheduler's handler must hear nothing."""
    header, frames = graph
    payload = scheduler.Row(header, tuple(frames))
    message = [{"op": "update-graph", "expr_ser": payload, "keys": ["x"]}]
    assert scheduler.attack(message) is Talk.SKIP


# --- writing -------------------------------------------------------------------------------------


def values_of(tasks):
    """Return what a graph of listed functions computes, opened as a worker does."""
    header, frames = written(tasks, into=definitions())
    assert not any(b"\x80\x05" in bytes(each) for each in frames[3:4])
    opened = reopened({**header, "sizes": tuple(header["sizes"])}, frames)
    done = {}
    while len(done) < len(opened):
        for key, task in opened.items():
            if key not in done and task.dependencies <= done.keys():
                done[key] = task(done)
    return done


def test_calls_are_names_and_arguments_are_typed_data(models):
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    tasks = {
        "list": Task("list", models.train, [1, 2, 3]),
        "named": Task("named", models.train, data=[1, 2], rate=2.0),
        "array": Task("array", models.double, np.arange(3)),
        "frame": Task("frame", models.double, frame),
        "long": Task("long", models.train, list(range(100))),
        "twice": Task("twice", models.train, List(TaskRef("list"), TaskRef("named"))),
        "nested": Task("nested", models.double, Task(None, models.double, 1)),
        "data": DataNode("data", [1, frame]),
        "alias": Alias("alias", "named"),
    }
    done = values_of(tasks)
    assert (done["list"], done["named"], done["alias"]) == (3.0, 6.0, 6.0)
    assert done["array"].tolist() == [0, 2, 4]
    assert done["frame"].equals(frame * 2)
    assert (done["long"], done["twice"], done["nested"]) == (2475.0, 4.5, 4)
    assert done["data"][1].equals(frame)


def test_arrays_of_two_tasks_share_no_memory(models):
    shared = np.zeros(3)
    call = call_of({"x": Task("x", models.double, shared)}, into=definitions())
    first, second = (load_definition(call.definitions[1]) for _ in range(2))
    first[0] = 1
    assert second.tolist() == [0, 0, 0]


def test_one_list_in_two_arguments_is_two(models):
    both = [1]
    done = values_of({"x": Task("x", models.train, [both[0]], rate=1.0), "y": DataNode("y", both)})
    assert done["x"] == 1.0
    call = call_of({"x": Task("x", print, both, both)}, into=definitions({"builtins:print"}))
    assert len(call.definitions) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda f: f([1, f(2), 3]),
        lambda f: f((1, f(2))),
        lambda f: f({"a": f(1), "b": [f(2)]}),
        lambda f: f({f(1), 2}),
        lambda f: f(f(f(3))),
    ],
)
def test_delayed_calls_are_nodes_of_a_graph(make):
    function = dask.delayed(repr)
    value = make(function)
    expected = value.compute(scheduler="sync")
    expr = collections_to_expr([value]).optimize()
    header, frames = written(expr, into=definitions({"builtins:repr"}))
    opened = reopened({**header, "sizes": tuple(header["sizes"])}, frames)
    # The name of a class or function of the standard library is no own name that policies list.
    assert expected
    assert all(not isinstance(each, DataNode) for each in opened.values())


class Local:
    def __call__(self):
        return 1


@pytest.mark.parametrize(
    ("make", "said", "fix"),
    [
        (lambda m: lambda x: x, "<lambda>, defined in test_approved.py", "mylib:NAME"),
        (lambda m: m.other, "mylib.models:other cannot be", f'"{"mylib.models:other"}": reference'),
        (lambda m: np.sum, "numpy:sum cannot be", "worker group"),
        (lambda m: os.system, ":system cannot be", "No operator can allow it"),
        (lambda m: m.Thing(1).method, "method", "mylib"),
        (lambda m: Local(), "Local", "mylib"),
        (lambda m: dask.utils.methodcaller("sum"), "methodcaller", ""),
    ],
)
def test_what_is_not_listed_is_refused_by_name(models, make, said, fix):
    with pytest.raises(PolicyDenied) as caught:
        written({"x": Task("x", make(models), 1)}, into=definitions())
    assert caught.value.rule == "submission.approved"
    assert said in str(caught.value)
    assert fix in str(caught.value)


def test_another_function_of_a_listed_name_is_refused(models):
    def train(data):
        return data

    train.__module__, train.__qualname__ = "mylib.models", "train"
    with pytest.raises(PolicyDenied, match=TRAIN):
        written({"x": Task("x", train, 1)}, into=definitions())


@pytest.mark.parametrize(
    "make", [lambda m: m.double, lambda m: m.train, lambda m: len, lambda m: m.Thing(1)]
)
def test_functions_and_objects_are_no_arguments(models, make):
    with pytest.raises(PayloadError, match="task 'x' cannot be sealed"):
        written({"x": Task("x", models.double, make(models))}, into=definitions())


def test_what_nests_too_deep_is_refused(models):
    deep = task = Task(None, models.double, 1)
    for _ in range(40):
        deep = Task(None, models.double, deep)
    with pytest.raises(PayloadError, match="too many levels"):
        written({"x": Task("x", models.double, deep)}, into=definitions())
    assert task


def test_the_functions_of_collections_are_refused_with_what_to_do():
    expr = collections_to_expr([da.ones(4, chunks=2).sum()]).optimize()
    with pytest.raises(PolicyDenied, match=r"worker group.*worker-groups\.md"):
        written(expr, into=definitions())


# --- a scheduler ---------------------------------------------------------------------------------


def test_a_scheduler_admits_listed_functions_and_opens_nothing(scheduler, models):
    [element] = submitted(scheduler, {"x": Task("x", models.train, [1])}, definitions())
    assert element["op"] == "update-graph"


@pytest.mark.parametrize(
    ("tasks", "into"),
    [
        (lambda m: {"x": Task("x", m.train, [1])}, lambda: None),
        (lambda m: {"x": Task("x", lambda: 1)}, lambda: None),
        (
            lambda m: {"x": Task("x", "mylib.models:touch", "p")},
            lambda: definitions(kind=Claiming),
        ),
        (lambda m: {"x": Task("x", "os:system", "true")}, lambda: definitions(kind=Claiming)),
    ],
    ids=["pickled name", "pickled code", "unlisted", "of the standard library"],
)
def test_a_scheduler_admits_nothing_else(scheduler, models, tasks, into):
    refused(scheduler, written(tasks(models), into=into()))
    assert scheduler.refused_by_server == ["submission.approved"]


# --- a worker ------------------------------------------------------------------------------------


def test_a_listed_function_runs(worker, models):
    call = call_of({"x": Task("x", models.train, [1, 2, 3])}, into=definitions())
    assert handed(worker, call)() == 3.0
    assert worker.refused_by_asker == []


@pytest.mark.parametrize("author", ["alice", "carol"])
def test_code_runs_for_who_may_sign_code_alone(worker, author):
    task = handed(worker, call_of({"x": Task("x", lambda: 42)}, author))
    if author == "carol":
        assert task() == 42
        return
    with pytest.raises(PolicyDenied):
        task()
    assert worker.refused_by_asker == ["submission.approved"]


@pytest.mark.parametrize(
    "name", ["mylib.models:touch", "os:system", "mylib.models:Path", "mylib.models:train.__call__"]
)
def test_an_unlisted_name_runs_nothing(worker, marker, name):
    call = call_of({"x": Task("x", name, str(marker.path))}, into=definitions(kind=Claiming))
    with pytest.raises(PolicyDenied):
        handed(worker, call)()
    assert worker.refused_by_asker == ["submission.approved"]
    assert not marker.path.exists()


def test_a_name_that_is_listed_for_others_runs_nothing():
    """bob's context lists ``double``, alice's ``train``."""
    policy = listing(TRAIN).replace(
        "alice: {groups: [analysts]}", "alice: {groups: [analysts]}\n  bob: {groups: [others]}"
    )
    sealed = "group:analysts{}]\n    submission: sealed"
    policy = policy.replace(sealed.format(""), sealed.format(", bob"))
    policy = policy.replace(
        "  - name: analysts-fetch",
        "  - name: bob-submits\n    sender: bob\n    recipient: scheduler\n"
        "    submission: approved\n    serializers: [dask, msgpack]\n"
        '    deserializers: [dask, msgpack]\n    pickle: {allow: {"mylib.models:double":'
        " reference}}\n    operations: {grant: [basic]}\n  - name: analysts-fetch",
    )
    for author, ran in (("bob", 4), ("alice", None)):
        worker = Talk(Signing(), "worker", "scheduler", policy).greet().worker_stream()
        into = definitions(kind=Claiming)
        call = call_of({"x": Task("x", "mylib.models:double", 2)}, author, into)
        task = handed(worker, call)
        if ran is not None:
            assert task() == ran
        else:
            with pytest.raises(PolicyDenied, match="does not list"):
                task()
            assert worker.refused_by_asker == ["submission.approved"]


def test_a_scheduler_that_puts_another_name_in_its_place_is_found_out(worker, models, marker):
    call = call_of({"x": Task("x", models.train, [1])}, into=definitions())
    other = b"@mylib.models:double"
    forged = dataclasses.replace(call, definitions=(other, *call.definitions[1:]))
    with pytest.raises(PolicyDenied):
        handed(worker, forged)()
    assert worker.refused_by_asker == ["sealed.inclusion"]


def test_an_approved_task_makes_no_actor(worker, scheduler, models):
    tasks = {"x": Task("x", models.train, [1])}
    with pytest.raises(PolicyDenied):
        handed(worker, call_of(tasks, into=definitions(), actors=True), actor=True)()
    assert worker.refused_by_asker == ["submission.actors"]
    refused(scheduler, written(tasks, into=definitions(), actors=True))
    assert scheduler.refused_by_server == ["submission.actors"]


def test_a_name_that_is_withdrawn_ends_queued_tasks(worker, models):
    call = call_of({"x": Task("x", models.train, [1])}, into=definitions())
    task = handed(worker, call)
    later = listing("mylib.models:double").replace("revision: 1", "revision: 2")
    worker.near.channel.adopt(policy=Policy.parse(later))
    with pytest.raises(PolicyDenied, match="does not list"):
        task()


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
def test_a_function_to_run_is_code_even_where_its_author_is_listed(recipient):
    policy = POLICY.replace("authors: [group:engineers]", "authors: [group:engineers, alice]")
    assert policy != POLICY
    doors = Signing()
    audience = doors.identity("scheduler").public
    for author, rules in (("carol", []), ("alice", ["submission.approved"])):
        server = Talk(Signing(), "scheduler", recipient, policy).greet()
        signed = sign_request(
            {"run.function": b"@mylib.models:train"}, doors.identity(author), audience
        )
        request = {"op": "run", "function": signed["run.function"], "wait": True}
        if rules:
            server.refuses(request)
        else:
            assert server.attack(request)["function"] == b"@mylib.models:train"
        assert server.refused_by_server == rules


# --- definitions ---------------------------------------------------------------------------------


def test_a_reference_is_called_and_never_handed_over(models):
    call = call_of({"x": Task("x", models.double, np.arange(2))}, into=definitions())
    places = {digest(each): each for each in call.definitions}
    assert len(places) == 2

    def opened(function, argument):
        tree = (
            form.TASK,
            "x",
            False,
            (form.DEFINITION, function),
            ((form.DEFINITION, argument),),
            (),
        )
        return open_task("x", (), tree, call.definitions, load_definition, stands=stands)

    assert opened(0, 1)().tolist() == [0, 2]
    for pair in ((0, 0), (1, 1), (1, 0)):
        with pytest.raises(PayloadError, match="malformed"):
            opened(*pair)


INNER = (form.TASK, None, False, (form.DEFINITION, 0), (1,), ())
IN_DATA = {
    "list": (form.PLAIN, form.CONTAINERS.index(list), INNER),
    "value of a dictionary": (form.PLAIN, form.CONTAINERS.index(dict), "k", INNER),
    "list in a list": (form.GATHERED, 0, (form.PLAIN, form.CONTAINERS.index(list), INNER)),
    "data": (form.DATA, "d", INNER),
    "gathered in data": (form.DATA, "d", (form.GATHERED, 0, INNER)),
    "slice": (form.SLICE, INNER, None, None),
}


@pytest.mark.parametrize("place", IN_DATA)
def test_no_function_is_handed_a_task(models, place):
    """Dask computes no task inside of data, and the function that is given it could call it."""
    tree = (form.TASK, "x", False, (form.DEFINITION, 0), (IN_DATA[place],), ())
    with pytest.raises(PayloadError, match="malformed"):
        open_task("x", (), tree, [b"@mylib.models:double"], load_definition, stands=stands)


@pytest.mark.parametrize("argument", [INNER, (form.GATHERED, 0, INNER)], ids=["task", "gathered"])
def test_a_task_that_is_an_argument_is_computed_first(models, argument):
    tree = (form.TASK, "x", False, (form.DEFINITION, 0), (argument,), ())
    node = open_task("x", (), tree, [b"@mylib.models:double"], load_definition, stands=stands)
    assert node({}) in (4, [2, 2])


@pytest.mark.parametrize(
    "argument",
    [
        lambda inner: [inner],
        lambda inner: {"k": (inner,)},
        lambda inner: DataNode("d", [inner]),
        lambda inner: slice(inner),
    ],
)
def test_a_task_inside_of_data_is_refused_where_it_is_written(models, argument):
    call = Task("x", models.double, argument(Task(None, models.double, 1)))
    with pytest.raises(PayloadError, match="a task stands inside of data"):
        call_of({"x": call}, into=definitions())


@pytest.mark.parametrize(
    "function", [None, 1, (form.PLAIN, 1), (form.DEPENDENCY, 0), (form.DEFINITION,), ()]
)
def test_a_task_calls_a_definition(function):
    tree = (form.TASK, "x", False, function, (), ())
    with pytest.raises(PayloadError, match="malformed"):
        open_task("x", ("y",), tree, [b"@mylib.models:train"], load_definition, stands=stands)


@pytest.mark.parametrize("name", [b"", b"x", b"a:b:c", b"a.b", b":x", b"\xff", b"a:" + b"b" * 3000])
def test_what_names_no_function_is_refused(name):
    with pytest.raises(PayloadError, match="names no function"):
        load_definition(b"@" + name)
    with pytest.raises(PayloadError, match="names no function"):
        require_signable([b"@" + name], Signable())


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 8, b"\x80\x05N."])
def test_malformed_typed_data_is_refused(data):
    with pytest.raises(PayloadError):
        load_definition(b"=" + data)


def test_code_is_whatever_is_neither():
    for definition in (b"", b"\x80\x05N.", b"cos\nsystem\n"):
        with pytest.raises(PolicyDenied, match="holds code"):
            require_signable([definition], Signable())
        require_signable([definition], Signable(code=True))


def test_a_pickled_definition_and_a_reference_have_other_digests(models):
    assert Definitions().add(models.train) != definitions().add_function(models.train)


# --- the policy ----------------------------------------------------------------------------------


def signable(author, kind=Kind.TASK):
    return Policy.parse(POLICY).signable(author, "scheduler", kind)


def test_what_each_author_may_sign():
    assert signable("carol") == Signable(code=True)
    assert signable("alice") == Signable(functions=LISTED)
    for name in ("dashboard", "worker", "scheduler", "nobody"):
        assert signable(name) == Signable()
    assert signable("carol", Kind.CONTROL).code
    assert not signable("alice", Kind.CONTROL).code


# --- what else an author could sign --------------------------------------------------------------


class Naming(ListedDefinitions):
    """A patched client's: has every function stand under a listed name."""

    def add_function(self, function):
        return self._kept(function, b"@" + TRAIN.encode())

    def add(self, obj):
        return self._kept(obj, b"=" + repr(obj).encode())


def test_a_shuffle_of_listed_names_is_none(scheduler, caplog):
    frame = dd.from_pandas(pd.DataFrame({"a": range(8)}), npartitions=2)
    expr = collections_to_expr([frame.shuffle("a", shuffle_method="p2p")]).optimize()
    graph = convert_legacy_graph(dict(expr.__dask_graph__()))
    barrier = next(each for each in graph.values() if isinstance(each, P2PBarrierTask))
    refused(scheduler, written({barrier.key: barrier}, into=definitions(kind=Naming)))
    assert scheduler.refused_by_server == ["submission.approved"]
    assert "an approved graph holds no shuffle" in caplog.text


@pytest.mark.parametrize("author", ["carol", "alice"])
def test_a_plugin_is_code_even_where_its_author_is_listed(author):
    policy = POLICY.replace("authors: [group:engineers]", "authors: [group:engineers, alice]")
    doors = Signing()
    worker = Talk(doors, "worker", "scheduler", policy).greet()
    worker.request({"op": "register-worker", "address": "safeser://127.0.0.1:1", "reply": False})
    audience = doors.identity("scheduler").public
    purposes = {"plugin-add.plugin:p": b"@mylib.models:train"}
    [signed] = sign_request(purposes, doors.identity(author), audience).values()
    answer = worker.attack_back({"status": "OK", "worker-plugins": {"p": signed}})
    listed = author == "carol"
    assert answer["worker-plugins"] == ({"p": b"@mylib.models:train"} if listed else {})
    assert worker.refused_by_asker == ([] if listed else ["submission.approved"])


def test_typed_data_is_nobody_s_code_and_a_listed_name_is_its_author_s():
    may = Signable(functions=frozenset({TRAIN}))
    require_signable([b"=", b"@" + TRAIN.encode()], may)
    with pytest.raises(PolicyDenied) as unlisted:
        require_signable([b"@mylib.models:double"], may)
    assert unlisted.value.where == "mylib.models:double"
    assert 'allow: {"mylib.models:double": reference}' in unlisted.value.fix
    with pytest.raises(PolicyDenied, match="No operator can allow it"):
        require_signable([b"@os:system"], may)
