"""What an analyst may submit: approved graphs are opened as tasks; nothing else is built at all."""

from __future__ import annotations

import builtins
import functools
import importlib
import io
import operator
import os
import pickle
import subprocess
import types
from pathlib import Path, PosixPath
from typing import Any

import cloudpickle
import dask.array as da
import dask.dataframe as dd
import numpy as np
import packaging.version
import pandas as pd
import pytest
import toolz
from dask._expr import HLGExpr, LLGExpr
from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef
from dask.base import collections_to_expr
from dask.dataframe.dask_expr._reductions import IsMonotonicIncreasing
from dask.utils import apply, methodcaller
from distributed.protocol import serialize as dask_serialize
from distributed.protocol.serialize import Serialized, deserialize
from distributed.scheduler import Scheduler
from hypothesis import given, settings
from hypothesis import strategies as st

from safeser import pickles
from safeser.dask import approved, patches
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.policy import Policy
from safeser.policy.rules import APPROVED
from safeser.values import Context, Kind

patches.install()  # as the comm backend does: Dask opens a graph by a family of safeser's


POLICY = (Path(__file__).parent / "approved.yaml").read_text()
PROFILE = pickles.Profile.named(*APPROVED).allowing({"packaging.version:parse": "reference"})
HEADER = {"serializer": "pickle", "writeable": []}


def graph(tasks: Any, annotations: Any = None) -> dict[str, Any]:
    return {"tasks": tasks, "annotations": annotations or {}}


def one(function: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return graph({"x": Task("x", function, *args, **kwargs)})


def update(payload: Any, keys: Any = ("x",), **more: Any) -> list[dict[str, Any]]:
    return [{"op": "update-graph", "expr_ser": payload, "keys": list(keys), **more}]


class Cheat:
    """Pickles as a call of what it is given."""

    def __init__(self, function: Any, *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> Any:
        return self._call


@pytest.fixture
def bob(talk):
    return talk("bob", policy=POLICY).client_stream()


def sent(bob: Any, data: bytes, **more: Any) -> Any:
    return bob.attack(update(bob.Row(HEADER, (data,)), **more))


class TestHonest:
    def test_dask_gets_the_very_tasks_that_were_built(self, bob):
        [element] = sent(bob, pickle.dumps(one(operator.add, 1, TaskRef("y"))))
        handed = element["expr_ser"]
        assert type(handed) is Serialized
        made = deserialize(handed.header, handed.frames)
        assert isinstance(made, LLGExpr)
        [task] = made.__dask_graph__().values()
        assert task({"y": 2}) == 3
        assert made.__dask_annotations__() == {}

    def test_it_is_opened_once(self, bob):
        [element] = sent(bob, pickle.dumps(one(operator.add, 1, 2)))
        handed = element["expr_ser"]
        deserialize(handed.header, handed.frames)
        with pytest.raises(PayloadError, match="twice"):
            deserialize(handed.header, handed.frames)

    def test_annotations_come_with_their_tasks(self, bob):
        given = {
            "priority": {"x": 3},
            "workers": {"x": ["safeser://127.0.0.1:1", "first", 3]},
            "restrictions": {"x": 3},
            "resources": {"x": {"GPU": 0.5}},
            "retries": {"x": 2},
            "allow_other_workers": {"x": True},
            "span": {"x": {"name": ("a", "b"), "ids": ("1", "2")}},
            "note": {"x": "any"},
        }
        data = pickle.dumps(graph({"x": Task("x", len, [1])}, given))
        [element] = sent(bob, data, annotations={"retries": 2}, code=[], span_metadata={})
        made = deserialize(element["expr_ser"].header, element["expr_ser"].frames)
        assert made.__dask_annotations__() == given

    def test_no_peer_and_no_bytes_can_name_the_family(self):
        for frames in ([b""], [b"x", b"y"], [], [bytearray(4)], [object()]):
            with pytest.raises(PayloadError, match="no peer"):
                deserialize({"serializer": "safeser-approved"}, frames)

    def test_dask_never_writes_by_it(self):
        header, _ = dask_serialize(lambda: 1, serializers=["safeser-approved", "pickle"])
        assert header["serializer"] == "pickle"

    def test_alice_submits_code_as_before(self, talk):
        t = talk("alice", policy=POLICY).client_stream()
        data = cloudpickle.dumps(LLGExpr({"x": Task("x", lambda: 1)}))
        [element] = t.attack(update(t.Row({**HEADER, "serializer": "cloudpickle"}, (data,))))
        assert element["expr_ser"].frames == [data]


X = da.ones(4, chunks=2)
FRAME = dd.from_pandas(pd.DataFrame({"a": [1, 2]}), npartitions=1)
PATH = PosixPath("never")
OBJECTS = np.empty(1, object)
OBJECTS[0] = np.load

#: What no analyst may have called, wherever it stands in a graph.
EVIL = {
    "eval": eval,
    "exec": exec,
    "open": open,
    "import": builtins.__import__,
    "setattr": setattr,
    "type": type,
    "vars": vars,
    "import_module": importlib.import_module,
    "system": os.system,
    "popen": subprocess.Popen,
    "function": types.FunctionType,
    "namespace": types.SimpleNamespace,
    "load": np.load,
    "save": np.save,
    "fromfile": np.fromfile,
    "memmap": np.memmap,
    "loadtxt": np.loadtxt,
    "genfromtxt": np.genfromtxt,
    "ndarray": np.ndarray,
    "frombuffer": np.frombuffer,
    "empty": np.empty,
    "empty_like": np.empty_like,
    "vectorize": np.vectorize,
    "read_pickle": pd.read_pickle,
    "read_csv": pd.read_csv,
    "read_parquet": pd.read_parquet,
    "pandas-eval": pd.eval,
    "to_pickle": pd.DataFrame.to_pickle,
    "frame-eval": pd.DataFrame.eval,
    "monotonic": functools.partial(IsMonotonicIncreasing.chunk, prop="eval"),
    "monotonic-end": functools.partial(IsMonotonicIncreasing.aggregate, prop="eval"),
    "query": pd.DataFrame.query,
    "agg": pd.DataFrame.agg,
    "rename": PosixPath.rename,
    "unlink": PosixPath.unlink,
    "loads": pickle.loads,
    "getter": operator.attrgetter("__class__"),
    "deep-getter": operator.attrgetter("T.__class__"),
    "method": operator.methodcaller("tofile", "never"),
    "rename-method": operator.methodcaller("rename", "never"),
    "dask-to-pickle": methodcaller("to_pickle"),
    "dask-eval": methodcaller("eval"),
    "dask-agg": methodcaller("agg"),
    "dask-view": methodcaller("view"),
    "partial": functools.partial(np.load, "never"),
    "deep-partial": functools.partial(sorted, key=functools.partial(np.load)),
    "compose": toolz.compose(np.load, str),
    "curry": toolz.curry(np.save),
    "bound": PATH.rename,
    "read_text": PATH.read_text,
    "array-method": np.ones(2).tofile,
    "from_zarr": da.from_zarr,
    "dask-compute": dd.DataFrame.compute,
    "expression": type(FRAME.expr),
    "open_files": io.open_code,
    "scheduler": Scheduler,
}
if hasattr(operator, "call"):
    EVIL["call"] = operator.call

#: The places where a function can stand in a graph.
PLACES = {
    "function": lambda evil: one(evil, "never"),
    "argument": lambda evil: one(sorted, [1], evil),
    "keyword": lambda evil: one(sorted, [1], key=evil),
    "list": lambda evil: one(max, [1, [evil]]),
    "container": lambda evil: one(max, List(1, evil)),
    "dict": lambda evil: one(max, {"a": {"b": evil}}),
    "dict-task": lambda evil: one(max, Dict({"a": evil})),
    "data": lambda evil: graph({"x": DataNode("x", evil)}),
    "data-list": lambda evil: graph({"x": DataNode("x", [(evil,)])}),
    "apply": lambda evil: one(apply, evil, ["never"]),
    "partial": lambda evil: one(functools.partial(sorted, key=evil), [1]),
    "compose": lambda evil: one(toolz.compose(len, evil), "never"),
    "subgraph": lambda evil: graph(
        {"x": Task.fuse(Task("y", evil, "never"), Task("x", len, TaskRef("y")))}
    ),
    "objects": lambda evil: one(len, np.array([evil, 1], object)),
}


@pytest.mark.parametrize("place", ["function", "keyword", "subgraph"])
@pytest.mark.parametrize("name", EVIL)
def test_what_reaches_further_is_refused_before_it_is_built(bob, name, place):
    data = cloudpickle.dumps(PLACES[place](EVIL[name]))
    assert sent(bob, data) is bob.SKIP
    [[element]] = bob.answers
    assert (element["op"], element["key"]) == ("task-erred", "x")
    assert isinstance(element["exception"], SafeserError)
    assert bob.refused_by_server


@pytest.mark.parametrize("name", ["load", "system", "ndarray", "rename", "partial", "dask-eval"])
@pytest.mark.parametrize("place", PLACES)
def test_a_function_is_listed_wherever_it_stands(bob, name, place):
    assert sent(bob, cloudpickle.dumps(PLACES[place](EVIL[name]))) is bob.SKIP
    assert bob.refused_by_server


#: Roots that are no graph written out into tasks.
ROOTS = {
    "nothing": None,
    "list": [],
    "tasks-only": {"tasks": {}},
    "more": {**graph({}), "more": 1},
    "no-mapping": graph([]),
    "no-task": graph({"x": 1}),
    "legacy-task": graph({"x": (operator.add, 1, 2)}),
    "another-key": graph({"x": Task("y", len, [1])}),
    "function": operator.add,
    "low-level": LLGExpr({"x": Task("x", len, [1])}),
    "array": X.sum().expr if hasattr(X, "expr") else HLGExpr.from_collection(X.sum()),
    "frame": FRAME.a.sum().optimize().expr,
    "collection": X,
    "frame-collection": FRAME,
    "graph-in-a-graph": graph({"x": DataNode("x", X.dask)}),
    "expression-as-value": one(len, FRAME.expr),
    "array-as-value": one(np.sum, X),
    "annotation-list": graph({"x": Task("x", len, [1])}, {"priority": [1]}),
    "annotation-name": graph({"x": Task("x", len, [1])}, {1: {"x": 1}}),
    "annotation-of-nothing": graph({"x": Task("x", len, [1])}, {"priority": {"y": 1}}),
    "annotation-function": graph({"x": Task("x", len, [1])}, {"priority": {"x": len}}),
    "annotation-deep": graph({"x": Task("x", len, [1])}, {"workers": {"x": [[len]]}}),
    "annotation-task": graph({"x": Task("x", len, [1])}, {"a": {"x": Task("x", len, [1])}}),
    **{
        f"annotation-{name}-{value!r}"[:60]: graph({"x": Task("x", len, [1])}, {name: {"x": value}})
        for name, value in [
            ("priority", 2**70),
            ("priority", -(2**63)),
            ("priority", "high"),
            ("priority", float("nan")),
            ("priority", True),
            ("retries", 2**40),
            ("retries", -1),
            ("retries", 1.5),
            ("workers", True),
            ("workers", [5.0]),
            ("workers", [["w"]]),
            ("workers", ["\ud800"]),
            ("allow_other_workers", "yes"),
            ("resources", {"GPU": -1}),
            ("resources", {"GPU": "1"}),
            ("resources", {"GPU": float("inf")}),
            ("resources", [1]),
            ("span", 1),
            ("span", {"name": [1], "ids": ["a"]}),
            ("span", {"name": ["a"], "ids": []}),
            ("span", {"name": ["a"] * 33, "ids": [str(at) for at in range(33)]}),
            ("anything", 2**64),
            ("anything", "x" * 70_000),
            ("anything", {"x": [("y" * 1000, 1)] * 70}),
            ("workers", [f"127.0.0.1:{port}" for port in range(201)]),
            ("restrictions", list(map(str, range(201)))),
            ("resources", {str(each): 1 for each in range(101)}),
        ]
    },
    **{
        f"key-{key!r}": graph({key: Task(key, len, [1])})
        for key in ["\ud800", 2**64, -(2**63) - 1, ("x", 2**70), ("x", (float("nan"),))]
    },
    "annotations-together": graph(
        {"x": Task("x", len, [1])}, {str(each): {"x": "y" * 10_000} for each in range(7)}
    ),
    "reference-to-no-key": one(len, TaskRef("\ud800")),
    "annotation-array": graph({"x": Task("x", len, [1])}, {"a": {"x": np.ones(2)}}),
}


@pytest.mark.parametrize("name", ROOTS)
def test_only_what_is_written_out_is_opened(bob, name):
    assert sent(bob, cloudpickle.dumps(ROOTS[name])) is bob.SKIP
    [[element]] = bob.answers
    assert isinstance(element["exception"], SafeserError)
    assert bob.refused_by_server


def _nested(levels, leaf="a"):
    for _ in range(levels):
        leaf = (leaf, leaf)
    return leaf


@pytest.mark.parametrize("kind", ["reference", "alias", "target", "data"])
def test_a_key_of_itself_costs_nobody_more_than_its_bytes(bob, kind):
    # Two hundred bytes took seconds, and each level twice as long.
    key = _nested(20)
    made = {
        "reference": Cheat(TaskRef, key),
        "alias": Cheat(Alias, key, "y"),
        "target": Cheat(Alias, "x", key),
        "data": Cheat(DataNode, key, 1),
    }[kind]
    assert sent(bob, pickle.dumps(graph({"x": made}))) is bob.SKIP
    assert bob.refused_by_server == ["pickle.max-refs"]


def test_keys_of_several_parts_are_keys(bob):
    key = ("x", 0, ("y", ("z", *range(20))))
    name = "name-\u00e9"
    tasks = {key: Task(key, len, TaskRef((name, 1))), "z": Task("z", len, TaskRef(key))}
    assert sent(bob, pickle.dumps(graph(tasks)), keys=["z"]) is not bob.SKIP


def test_what_tasks_share_is_looked_at_once(bob, monkeypatch):
    """A list of many workers beside each of many tasks is one in a pickle."""
    seen = []
    check = approved.check_annotation
    monkeypatch.setattr(
        approved, "check_annotation", lambda *pair: seen.append(pair) or check(*pair)
    )
    workers = [f"127.0.0.1:{port}" for port in range(200)]
    tasks = {f"x-{at}": Task(f"x-{at}", len, [at]) for at in range(10)}
    data = pickle.dumps(graph(tasks, {"workers": dict.fromkeys(tasks, workers)}))
    assert sent(bob, data, keys=["x-1"]) is not bob.SKIP
    assert seen == [("workers", workers)]


def test_an_alias_and_data_are_tasks_too(bob):
    tasks = {"x": Alias("x", "y"), "y": DataNode("y", [1, np.arange(3)])}
    assert sent(bob, pickle.dumps(graph(tasks))) is not bob.SKIP


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"actors": True}, "submission.actors"),
        ({"actors": ["x"]}, "submission.actors"),
        ({"annotations": pickle.dumps({"priority": len})}, "submission.annotation"),
        ({"annotations": pickle.dumps({"workers": [len]})}, "submission.annotation"),
        ({"span_metadata": pickle.dumps([packaging.version.parse])}, "submission.annotation"),
        ({"code": pickle.dumps((one(len, [1]),))}, "submission.annotation"),
        ({"user_priority": pickle.dumps(len)}, "submission.annotation"),
        ({"user_priority": 2**64 - 1}, "submission.annotation"),
        ({"user_priority": {"x": 2**63}}, "submission.annotation"),
        ({"user_priority": float("nan")}, "submission.annotation"),
        ({"annotations": [1]}, "submission.annotation"),
        ({"annotations": {"priority": "high"}}, "submission.annotation"),
        ({"annotations": {"resources": {"GPU": -1}}}, "submission.annotation"),
        ({"annotations": {"workers": 5.0}}, "submission.annotation"),
        ({"annotations": {str(n): "x" * 10_000 for n in range(7)}}, "submission.annotation"),
    ],
)
def test_nothing_beside_a_graph_can_be_called(bob, more, rule):
    given = {
        name: bob.Eager(bob.Row(HEADER, (value,))) if isinstance(value, bytes) else value
        for name, value in more.items()
    }
    assert sent(bob, pickle.dumps(one(len, [1])), **given) is bob.SKIP
    [[element]] = bob.answers
    assert isinstance(element["exception"], SafeserError)
    # Functions and tasks are refused already as what the profiles for values don't list.
    assert bob.refused_by_server[-1] in (
        rule,
        "pickle.global",
        "context.family",
        "operation.field",
        "operation.field-shape",
    )


@pytest.mark.parametrize("form", ["bare", "opaque", "eager", "cloudpickle", "bytes", "failed"])
def test_forms_of_an_attack(bob, forms, form):
    bob.refuses(update(forms[form]))


def test_what_somebody_else_wrote_is_no_submission(bob):
    data = pickle.dumps(one(len, [1]))
    row = bob.Row(HEADER, (data,), "alice")
    assert bob.attack(update(row)) is bob.SKIP
    assert bob.refused_by_server


def test_other_elements_of_the_batch_go_on(bob):
    evil = update(bob.Row(HEADER, (cloudpickle.dumps(one(os.system, "never")),)))
    honest = update(bob.Row(HEADER, (pickle.dumps(one(len, [1])),)), keys=["y"])
    got = bob.attack([*evil, {"op": "heartbeat-client"}, *honest])
    assert [element["op"] for element in got] == ["heartbeat-client", "update-graph"]


class TestGrants:
    """Tasks and functions pass in graphs alone: a callable value would be called by one."""

    policy = Policy.parse(POLICY)

    def grant(self, operation: str | None, kind: Kind = Kind.TASK) -> Any:
        return self.policy.grant(Context("bob", "scheduler", kind, operation))

    def test_a_graph_is_read_by_the_profiles_of_tasks(self):
        assert self.grant("update-graph").profiles == APPROVED

    @pytest.mark.parametrize("operation", ["scatter", "update_data", "publish_put", None])
    def test_nothing_else_is(self, operation):
        assert self.grant(operation, Kind.DATA).profiles == ("data",)

    @pytest.mark.parametrize("value", [len, np.ndarray, type, one(len, [1]), pd.DataFrame])
    def test_so_that_no_value_can_be_called(self, value):
        profile = pickles.Profile.granted(self.grant("scatter", Kind.DATA).profiles)
        with pytest.raises(PolicyDenied):
            pickles.loads(pickle.dumps(value), profile=profile)

    def test_layers_and_expressions_are_no_tasks(self):
        names = set(pickles.Profile.named(*APPROVED).entries)
        listed = pickles.Profile.named("dask-graph").entries
        expressions = listed["dask._expr:Expr._reconstruct"].args[0]
        assert not names & {
            *expressions,
            "dask.blockwise:Blockwise",
            "dask._expr:Expr._reconstruct",
        }


@settings(max_examples=60, deadline=None)
@given(
    data=st.sampled_from(
        [
            pickle.dumps(one(operator.add, 1, np.arange(3))),
            pickle.dumps(graph({"x": Task("x", functools.partial(sorted, key=len), ["a"])})),
        ]
    ),
    at=st.integers(0, 400),
    byte=st.integers(0, 255),
)
def test_any_bytes_are_a_graph_or_a_refusal(data, at, byte):
    changed = data[: at % len(data)] + bytes([byte]) + data[at % len(data) + 1 :]
    try:
        made = approved.opened(pickles.loads(changed, profile=PROFILE))
    except SafeserError:
        return
    assert isinstance(deserialize(made.header, made.frames), approved.WrittenOut)


def test_collections_are_written_out_and_come_back():
    expr = collections_to_expr([(X + 1).sum()]).optimize()
    written = approved.write_out(expr)
    data = pickles.dumps(written, profile=PROFILE, reduce=approved.reduced)
    made = approved.opened(pickles.loads(data, profile=PROFILE)).frames[0].take()
    assert set(made.__dask_graph__()) == set(written["tasks"])
