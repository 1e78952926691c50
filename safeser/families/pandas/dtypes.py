"""Encode and decode pandas extension dtypes, which ``frame.dtypes`` holds beside NumPy's.

The one rule: a dtype is sent as its class and its constructor's arguments, and
:mod:`safeser.types.pandas` builds it from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from safeser.families.pandas.indexes import apart
from safeser.families.pandas.internals import pd
from safeser.families.pandas.offsets import build_zone, check_zone, describe_zone, required
from safeser.families.pandas.parts import Loaded, charged
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, registry
from safeser.families.tree import Node
from safeser.pickles import Budget
from safeser.types import pandas as bounds
from safeser.values import Limits

__all__ = ["register"]

#: Dtypes that are their class and nothing else.
_BARE: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        pd.BooleanDtype,
        pd.Float32Dtype,
        pd.Float64Dtype,
        pd.Int8Dtype,
        pd.Int16Dtype,
        pd.Int32Dtype,
        pd.Int64Dtype,
        pd.UInt8Dtype,
        pd.UInt16Dtype,
        pd.UInt32Dtype,
        pd.UInt64Dtype,
    )
}
_WRAPPED: Any = type(bounds.numpy_dtype(pd.Series([1]).dtype))


class _Form(NamedTuple):
    """The functions that encode and decode one class of dtypes.

    :param parts: what its constructor takes, in order.
    :param build: the parts, and where they were loaded (None where they are sent), to the dtype.
    """

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


_FORMS: dict[str, tuple[Any, _Form]] = {
    kind.__name__: (kind, _Form(parts, build))
    for kind, parts, build in (
        (
            pd.StringDtype,
            lambda x: (x.storage, x.na_value is pd.NA),
            lambda storage, named, **_: bounds.string_dtype(
                storage, pd.NA if named is True else float("nan")
            ),
        ),
        (pd.CategoricalDtype, lambda x: (x.categories, x.ordered), _categorical),
        (pd.DatetimeTZDtype, lambda x: (x.unit, describe_zone(x.tz)), _zoned),
        (pd.PeriodDtype, lambda x: (x.freq,), _period),
        (pd.IntervalDtype, lambda x: (x.subtype, x.closed), _bare(bounds.interval_dtype)),
        (pd.SparseDtype, lambda x: (x.subtype, x.fill_value), _bare(bounds.sparse_dtype)),
        (pd.ArrowDtype, lambda x: (x.pyarrow_dtype,), _bare(bounds.arrow_dtype)),
        (_WRAPPED, lambda x: (x.numpy_dtype,), _bare(bounds.numpy_dtype)),
    )
}


def _encode(x: Any, limits: Limits) -> Parts:
    name = type(x).__name__
    if name in _BARE:
        return Parts({"kind": name})
    parts = _FORMS[name][1].parts(x)
    made = _made(name, parts, None, limits)
    if type(made) is not type(x) or repr(made) != repr(x):
        raise Unencodable(x, "pandas makes another one of its parts")
    return Parts({"kind": name}, (), [(f"[{at}]", part) for at, part in enumerate(parts)])


def _made(name: str, parts: Any, loaded: Loaded | None, limits: Limits) -> Any:
    kind, form = _FORMS[name]
    made = form.build(*parts, loaded=loaded, limits=limits)
    required(type(made) is kind)
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
    """List pandas' dtypes; called once, by safeser.families.pandas.names."""
    classes = (*_BARE.values(), *(kind for kind, _ in _FORMS.values()))
    registry.register(charged("pandas:dtype", classes, _encode, _check, _decode))
