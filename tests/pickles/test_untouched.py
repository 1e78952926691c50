"""What approved tasks are given stays as it was, however they are asked to write into it."""

from __future__ import annotations

import importlib
import inspect
import operator
import pickle
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from dask.array.ufunc import da_frompyfunc

from safeser import pickles
from safeser.errors import PolicyDenied
from safeser.pickles.shims import calls, standing
from safeser.pickles.shims.dask_values import called
from safeser.pickles.shims.untouched import INTO, untouched, untouched_by
from safeser.policy.rules import APPROVED

pd = pytest.importorskip("pandas")
pytest.importorskip("dask.dataframe")

ROOM = np.arange(4.0)
MASKED = np.ma.MaskedArray(np.arange(4.0), mask=[0, 1, 0, 0])
FRAME = pd.DataFrame({"a": [1, 2, 3]})
COUNTS = {"a": ROOM}
GAPS = pd.Series([1, None], dtype="Int64")


def listed(name: str) -> Any:
    """Return what a task calls for *name*."""
    module, _, qualname = name.partition(":")
    found = operator.attrgetter(qualname)(importlib.import_module(module))
    return called(None, found)  # type: ignore[arg-type]  # of functions, nothing is charged


def rooms() -> list[Any]:
    return [ROOM.tolist(), MASKED.tolist(), FRAME.to_dict(), COUNTS, GAPS.tolist()]


@pytest.mark.parametrize(
    "call",
    [
        lambda: listed("numpy:add")(ROOM, 1, ROOM),
        lambda: listed("numpy:add")(ROOM, 1, out=ROOM),
        lambda: listed("numpy:modf")(ROOM, None, ROOM),
        lambda: listed("numpy:modf")(ROOM, out=(None, ROOM)),
        lambda: listed("numpy:dot")(ROOM, 1, ROOM),
        lambda: listed("numpy:sum")(np.ones((4, 4)), 0, None, ROOM),
        lambda: listed("numpy:clip")(ROOM, 1, 2, ROOM),
        lambda: listed("numpy:median")(ROOM, None, None, True),
        lambda: listed("numpy:median")(ROOM, overwrite_input=True),
        lambda: listed("numpy:percentile")(np.ones((4, 4)), 50, 0, ROOM),
        lambda: listed("numpy:nan_to_num")(ROOM, False),
        lambda: listed("numpy:nan_to_num")(ROOM, copy=None),
        lambda: listed("numpy.ma.core:masked_where")(ROOM > 1, MASKED, False),
        lambda: listed("numpy.ma.core:masked_invalid")(MASKED, copy=False),
        lambda: listed("numpy.fft:irfft")(ROOM, None, -1, None, ROOM),
        lambda: listed("scipy.linalg._decomp_lu:lu")(np.ones((2, 2)), False, True),
        lambda: listed("dask.array.reductions:mean_chunk")(np.ones((4, 4)), axis=0, out=ROOM),
        lambda: calls.Method("cumsum")(ROOM, None, None, ROOM),
        lambda: calls.Method("clip")(MASKED, 1, 2, ROOM),
        lambda: calls.Method("all")(np.ones((4, 4)), 0, None, ROOM),
        lambda: calls.Method("any")(np.ones((4, 4)), 0, ROOM),
        lambda: calls.Method("sum")(np.float64(1), out=np.array(1.0)),
        lambda: calls.Method("drop")(FRAME, columns="a", inplace=True),
        lambda: calls.Method("sort_values")(FRAME, "a", inplace=1),
        lambda: calls.drawn(None, "random", 1, (), (), {"out": ROOM}),
        lambda: calls.generated(None, "permuted", np.random.PCG64(1), (), (), {"out": ROOM}),
        lambda: calls.Method("fillna")(GAPS.values, 7, copy=False),
        lambda: calls.Method("fillna")(GAPS.array, 7, None, False),
        lambda: calls.Method("fillna")(GAPS.astype("category").array, 1, copy=False),
        lambda: called(None, da_frompyfunc(abs, 1, 1))(ROOM, ROOM),  # type: ignore[arg-type]
        lambda: calls.frequencies_merged([COUNTS, {"a": 1 << 40}]),
        lambda: calls.frequencies_merged([[("a", ROOM)], {"a": 1 << 40}]),
    ],
)
def test_nothing_is_written_into(call):
    before = rooms()
    with pytest.raises(PolicyDenied):
        call()
    assert rooms() == before


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda: listed("numpy:add")(ROOM, 1, None).tolist(), [1, 2, 3, 4]),
        (lambda: listed("numpy:add")(ROOM, 1, out=(None,)).tolist(), [1, 2, 3, 4]),
        (lambda: listed("numpy:sum")(ROOM, 0, None, None), 6),
        (lambda: listed("numpy:dot")(ROOM, 2).tolist(), [0, 2, 4, 6]),
        (lambda: listed("numpy:nan_to_num")(ROOM, True).tolist(), [0, 1, 2, 3]),
        (lambda: listed("numpy:array")(ROOM, copy=None).tolist(), [0, 1, 2, 3]),
        (lambda: calls.Method("cumsum")(ROOM, 0).tolist(), [0, 1, 3, 6]),
        (lambda: calls.Method("astype")(ROOM, "i8", copy=False).tolist(), [0, 1, 2, 3]),
        (lambda: calls.frequencies_merged(iter([{"a": 1}, Counter("ab")])), {"a": 2, "b": 1}),
        (lambda: calls.frequencies_merged([]), {}),
        (lambda: calls.Method("fillna")(GAPS.array, 7).tolist(), [1, 7]),
        (lambda: calls.Method("fillna")(GAPS.array, 7, None, True).tolist(), [1, 7]),
        (lambda: called(None, da_frompyfunc(abs, 1, 1))(ROOM).tolist(), [0, 1, 2, 3]),  # type: ignore[arg-type]
        (lambda: calls.item(defaultdict(int, a=1), "a"), 1),
        (lambda: calls.item(defaultdict(int, a=1), "b"), 0),
        (lambda: calls.mappings_merged(sum, {"a": 1}, {"a": 2}), {"a": 3}),
    ],
)
def test_what_writes_nowhere_is_called(call, result):
    assert call() == result


def test_what_is_added_to_is_a_copy():
    places = np.array([[1, 2]])
    made = calls.extremes_found(
        lambda *_, **__: np.ones((1, 2)), lambda *_, **__: places, np.ones((3, 2)), (0,), 7
    )
    assert made["arg"].tolist() == [[8, 9]]
    assert places.tolist() == [[1, 2]]


def test_axes_are_added_to_a_copy():
    axes = {0: 2}
    made = calls.coarsened(np.sum, np.ones((4, 2)), axes, trim_excess=True)
    assert (made.tolist(), axes) == ([[2, 2], [2, 2]], {0: 2})


@pytest.mark.parametrize("change", [calls.masked_filling, calls.masked_equal])
def test_what_stands_behind_a_mask_is_set_in_a_copy(change):
    held = np.ma.MaskedArray([1.0, 2.0], mask=[1, 0], fill_value=5)
    made = change(held, 7)
    assert (made.fill_value, held.fill_value) == (7, 5)
    assert held.filled().tolist() == [5, 2]


def merged_rows(frame: Any) -> Any:
    right = pd.DataFrame({"k": pd.Categorical(["b", "c"])})
    meta = frame.merge(right, left_index=True, right_on="k")
    meta["k"] = meta["k"].astype("category")
    return listed("dask.dataframe.multi:merge_chunk")(
        frame, right, how="inner", left_index=True, right_on="k", result_meta=meta
    )


def described(quantiles: Any) -> Any:
    name = "dask.dataframe.dask_expr._describe:DescribeNumericAggregate.operation"
    return listed(name)("x", False, False, None, 3, 1.0, 1.0, 0.0, quantiles, 3.0)


@pytest.mark.parametrize(
    ("held", "change"),
    [
        (pd.DataFrame({"x": [1, 2]}, index=pd.CategoricalIndex(["a", "b"])), merged_rows),
        (pd.Series([1.0, 2.0], index=[0.25, 0.5]), described),
        ([np.array([9, 1])], lambda it: listed("dask.array.slicing:setitem")(ROOM, ROOM[0], it)),
        (
            [pd.CategoricalIndex(["a"]), pd.Index(["b"])],
            lambda it: listed("dask.dataframe.dispatch:concat")(it),
        ),
        (defaultdict(int, a=1), lambda it: calls.item(it, "b")),
        (defaultdict(int, a=1), lambda it: calls.Method("map")(pd.Series(["b"]), it)),
        (defaultdict(int, a=1), lambda it: called(None, operator.itemgetter("b"))(it)),
        (np.random.PCG64(1), lambda it: calls.generated(None, "random", it, 2, (), {})),
        (np.random.PCG64(1), lambda it: calls.chosen(it, 5, 2, True, None, 0, True)),
        (
            np.random.MT19937(1),
            lambda it: listed("dask.dataframe.methods:sample")(FRAME, it, 0.5, False),
        ),
    ],
)
def test_what_dask_sets_parts_of_is_a_copy(held, change):
    before = pickle.dumps(held)
    first = change(held)
    assert pickle.dumps(held) == before
    assert pickle.dumps(change(held)) == pickle.dumps(first)


def test_a_mapping_to_put_things_into_is_not_taken():
    with pytest.raises(TypeError):
        calls.mappings_merged(sum, {"a": 1}, factory=lambda: COUNTS)


def test_an_argument_by_position_is_known_whatever_the_function():
    """Each listed function that takes somewhere to write to by position is refused it."""
    profile = pickles.Profile.granted(APPROVED, ())
    tried = 0
    for name, entry in profile.entries.items():
        if entry.role != "reference" or not name.startswith(("numpy", "scipy", "dask", "toolz")):
            continue
        module, _, qualname = name.partition(":")
        found = operator.attrgetter(qualname)(importlib.import_module(module))
        if isinstance(found, np.ufunc | type):
            continue
        try:
            given = inspect.signature(found).parameters.values()
        except ValueError:  # looked at by hand: these take none
            assert name in {
                *("numpy:bincount", "numpy:dot", "numpy:ravel_multi_index", "numpy:vdot"),
                "numpy:where",
            }
            continue
        for at, each in enumerate(given):
            if each.name in INTO and each.kind is not each.KEYWORD_ONLY:
                tried += 1
                with pytest.raises(PolicyDenied) as refused:
                    standing.replaced(found)(*[None] * at, ROOM)
                assert refused.value.rule == "submission.writing"
    assert tried > 50


def test_what_cannot_be_asked_is_looked_at_by_name_alone():
    untouched({})
    untouched({"inplace": False, "out": None})
    untouched_by(Counter, (ROOM,), {"out": None})
    with pytest.raises(PolicyDenied, match="option out"):
        untouched_by(Counter, (), {"out": ROOM})
