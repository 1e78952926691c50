"""Profile dask-graph: graphs come back and compute the same; nothing else is ever called."""

from __future__ import annotations

import functools
import importlib
import io
import operator
import pickle
import types
import warnings

import numpy as np
import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import Profile, loads

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
toolz = pytest.importorskip("toolz")
from dask._expr import HLGExpr  # noqa: E402
from dask._task_spec import Alias, DataNode, Dict, List, Set, Task, TaskRef, Tuple  # noqa: E402
from dask.base import collections_to_expr  # noqa: E402
from dask.blockwise import Blockwise  # noqa: E402
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer  # noqa: E402
from dask.utils import methodcaller  # noqa: E402

from safeser.dask import approved  # noqa: E402
from safeser.pickles.shims import calls  # noqa: E402
from safeser.values import Limits  # noqa: E402

PROFILE = ("data", "numpy", "pandas", "functions", "dask-graph")
DATA = np.arange(16.0).reshape(4, 4)


class Forger(pickle.Pickler):
    """Pickles some objects as others, by identity."""

    def __init__(self, file, change):
        super().__init__(file, 5)
        self.change = change

    def reducer_override(self, value):
        return self.change(value) if not isinstance(value, type) else NotImplemented


def forged(value, change):
    file = io.BytesIO()
    Forger(file, change).dump(value)
    return file.getvalue()


def stated(value, of=Task, **fields):
    """Pickle *value*, whose parts of exactly class *of* get other *fields* in their state."""

    def change(part):
        if type(part) is not of:
            return NotImplemented
        made, args, state = part.__reduce_ex__(4)[:3]
        if type(state) is dict:
            return made, args, {**state, **fields}
        names = of.get_all_slots()
        return made, args, tuple(fields.get(n, v) for n, v in zip(names, state, strict=True))

    return forged(value, change)


def rebuilt(value, profile=PROFILE, protocol=5):
    return loads(pickle.dumps(value, protocol), profile=profile)


def refused(data, profile=PROFILE, match=None):
    with pytest.raises((PayloadError, PolicyDenied), match=match):
        loads(data, profile=profile)


def computed(expr):
    graph = expr.optimize()
    return dask.get(dict(graph.__dask_graph__()), graph.__dask_keys__())


def arrays():
    x, y = da.from_array(DATA, chunks=2), da.ones((4, 4), chunks=2)
    return [
        x + 1,
        x + y,
        x.sum(),
        x.mean(axis=0),
        x.std(),
        x.max(),
        x.cumsum(0),
        x.T @ x,
        x[1:3],
        x[[1, 2]],
        x.rechunk(1),
        x.reshape(16),
        x**2,
        da.concatenate([x, y]),
        da.stack([x, y]),
        da.where(x > 3, x, y),
        da.exp(x).astype("f4"),
        da.arange(10, chunks=5),
        da.eye(4, chunks=2),
        da.linalg.qr(x.rechunk((2, 4)))[1],
        da.map_blocks(np.sqrt, x),
        da.tensordot(x, y),
    ]


@pytest.mark.parametrize("at", range(22))
def test_arrays(at):
    made = arrays()[at]
    expr = collections_to_expr((made,))
    got = rebuilt(expr)
    assert type(got) is type(expr)
    assert repr(computed(got)) == repr(computed(expr))
    again = rebuilt(made)
    assert (again.name, again.chunks, again.dtype) == (made.name, made.chunks, made.dtype)
    assert np.array_equal(again.compute(scheduler="sync"), made.compute(scheduler="sync"))


def frames():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"a": range(6), "b": np.arange(6.0), "c": list("xyxyxy")})
    df = dd.from_pandas(frame, npartitions=2)
    return [
        df,
        df.a,
        df[["a", "b"]],
        df.a.sum(),
        df.b.mean(),
        df.count(),
        df.b.var(),
        df.groupby("c").a.sum(),
        df.groupby("c").b.mean(),
        df[df.a > 2],
        df.assign(z=df.a + 1),
        df.fillna(0),
        df.rename(columns={"a": "q"}),
        df.drop_duplicates(),
        df.nlargest(2, "a"),
        df.a * 2 - df.b,
    ]


@pytest.mark.parametrize("at", range(16))
def test_frames(at):
    made = frames()[at]
    for expr in (made.expr, made.optimize().expr):
        got = rebuilt(expr)
        assert type(got) is type(expr)
        assert got._name == expr._name
        assert repr(computed(got)) == repr(computed(expr))


def test_a_frame_by_itself():
    made = frames()[3]
    assert rebuilt(made).compute(scheduler="sync") == made.compute(scheduler="sync")
    with pytest.raises(PayloadError, match="function"):
        rebuilt(made.optimize())


def test_delayed():
    inner = dask.delayed(sum)([dask.delayed(len)([1, 2]), 3])
    assert rebuilt(inner).compute(scheduler="sync") == 5
    assert computed(rebuilt(collections_to_expr((inner,)))) == computed(
        collections_to_expr((inner,))
    )


TASKS = [
    Task("k", operator.add, TaskRef("a"), 1),
    Task(("k", 0), functools.partial(sum, start=3), [1, 2]),
    Task("k", np.sum, DATA),
    Task("k", toolz.curry(operator.add, 1), 2),
    Task("k", toolz.compose(len, list), (1, 2)),
    Task("k", methodcaller("sum"), DATA),
    Task("k", len, List(TaskRef("a"), 2), keyword=1),
    Alias("a", "b"),
    DataNode("d", {"x": [1, DATA, slice(1, 2)], "y": {1, 2}, "z": frozenset((3,))}),
    List(TaskRef("a"), 1),
    Tuple(TaskRef("a"), 1),
    Set(TaskRef("a")),
    Dict({"a": TaskRef("a")}),
    DataNode("m", np.ma.masked_array([1.0, 2.0], [True, False])),
    DataNode("o", np.array([1, "two", None], object)),
]


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("at", range(len(TASKS)))
def test_tasks(at, protocol):
    task = TASKS[at]
    got = rebuilt(task, protocol=protocol)
    assert type(got) is type(task)
    assert (got.key, got.dependencies) == (task.key, task.dependencies)
    values = {"a": 4, "b": 5}
    assert repr(got) == repr(task)
    if not (isinstance(task, Task) and task.kwargs and type(task) is Task):
        assert repr(got(values)) == repr(task(values))


def test_ones_own_functions_and_classes(trap):
    named = {"safeser_trap:fire": "reference", "safeser_trap:Armed": "reference"}
    profile = Profile.named(*PROFILE).allowing(named)
    for function in (trap.fire, trap.Armed):
        assert loads(pickle.dumps(Task("k", function, 1)), profile=profile).func is function
        with pytest.raises(PolicyDenied, match="safeser_trap"):
            rebuilt(Task("k", function, 1))
    assert trap.fired == []


def test_a_lambda_is_refused_by_name():
    cloudpickle = pytest.importorskip("cloudpickle")
    data = cloudpickle.dumps(Task("k", lambda value: value, 1))
    refused(data, match="cloudpickle")


class TestFunctions:
    """What may be named must not be called for that reason."""

    @pytest.mark.parametrize("place", ["func", "argument", "keyword", "list", "data", "array"])
    @pytest.mark.parametrize("kind", [np.void, np.ndarray, type, memoryview, np.memmap])
    def test_a_class_that_is_not_for_calling(self, kind, place):
        held = np.empty(1, object)
        held[0] = kind
        made = {
            "func": Task("k", kind, (1,), "O", b"12345678"),
            "argument": Task("k", dask.utils.apply, kind, [(1,)]),
            "keyword": Task("k", dask.utils.apply, len, args=kind),
            "list": Task("k", len, [[{"a": (kind,)}]]),
            "data": DataNode("k", kind),
            "array": DataNode("k", held),
        }[place]
        refused(pickle.dumps(made))

    @pytest.mark.parametrize("function", [eval, exec, getattr, setattr, open, __import__])
    def test_functions_that_are_not_listed(self, function):
        refused(pickle.dumps(Task("k", function, "1")), match=function.__name__)
        refused(pickle.dumps(Task("k", dask.utils.apply, function, ["1"])))
        refused(pickle.dumps(functools.partial(function, "1")))

    def test_inside_of_partials_and_curries(self):
        gadgets = [
            functools.partial(dask.utils.apply, np.void, [9]),
            functools.partial(dask.utils.apply, args=[np.void]),
            toolz.curry(dask.utils.apply, np.void),
            toolz.compose(len, functools.partial(dask.utils.apply, np.void)),
        ]
        for gadget in gadgets:
            refused(pickle.dumps(Task("k", gadget, 1)))

    @pytest.mark.parametrize("name", ["to_pickle", "query", "eval", "tofile", "__reduce__", 3])
    def test_methods_that_do_not_only_compute(self, asm, name):
        argument = asm.text(name) if type(name) is str else asm.number(name)
        refused(asm.pickle(asm.call("dask.utils:methodcaller", argument)))

    @pytest.mark.parametrize(
        "name", ["tofile", "real.tofile", "eval", "style.env.from_string", "dtype.type", "apply"]
    )
    def test_bypass_a_method_that_one_task_takes_and_another_calls(self, name):
        taken = Task("method", operator.attrgetter(name), DATA)
        called = Task("k", max, ["/a", "/b"], key=TaskRef("method"))
        refused(pickle.dumps({"method": taken, "k": called}))
        refused(pickle.dumps(Task("k", toolz.compose(str, operator.attrgetter("T", name)), DATA)))
        refused(pickle.dumps(Task("k", sorted, [DATA], key=operator.attrgetter(name))))

    def test_attributes_that_are_only_data(self):
        got = rebuilt(Task("k", operator.attrgetter("T.shape"), DATA))
        assert got() == (4, 4)

    def test_bypass_an_address_that_numpy_takes_from_an_attribute(self):
        address = {"data": (id(DATA), True), "shape": (64,), "typestr": "|u1", "version": 3}
        holder = types.SimpleNamespace
        refused(pickle.dumps(Task("k", holder, __array_interface__=address)))
        refused(pickle.dumps(Task("k", dask.utils.apply, holder, [], {"__array_struct__": 1})))
        refused(pickle.dumps(Task("k", functools.partial(dask.utils.apply, holder))))

    @pytest.mark.parametrize("place", ["func", "partial", "curry", "compose", "apply", "argument"])
    @pytest.mark.parametrize("function", [np.sqrt, np.clip])
    def test_bypass_memory_that_where_leaves_unwritten(self, function, place):
        more = (0, 1) if function is np.clip else ()
        bag, where = importlib.import_module("dask.bag.core"), {"where": False}
        made = {
            "func": Task("k", function, DATA, *more, **where),
            "partial": Task("k", functools.partial(function, **where), DATA, *more),
            "curry": Task("k", toolz.curry(function, **where), DATA, *more),
            "compose": Task("k", toolz.compose(np.sum, function), DATA, *more, **where),
            "apply": Task("k", dask.utils.apply, function, [DATA, *more], where),
            "argument": Task(
                "k", bag.map_chunk, function, [[m] for m in (DATA, *more)], None, where
            ),
        }[place]
        with pytest.raises(PolicyDenied, match="the option where"):
            list(rebuilt(made)())

    def test_bypass_memory_between_fields(self):
        gaps = Dict({"names": ["a"], "formats": ["i1"], "itemsize": 4000})
        fields = np.zeros(2, [("a", "i1"), ("b", "i1"), ("c", "i1")])
        for made in (
            Task("k", np.full, 1, 0, gaps),
            Task("k", toolz.compose(bytes, functools.partial(np.full, 1, 0)), gaps),
            Task("k", importlib.import_module("dask.array.chunk").astype, DATA, gaps),
            Task("k", operator.getitem, fields, ["a", "c"]),
            Task("k", operator.itemgetter(["a", "c"]), fields),
            Task("k", dask.utils.itemgetter(["a", "c"]), fields),
            Task("k", methodcaller("astype"), DATA, gaps),
            Task("k", da.core.concatenate_lookup, [DATA], dtype=gaps, casting="unsafe"),
        ):
            data = forged(made, approved.reduced)
            with pytest.raises(PolicyDenied, match="with gaps"):
                loads(data, profile=PROFILE)()

    @pytest.mark.parametrize("kind", ["array", "element", "masked", "frame", "list", "objects"])
    def test_bypass_memory_between_fields_that_somebody_scattered(self, kind):
        pd = pytest.importorskip("pandas")
        array = np.zeros(4, {"names": ["a"], "formats": ["i1"], "itemsize": 400})
        objects = np.empty(1, object)
        objects[0] = array
        given = {
            "array": array,
            "element": array[0],
            "masked": np.ma.MaskedArray(array),
            "frame": pd.DataFrame((array,)),
            "list": {"deep": [({"er": [array]},)]},
            "objects": [objects, pd.Series(objects)],
        }[kind]
        for made in (
            Task("k", pd.DataFrame, Tuple(TaskRef("a"))),
            Task("k", methodcaller("copy"), TaskRef("a")),
            Task("k", np.sqrt, TaskRef("a")),
            Task("k", np.sort, TaskRef("a")),
            Task("k", operator.getitem, TaskRef("a"), 0),
            Task("k", bytes, TaskRef("a")),
            Task("k", dict, zip=TaskRef("a")),
            Task("k", toolz.compose(bytes, list), TaskRef("a")),
            Task("k", functools.partial(list), TaskRef("a")),
            Task("k", functools.reduce, operator.add, TaskRef("a")),
            Task("k", importlib.import_module("dask.array.slicing").setitem, 1, TaskRef("a"), 0),
        ):
            with pytest.raises(PolicyDenied, match="with gaps"):
                rebuilt(made)({"a": given})

    def test_bypass_memory_between_the_fields_of_a_column(self):
        pd = pytest.importorskip("pandas")
        array = np.zeros(4, {"names": ["a"], "formats": ["i1"], "itemsize": 400})
        with pytest.raises(PolicyDenied, match="with gaps"):
            calls.without_gaps(pd.DataFrame((array,)))

    def test_bypass_of_time_keys_that_many_tasks_wait_for(self):
        keys = [f"k{at}" for at in range(200)]
        shared = List(*map(TaskRef, keys))
        tasks = [Task(at, len, shared) for at in range(100)]
        for task in tasks:
            task._dependencies = shared.dependencies
        data = pickle.dumps(tasks)
        assert len(loads(data, profile=PROFILE, limits=Limits(max_refs=60_000))) == 100
        with pytest.raises(PayloadError, match="more elements than allowed"):
            loads(data, profile=PROFILE, limits=Limits(max_refs=12_000))

    def test_bypass_memory_that_blocks_leave_unwritten(self):
        core, block = importlib.import_module("dask.array.core"), np.ones(2)
        ragged = [[block, block], [block]]
        for made in (
            Task("k", core.concatenate3, ragged),
            Task("k", core.finalize, ragged),
            Task("k", core.concatenate_axes, ragged, [0, 1]),
            Task("k", core.concatenate_shaped, [(block, block), (block,)], (2,)),
            Task("k", core._vindex_merge, [[0, 0]], [block]),
            Task("k", dask.utils.apply, core.concatenate3, [ragged]),
        ):
            with pytest.raises(PolicyDenied, match="leave a part"):
                rebuilt(made)()

    def test_bypass_a_function_that_looks_any_method_up_by_its_name(self):
        rolling = pytest.importorskip("dask.dataframe.dask_expr._rolling")
        # It would hand over copyreg's functions, and methods that are bound.
        made = Task("k", rolling._rolling_agg, None, 1, {}, "__reduce__", [], {})
        refused(pickle.dumps(made), match="_rolling_agg")

    def test_a_curried_text_imports_nothing(self, asm):
        def curry(function, outer=b"\x89", fields=b")"):
            parts = asm.name("toolz.functoolz:curry"), function, b")", b"}", fields, outer
            return asm.pickle(asm.call("toolz.functoolz:_restore_curry", *parts))

        inner = asm.text("dask.array.wrap:_broadcast_trick_inner")
        assert loads(curry(inner), profile=PROFILE)
        assert loads(curry(inner, b"\x88"), profile=PROFILE)
        for function in ("os:system", "this:s", "dask.utils:apply", "nothing"):
            refused(curry(asm.text(function)))
        refused(curry(asm.number(1)))
        refused(curry(inner, b"\x89", asm.tuple(asm.tuple(asm.text("__class__"), b"N"))))
        refused(curry(inner, b"\x89", asm.tuple(asm.tuple(asm.text("__doc__"), b"]"))))

    def test_frames_hold_plain_values(self):
        pd = pytest.importorskip("pandas")
        for held in (np.ndarray, [1], len):
            frame = pd.DataFrame({"a": pd.Series([held], dtype=object)})
            refused(pickle.dumps(DataNode("k", frame)))
        fine = pd.DataFrame({"a": pd.Series(["x", None, 1], dtype=object)})
        assert rebuilt(DataNode("k", fine)).value.equals(fine)
        assert rebuilt(DataNode("k", fine.a)).value.equals(fine.a)


@pytest.mark.parametrize("name", ["chunk", "combine", "aggregate"])
def test_methods_by_a_text_of_the_sender_are_refused(asm, name):
    # IdxMin's parts call whatever method of the frame their argument fn names.
    refused(asm.pickle(asm.name(f"dask.dataframe.dask_expr._reductions:IdxMin.{name}")))


def _as_ordered_text(fields: dict[str, object]) -> str:
    """Name a case alike in every process: the order of a set's text differs between them."""
    return ", ".join(
        f"{name}={sorted(map(str, value)) if isinstance(value, frozenset) else value}"
        for name, value in fields.items()
    )


class TestForged:
    @pytest.mark.parametrize(
        "fields",
        [
            {"func": None},
            {"func": "len"},
            {"func": np.void},
            {"args": [1]},
            {"kwargs": {1: 2}},
            {"kwargs": []},
            {"_token": 1},
            {"_repr": b"x"},
            {"_is_coro": 1},
            {"_data_producer": None},
            {"_dependencies": {"a"}},
            {"_dependencies": frozenset((None,))},
            {"_dependencies": frozenset(("waits",))},
            {"_dependencies": frozenset(), "args": (TaskRef("y"),)},
            {"_dependencies": frozenset(("y", "z")), "args": (TaskRef("y"),)},
            {"_dependencies": frozenset(), "args": (List(TaskRef("y")),)},
            {"_dependencies": frozenset(), "kwargs": {"a": TaskRef("y")}},
            {"key": [1]},
        ],
        ids=_as_ordered_text,
    )
    def test_tasks(self, fields):
        refused(stated(Task("k", len, [1]), **fields))

    @pytest.mark.parametrize("fields", [{"_token": "x"}, {"_repr": "x"}, {"_is_coro": True}])
    def test_what_dask_works_out_is_not_taken_from_a_peer(self, fields):
        made = loads(stated(Task("k", len, [1]), **fields), profile=PROFILE)
        assert (made._token, made._repr, made._is_coro) == (None, None, None)

    def test_a_container_calls_its_own_class(self):
        made = stated(List(1, 2), of=List, kwargs={"constructor": sum}, func=sum)
        assert loads(made, profile=PROFILE)() == [1, 2]

    def test_states_of_another_form(self, asm):
        for name in ("dask._task_spec:Task", "dask.highlevelgraph:HighLevelGraph"):
            for state in (b"N", asm.tuple(b"N"), asm.dict(asm.text("fire"), b"N")):
                refused(asm.pickle(asm.build(asm.new(name), state)))
            refused(asm.pickle(asm.new(name)))

    @pytest.mark.parametrize(
        "fields",
        [
            {"task": None},
            {"output": 1},
            {"output_indices": ("z",)},
            {"numblocks": {"x": (10**6, 10**6)}},
            {"numblocks": {"x": (2,)}},
            {"numblocks": {"x": ("2", 2)}},
            {"new_axes": {1: 1}},
            {"new_axes": []},
            {"annotations": []},
            {"concatenate": np.void},
            {"extra": 1},
        ],
        ids=str,
    )
    def test_layers_of_blocks(self, fields):
        task = Task("y", operator.neg, TaskRef("__dask_blockwise__0"))
        layer = Blockwise("y", ("i", "j"), task, [("x", ("i", "j"))], {"x": (2, 2)})
        assert len(rebuilt(layer).get_output_keys()) == 4
        refused(stated(layer, of=Blockwise, **fields))

    def test_graphs(self):
        layer = MaterializedLayer({"k": Task("k", len, [1])})
        graph = HighLevelGraph({"k": layer}, {"k": set()})
        assert rebuilt(graph).keys() == {"k"}
        for fields in (
            {"layers": {"k": {"k": 1}}},
            {"layers": {1: layer}},
            {"layers": []},
            {"dependencies": {"k": ["k"]}},
            {"_anything": 1},
        ):
            refused(stated(graph, of=HighLevelGraph, **fields))
        refused(stated(layer, of=MaterializedLayer, mapping=[1]))
        refused(stated(layer, of=MaterializedLayer, mapping={None: 1}))
        refused(stated(layer, of=MaterializedLayer, mapping={"k": (np.void, 9)}))
        delayed = dask.delayed(len)([1])
        for name, value in (("_dask", {}), ("_layer", "other"), ("_extra", 1)):

            def change(part, name=name, value=value):
                if part is not delayed:
                    return NotImplemented
                made, args, (nothing, state) = part.__reduce_ex__(4)[:3]
                return made, args, (nothing, {**state, name: value})

            refused(forged(delayed, change))

    def test_arrays(self):
        made = da.ones(4, chunks=2)
        parts = [made.dask, made.name, made.chunks, made.dtype, made._meta]
        for at, part in (
            (0, {}),
            (1, 1),
            (2, "auto"),
            (2, ((-1,),)),
            (2, ([2],)),
            (3, "f8"),
            (4, np.ones(2)),
            (4, None),
        ):
            changed = [*parts[:at], part, *parts[at + 1 :]]
            data = forged(
                made,
                lambda value, c=changed: (da.Array, tuple(c)) if value is made else NotImplemented,
            )
            refused(data)

    def test_expressions(self, asm):
        made = collections_to_expr((da.ones(4, chunks=2),))
        token = made.deterministic_token

        def expression(kind, *operands, token=token, computed=None):
            args = (kind, *operands, token, computed if computed is not None else {})
            holder = asm_holder(args)
            return pickle.dumps(holder)

        refused(expression(HLGExpr))
        refused(expression(HLGExpr, made.operands[0], token="x"))
        refused(expression(HLGExpr, token=1))
        refused(expression(Task, 1))
        refused(expression(HLGExpr, *[None] * 5, computed=[]))
        got = loads(expression(type(made), *made.operands, computed={"fire": 1}), profile=PROFILE)
        assert "fire" not in got.__dict__

    def test_an_expression_is_never_one_that_was_here_before(self):
        made = frames()[0].expr
        got = rebuilt(made)
        assert got is not made
        assert type(made)(*made.operands, _determ_token=made.deterministic_token) is made

    def test_collections(self, asm):
        refused(pickle.dumps(asm_holder((), "dask._collections:new_collection")))
        refused(pickle.dumps(asm_holder((1,), "dask._collections:new_collection")))
        refused(pickle.dumps(asm_holder((1,), "dask.dataframe.dask_expr._util:_BackendData")))

    def test_deep(self):
        deep = []
        for _ in range(70):
            deep = [deep]
        refused(pickle.dumps(DataNode("k", deep)), match="deep")

    def test_a_list_that_grows_after_it_was_checked_changes_nothing(self, asm):
        data = pickle.dumps(Task("k", dask.utils.apply, len, [[1]]), 4)
        assert data.endswith(b"b.")
        body = data[:2] + data[11:-1] if data[2:3] == b"\x95" else data[:-1]
        for entry in range(40):
            late = body + b"h" + bytes([entry]) + asm.name("numpy:ndarray") + b"a0."
            try:
                got = loads(late, profile=PROFILE)
            except (PayloadError, PolicyDenied):
                continue
            assert got() == 1


def asm_holder(args, name="dask._expr:Expr._reconstruct"):
    """Return an object that pickles as a call of *name*."""
    module, _, qualname = name.partition(":")
    target = functools.reduce(getattr, qualname.split("."), __import__(module, fromlist=["x"]))

    class Holder:
        def __reduce__(self):
            return target, args

    return Holder()


def test_nothing_ran(trap):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(pickle.dumps(Task("k", trap.fire, 1)))
        refused(pickle.dumps(DataNode("k", trap.Armed)))
    assert trap.fired == []
