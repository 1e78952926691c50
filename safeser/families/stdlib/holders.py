"""Encode and decode what the standard library's reviewed functions make, and listed functions.

The one rule: the reviewed function that restricted pickle uses also builds the object here, from a
reduced tree. A class or function arrives as the listed one of its name; loading calls none.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.families.reduced import Reducers, Row, list_rows
from safeser.pickles import Profile

__all__ = ["register"]


def _random_reducers() -> Reducers:
    return {random.Random: _reduced_random}


def _reduced_random(x: random.Random) -> Any:
    if vars(x).keys() - {"gauss_next"}:
        # What random itself writes leaves them out.
        raise PayloadError("it has attributes of its own", rule="pickle.unwritable")
    return x.__reduce__()


#: What leads to the methods of what it is called with. Dask's bags call what stands first in a
#: tuple of their data, with what comes behind it, which may be such a call again.
_WITHOUT = ("builtins:getattr", "operator:attrgetter", "operator:methodcaller")
#: What only computes; loading calls none of it.
_FUNCTIONS = ("data", "numpy", "functions")
#: What has a name. A bound method is among these and has another's.
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, type(np.add), type(np.sum))


def _is_reference(x: Any) -> bool:
    """Whether *x* is a class or function that arrives as what is listed under its name."""
    if type(x) not in _NAMED:
        return False
    functions = Profile.named(*_FUNCTIONS)
    entry = functions.get(f"{getattr(x, '__module__', '')}:{getattr(x, '__qualname__', '')}")
    return entry is not None and entry.referable and functions.object_of(entry) is x


_ENUMS = (
    "http:HTTPMethod", "http:HTTPStatus", "inspect:_ParameterKind", "plistlib:PlistFormat",
    "re:RegexFlag", "signal:Handlers", "signal:Signals", "socket:AddressFamily",
    "socket:SocketKind", "uuid:SafeUUID",
)  # fmt: skip


def _functions(classes: Any, takes: Callable[[Any], bool] | None = None) -> Row:
    return Row(_FUNCTIONS, classes, without=_WITHOUT, takes=takes)


#: Each is of the package before its colon, the first key of the type lookup.
_ROWS = {
    "re:Pattern": Row(("data",), ("re:Pattern",)),
    "time:struct_time": Row(("data",), ("time:struct_time",)),
    "random:Random": Row(("data",), ("random:Random",), _random_reducers),
    "_io:stream": Row(("data",), ("_io:BytesIO", "_io:StringIO")),
    **{name: Row(("data",), (name,)) for name in _ENUMS},
    "builtins:reference": _functions(
        ("builtins:type", "types:FunctionType", "types:BuiltinFunctionType"), _is_reference
    ),
    "numpy:reference": _functions(lambda: _NAMED[3:], _is_reference),
    "functools:partial": _functions(("functools:partial",), lambda x: _is_reference(x.func)),
    "operator:itemgetter": _functions(("operator:itemgetter",)),
    "types:alias": _functions(
        ("types:GenericAlias", "types:UnionType"),
        lambda x: all(
            each is types.NoneType
            or each is ...
            or type(each) is types.GenericAlias
            or _is_reference(each)
            for each in x.__args__
        ),
    ),
}


def register() -> None:
    """List them; called once, when safeser.families is imported."""
    for name, row in _ROWS.items():
        list_rows(name.partition(":")[0], {name: row})
