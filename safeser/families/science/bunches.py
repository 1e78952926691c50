"""Encode and decode scikit-learn's Bunch: a dict whose values are typed values of their own.

The one rule: a Bunch holds only what family ``dask`` carries. The functions that are listed as
fields of estimators are refused in it.
"""

from __future__ import annotations

import importlib
from typing import Any

from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.pickles.shims.labels import hide_memory
from safeser.values import Limits

__all__ = ["register"]

#: Untyped on purpose: scikit-learn is an extra.
Bunch: Any = importlib.import_module("sklearn.utils").Bunch
hide_memory(Bunch)


def _encode(x: Any, limits: Limits) -> Parts:
    if vars(x).get("_deprecated_key_to_warnings"):
        raise Unencodable(x, "it warns about some of its keys, which is not kept")
    return Parts({}, (), [("", dict(x))])


def _check(node: Node, limits: Limits) -> None:
    node.expect(children=1)
    if node.children[0].yields != "builtins:dict":
        node.refuse("its content is not a dict", "families.child-type")


def _decode(node: Node, values: list[Any]) -> Any:
    made = Bunch()
    made.update(values[0])
    return made


def register() -> None:
    """List the type; called when a first one of scikit-learn's is needed."""
    registry.register(Typed("sklearn.utils:Bunch", (Bunch,), _encode, _check, _decode))
