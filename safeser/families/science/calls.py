"""What a call of joblib's raised, handed over as its result.

The one rule: the error passes as any error does, so that nothing of joblib is built from it.

joblib's Dask backend has its functions return what they raise, in a wrapper whose pickle calls a
function of joblib's; it raises whatever error it gets in place of a result (joblib 1.6,
``parallel.py``). Where that pickle was refused, it dropped the refusal, and waited for ever.
"""

from __future__ import annotations

import importlib
from typing import Any

from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.values import Limits

__all__ = ["register"]


def _encode(x: Any, limits: Limits) -> Parts:
    del limits
    if not isinstance(x.exc, BaseException):
        raise Unencodable(x, "what was raised is no error")
    return Parts({}, children=[(".exc", x.exc)])


def _check(node: Node, limits: Limits) -> None:
    del limits
    node.expect(children=1)


def _decode(node: Node, values: list[Any]) -> BaseException:
    (raised,) = values
    if not isinstance(raised, BaseException):
        node.refuse("what was raised is no error", "families.value")
    return raised


def register() -> None:
    """List joblib's wrapper; called once, by safeser.families.science.names."""
    loky: Any = importlib.import_module("joblib.externals.loky.process_executor")
    registry.register(
        Typed("joblib:raised", (loky._ExceptionWithTraceback,), _encode, _check, _decode)
    )
