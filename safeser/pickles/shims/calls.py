"""What a task calls in place of those functions of Dask's that look up a method by its name.

The one rule: a name that a task gives is looked up only if it is one of those listed here, and only
on an object of a class that it is listed for. Dask's own functions take any name of any object:
``DataFrame.eval`` runs text, ``DataFrame.to_pickle`` and ``PosixPath.rename`` reach files.

They run on workers, which are sent them by name, with arguments that nobody has seen before.
"""

from __future__ import annotations

import importlib
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from safeser.errors import PolicyDenied
from safeser.pickles.names import shown
from safeser.pickles.shims.numpy_random import KINDS

__all__ = [
    "DATA_ATTRIBUTES",
    "GUARDED",
    "METHODS",
    "UNNAMED",
    "Method",
    "is_unnamed",
    "name_of",
    "named",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: What a task may take of whatever object another task gives it. Anything else may be a method, and
#: max(paths, key=...) or apply() calls that: ndarray.tofile writes files, DataFrame.eval runs text.
DATA_ATTRIBUTES = _words("""
    T columns day denominator dtype dtypes hour imag index itemsize left microsecond mid minute
    month name names nbytes ndim numerator real right second shape size start step stop values year
""")

#: Of arrays and frames. Others write files or evaluate text: tofile, to_pickle, query, eval.
_FRAME_METHODS = _words("""
    abs add_prefix add_suffix align all any argmax argmin argsort astype bfill between clip combine
    combine_first copy corr cov count cummax cummin cumprod cumsum diff dot drop drop_duplicates
    dropna explode ffill fillna first head idxmax idxmin isin isna isnull kurt kurtosis last map
    mask max mean median melt memory_usage merge min mode nlargest notna notnull nsmallest nunique
    pct_change pow prod product quantile rank ravel reindex rename rename_axis repeat replace
    reset_index reshape round select_dtypes sem set_index shift size skew sort_index sort_values
    std sum tail to_frame to_numpy to_records to_series to_timestamp transpose tz_convert
    tz_localize unique
    value_counts values var where
    add sub mul div truediv floordiv mod radd rsub rmul rdiv rtruediv rfloordiv rmod rpow
    eq ne lt le gt ge
""")

_GROUP_METHODS = _words("""
    all any bfill count cumcount cummax cummin cumprod cumsum ffill first head idxmax idxmin last
    max mean median min ngroup nunique ohlc prod quantile rank sem shift size skew std sum tail
    value_counts var
""")

METHODS = _FRAME_METHODS | _GROUP_METHODS | {"apply"}

_WINDOW_METHODS = _words(
    "apply corr count cov first kurt last max mean median min nunique ohlc prod quantile rank sem"
    " size skew std sum var"
)

_OPERATORS = _words("""
    add sub mul div truediv floordiv mod pow radd rsub rmul rdiv rtruediv rfloordiv rmod rpow
    eq ne lt le gt ge combine combine_first
""")

#: Of ``.str``, ``.dt`` and ``.cat``. Not in it: encode and decode, which import the codec by name.
_ACCESSORS: Mapping[str, frozenset[str]] = {
    "str": _words("""
        capitalize casefold cat center contains count endswith extract extractall find findall
        fullmatch get index isalnum isalpha isdecimal isdigit islower isnumeric isspace istitle
        isupper join len ljust lower lstrip match normalize pad partition removeprefix removesuffix
        repeat replace rfind rindex rjust rpartition rsplit rstrip slice slice_replace split
        startswith strip swapcase title translate upper wrap zfill __getitem__
    """),
    "dt": _words("""
        as_unit asfreq ceil date day day_name day_of_week day_of_year dayofweek dayofyear days
        days_in_month daysinmonth end_time floor freq hour is_leap_year is_month_end is_month_start
        is_quarter_end is_quarter_start is_year_end is_year_start isocalendar microsecond
        microseconds minute month month_name nanosecond nanoseconds normalize quarter qyear round
        second seconds start_time strftime time timetz to_period to_timestamp total_seconds tz
        tz_convert tz_localize unit week weekday weekofyear year
    """),
    "cat": _words("""
        add_categories as_ordered as_unordered categories codes ordered remove_categories
        remove_unused_categories rename_categories reorder_categories set_categories
    """),
}

#: Of random states and generators. Not in it: bytes, and what reads or sets the state.
_DRAWS = _words("""
    beta binomial chisquare choice dirichlet exponential f gamma geometric gumbel hypergeometric
    integers laplace logistic lognormal logseries multinomial multivariate_hypergeometric
    multivariate_normal negative_binomial noncentral_chisquare noncentral_f normal pareto
    permutation permuted poisson power rand randint randn random random_integers random_sample
    rayleigh sample standard_cauchy standard_exponential standard_gamma standard_normal standard_t
    tomaxint triangular uniform vonmises wald weibull zipf
""")


def _refuse(what: str, name: object) -> PolicyDenied:
    text = shown(name) if isinstance(name, str) else f"a {type(name).__name__}"
    return PolicyDenied(
        f"{what} {text} is not one that an approved task may ask for",
        rule="submission.method",
        fix="Put the call into a function of your own, which the policy lists by name.",
    )


def _listed(what: str, name: object, names: frozenset[str]) -> str:
    # An exact str: a subclass could be equal to one name, and be another when it is looked up.
    if type(name) is not str or name not in names:
        raise _refuse(what, name)
    return name


@cache
def _classes(*names: str) -> tuple[type, ...]:
    found = (operator.attrgetter(name.partition(":")[2]) for name in names)
    modules = (importlib.import_module(name.partition(":")[0]) for name in names)
    return tuple(get(module) for get, module in zip(found, modules, strict=True))


_FRAMES = ("pandas:DataFrame", "pandas:Series", "pandas:Index")
_GROUPS = ("pandas.core.groupby:GroupBy",)


def _of(value: Any, *names: str) -> Any:
    """Return *value* if it is of one of pandas' own classes *names*; their methods do no harm."""
    if not isinstance(value, _classes(*names)) or type(value).__module__.split(".")[0] != "pandas":
        raise _refuse("a method of", value)
    return value


def _function(value: Any, names: frozenset[str], *, what: str = "the method") -> Any:
    """Return *value* if it is a function, or the name of a method that only computes.

    pandas looks up whatever text it is given in place of a function, and functions in lists.
    """
    if isinstance(value, str):
        return _listed(what, value, names)
    if isinstance(value, list | tuple | dict | set | frozenset) or not callable(value):
        raise _refuse(what, value)
    return value


def _quiet(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return *kwargs* without what has pandas import another library, or look a window up there."""
    for name in ("engine", "engine_kwargs", "win_type", "numba"):
        if kwargs.get(name) is not None:
            raise _refuse("the option", name)
    return dict(kwargs)


# -- by name --------------------------------------------------------------------------------------


class Method:
    """Calls the method *name*, one of those that only compute, of an array or a frame.

    Stands in place of Dask's ``methodcaller``, which takes any object: a path has a ``rename`` too.
    """

    __slots__ = ("method",)
    func = property(lambda self: self)  # tells Dask how to name the task

    def __init__(self, name: str) -> None:
        self.method = _listed("the method", name, METHODS)

    @property
    def __name__(self) -> str:
        return self.method

    def __call__(self, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        # A pickle of this class sets the name without the constructor.
        name = _listed("the method", self.method, METHODS)
        if isinstance(value, np.ndarray | np.generic):
            if name in ("map", "apply"):
                raise _refuse("the method", name)
        elif type(value).__module__.split(".")[0] == "pandas":
            if name == "apply":
                _function(args[0] if args else kwargs.get("func"), frozenset())
            kwargs = _quiet(kwargs)
        elif not isinstance(value, int | float | complex):
            raise _refuse("a method of", value)
        return getattr(value, name)(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Method, (self.method,)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "safeser-method", self.method

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and other.method == self.method

    def __hash__(self) -> int:
        return hash(self.method)


def attribute(value: Any, name: str, /) -> Any:
    """Return an attribute that is data; for ``getattr``."""
    return getattr(value, _listed("the attribute", name, DATA_ATTRIBUTES))


def operated(name: str, left: Any, right: Any, **kwargs: Any) -> Any:
    """Apply a frame's operator; for ``MethodOperator.operation``."""
    _listed("the operator", name, _OPERATORS)
    return _original("dask.dataframe.dask_expr._expr:MethodOperator.operation")(
        name, _of(left, *_FRAMES), right, **kwargs
    )


def accessed(value: Any, accessor: str, name: str, /) -> Any:
    """Return a property of ``.str``, ``.dt`` or ``.cat``; for ``PropertyMap.operation``."""
    _check_accessor(value, accessor, name)
    found = _original("dask.dataframe.dask_expr._accessor:PropertyMap.operation")(
        value, accessor, name
    )
    if callable(found):  # a method, which something else might call
        raise _refuse("the property", name)
    return found


def accessor_called(
    value: Any, accessor: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], /
) -> Any:
    """Call a method of ``.str``, ``.dt`` or ``.cat``; for ``FunctionMap.operation``."""
    _check_accessor(value, accessor, name)
    return _original("dask.dataframe.dask_expr._accessor:FunctionMap.operation")(
        value, accessor, name, tuple(args), dict(kwargs)
    )


def _check_accessor(value: Any, accessor: Any, name: Any) -> None:
    _listed("the accessor", accessor, frozenset(_ACCESSORS))
    _listed("the method", name, _ACCESSORS[accessor])
    _of(value, "pandas:Series", "pandas:Index")


def drawn(kind: Any, name: str, *args: Any) -> Any:
    """Draw from a random state; for ``dask.array.random``'s functions."""
    _listed("the distribution", name, _DRAWS)
    if kind is not None and kind is not np.random.RandomState:
        raise _refuse("the random state", kind)
    return _original("dask.array.random:_apply_random")(kind, name, *args)


def generated(kind: Any, name: str, bits: Any, *args: Any) -> Any:
    """Draw from a generator over *bits*."""
    _listed("the distribution", name, _DRAWS)
    sources = (*KINDS.values(), np.random.default_rng)
    if not isinstance(bits, np.random.BitGenerator | np.random.SeedSequence) or (
        kind is not None and kind not in sources
    ):
        raise _refuse("the generator", bits)
    return _original("dask.array.random:_apply_random_func")(kind, name, bits, *args)


def chosen(bits: Any, *args: Any) -> Any:
    """Choose from an array by a generator over *bits*."""
    if not isinstance(bits, np.random.BitGenerator):
        raise _refuse("the generator", bits)
    return _original("dask.array.random:_choice_rng")(bits, *args)


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
    _listed("the method", how, _WINDOW_METHODS)
    _of(frame, *_FRAMES)
    how_kwargs = _quiet(how_kwargs or {})
    if how == "apply":
        _function(how_args[0] if how_args else how_kwargs.get("func"), frozenset())
    return _original("dask.dataframe.dask_expr._rolling:_rolling_agg")(
        frame, window, _quiet(kwargs), how, tuple(how_args), how_kwargs, *more, **named
    )


def resampled(series: Any, *args: Any) -> Any:
    """Compute over spans of time; for ``_resample_series``."""
    start, end, closed, rule, options, how, fill, how_args, how_kwargs = args
    if isinstance(how, list | tuple):
        raise _refuse("the method", how)
    _listed("the method", how, _WINDOW_METHODS | {"agg"})
    _of(series, *_FRAMES)
    if how == "agg":
        functions = how_args[0] if how_args else how_kwargs.get("func")
        for name in functions if isinstance(functions, list) else [functions]:
            _function(name, _WINDOW_METHODS)
    elif how == "apply":
        _function(how_args[0] if how_args else how_kwargs.get("func"), frozenset())
    return _original("dask.dataframe.tseries.resample:_resample_series")(
        series,
        start,
        end,
        closed,
        rule,
        dict(options),
        how,
        fill,
        tuple(how_args),
        _quiet(how_kwargs),
    )


def grouped(original: str, *, at: int) -> Callable[..., Any]:
    """Return a guarded ``groupby().apply`` or the like; its function is argument *at*."""

    def call(frame: Any, /, *args: Any, **kwargs: Any) -> Any:
        _of(frame, *_FRAMES)
        if len(args) >= at:
            _function(args[at - 1], _GROUP_METHODS)
        elif "func" in kwargs:
            _function(kwargs["func"], _GROUP_METHODS)
        return _original(original)(frame, *args, **_quiet(kwargs))

    return call


def _call(original: str, check: Callable[..., None]) -> Callable[..., Any]:
    """Return a function that calls *original* if *check* takes the arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return _original(original)(*args, **kwargs)

    return call


def filtered(function: Any, values: Any, /) -> Any:
    """Keep what *function* holds for."""
    return filter(function, values)


def split_up(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """Return the parts of a frame by their number, as a plain dict that travels as data."""
    return dict(_original(f"{_EXPR}._shuffle:SimpleShuffle._shuffle_group")(*args, **kwargs))


def _check_extreme(*_: Any, **kwargs: Any) -> None:
    if "fn" in kwargs:
        _listed("the method", kwargs["fn"], frozenset(("idxmax", "idxmin")))


def _check_filled(frame: Any, method: str, *_: Any, **__: Any) -> None:
    _listed("the method", method, frozenset(("ffill", "bfill")))
    _of(frame, *_FRAMES)


def _check_filling(group: Any, *, what: str, **_: Any) -> None:
    _listed("the method", what, frozenset(("ffill", "bfill")))
    _of(group, *_GROUPS, *_FRAMES)


_EXPR = "dask.dataframe.dask_expr"
slice_applied = grouped(f"{_EXPR}._groupby:groupby_slice_apply", at=3)
slice_transformed = grouped(f"{_EXPR}._groupby:groupby_slice_transform", at=3)
#: Keeps its function under a name of its own.
idxmax_chunk = _call(f"{_EXPR}._reductions:IdxMax.chunk", _check_extreme)
idxmax_aggregate = _call(f"{_EXPR}._reductions:IdxMax.aggregate", _check_extreme)
idxmin_chunk = _call(f"{_EXPR}._reductions:IdxMin.chunk", _check_extreme)
idxmin_aggregate = _call(f"{_EXPR}._reductions:IdxMin.aggregate", _check_extreme)
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
    "dask.array.dispatch:einsum_lookup",
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
    f"{_EXPR}._rolling:_rolling_agg": "rolled",
    f"{_EXPR}._shuffle:SimpleShuffle._shuffle_group": "split_up",
    "dask.array.random:_apply_random": "drawn",
    "dask.array.random:_apply_random_func": "generated",
    "dask.array.random:_choice_rng": "chosen",
    "dask.dataframe.methods:fillna_check": "filled",
    "dask.dataframe.tseries.resample:_resample_series": "resampled",
}


@cache
def _original(name: str) -> Any:
    """Return what a guarded function calls in the end; only names of this file come here."""
    module, _, qualname = name.partition(":")
    return operator.attrgetter(qualname)(importlib.import_module(module))


for _own in GUARDED.values():
    _made = globals()[_own]
    _made.__module__, _made.__name__, _made.__qualname__ = __name__, _own, _own


@cache
def _names() -> dict[Any, str]:
    return {_original(name): name for name in (*UNNAMED, *GUARDED)}


@cache
def _unnamed() -> tuple[Any, ...]:
    return tuple(map(_original, UNNAMED))


def is_unnamed(obj: Any) -> bool:
    """Tell whether *obj* is what a name of :data:`UNNAMED` stands for."""
    return any(obj is found for found in _unnamed())


def name_of(obj: Any) -> str | None:
    """Return the name by which :func:`named` finds what stands for *obj* in a graph, if it does."""
    kinds = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
    # Of others, hashing may be a matter of all that they hold: a task computes its token.
    if (
        isinstance(obj, kinds)
        or obj is filter
        or (type(obj).__module__, type(obj).__name__) == ("dask.utils", "Dispatch")
    ):
        return _names().get(obj)
    return None


def named(name: str) -> Any:
    """Return what stands for one of :data:`UNNAMED` or :data:`GUARDED` in a graph."""
    if name in GUARDED:
        return globals()[GUARDED[name]]
    if name not in UNNAMED:
        raise _refuse("the function", name)
    return _original(name)
