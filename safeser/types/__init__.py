"""Bounds and constructors of the listed types, one file for each library.

The one rule: each bound is stated here once. A value has two encodings, the reduced tree of a
pickle (:mod:`safeser.pickles.shims`) and the header and frames of family ``dask``
(:mod:`safeser.families`); both call the functions here, so that the same value gets the same
result, and the same rule name, in either.

A function takes plain values, whose exact types the caller has checked, and either returns the
value or raises :class:`~safeser.errors.PayloadError`. It does not depend on opcodes, headers or
budgets.
"""

from __future__ import annotations

from safeser.errors import PayloadError

__all__ = ["refused"]


def refused(bound: str, message: str, *, fix: str = "", limit: str = "") -> PayloadError:
    """Return the error with rule ``value.<bound>``; the reader of the value adds its path.

    :param limit: the limit that was exceeded, by its name in a policy; the fix is to raise it.
    """
    if limit:
        fix = f"Raise the policy's limits.{limit} if its sender may, or send it in parts."
    error = PayloadError(message, rule=f"value.{bound}", fix=fix)
    error.limit = limit
    return error
