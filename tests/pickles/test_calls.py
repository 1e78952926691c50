"""What a task calls in place of Dask's functions that look methods up: listed names and classes."""

from __future__ import annotations

import inspect
import operator
import pickle
import subprocess
import sys
import types
from collections import ChainMap, UserDict, UserList, deque
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles.shims import calls, standing, whole

pd = pytest.importorskip("pandas")
pytest.importorskip("dask.dataframe")

FRAME = pd.DataFrame({"a": [1, 2, 3], "t": pd.date_range("2000", periods=3), "c": list("xyz")})
PERIODS = pd.Series(pd.period_range("2000", periods=1, freq="D"))
BLOCK = np.ones((2, 2))
SOFT = np.ma.MaskedArray(np.arange(4.0), mask=[1, 0, 1, 0])
HARD = np.ma.MaskedArray(np.arange(4.0), mask=[1, 0, 1, 0], hard_mask=True)
FIELDS = np.dtype([("a", "i1"), ("b", "i1"), ("c", "i1")])
GAPS: dict[str, Any] = {"names": ["a"], "formats": ["i1"], "itemsize": 4000}
ROWS = [np.array([1]), np.array([2, 3])]
#: What masks, or takes a mask off.
MASKING = (
    *(own for name, own in calls.REPLACED.items() if name.startswith("numpy.ma.")),
    *("masked_made", "masked_counted", "masked_filling"),
)
#: Listed as they are: nothing that they are given names anything, and they leave nothing unwritten.
PLAIN = (
    *("numpy:isreal", "numpy:nancumprod", "dask.array.routines:_asarray_isnull"),
    *("dask.array.routines:_unravel_index_kernel", "dask.dataframe.groupby:_tail_chunk"),
    *(f"numpy.fft:{name}" for name in ("fftn", "ifft2", "ifftn", "ihfft", "rfft2", "rfftn")),
    "dask.dataframe.dask_expr._expr:_return_input",
    *(
        f"dask.dataframe.dask_expr.{name}.{step}"
        for name in (
            *("_groupby:IdxMin", "_groupby:Tail"),
            *("_reductions:IndexCount", "_reductions:NBytes"),
        )
        for step in ("aggregate", "chunk")
    ),
    "dask.dataframe.groupby:_tail_aggregate",
)


class Posing(str):
    """Equal to one name, and another when it is looked up."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


def einsum(subscripts: Any, *operands: Any) -> Any:
    return calls.summed(
        *operands, subscripts=subscripts, ncontract_inds=0, kernel_dtype=np.dtype("f8")
    )


def dated(values: Any, method: str, *args: object) -> Any:
    return calls.accessor_called(values, "dt", method, args, {})


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda: calls.Method("sum")(FRAME.a), 6),
        (lambda: calls.Method("max")(np.arange(3)), 2),
        (lambda: calls.Method("apply")(FRAME.a, abs).tolist(), [1, 2, 3]),
        (lambda: calls.attribute(FRAME, "shape"), (3, 3)),
        (lambda: calls.accessor_called(FRAME.c, "str", "upper", (), {}).tolist(), list("XYZ")),
        (lambda: dated(FRAME.t, "strftime", "%-d %j %%").tolist()[0], "1 001 %"),
        (
            lambda: dated(PERIODS, "strftime", "%A, %d %B %Y").tolist(),
            ["Saturday, 01 January 2000"],
        ),
        (lambda: dated(PERIODS, "strftime", "%F %q %l").tolist(), ["2000 1 000"]),
        (lambda: einsum("ii->i", np.arange(4.0).reshape(2, 2)).tolist(), [0, 3]),
        (lambda: einsum("ii->i", np.zeros((0, 0))).tolist(), []),
        (lambda: einsum("i...,i...->...", np.zeros((0, 2)), np.zeros((0, 2))).tolist(), [0, 0]),
        (lambda: einsum("ij,jk->ik", np.zeros((2, 0)), np.zeros((0, 1))).tolist(), [[0], [0]]),
        (lambda: calls.sloped(np.array([1.0, 2, 4]), edge_order=1).tolist(), [1, 1.5, 2]),
        (lambda: calls.quantile(np.arange(4.0), 0.5), 1.5),
        (lambda: calls.nanpercentile(BLOCK, 50, weights=BLOCK, method="inverted_cdf"), 1),
        (
            lambda: calls.merged([[0, 2], [1, 3]], [SOFT[:2], SOFT[2:]]).tolist(),
            [None, None, 1, 3],
        ),
        (lambda: whole.Whole(np.roll)(SOFT, 1).tolist(), [3, None, 1, None]),
        (lambda: calls.formatted(PERIODS[0], "%d.%m.%Y"), "01.01.2000"),
        (lambda: calls.formatted(PERIODS[0]), "2000-01-01"),
        (
            lambda: calls.formatted(FRAME.t[0], "%Z%Y") + calls.formatted(1.5, "%"),
            "2000150.000000%",
        ),
        (lambda: dated(FRAME.t, "day_name").tolist()[0], "Saturday"),
        (lambda: dated(FRAME.t, "month_name", None).tolist()[0], "January"),
        (lambda: calls.accessed(FRAME.t, "dt", "day").tolist(), [1, 2, 3]),
        (lambda: calls.operated("add", FRAME.a, 1).tolist(), [2, 3, 4]),
        (lambda: calls.rolled(FRAME.a, 2, {}, "sum", (), {}).tolist()[1:], [3, 5]),
        (lambda: len(calls.drawn(None, "normal", 1, (4,), (), {})), 4),
        (lambda: len(calls.generated(None, "normal", np.random.PCG64(1), (4,), (), {})), 4),
        (lambda: calls.filled(FRAME.a, "ffill").tolist(), [1, 2, 3]),
        (lambda: list(calls.filtered(bool, [0, 1])), [1]),
        (lambda: calls.emptied(FRAME).shape, (0, 3)),
        # By position, as by name: no engine is no engine.
        (lambda: calls.Method("apply")(FRAME, len, 0, False, None).tolist(), [3, 3, 3]),
        (lambda: calls.rolled(FRAME.a, 2, {}, "sum", (False, None), {}).tolist()[1:], [3, 5]),
        (lambda: calls.rolled(FRAME.a, 2, {}, "apply", (sum, True), {}).tolist()[1:], [3, 5]),
        (lambda: calls.slice_applied(FRAME, "c", "a", "sum", (False,)).tolist(), [1, 2, 3]),
        (lambda: calls.Method("replace")(FRAME.c, "x", "numba").tolist(), ["numba", "y", "z"]),
        (
            lambda: calls.rolled(FRAME.a, 2, {}, "agg", (["sum"],), {})["sum"].tolist()[1:],
            [3, 5],
        ),
        (lambda: calls.rolled(FRAME.a, 2, {}, "agg", (), {"func": "max"}).tolist()[1:], [2, 3]),
        (lambda: calls.cased(FRAME.a, FRAME.a > 1, 9).tolist(), [1, 9, 9]),
        (lambda: calls.data_behind(SOFT).tolist(), [0, 1, 2, 3]),
        (lambda: calls.masked_counted(SOFT, (0,), True).tolist(), [2]),
        (lambda: calls.masked_made(BLOCK, mask=BLOCK > 0, fill_value=None).count(), 0),
        (lambda: calls.masked_inside(np.arange(4), 1, 2).tolist(), [0, None, None, 3]),
        (
            lambda: calls.sloped_blocks(np.array([1.0, 2, 4]), (0,), 1, 0, None, {}).tolist(),
            [1, 1.5, 2],
        ),
        (lambda: calls.block_quantile(np.array([[1, np.nan, 2]]), np.array(1), (1,)).tolist(), [2]),
        (lambda: calls.reshaped(BLOCK, (4,)).tolist(), [1, 1, 1, 1]),
        (lambda: len(calls.chosen_by_state(np.arange(4), 5, 3, True, None)), 3),
        (lambda: calls.transformed_back_2(BLOCK).shape, (2, 2)),
        # Every element is written, of lists and of what is read once.
        (lambda: calls.concatenated([[BLOCK, BLOCK], [BLOCK, BLOCK]]).shape, (4, 4)),
        (lambda: calls.concatenated(map(iter, [[BLOCK], [BLOCK]])).shape, (4, 2)),
        (lambda: calls.concatenated([]).shape, (0,)),
        (lambda: calls.concatenated([[], []]).shape, (0,)),
        (lambda: calls.finalized([[BLOCK]]).tolist(), [[1, 1], [1, 1]]),
        (lambda: calls.finalized([[BLOCK, BLOCK]]).shape, (2, 4)),
        (lambda: calls.concatenated_axes([BLOCK, BLOCK], [1]).shape, (2, 4)),
        (lambda: calls.concatenated_shaped([BLOCK] * 4, (2, 2)).shape, (4, 4)),
        (lambda: calls.merged([[0], [2, 1]], ROWS).tolist(), [1, 3, 2]),
        (lambda: calls.merged(iter([np.array([0])]), iter([ROWS[0]])).tolist(), [1]),
        (lambda: whole.Ufunc(np.add)(1, 2, where=True), 3),
        (lambda: whole.Whole(np.zeros)(1, FIELDS).tolist(), [(0, 0, 0)]),
        (lambda: whole.Whole(np.zeros)(1, [("a", "i1", 2), ("b", FIELDS)]).shape, (1,)),
        (lambda: len(whole.Whole(np.split)(np.zeros(2), 2)), 2),
        (lambda: calls.item(np.zeros(1, FIELDS), ["c", "b", "a"]).tolist(), [(0,) * 3]),
        (lambda: calls.ramped(np.zeros(1), 2, 2, 0, 1).tolist(), [1, 2]),
        (lambda: calls.transformed_back(np.array([2.0, 0.0]), 2).tolist(), [1, 1]),
        (lambda: calls.clipped(np.arange(3), 1, None, where=True).tolist(), [1, 1, 2]),
        (lambda: calls.Method("clip")(np.arange(3), 1, 1).tolist(), [1, 1, 1]),
    ],
)
def test_what_is_listed_computes(call, result):
    assert call() == result


def by_place(kind: type, name: str, option: object = "numba") -> tuple[object, ...]:
    """Return positional arguments of which the last one is the engine."""
    return (None,) * (
        list(inspect.signature(getattr(kind, name)).parameters).index("engine") - 1
    ) + (option,)


GROUPED = pd.core.groupby.DataFrameGroupBy
MARK = "never-written"
FURTHER = {
    "to_pickle": lambda: calls.Method("to_pickle"),
    "eval": lambda: calls.Method("eval"),
    "view": lambda: calls.Method("view"),
    "agg": lambda: calls.Method("agg"),
    "posing": lambda: calls.Method(Posing("to_pickle")),
    "path": lambda: calls.Method("rename")(PosixPath(MARK), MARK),
    "path-replace": lambda: calls.Method("replace")(PosixPath(MARK), MARK),
    "own-class": lambda: calls.Method("sum")(type("Own", (), {"sum": print})()),
    "apply-text": lambda: calls.Method("apply")(FRAME, "to_pickle", args=(MARK,)),
    "apply-list": lambda: calls.Method("apply")(FRAME, ["to_pickle"]),
    "apply-dict": lambda: calls.Method("apply")(FRAME, func={"a": "to_pickle"}),
    "apply-nothing": lambda: calls.Method("apply")(FRAME),
    "array-apply": lambda: calls.Method("map")(np.arange(3), print),
    "engine": lambda: calls.Method("apply")(FRAME, abs, engine="numba"),
    "engine-at": lambda: calls.Method("apply")(
        FRAME, abs, 0, False, None, (), "compat", np.array(["numba"])
    ),
    "engine-of-a-group": lambda: calls.Method("sum")(FRAME.groupby("c"), *by_place(GROUPED, "sum")),
    "rolling-engine": lambda: calls.rolled(FRAME.a, 2, {}, "apply", (sum, True, "numba"), {}),
    "rolling-options": lambda: calls.rolled(FRAME.a, 2, {}, "sum", (True, None, {"nogil": 1}), {}),
    "group-engine": lambda: calls.slice_applied(FRAME, "c", "a", "sum", by_place(GROUPED, "sum")),
    "group-engine-named": lambda: calls.slice_applied(
        FRAME, "c", key="a", func="sum", args=list(by_place(GROUPED, "sum"))
    ),
    "group-transform": lambda: calls.slice_transformed(
        FRAME, "c", "a", "mean", by_place(GROUPED, "mean", np.array("numba"))
    ),
    "made-of-a-name": lambda: calls.emptied("datetime64[ns, dateutil//etc/passwd]"),
    "made-of-types": lambda: calls.emptied({"a": "O"}),
    "made-of-parts": lambda: calls.emptied([("a", "O")]),
    "attribute": lambda: calls.attribute(FRAME, "__class__"),
    "posing-attribute": lambda: calls.attribute(FRAME, Posing("__class__")),
    "accessor": lambda: calls.accessor_called(FRAME, "to_pickle", "__call__", (MARK,), {}),
    "accessor-of-all": lambda: calls.accessor_called(PosixPath(MARK), "str", "replace", (), {}),
    "encode": lambda: calls.accessor_called(FRAME.c, "str", "encode", ("x",), {}),
    "decode": lambda: calls.accessor_called(FRAME.c, "str", "decode", ("x",), {}),
    # Written into too little room, or never set: memory that others have used.
    **{
        f"format-{text}": lambda text=text: calls.accessor_called(
            PERIODS, "dt", "strftime", (text,), {}
        )
        for text in ("%Z", "%A%B%c", "%c" * 20, "%300d", "%-d", "%Ey", "%s", "%%u%Z", "%", "%\n")
    },
    "format-named": lambda: calls.accessor_called(
        PERIODS, "dt", "strftime", (), {"date_format": "%c" * 9}
    ),
    "format-posing": lambda: calls.accessor_called(
        PERIODS, "dt", "strftime", (Posing("%c" * 9),), {}
    ),
    "format-of-one": lambda: calls.formatted(PERIODS[0], "%Z"),
    "format-of-one-posing": lambda: calls.formatted(PERIODS[0], Posing("%c" * 9)),
    # Sets the language of the whole process while it looks.
    "language": lambda: calls.accessor_called(FRAME.t, "dt", "day_name", ("C",), {}),
    "language-named": lambda: calls.accessor_called(
        FRAME.t, "dt", "month_name", (), {"locale": "C"}
    ),
    "machinery": lambda: calls.accessor_called(FRAME.c, "str", "__reduce__", (), {}),
    "property": lambda: calls.accessed(FRAME.c, "str", "upper"),
    "operator": lambda: calls.operated("to_pickle", FRAME, MARK),
    "operand": lambda: calls.operated("add", PosixPath(MARK), 1),
    "rolling": lambda: calls.rolled(FRAME.a, 2, {}, "__reduce__", (), {}),
    "rolling-text": lambda: calls.rolled(FRAME.a, 2, {}, "apply", ("to_pickle",), {}),
    "rolling-window": lambda: calls.rolled(FRAME.a, 2, {"win_type": "os"}, "sum", (), {}),
    "rolling-all": lambda: calls.rolled(PosixPath(MARK), 2, {}, "sum", (), {}),
    "random-class": lambda: calls.drawn(open, "normal", MARK, None, (), {}),
    "random-name": lambda: calls.drawn(None, "set_state", 1, None, (), {}),
    "random-bytes": lambda: calls.generated(None, "bytes", np.random.PCG64(1), None, (), {}),
    "random-bits": lambda: calls.generated(None, "normal", FRAME, None, (), {}),
    "random-kind": lambda: calls.generated(open, "normal", np.random.SeedSequence(1), 1, (), {}),
    "choice": lambda: calls.chosen(FRAME, 1, 1, True, None, 0, True),
    "filling": lambda: calls.filled(FRAME, "to_pickle"),
    "filling-all": lambda: calls.filled(PosixPath(MARK), "ffill"),
    "group-filling": lambda: calls.group_filled(FRAME.groupby("c"), what="__reduce__"),
    "extreme": lambda: calls.idxmax_chunk(FRAME, fn="to_pickle"),
    # The method itself would be in the result, for another task to call.
    "monotonic": lambda: calls.monotonic_chunk(FRAME.a, prop="to_pickle"),
    "monotonic-end": lambda: calls.monotonic_aggregate([FRAME], prop="to_pickle"),
    "extreme-end": lambda: calls.idxmin_aggregate([FRAME], fn="to_pickle"),
    "group-text": lambda: calls.slice_applied(FRAME, ["c"], None, "__reduce__", ()),
    "group-named": lambda: calls.slice_applied(FRAME, ["c"], key=None, func="pipe", args=()),
    "group-list": lambda: calls.slice_transformed(FRAME, ["c"], None, ["sum"], ()),
    "resample": lambda: calls.resampled(
        FRAME.a, None, None, None, "1D", {}, "__reduce__", None, (), {}
    ),
    "resample-list": lambda: calls.resampled(
        FRAME.a, None, None, None, "1D", {}, "agg", None, (["to_pickle"],), {}
    ),
    "resample-how": lambda: calls.resampled(
        FRAME.a, None, None, None, "1D", {}, ["agg"], None, (), {}
    ),
    "resample-apply": lambda: calls.resampled(
        FRAME.a, None, None, None, "1D", {}, "apply", None, ("to_pickle",), {}
    ),
    "named": lambda: standing.named("os:system"),
    # What is left out is memory that others have used.
    "ragged": lambda: calls.concatenated([[BLOCK, BLOCK], [BLOCK]]),
    "ragged-in-tuples": lambda: calls.concatenated(((BLOCK, BLOCK), (BLOCK,))),
    "ragged-in-iterators": lambda: calls.concatenated(map(iter, [[BLOCK, BLOCK], [BLOCK]])),
    "shallow": lambda: calls.concatenated([[BLOCK, BLOCK], BLOCK]),
    "deep": lambda: calls.concatenated([[BLOCK], [[BLOCK]]]),
    "none-and-some": lambda: calls.concatenated([[], [BLOCK]]),
    "ragged-end": lambda: calls.finalized([[BLOCK, BLOCK], [BLOCK]]),
    "ragged-axes": lambda: calls.concatenated_axes([[BLOCK, BLOCK], [BLOCK]], [0, 1]),
    "ragged-shape": lambda: calls.concatenated_shaped([(BLOCK, BLOCK), (BLOCK,)], (2,)),
    "places-twice": lambda: calls.merged([[0, 0]], [ROWS[1]]),
    "places-of-none": lambda: calls.merged([[0], [1, 2]], ROWS[:1]),
    "places-from-the-end": lambda: calls.merged([[-1], [0, 1]], ROWS),
    "where": lambda: whole.Ufunc(np.add)(BLOCK, BLOCK, where=False),
    "where-mask": lambda: whole.Ufunc(np.sqrt)(BLOCK, where=BLOCK > 1),
    "where-clip": lambda: calls.clipped(BLOCK, 0, 1, where=False),
    "long-double": lambda: whole.Ufunc(np.add)(np.ones(2), 1, dtype="longdouble"),
    "long-double-second": lambda: whole.Ufunc(np.modf)(np.ones(2), dtype="longdouble"),
    "long-doubles": lambda: whole.Whole(np.ones)(2, "G"),
    "long-double-alone": lambda: whole.Whole(np.sum)(np.ones(2), dtype="g"),
    "long-double-given": lambda: whole.Whole(bytes)(np.longdouble(1)),
    "long-double-inside": lambda: whole.Whole(np.ones)(2, [("a", "g")]),
    "long-double-of-a-method": lambda: calls.Method("astype")(np.ones(2), "g"),
    "gaps": lambda: whole.Whole(np.full)(1, 0, GAPS),
    "gaps-before": lambda: whole.Whole(np.ones)(1, {**GAPS, "offsets": [4], "itemsize": 5}),
    "gaps-inside": lambda: whole.Whole(np.array)([1], [("a", GAPS), ("b", "i1")]),
    "gaps-in-parts": lambda: whole.Whole(np.zeros)(1, [("a", GAPS, 2)]),
    "gaps-of-one": lambda: calls.item(np.zeros(1, FIELDS)[["a", "c"]], 0),
    "gaps-of-some": lambda: calls.item(np.zeros(1, FIELDS), ["a", "c"]),
    "gaps-of-a-method": lambda: calls.Method("astype")(np.zeros(1), GAPS),
    "gaps-in-a-list": lambda: whole.Whole(np.split)(np.zeros(2, FIELDS)[["a", "c"]], 2),
    "a-ramp-of-nothing": lambda: calls.ramped(np.zeros(0), 1, 9, 0, 1),
    # NumPy makes room for an array with a mask, and leaves what is masked as it was.
    "a-masked-gradient": lambda: calls.sloped(SOFT),
    **{
        f"a-masked-{name}": lambda name=name: getattr(calls, name)(
            SOFT.reshape(2, 2), 0.5, axis=1, weights=BLOCK, method="inverted_cdf"
        )
        for name in ("quantile", "percentile", "nanquantile", "nanpercentile")
    },
    "a-masked-weight": lambda: calls.quantile(
        BLOCK, 0.5, axis=1, weights=SOFT.reshape(2, 2), method="inverted_cdf"
    ),
    "a-masked-part": lambda: calls.merged([[0, 1, 2, 3], [4, 5]], [SOFT, np.ma.masked]),
    **{
        f"hard-mask-{name}": lambda function=function: whole.Whole(function)(HARD, 1)
        for name, function in (("roll", np.roll), ("ediff1d", np.ediff1d))
    },
    "hard-mask-in-a-list": lambda: calls.merged([[0, 2], [1, 3]], [HARD[:2], HARD[2:]]),
    "hard-mask-method": lambda: calls.Method("repeat")(HARD, 2),
    "hard-mask-ufunc": lambda: whole.Ufunc(np.add)(HARD, 1),
    "a-masked-block": lambda: calls.sloped_blocks(SOFT, (0,), 1, 0, None, {"edge_order": 1}),
    "masked-coordinates": lambda: calls.sloped_blocks(np.ones(4), (0,), SOFT, 0, None, {}),
    "a-masked-block-quantile": lambda: calls.block_quantile(
        SOFT.reshape(2, 2), np.array(0.5), (1,), weights=BLOCK, method="inverted_cdf"
    ),
    "weights-by-place": lambda: calls.block_quantile(
        BLOCK, np.array(0.5), (1,), "inverted_cdf", False, SOFT.reshape(2, 2)
    ),
    # NumPy takes `_data` and `_mask` of whatever has them: what pandas keeps behind its own mask.
    **{
        f"behind-{own}": lambda own=own: getattr(calls, own)(pd.array([1, None]), 1)
        for own in MASKING
    },
    "behind-a-series": lambda: calls.data_behind(FRAME.a),
    "behind-a-named": lambda: calls.masked_made(BLOCK, mask=FRAME.a.array),
    "behind-one-in-a-tuple": lambda: calls.masked_made((pd.array([1, None]),)),
    "shape-of-a-frame": lambda: calls.reshaped(FRAME.a, (3,)),
    "choice-of-a-state": lambda: calls.chosen_by_state(np.random.PCG64(1), 1, 1, True, None),
    "case": lambda: calls.cased(FRAME.a, FRAME.a > 1, print),
    "case-condition": lambda: calls.cased(FRAME.a, len, 1),
    "case-of-all": lambda: calls.cased(PosixPath(MARK), True, MARK),
    "memory-of-all": lambda: calls.measured(PosixPath(MARK)),
    "bounds-of-all": lambda: calls.bounded(PosixPath(MARK), 0, 1, 2, True),
    "group-of-all": lambda: calls.group_taken(PosixPath(MARK), "a", get_key="a", columns=["a"]),
    "decreasing": lambda: calls.decreasing_chunk(FRAME.a, prop="to_pickle"),
    "decreasing-end": lambda: calls.decreasing_aggregate([FRAME], prop="to_pickle"),
    "divided": lambda: calls.operated("divide", PosixPath(MARK), 1),
    "moments": lambda: calls.accessed(FRAME.t, "dt", "to_pydatetime"),
    "rolling-methods": lambda: calls.rolled(FRAME.a, 2, {}, "agg", (["to_pickle"],), {}),
    "rolling-methods-named": lambda: calls.rolled(FRAME.a, 2, {}, "agg", (), {"func": "pipe"}),
    "rolling-methods-by-column": lambda: calls.rolled(FRAME, 2, {}, "agg", ({"a": "sum"},), {}),
    "rolling-methods-engine": lambda: calls.rolled(
        FRAME.a, 2, {}, "agg", (["sum"], False, "numba"), {}
    ),
    "rolling-methods-more": lambda: calls.rolled(FRAME.a, 2, {}, "agg", ("sum",), {"args": 1}),
    **{f"plain-{name}": lambda name=name: whole.Whole(calls.by_name(name))(HARD) for name in PLAIN},
    **{
        f"plain-gaps-{name}": lambda name=name: whole.Whole(calls.by_name(name))(
            [np.zeros(1, GAPS)]
        )
        for name in PLAIN
    },
    **{
        f"no-values-{own}": lambda own=own: getattr(calls, own)(np.ones((0, 2)), 9)
        for own in ("transformed_back_2", "transformed_back_n", "transformed_to_spectrum")
    },
    "no-values": lambda: calls.transformed_back(np.ones((0, 2)), 9, axis=0),
    # One axis without elements, and views as long as the other one.
    **{
        f"sum-{terms}-{shape}": lambda terms=terms, shape=shape: einsum(terms, np.zeros(shape))
        for terms, shape in (
            *(
                ("ii->i", (0, 5)),
                ("ii", (0, 5)),
                ("iij->ij", (0, 1, 5)),
                ("i...i->i...", (0, 2, 5)),
            ),
            *((" i i -> i", (0, 5)), ("...ii->i", (2, 0, 5)), ("ii...->...i", (0, 5, 2))),
        )
    },
    "sum-second": lambda: einsum("j,ii->i", np.ones(1), np.zeros((0, 5))),
    "sum-lists": lambda: einsum([0, 0], np.zeros((0, 5))),
    "sum-unnamed": lambda: standing.named("dask.array.dispatch:einsum_lookup"),
    "where-method": lambda: calls.Method("clip")(BLOCK, 0, 1, where=False),
}


def test_places_past_the_end_are_no_places():
    places = whole.Whole(calls.by_name("dask.array.routines:_unravel_index_kernel"))
    for shape in ((2, 2), (), (0, 3), (2**40, 2**40)):
        with pytest.raises(ValueError, match=r"out of bounds|dimensions are too large|shape"):
            places(np.array([2**62]), {"shape": shape})
    with pytest.raises(TypeError):
        places(np.array([1]), {"shape": (2, 2), "order": "C", "out": BLOCK})


def test_values_of_every_kind_are_looked_into():
    twice = [FRAME]
    given = (
        *(deque([twice, twice]), UserDict(a=1), UserList([1]), ChainMap({1: 2})),
        *(types.SimpleNamespace(a=1), types.MappingProxyType({1: twice}), range(3), {1, "a"}),
        *([{"a": 1}, {}], [(1,), ("a",)], [[FRAME]], [{"a": 1}, [1]], np.array([None, "a"])),
        *(pd.MultiIndex.from_product([[1], ["a"]]), pd.Series(pd.Categorical(["a"])), FRAME.index),
        *(pd.Index(["a", None], dtype=object), pd.array([1, None]), FRAME.t.array, FRAME.t[0]),
        *(pd.arrays.NumpyExtensionArray(BLOCK), FRAME.groupby("c"), abs, np.ma.MaskedArray([1])),
    )
    calls.no_gaps_in(given)
    element = np.zeros(1, GAPS)[0]
    key = np.frombuffer(bytes(element), GAPS)[0]
    index = pd.Index([1, element], dtype=object)
    for one in (
        *(deque([element]), UserDict(a=element), UserList([element]), ChainMap({1: element})),
        *(types.SimpleNamespace(a=element), types.MappingProxyType({1: element}), [[element]]),
        *([{1: element}], [{key: 1}], {1, key}, index, pd.Series([1], index=index[1:])),
    ):
        with pytest.raises(PolicyDenied, match="with gaps"):
            calls.no_gaps_in((*given, one))


#: On other processors they are doubles, or sixteen bytes without a gap.
if np.finfo(np.longdouble).nmant != 63:
    FURTHER = {name: call for name, call in FURTHER.items() if "long-double" not in name}


@pytest.mark.parametrize("name", FURTHER)
def test_bypass_no_text_of_a_task_leads_further(name):
    with pytest.raises(PolicyDenied):
        FURTHER[name]()
    assert not Path(MARK).exists()


def test_a_pickle_of_a_method_is_checked_when_it_is_called():
    made = object.__new__(calls.Method)
    made.method = "to_pickle"
    with pytest.raises(PolicyDenied):
        made(FRAME, MARK)


def test_methods_travel_by_name():
    made = pickle.loads(pickle.dumps(calls.Method("sum")))
    assert made == calls.Method("sum")
    assert made != calls.Method("max")
    assert (made.__name__, made.__dask_tokenize__()) == ("sum", ("safeser-method", "sum"))
    assert hash(made) == hash("sum")


#: Groups of which each has one missing value, and quantiles of all of them.
MISSING = pd.DataFrame({"g": range(99), "v": pd.array([None] * 99, dtype="Int64")})
DAYS = pd.Series(MISSING.v.array, index=pd.date_range("2000", periods=99, freq="2D"))
RESAMPLED = DAYS, DAYS.index[0], DAYS.index[-1], None, "1D", {}
QUANTILES = {
    "series": lambda: calls.Method("quantile")(MISSING.groupby("g").v, 0.3),
    "frame": lambda: calls.Method("quantile")(MISSING.groupby("g")[["v"]], 0.3).v,
    "several": lambda: calls.Method("quantile")(MISSING.groupby("g").v, [0.3, 0.4]),
    "sliced": lambda: calls.slice_applied(MISSING, "g", "v", "quantile", ()),
    "resampled": lambda: calls.resampled(*RESAMPLED, "quantile", None, (0.3,), {}),
    "aggregated": lambda: calls.resampled(*RESAMPLED, "agg", None, (["quantile"],), {})["quantile"],
}


@pytest.mark.parametrize("name", QUANTILES)
def test_bypass_nothing_is_sent_behind_a_mask(name, monkeypatch):
    # What pandas takes room for is as if others had used it.
    groupby, stock = sys.modules["pandas.core.groupby.groupby"], np.empty

    def used(shape, dtype=float, **options):
        made = stock(shape, dtype, **options)
        made[...] = 42 if made.dtype.kind == "f" else made
        return made

    def numpy(attribute):
        return used if attribute == "empty" else getattr(np, attribute)

    fake = types.ModuleType("numpy")
    fake.__getattr__ = numpy
    monkeypatch.setattr(groupby, "np", fake)
    made = QUANTILES[name]().array
    assert made.isna().all()
    assert set(made._data.tolist()) == {0}


def test_functions_of_elements_travel_by_name():
    made = pickle.loads(pickle.dumps(whole.Ufunc(np.add)))
    assert made == whole.Ufunc(np.add)
    assert made != whole.Ufunc(np.sqrt)
    assert made.func is made
    assert (made.__name__, made.__dask_tokenize__()) == ("add", ("safeser-ufunc", "add"))
    assert hash(made) == hash(np.add)


def test_functions_that_make_arrays_travel_by_name():
    made = pickle.loads(pickle.dumps(whole.Whole(np.full)))
    assert made == whole.Whole(np.full)
    assert made != whole.Whole(np.ones)
    assert made.func is made
    assert (made.__name__, made.__dask_tokenize__()) == ("full", ("safeser-whole", np.full))
    assert hash(made) == hash(np.full)
    assert whole.Whole(operator.itemgetter(0)).__name__ == "itemgetter"


@pytest.mark.parametrize("name", calls.GUARDED)
def test_what_stands_for_dasks_functions_travels_by_name(name):
    made = standing.named(name)
    assert pickle.loads(pickle.dumps(made)) is made
    assert made.__module__.startswith("safeser.pickles.shims.")


def test_whoever_has_not_what_one_calls_says_what_to_install(monkeypatch):
    # A scheduler often has no pandas, and is sent graphs of frames.
    monkeypatch.setattr(standing, "home", lambda _: "nowhere.calls")
    with pytest.raises(PayloadError, match="needs nowhere, which is not installed here") as caught:
        standing.named("dask.dataframe.methods:fillna_check")
    assert caught.value.rule == "pickle.unresolved"


@pytest.mark.parametrize("name", calls.REPLACED)
def test_what_replaces_a_listed_function_travels_by_name(name):
    made = standing.replaced(calls.by_name(name))
    assert made is not calls.by_name(name)
    assert pickle.loads(pickle.dumps(made)) is made
    assert made.__module__.startswith("safeser.pickles.shims.")


LOADED = """
import pickle, sys
for name, made in pickle.loads(sys.stdin.buffer.read()).items():
    pickle.loads(made)
    module = name.partition(":")[0]
    assert module in sys.modules, name
"""


def test_whoever_loads_one_has_imported_what_it_calls():
    # A task in a thread would import it while the event loop, for the next task, imports it too.
    written = {name: pickle.dumps(standing.named(name)) for name in sorted(calls.GUARDED)}
    for name in set(calls.REPLACED) - {"numpy:clip", "numpy.fft:irfft", "_operator:getitem"}:
        written[name] = pickle.dumps(standing.replaced(calls.by_name(name)))
    ended = subprocess.run(
        [sys.executable, "-c", LOADED],
        input=pickle.dumps(written),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()


@pytest.mark.parametrize("name", [*calls.GUARDED, *calls.UNNAMED])
def test_dasks_own_are_written_by_that_name(name):
    assert standing.name_of(calls.by_name(name)) == name


def test_other_functions_have_no_name_of_that_kind():
    assert standing.name_of(len) is None
    assert standing.name_of(np.ones(3)) is None
