"""Build the error for a value that is out of bounds.

The one rule: the rule id names the bound, whichever encoding the value arrived in.
"""

from __future__ import annotations

from safeser.errors import PayloadError

__all__ = ["refused"]


def refused(bound: str, message: str, *, fix: str = "") -> PayloadError:
    """Return the refusal of a value by ``value.<bound>``; who reads the value adds where it was."""
    return PayloadError(message, rule=f"value.{bound}", fix=fix)
