"""Canonical forms of SciPy's sparse arrays and matrices.

The one rule: what is stored decides. What SciPy finds out about it later does not.
"""

from __future__ import annotations

import sys
from typing import Any

from safeser.tokens.graph import Form
from safeser.tokens.kinds import register
from safeser.tokens.reduction import describe_reduced

__all__: list[str] = []


def _describe(matrix: Any) -> Form:
    form = describe_reduced(matrix)
    if form.label != b"new" or type(form.values[2]) is not dict:
        return form
    cls, arguments, state = form.values
    # Without remembered properties of the indices, and how it is printed.
    stored = {
        name: each
        for name, each in state.items()
        if not name.startswith(("_has_", "has_")) and name != "maxprint"
    }
    return Form(form.label, (cls, arguments, stored), steps=form.steps)


_sparse = vars(sys.modules["scipy.sparse"])
_FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
register(
    _describe, *(_sparse[f"{each}_{kind}"] for each in _FORMATS for kind in ("array", "matrix"))
)
