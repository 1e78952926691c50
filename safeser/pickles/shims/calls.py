"""What a task calls in place of those functions of Dask's that look up a method by its name.

The one rule: a name that a task gives is looked up only if it is one of those listed here, and only
on an object of a class that it is listed for. Dask's own functions take any name of any object:
``DataFrame.eval`` runs text, ``DataFrame.to_pickle`` and ``PosixPath.rename`` reach files.

They run on workers, which are sent them by name, with arguments that nobody has seen before.
"""

from __future__ import annotations

import importlib
import types
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from safeser.pickles.shims.filling import (
    in_full,
    no_gaps_in,
    nothing_behind_masks,
    places_in_full,
    without_gaps,
)
from safeser.pickles.shims.lookups import (
    FRAMES,
    GROUPED,
    GROUPS,
    ROLLING,
    by_name,
    classes,
    function_named,
    listed,
    of_pandas,
    quiet,
    quiet_places,
)
from safeser.pickles.shims.masked import MASKED
from safeser.pickles.shims.merged import MERGED
from safeser.pickles.shims.methods import (
    ACCESSORS,
    DATA_ATTRIBUTES,
    DRAWS,
    GROUP_METHODS,
    METHODS,
    OPERATORS,
    WINDOW_METHODS,
)
from safeser.pickles.shims.moments import check_format, check_moments
from safeser.pickles.shims.numpy_random import KINDS
from safeser.pickles.shims.patterns import check_replaced, check_texts
from safeser.pickles.shims.untouched import (
    SETTING,
    apart,
    untouched,
    untouched_by,
    untouched_by_method,
)
from safeser.pickles.shims.whole import everywhere, refuse

__all__ = [
    "DATA_ATTRIBUTES",
    "GUARDED",
    "METHODS",
    "REPLACED",
    "STANDING",
    "UNNAMED",
    "Method",
    "by_name",
    "home",
    "is_own",
    "with_their_library",
]


# -- by name --------------------------------------------------------------------------------------


class Method:
    """Calls the method *name*, one of those that only compute, of an array or a frame.

    Stands in place of Dask's ``methodcaller``, which takes any object: a path has a ``rename`` too.
    """

    __slots__ = ("method",)
    func = property(lambda self: self)  # tells Dask how to name the task

    def __init__(self, name: str) -> None:
        self.method = listed("the method", name, METHODS)

    @property
    def __name__(self) -> str:
        return self.method

    def __call__(self, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        # A pickle of this class sets the name without the constructor.
        name = listed("the method", self.method, METHODS)
        no_gaps_in((value, *args, *kwargs.values()))
        if isinstance(value, np.ndarray | np.generic):
            if name in ("map", "apply"):
                raise refuse("the method", name)
            everywhere(kwargs)
            untouched_by_method(value, name, args, kwargs)
        elif type(value).__module__.split(".")[0] == "pandas":
            if name == "apply":
                function_named(args[0] if args else kwargs.get("func"), frozenset())
            kwargs = quiet(kwargs)
            quiet_places(type(value), name, args)
            untouched_by(getattr(type(value), name, None), (None, *args), kwargs)
            own, kwargs = apart(args, kwargs)  # a mapping to look up may hold what it is asked
            args = tuple(own)
            if name == "replace":
                check_replaced(value, args, kwargs)
        elif not isinstance(value, int | float | complex):
            raise refuse("a method of", value)
        made = getattr(value, name)(*args, **kwargs)
        if name == "quantile" and isinstance(value, classes(*GROUPS)):
            return nothing_behind_masks(made)
        return without_gaps(made)

    def __reduce__(self) -> tuple[Any, ...]:
        return Method, (self.method,)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "safeser-method", self.method

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and other.method == self.method

    def __hash__(self) -> int:
        return hash(self.method)


# -- that leave no element out --------------------------------------------------------------------


def clipped(*args: Any, **kwargs: Any) -> Any:
    """Limit an array's elements, all of them; for ``numpy.clip``."""
    everywhere(kwargs)
    return np.clip(*args, **kwargs)


def _to_reals(original: str) -> Callable[..., Any]:
    """Return *original*, which computes a real Fourier transform's inverse.

    Of no values, NumPy takes the first one from memory that others have used.
    """

    def call(a: Any, *args: Any, **kwargs: Any) -> Any:
        if np.size(a) == 0:
            raise refuse("an inverse transform of", a)
        return by_name(original)(a, *args, **kwargs)

    return call


transformed_back, transformed_back_2, transformed_back_n, transformed_to_spectrum = map(
    _to_reals, ("numpy.fft:irfft", "numpy.fft:irfft2", "numpy.fft:irfftn", "numpy.fft:hfft")
)


def reshaped(block: Any, shape: Any, /) -> Any:
    """Give a block another shape; for ``_reshape_blockwise``, which calls whatever has a method."""
    if not isinstance(block, np.ndarray):
        raise refuse("another shape of", block)
    return block.reshape(shape)


def item(value: Any, key: Any, /) -> Any:
    """Return a part of *value*; some of an array's fields can be a type with gaps.

    What a mapping gives for what it does not hold it would hold from then on.
    """
    if isinstance(value, defaultdict) and value.default_factory is not None and key not in value:
        return value.default_factory()
    return value[key]


def formatted(value: Any, spec: Any = "", /) -> str:
    """Write *value* as text; for ``format``, by which a period is written as by ``strftime``."""
    if type(value).__module__.split(".")[0] == "pandas":
        check_format(value, spec)
    return format(value, spec)


def ramped(start: Any, *args: Any, **kwargs: Any) -> Any:
    """Lead from each value of *start* to another; for ``linear_ramp_chunk``, which pads arrays."""
    if np.size(start) == 0:
        raise refuse("a ramp from", start)
    return by_name("dask.array.creation:linear_ramp_chunk")(start, *args, **kwargs)


def summed(*operands: Any, **kwargs: Any) -> Any:
    """Sum products as subscripts have it; for ``chunk_einsum``.

    Where one axis of an array has no elements, NumPy takes the length of ``ii->i`` from the other
    one, and gives a view of memory that is not the array's.
    """
    subscripts = kwargs.get("subscripts")
    if type(subscripts) is not str:
        raise refuse("the subscripts", subscripts)
    terms = "".join(subscripts.split()).partition("->")[0].split(",")
    for term, operand in zip(terms, operands, strict=False):
        if np.size(operand) == 0 and not _is_square(term, np.shape(operand)):
            raise refuse("the subscripts", subscripts)
    return by_name("dask.array.einsumfuncs:chunk_einsum")(*operands, **kwargs)


def _is_square(term: str, shape: tuple[int, ...]) -> bool:
    """Tell whether axes of one name are as long as each other."""
    front, _, back = term.partition("...")
    lengths_of = (*shape[: len(front)], *shape[len(shape) - len(back) :])
    named = zip((*front, *back), lengths_of, strict=False)  # NumPy says which are missing
    lengths: dict[str, int] = {}
    return all(lengths.setdefault(name, length) == length for name, length in named)


def concatenated(arrays: Any, /) -> Any:
    """Join blocks; for ``concatenate3``, which makes room for as many as the first lists hold."""
    return by_name("dask.array.core:concatenate3")(in_full(arrays))


def concatenated_axes(arrays: Any, axes: Any) -> Any:
    """Join blocks along *axes*; for ``concatenate_axes``."""
    return by_name("dask.array.core:concatenate_axes")(in_full(arrays), axes)


def concatenated_shaped(arrays: Any, shape: Any) -> Any:
    """Join a list of blocks as *shape* has it; for ``concatenate_shaped``."""
    return by_name("dask.array.core:concatenate_shaped")(in_full(arrays), shape)


def finalized(results: Any, /) -> Any:
    """Join the blocks of a whole array; for ``finalize``."""
    return by_name("dask.array.core:finalize")(in_full(results))


def merged(locations: Any, values: Any, /) -> Any:
    """Put parts of an array at the places that each names; for ``_vindex_merge``."""
    return by_name("dask.array.core:_vindex_merge")(*places_in_full(locations, values))


# -- more by name ---------------------------------------------------------------------------------


def attribute(value: Any, name: str, /) -> Any:
    """Return an attribute that is data; for ``getattr``."""
    return getattr(value, listed("the attribute", name, DATA_ATTRIBUTES))


def operated(name: str, left: Any, right: Any, **kwargs: Any) -> Any:
    """Apply a frame's operator; for ``MethodOperator.operation``."""
    listed("the operator", name, OPERATORS)
    return by_name("dask.dataframe.dask_expr._expr:MethodOperator.operation")(
        name, of_pandas(left, *FRAMES), right, **kwargs
    )


def accessed(value: Any, accessor: str, name: str, /) -> Any:
    """Return a property of ``.str``, ``.dt`` or ``.cat``; for ``PropertyMap.operation``."""
    _check_accessor(value, accessor, name)
    found = by_name("dask.dataframe.dask_expr._accessor:PropertyMap.operation")(
        value, accessor, name
    )
    if callable(found):  # a method, which something else might call
        raise refuse("the property", name)
    return found


def accessor_called(
    value: Any, accessor: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], /
) -> Any:
    """Call a method of ``.str``, ``.dt`` or ``.cat``; for ``FunctionMap.operation``."""
    _check_accessor(value, accessor, name)
    if accessor == "dt":
        check_moments(value, name, args, kwargs)
    at_once = check_texts(value, name, args, kwargs) if accessor == "str" else 0
    texts = (
        [_rows(value, at, at_once) for at in range(0, len(value), at_once)] if at_once else [value]
    )
    call = by_name("dask.dataframe.dask_expr._accessor:FunctionMap.operation")
    first, *others = [call(part, accessor, name, tuple(args), dict(kwargs)) for part in texts]
    if not others:
        return first
    pandas: Any = importlib.import_module("pandas")
    is_index = isinstance(first, pandas.Index)
    return first.append(others) if is_index else pandas.concat((first, *others))


def _rows(texts: Any, start: int, count: int) -> Any:
    return getattr(texts, "iloc", texts)[start : start + count]  # an index has none


def _check_accessor(value: Any, accessor: Any, name: Any) -> None:
    listed("the accessor", accessor, frozenset(ACCESSORS))
    listed("the method", name, ACCESSORS[accessor])
    of_pandas(value, "pandas:Series", "pandas:Index")


def drawn(kind: Any, name: str, *args: Any) -> Any:
    """Draw from a random state; for ``dask.array.random``'s functions."""
    listed("the distribution", name, DRAWS)
    _check_options(args)
    if kind is not None and kind is not np.random.RandomState:
        raise refuse("the random state", kind)
    return by_name("dask.array.random:_apply_random")(kind, name, *args)


def generated(kind: Any, name: str, bits: Any, *args: Any) -> Any:
    """Draw from a generator over *bits*."""
    listed("the distribution", name, DRAWS)
    _check_options(args)
    sources = (*KINDS.values(), np.random.default_rng)
    if not isinstance(bits, np.random.BitGenerator | np.random.SeedSequence) or (
        kind is not None and kind not in sources
    ):
        raise refuse("the generator", bits)
    return by_name("dask.array.random:_apply_random_func")(kind, name, bits, *args)


def _check_options(args: Sequence[Any]) -> None:
    for part in args:
        if isinstance(part, dict):
            untouched(part)


def chosen(bits: Any, *args: Any) -> Any:
    """Choose from an array by a generator over *bits*."""
    if not isinstance(bits, np.random.BitGenerator):
        raise refuse("the generator", bits)
    return by_name("dask.array.random:_choice_rng")(bits, *args)


def chosen_by_state(state: Any, *args: Any) -> Any:
    """Choose from an array by a random state of numbers; for ``_choice_rs``."""
    if not isinstance(state, np.ndarray):
        raise refuse("the random state", state)
    return by_name("dask.array.random:_choice_rs")(state, *args)


def rolled(  # noqa: PLR0917 - the arguments are those of Dask's function
    frame: Any,
    window: Any,
    kwargs: Mapping[str, Any],
    how: str,
    how_args: Sequence[Any],
    how_kwargs: Mapping[str, Any] | None,
    *more: Any,
    **named: Any,
) -> Any:
    """Compute over a moving window; for ``_rolling_agg``."""
    listed("the method", how, WINDOW_METHODS | {"agg"})
    of_pandas(frame, *FRAMES)
    how_kwargs = quiet(how_kwargs or {})
    if how == "agg":
        how_args, how_kwargs = _aggregated(*how_args, **how_kwargs), {}
    for kind in classes(*ROLLING):
        quiet_places(kind, how, how_args)
    if how == "apply":
        function_named(how_args[0] if how_args else how_kwargs.get("func"), frozenset())
    return by_name("dask.dataframe.dask_expr._rolling:_rolling_agg")(
        frame, window, quiet(kwargs), how, tuple(how_args), how_kwargs, *more, **named
    )


def _aggregated(func: Any = None, *more: Any, **named: Any) -> tuple[Any]:
    """Return the methods that windows are asked for. More would be handed on to each of them."""
    for value in (*more, *named.values()):
        raise refuse("for the methods", value)
    asked = list(func) if isinstance(func, list) else [func]
    for name in asked:
        function_named(name, WINDOW_METHODS)
    return (asked if isinstance(func, list) else func,)


def resampled(series: Any, *args: Any) -> Any:
    """Compute over spans of time; for ``_resample_series``."""
    start, end, closed, rule, options, how, fill, how_args, how_kwargs = args
    if isinstance(how, list | tuple):
        raise refuse("the method", how)
    listed("the method", how, WINDOW_METHODS | {"agg"})
    of_pandas(series, *FRAMES)
    functions = how_args[0] if how_args else how_kwargs.get("func")
    asked = functions if isinstance(functions, list) else [functions]
    if how == "agg":
        for name in asked:
            function_named(name, WINDOW_METHODS)
    elif how == "apply":
        function_named(functions, frozenset())
    made = by_name("dask.dataframe.tseries.resample:_resample_series")(
        series,
        start,
        end,
        closed,
        rule,
        dict(options),
        how,
        fill,
        tuple(how_args),
        quiet(how_kwargs),
    )
    wanted = asked if how == "agg" else [how]
    return nothing_behind_masks(made) if "quantile" in wanted else made


def grouped(original: str, *, at: int) -> Callable[..., Any]:
    """Return a guarded ``groupby().apply`` or the like; its function is argument *at*."""

    def call(frame: Any, /, *args: Any, **kwargs: Any) -> Any:
        of_pandas(frame, *FRAMES)
        function = None
        if len(args) >= at or "func" in kwargs:
            function = args[at - 1] if len(args) >= at else kwargs["func"]
            function_named(function, GROUP_METHODS)
            given = args[at] if len(args) > at else kwargs.get("args") or ()
            if isinstance(function, str):
                for kind in classes(*GROUPED):
                    quiet_places(kind, function, tuple(given))
        made = by_name(original)(frame, *args, **quiet(kwargs))
        return nothing_behind_masks(made) if function == "quantile" else made

    return call


def _call(original: str, check: Callable[..., None]) -> Callable[..., Any]:
    """Return a function that calls *original* if *check* takes the arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return by_name(original)(*args, **kwargs)

    return call


def emptied(frame: Any, /) -> Any:
    """Return what says how *frame* is made, without rows; for ``make_meta``, which makes frames of
    anything. Dask asks for it where nobody says what ``from_map`` and ``from_delayed`` will give.
    """
    return by_name("dask.dataframe.dispatch:make_meta")(of_pandas(frame, *FRAMES))


def cased(series: Any, /, *cases: Any) -> Any:
    """Replace elements case by case; for ``CaseWhen``. pandas calls what can be called."""
    of_pandas(series, "pandas:Series")
    for part in cases:
        if callable(part):
            raise refuse("a case of", part)
    return by_name(f"{_EXPR}._expr:CaseWhen.operation")(series, *cases)


def filtered(function: Any, values: Any, /) -> Any:
    """Keep what *function* holds for."""
    return filter(function, values)


def split_up(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """Return the parts of a frame by their number, as a plain dict that travels as data."""
    return dict(by_name(f"{_EXPR}._shuffle:SimpleShuffle._shuffle_group")(*args, **kwargs))


def _check_extreme(*_: Any, **kwargs: Any) -> None:
    if "fn" in kwargs:
        listed("the method", kwargs["fn"], frozenset(("idxmax", "idxmin")))


def _check_unnamed(*_: Any, **kwargs: Any) -> None:
    for name in kwargs:
        raise refuse("the option", name)


def _check_filled(frame: Any, method: str, *_: Any, **__: Any) -> None:
    listed("the method", method, frozenset(("ffill", "bfill")))
    of_pandas(frame, *FRAMES)


def _check_filling(group: Any, *, what: str, **_: Any) -> None:
    listed("the method", what, frozenset(("ffill", "bfill")))
    of_pandas(group, *GROUPS, *FRAMES)


def _check_frame(frame: Any, *_: Any, **__: Any) -> None:
    of_pandas(frame, *FRAMES)


_EXPR = "dask.dataframe.dask_expr"
slice_applied = grouped(f"{_EXPR}._groupby:groupby_slice_apply", at=3)
slice_transformed = grouped(f"{_EXPR}._groupby:groupby_slice_transform", at=3)
#: Keeps its function under a name of its own.
idxmax_chunk = _call(f"{_EXPR}._reductions:IdxMax.chunk", _check_extreme)
idxmax_aggregate = _call(f"{_EXPR}._reductions:IdxMax.aggregate", _check_extreme)
idxmin_chunk = _call(f"{_EXPR}._reductions:IdxMin.chunk", _check_extreme)
idxmin_aggregate = _call(f"{_EXPR}._reductions:IdxMin.aggregate", _check_extreme)
#: Take the property by its name, which Dask itself never gives.
monotonic_chunk = _call(f"{_EXPR}._reductions:IsMonotonicIncreasing.chunk", _check_unnamed)
monotonic_aggregate = _call(f"{_EXPR}._reductions:IsMonotonicIncreasing.aggregate", _check_unnamed)
decreasing_chunk = _call(f"{_EXPR}._reductions:IsMonotonicDecreasing.chunk", _check_unnamed)
decreasing_aggregate = _call(f"{_EXPR}._reductions:IsMonotonicDecreasing.aggregate", _check_unnamed)
measured = _call(f"{_EXPR}._expr:MemoryUsagePerPartition.operation", _check_frame)
bounded = _call(f"{_EXPR}._expr:_check_divisions", _check_frame)
group_taken = _call(f"{_EXPR}._groupby:groupby_get_group", _check_frame)
filled = _call("dask.dataframe.methods:fillna_check", _check_filled)
group_filled = _call(f"{_EXPR}._groupby:_fillna", _check_filling)

#: Functions and dispatchers of Dask's that pickle cannot name: it would write their code instead.
UNNAMED = (
    "dask.array.chunk:argmax",
    "dask.array.chunk:argmin",
    "dask.array.chunk:nanargmax",
    "dask.array.chunk:nanargmin",
    "dask.array.dispatch:concatenate_lookup",
    "dask.array.dispatch:divide_lookup",
    "dask.array.dispatch:percentile_lookup",
    "dask.array.dispatch:tensordot_lookup",
)


#: What is called in place of what, by the names under which they are listed.
GUARDED: Mapping[str, str] = {
    "builtins:filter": "filtered",
    "builtins:getattr": "attribute",
    f"{_EXPR}._accessor:FunctionMap.operation": "accessor_called",
    f"{_EXPR}._accessor:PropertyMap.operation": "accessed",
    f"{_EXPR}._expr:MethodOperator.operation": "operated",
    f"{_EXPR}._groupby:_fillna": "group_filled",
    f"{_EXPR}._groupby:groupby_slice_apply": "slice_applied",
    f"{_EXPR}._groupby:groupby_slice_transform": "slice_transformed",
    f"{_EXPR}._reductions:IdxMax.aggregate": "idxmax_aggregate",
    f"{_EXPR}._reductions:IdxMax.chunk": "idxmax_chunk",
    f"{_EXPR}._reductions:IdxMin.aggregate": "idxmin_aggregate",
    f"{_EXPR}._reductions:IdxMin.chunk": "idxmin_chunk",
    f"{_EXPR}._expr:CaseWhen.operation": "cased",
    f"{_EXPR}._expr:MemoryUsagePerPartition.operation": "measured",
    f"{_EXPR}._expr:_check_divisions": "bounded",
    f"{_EXPR}._groupby:groupby_get_group": "group_taken",
    f"{_EXPR}._reductions:IsMonotonicDecreasing.aggregate": "decreasing_aggregate",
    f"{_EXPR}._reductions:IsMonotonicDecreasing.chunk": "decreasing_chunk",
    f"{_EXPR}._reductions:IsMonotonicIncreasing.aggregate": "monotonic_aggregate",
    f"{_EXPR}._reductions:IsMonotonicIncreasing.chunk": "monotonic_chunk",
    f"{_EXPR}._rolling:_rolling_agg": "rolled",
    f"{_EXPR}._shuffle:SimpleShuffle._shuffle_group": "split_up",
    "dask.array.random:_apply_random": "drawn",
    "dask.array.random:_apply_random_func": "generated",
    "dask.array.random:_choice_rng": "chosen",
    "dask.array.random:_choice_rs": "chosen_by_state",
    "dask.dataframe.dispatch:make_meta": "emptied",
    "dask.dataframe.methods:fillna_check": "filled",
    "dask.dataframe.tseries.resample:_resample_series": "resampled",
}


#: The same of functions that are on the lists: they are replaced where a graph is loaded.
REPLACED: Mapping[str, str] = {
    "dask.array.core:_vindex_merge": "merged",
    "dask.array.core:concatenate3": "concatenated",
    "dask.array.core:concatenate_axes": "concatenated_axes",
    "dask.array.core:concatenate_shaped": "concatenated_shaped",
    "dask.array.core:finalize": "finalized",
    "_operator:getitem": "item",
    "builtins:format": "formatted",
    "dask.array.creation:linear_ramp_chunk": "ramped",
    "dask.array.reshape:_reshape_blockwise": "reshaped",
    "dask.array.einsumfuncs:chunk_einsum": "summed",
    "numpy.fft:hfft": "transformed_to_spectrum",
    "numpy.fft:irfft": "transformed_back",
    "numpy.fft:irfft2": "transformed_back_2",
    "numpy.fft:irfftn": "transformed_back_n",
    "numpy:clip": "clipped",
    **{name: own for name, (own, _) in (*MASKED.items(), *MERGED.items())},
}
STANDING: Mapping[str, str] = {**GUARDED, **REPLACED}


def _without_gaps(function: Any, original: str) -> Any:
    of_dask = original.startswith(SETTING)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        untouched_by(by_name(original), args, kwargs)
        no_gaps_in((*args, *kwargs.values()))
        if of_dask:
            own, named = apart(args, kwargs)
            return without_gaps(function(*own, **named))
        return without_gaps(function(*args, **kwargs))

    return call


def home(name: str) -> str:
    """Return the module by which workers load what is called in place of *name*."""
    for library, module in _HOMES.items():
        if name.startswith(f"{library}."):
            return module
    return __name__


#: To load one of their functions imports that library too.
_HOMES = {
    "dask.array": "safeser.pickles.shims.array_calls",
    "dask.bag": "safeser.pickles.shims.bag_calls",
    "dask.dataframe": "safeser.pickles.shims.frame_calls",
}

globals().update((*MASKED.values(), *MERGED.values()))
for _name, _own in STANDING.items():
    _made = globals()[_own] = _without_gaps(globals()[_own], _name)
    _made.__module__, _made.__name__, _made.__qualname__ = home(_name), _own, _own


def with_their_library(library: str) -> dict[str, Any]:
    """Return what is called in place of functions of *library*, with all imported that it calls.

    A task that only imported it when it runs, in a thread, would do so while the event loop loads
    the next task and imports it too; one of the two finds half of it.
    """
    found = {own: name for name, own in STANDING.items() if name.startswith(f"{library}.")}
    for name in found.values():
        importlib.import_module(name.partition(":")[0])
    return {own: globals()[own] for own in found}


def is_own(function: Any) -> bool:
    """Tell whether *function* is one of those that are called in place of another one."""
    return type(function) is types.FunctionType and function.__module__ in _OWN


_OWN = frozenset((__name__, *_HOMES.values()))
