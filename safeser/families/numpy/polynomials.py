"""NumPy's polynomials of family ``dask``.

The one rule: a polynomial comes out of its own constructor, through the checks that pickles go
through, and keeps exactly the numbers that were sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeser.families.numpy.arrays import array_child
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.reviewed import reviewed, site
from safeser.families.tree import Node
from safeser.pickles.shims import numpy_kinds
from safeser.pickles.shims.site import Site
from safeser.values import Limits

__all__ = ["register"]

_SERIES = {kind.__name__: (name, kind) for name, kind in numpy_kinds.SERIES.items()}


def _arrays(node: Node, count: int) -> list[Any]:
    return [array_child(node, position, kinds="biufc", ndim=1) for position in range(count)]


def _encode_poly1d(x: np.poly1d, limits: Limits) -> Parts:
    if vars(x).keys() != {"coeffs", "_variable"}:
        raise Unencodable(x, "it has attributes of its own")
    # Whoever receives it would refuse what this refuses.
    numpy_kinds.poly1d(_site(limits), vars(x))
    return Parts({"variable": x.variable}, (), [(".coeffs", _own(x.coeffs))])


def _site(limits: Limits) -> Site:
    return Site(limits, given=limits.max_bytes, shared=False)


def _own(array: Any) -> Any:
    """Return *array* as its receiver's constructor makes it: writable, and in a row."""
    return array if array.flags.writeable and array.flags.c_contiguous else array.copy()


def _check_poly1d(node: Node, limits: Limits) -> None:
    (variable,) = node.expect("variable", children=1)
    (coefficients,) = _arrays(node, 1)
    state = {"coeffs": coefficients, "_variable": variable}
    with reviewed(node):
        node.value = numpy_kinds.poly1d(site(node, limits), state)


def _encode_series(x: Any, limits: Limits) -> Parts:
    # One that was pickled before has its symbol twice; the property of that name hides the second.
    if not vars(x).keys() <= {"coef", "domain", "window", "_symbol", "symbol"}:
        raise Unencodable(x, "it has attributes of its own")
    state = {"coef": x.coef, "domain": x.domain, "window": x.window, "_symbol": x.symbol}
    numpy_kinds.series(_site(limits), _SERIES[type(x).__name__][0], state)
    parts = [(f".{part}", _own(getattr(x, part))) for part in ("coef", "domain", "window")]
    return Parts({"kind": type(x).__name__, "symbol": x.symbol}, (), parts)


def _check_series(node: Node, limits: Limits) -> None:
    kind, symbol = node.expect("kind", "symbol", children=3)
    if type(kind) is not str or kind not in _SERIES:
        node.refuse("it is none of NumPy's polynomials", "families.header")
    coef, domain, window = _arrays(node, 3)
    state = {"coef": coef, "domain": domain, "window": window, "_symbol": symbol}
    with reviewed(node):
        node.value = numpy_kinds.series(site(node, limits), _SERIES[kind][0], state)


def _decode(node: Node, values: list[Any]) -> Any:
    return node.value


def register() -> None:
    """List NumPy's polynomials; called when one of them is first sent or loaded."""
    kinds = tuple(kind for _, kind in _SERIES.values())
    registry.register(Typed("numpy:poly1d", (np.poly1d,), _encode_poly1d, _check_poly1d, _decode))
    registry.register(
        Typed("numpy.polynomial:series", kinds, _encode_series, _check_series, _decode)
    )
