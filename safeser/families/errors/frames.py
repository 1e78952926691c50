"""Leave the frames of safeser and Dask out of the tracebacks of refusals.

The one rule: a refusal shows its user's own lines. How safeser came to it is in the audit log, and
no frame of it says more than the message does.
"""

from __future__ import annotations

import re

__all__ = ["frames_of_users"]

#: A frame of a formatted traceback, with the lines of code below it. Files of libraries are named
#: from the library's root on, as :func:`safeser.families.errors.paths.relative_frames` does it.
_FRAME = re.compile(
    r'^ {2}File "(?P<file>[^"\n]*)", line [^\n]*\n?(?: {4}[^\n]*\n?)*', re.MULTILINE
)

#: Packages between a user's code and a refusal.
_BETWEEN = frozenset({"asyncio", "concurrent", "dask", "distributed", "safeser", "tornado"})


def frames_of_users(text: str) -> str:
    """Return the formatted traceback *text* without such frames; empty if none is left."""
    kept = [
        match[0].rstrip("\n")
        for match in _FRAME.finditer(text)
        if match["file"].partition("/")[0] not in _BETWEEN
    ]
    return "\n".join(kept)
