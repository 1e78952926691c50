"""Canonical form of NumPy's masked arrays.

The one rule: a mask without a masked value is none, and a default is the value that it stands for;
pickling writes both out.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from safeser.tokens.graph import Form
from safeser.tokens.kinds import register

__all__: list[str] = []

_ma = vars(sys.modules["numpy.ma"])


def _describe(array: Any) -> Form:
    fill = array._fill_value
    if fill is None:
        fill = _ma["default_fill_value"](array.dtype)
    mask = _ma["getmaskarray"](array)
    values = [array.data, mask, np.asarray(fill, array.dtype), type(array)]
    return Form(b"masked array", values, steps=("values", "mask", "fill value", "class"))


register(_describe, _ma["MaskedArray"])
