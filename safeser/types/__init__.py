"""What a value of a listed type may be: its bounds and its constructor, one file for each library.

The one rule: a bound is stated here once. A value has two spellings, the reduced tree of a pickle
(:mod:`safeser.pickles.shims`) and the header and frames of family ``dask``
(:mod:`safeser.families`); both call the functions here, so that the same value gets the same
answer, and the same rule name, in either.

A function takes plain values, whose exact types the caller has checked, and either returns the
value or raises :class:`~safeser.errors.PayloadError`. It knows nothing of opcodes, headers or
budgets.
"""

from __future__ import annotations

from safeser.types.refusal import refused

__all__ = ["refused"]
