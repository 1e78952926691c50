"""The two refusals of a payload of a stock cluster that is refused before it is decided.

The one rule: an error names a class as the peer spelt it, cut and cleaned, and never its bytes.
"""

from __future__ import annotations

from typing import NoReturn

from safeser.errors import PayloadError
from safeser.pickles.names import shown

__all__ = ["malformed", "unreadable"]


def malformed(problem: str) -> NoReturn:
    """Raise that a header does not describe what stock Dask sends."""
    raise PayloadError(
        f"a value of the stock cluster is malformed: {problem}",
        rule="stock.header",
        fix="If the cluster is yours, report which value it was; safeser knows the headers of the"
        " versions of distributed that it supports.",
    )


def unreadable(name: str, *, because: str = "safeser reads none from a stock cluster") -> NoReturn:
    """Raise that values of the class *name* are not taken."""
    raise PayloadError(
        f"a value of type {shown(name)} is refused: {because}",
        rule="stock.type",
        fix="Convert it on the cluster to numbers, text or NumPy arrays; or run the cluster on"
        " safeser://, which carries many more types.",
    )
