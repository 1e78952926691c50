"""pandas dtypes of family ``dask``: what ``frame.dtypes`` holds beside NumPy's own.

The one rule: a dtype travels as an empty array of it, so that whatever is checked about the array
holds for the dtype; one that its empty array does not give back exactly is refused.
"""

from __future__ import annotations

from typing import Any

from safeser.families.pandas.internals import pd
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.values import Limits

__all__ = ["register"]

_CLASSES = (
    pd.ArrowDtype,
    pd.BooleanDtype,
    pd.CategoricalDtype,
    pd.DatetimeTZDtype,
    pd.Float32Dtype,
    pd.Float64Dtype,
    pd.Int8Dtype,
    pd.Int16Dtype,
    pd.Int32Dtype,
    pd.Int64Dtype,
    pd.IntervalDtype,
    pd.PeriodDtype,
    pd.SparseDtype,
    pd.StringDtype,
    pd.UInt8Dtype,
    pd.UInt16Dtype,
    pd.UInt32Dtype,
    pd.UInt64Dtype,
)


def _encode(x: Any, limits: Limits) -> Parts:
    try:
        empty = x.construct_array_type()._from_sequence([], dtype=x)
    # What pandas raises for a dtype of which there are no arrays.
    except (TypeError, ValueError, AttributeError, ImportError, NotImplementedError):
        raise Unencodable(x, "pandas makes no array of it") from None
    if type(empty.dtype) is not type(x) or empty.dtype != x or repr(empty.dtype) != repr(x):
        raise Unencodable(x, "an array of it says more than it does: send its name")
    return Parts({}, (), [(".array", empty)])


def _check(node: Node, limits: Limits) -> None:
    node.expect(children=1)
    if node.children[0].yields != "pandas:array":
        node.refuse("it comes without an array", "families.child-type")


def _decode(node: Node, values: list[Any]) -> Any:
    (empty,) = values
    if len(empty) or type(empty.dtype) not in _CLASSES:
        node.refuse("its array is not an empty one of pandas'", "families.header")
    return empty.dtype


def register() -> None:
    """List pandas' dtypes; called once, by safeser.families.pandas.names."""
    registry.register(Typed("pandas:dtype", _CLASSES, _encode, _check, _decode))
