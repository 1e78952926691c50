"""Names of the files that a worker spills values to.

The one rule: the value of every key can be spilled. Dask makes the name of the whole key, and file
systems take 255 bytes: a value under a longer key stays first in line, so that the worker spills
nothing any more and runs out of memory, whosever the other values are (distributed 2026.8.0,
``spill.py``; zict 3.0, ``file.py``).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from zict import File

__all__ = ["shorten_names"]

#: Bytes of a name that say of which key it is, for whoever looks into the folder.
_SHOWN = 150


def shorten_names() -> None:
    """Have this process name what it spills by the beginning of each key; once is enough."""
    setattr(File, "_safe_key", _short_name)  # noqa: B010 - mypy knows it as a method


def _short_name(file: Any, key: str) -> str:
    """Return a name that *file* has not given yet; it keeps a table of whose each one is."""
    # Text that is no Unicode, which quote would not take, is a key like others.
    shown = quote(key[:_SHOWN], safe="", errors="replace")[:_SHOWN]
    file._inc += 1
    return f"{shown}#{file._inc}"
