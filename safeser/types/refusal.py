"""Build the error for a value that is out of bounds.

The one rule: the rule id names the bound, whichever encoding the value arrived in.
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
