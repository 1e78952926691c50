"""Strategies of what a function builds, and of nothing where it refuses."""

from __future__ import annotations

import re
import warnings

import pyarrow as pa
from hypothesis import strategies as st

__all__ = ["made"]


def made(build):
    """Return a strategy of what *build* makes; where it raises, of nothing in its place."""

    @st.composite
    def strategy(draw):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return build(draw)
        except (LookupError, ValueError, TypeError, ArithmeticError, NotImplementedError, re.error):
            return None
        except (SystemError, pa.ArrowException):  # SystemError: NumPy, of text beyond Unicode
            return None

    return strategy()
