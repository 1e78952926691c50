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

from safeser.types.refusal import refused

__all__ = ["refused"]
