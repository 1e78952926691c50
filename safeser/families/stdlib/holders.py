"""Encode and decode patterns, random generators, struct_time and the classes of ``collections``.

The one rule: the reviewed function that restricted pickle uses also builds the object here, from a
reduced tree. A pattern is compiled only when its payload is loaded.
"""

from __future__ import annotations

import collections
import random
from typing import Any

from safeser.errors import PayloadError
from safeser.families.plain import Unencodable
from safeser.families.reduced import Reducers, Row, list_rows
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.values import Limits

__all__ = ["register"]


def _random_reducers() -> Reducers:
    return {random.Random: _reduced_random}


def _reduced_random(x: random.Random) -> Any:
    if vars(x).keys() - {"gauss_next"}:
        # What random itself writes leaves them out.
        raise PayloadError("it has attributes of its own", rule="pickle.unwritable")
    return x.__reduce__()


#: By package, the first key of the type lookup.
_ROWS = {
    "re": {"re:Pattern": Row(("data",), ("re:Pattern",))},
    "time": {"time:struct_time": Row(("data",), ("time:struct_time",))},
    "random": {"random:Random": Row(("data",), ("random:Random",), _random_reducers)},
}


def _user(name: str, cls: Any, kind: type) -> Typed:
    def encode(x: Any, limits: Limits) -> Parts:
        if vars(x).keys() != {"data"} or type(x.data) is not kind:
            raise Unencodable(x, f"it has attributes of its own, or holds no {kind.__name__}")
        return Parts({}, (), [(".data", x.data)])

    def check(node: Node, limits: Limits) -> None:
        node.expect(children=1)

    def decode(node: Node, values: list[Any]) -> Any:
        if type(values[0]) is not kind:
            raise ValueError
        made = cls()
        made.data = values[0]
        return made

    return Typed(name, (cls,), encode, check, decode)


def register() -> None:
    """List them; called once, when safeser.families is imported."""
    for package, rows in _ROWS.items():
        list_rows(package, rows)
    registry.register(_user("collections:UserDict", collections.UserDict, dict))
    registry.register(_user("collections:UserList", collections.UserList, list))
