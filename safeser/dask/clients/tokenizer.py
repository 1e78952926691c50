"""Use ``safeser.tokenize`` in place of ``dask.tokenize.tokenize``, where a setting says so.

The one rule: Dask's public hooks keep their meaning. ``__dask_tokenize__`` is called, functions of
``normalize_token.register`` are called for types that safeser does not know itself, and
``ensure_deterministic`` raises an error of Dask's class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import dask
import dask.tokenize

from safeser.errors import TokenizationError
from safeser.tokens import tokenize_by
from safeser.tokens.graph import Form
from safeser.tokens.kinds import describe, is_known

__all__ = ["UnstableTokenError", "is_strict", "own_token"]

#: Tokens of Dask's arguments never meet those of :func:`safeser.tokenize`.
_DOMAIN = b"safeser.tokenize for dask 1"
#: Hexadecimal digits, as many as Dask's tokens have: Dask shows and splits keys by that length. A
#: token of Dask's makes a key, and what is under a key that is taken is compared (conflicts.py).
_LENGTH = 32
#: Packages whose own normalizers safeser's kinds take the place of.
_DASKS = frozenset({"dask", "distributed", "toolz", "tlz", "cytoolz"})
_KNOWN = frozenset({"numpy", "pandas", "scipy", "pyarrow", *_DASKS, *sys.stdlib_module_names})


class UnstableTokenError(TokenizationError, dask.tokenize.TokenizationError):  # type: ignore[misc]  # dask ships no types
    """An object has no token that another process would give it: what Dask raises, and safeser."""


def own_token(_: Callable[..., str], *args: object, **kwargs: object) -> str:
    """Return the token of arguments, in place of ``dask.tokenize._tokenize``.

    :raises UnstableTokenError: if another process would give them another.
    """
    named = sorted(kwargs.items())
    content = (args, named) if named else args
    try:
        token = tokenize_by(_describe, _DOMAIN, content, ensure_deterministic=is_strict())
    except TokenizationError as error:
        raise UnstableTokenError(
            error.message, rule=error.rule, where=error.where, fix=error.fix
        ) from None
    return token[:_LENGTH]


def is_strict() -> bool:
    """Tell whether a token must be deterministic, as Dask does: by the call, or its setting."""
    asked = dask.tokenize._ENSURE_DETERMINISTIC.get(None)
    return bool(dask.config.get("tokenize.ensure-deterministic") if asked is None else asked)


def _describe(value: Any) -> Form:
    normalize = None if is_known(type(value)) else _normalizer(type(value))
    if normalize is None:
        return describe(value)
    return Form(
        b"normalized", [type(value), normalize(value)], steps=("class", "normalize_token()")
    )


def _normalizer(cls: type) -> Callable[[Any], Any] | None:
    """Return the function registered with ``normalize_token`` for *cls* or a base, or None.

    Dask's own functions count for types that safeser knows nothing of, such as an HDF5 dataset.
    """
    registry = dask.tokenize.normalize_token
    found: Callable[[Any], Any] = registry.dispatch(cls)
    # dispatch() remembers what a class inherits as if it had been registered for it.
    of = [base for base in cls.__mro__ if registry._lookup.get(base) is found]
    if not of or of[-1] is object or issubclass(cls, type):
        return None
    is_dasks = _package(found) in _DASKS
    return None if is_dasks and _package(of[-1]) in _KNOWN else found


def _package(named: Any) -> str:
    return str(getattr(named, "__module__", None) or "").partition(".")[0]
