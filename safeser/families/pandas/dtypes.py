"""Encode and decode pandas extension dtypes, which ``frame.dtypes`` holds beside NumPy's.

The one rule: a dtype is sent as its class and its constructor's arguments, and
:mod:`safeser.types.pandas` builds it from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from safeser.families.pandas.indexes import apart
from safeser.families.pandas.internals import pd
from safeser.families.pandas.offsets import build_zone, check_zone, describe_zone
from safeser.families.pandas.parts import Loaded, charged
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, registry, required
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles import Budget
from safeser.types import pandas as bounds

__all__ = ["register"]

_NAMES = (
    "BooleanDtype Float32Dtype Float64Dtype Int8Dtype Int16Dtype Int32Dtype Int64Dtype UInt8Dtype"
    " UInt16Dtype UInt32Dtype UInt64Dtype"
)
#: Dtypes that are their class and nothing else.
_BARE: dict[str, Any] = {name: getattr(pd, name) for name in _NAMES.split()}
_WRAPPED: Any = type(bounds.numpy_dtype(pd.Series([1]).dtype))


class _Form(NamedTuple):
    """One class of dtypes, and the functions that encode and decode it.

    :param parts: what its constructor takes, in order.
    :param build: the parts, and where they were loaded (None where they are sent), to the dtype.
    """

    kind: Any
    parts: Callable[[Any], tuple[Any, ...]]
    build: Callable[..., Any]


def _categorical(categories: Any, ordered: Any, *, loaded: Loaded | None, limits: Limits) -> Any:
    if loaded is not None and isinstance(categories, pd.Index):
        categories = apart(categories, loaded, limits)
    return bounds.categorical_dtype(categories, ordered)


def _zoned(unit: Any, described: Any, **_: Any) -> Any:
    return bounds.zoned_dtype(unit, build_zone(described))


def _period(freq: Any, **_: Any) -> Any:
    bounds.check_period_freq(freq)
    return pd.PeriodDtype(freq)


def _bare(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *parts, **_: make(*parts)


_FORMS = {
    form.kind.__name__: form
    for form in (
        _Form(
            pd.StringDtype,
            lambda x: (x.storage, x.na_value is pd.NA),
            lambda storage, named, **_: bounds.string_dtype(
                storage, pd.NA if named is True else float("nan")
            ),
        ),
        _Form(pd.CategoricalDtype, lambda x: (x.categories, x.ordered), _categorical),
        _Form(pd.DatetimeTZDtype, lambda x: (x.unit, describe_zone(x.tz)), _zoned),
        _Form(pd.PeriodDtype, lambda x: (x.freq,), _period),
        _Form(pd.IntervalDtype, lambda x: (x.subtype, x.closed), _bare(bounds.interval_dtype)),
        _Form(pd.SparseDtype, lambda x: (x.subtype, x.fill_value), _bare(bounds.sparse_dtype)),
        _Form(pd.ArrowDtype, lambda x: (x.pyarrow_dtype,), _bare(bounds.arrow_dtype)),
        _Form(_WRAPPED, lambda x: (x.numpy_dtype,), _bare(bounds.numpy_dtype)),
    )
}


def _encode(x: Any, limits: Limits) -> Parts:
    name = type(x).__name__
    if name in _BARE:
        return Parts({"kind": name})
    parts = _FORMS[name].parts(x)
    made = _made(name, parts, None, limits)
    if type(made) is not type(x) or repr(made) != repr(x):
        raise Unencodable(x, "pandas makes another one of its parts")
    return Parts({"kind": name}, (), [(f"[{at}]", part) for at, part in enumerate(parts)])


def _made(name: str, parts: Any, loaded: Loaded | None, limits: Limits) -> Any:
    form = _FORMS[name]
    made = form.build(*parts, loaded=loaded, limits=limits)
    required(type(made) is form.kind)
    return made


def _check(node: Node, limits: Limits) -> None:
    (name,) = node.expect("kind", children=None)
    if type(name) is not str or (name not in _BARE and name not in _FORMS):
        node.refuse("its kind is not listed", "families.header")
    if name in _BARE and node.children:
        node.refuse("its kind has no parts", "families.child-count")
    if name == "DatetimeTZDtype":
        zone = node.children[-1:]
        check_zone(node, zone[0].value if zone and zone[0].serializer == "msgpack" else "")
    node.value = limits


def _decode(node: Node, values: list[Any], budget: Budget) -> Any:
    name = node.meta["kind"]
    if name in _BARE:
        return _BARE[name]()
    return _made(name, values, Loaded.of(node, values, budget), node.value)


def register() -> None:
    """List pandas' dtypes; called once, when the first is needed."""
    classes = (*_BARE.values(), *(form.kind for form in _FORMS.values()))
    registry.register(charged("pandas:dtype", classes, _encode, _check, _decode))
