"""Reviewed functions for NumPy's polynomials, named results and the constant ``masked``.

The one rule: the public constructor makes every object, from arrays that were checked.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Hermite, HermiteE, Laguerre, Legendre, Polynomial

from safeser.pickles.shims.site import Draft, Site, bad, begin, begun, plain
from safeser.types import refused

__all__ = ["SERIES", "SHIMS"]

_MAX_SYMBOL = 64
SERIES: dict[str, Any] = {
    "numpy.polynomial.chebyshev:Chebyshev": Chebyshev,
    "numpy.polynomial.hermite:Hermite": Hermite,
    "numpy.polynomial.hermite_e:HermiteE": HermiteE,
    "numpy.polynomial.laguerre:Laguerre": Laguerre,
    "numpy.polynomial.legendre:Legendre": Legendre,
    "numpy.polynomial.polynomial:Polynomial": Polynomial,
}


def _masked_constant(_: Site, __: str) -> Any:
    return np.ma.masked


def _result(_: Site, name: str, *parts: Any) -> Any:
    module, __, kind = name.partition(":")
    cls = getattr(importlib.import_module(module), kind)
    try:
        return cls(*parts)
    except TypeError:
        raise bad("arguments", f"{name} has another number of parts") from None


def _numbers(value: Any) -> Any:
    if plain(value, np.ndarray).ndim != 1 or value.dtype.kind not in "biufc":
        raise refused("polynomial", "a polynomial's coefficients are a row of numbers")
    return value


def _check_kept(sent: Any, kept: Any) -> None:
    """Refuse coefficients that the constructor would convert or trim: NumPy's state has none."""
    if (sent.dtype, sent.shape) != (kept.dtype, kept.shape) or sent.tobytes() != kept.tobytes():
        raise refused(
            "polynomial", "a polynomial's numbers are not of the type that NumPy gives them"
        )


def _symbol(value: Any) -> str:
    if not plain(value, str).isidentifier() or len(value) > _MAX_SYMBOL:
        raise refused("polynomial", "a polynomial's variable is no name")
    return value  # type: ignore[no-any-return]  # plain() proved it a str


def _poly1d(site: Site, draft: Any, state: Any) -> np.poly1d:
    if type(draft) is not Draft or plain(state, dict).keys() != {"coeffs", "_variable"}:
        raise bad("state", "a polynomial does not have the fields of its class")
    made = np.poly1d(_numbers(state["coeffs"]), variable=_symbol(state["_variable"]))
    _check_kept(state["coeffs"], made.coeffs)
    return made


def _series(site: Site, draft: Any, state: Any) -> Any:
    kind = begun(draft, "a polynomial").kind
    fields = dict(plain(state, dict))
    coefficients, domain, window = (_numbers(fields.pop(f)) for f in ("coef", "domain", "window"))
    # Written twice, the second time for the property of that name.
    symbols = {_symbol(symbol) for symbol in fields.values()}
    # NumPy before 1.24 wrote none, and to this one such an object has no variable at all.
    if not {"_symbol"} <= fields.keys() <= {"symbol", "_symbol"} or len(symbols) > 1:
        raise bad("state", "a polynomial does not have the fields of its class")
    made = SERIES[kind](coefficients, domain, window, *symbols)
    for sent, kept in ((coefficients, made.coef), (domain, made.domain), (window, made.window)):
        _check_kept(sent, kept)
    return made


SHIMS: dict[str, Callable[..., Any]] = {
    "masked_constant": _masked_constant,
    "poly1d": _poly1d,
    "polynomial": begin,
    "result": _result,
    "series": _series,
}
