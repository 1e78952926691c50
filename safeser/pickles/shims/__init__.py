"""Reviewed functions that make objects, one file or package for each library.

The one rule: they take checked values of plain types, bound them, and call constructors. A file is
imported only when an entry that needs it is first used.
"""

from __future__ import annotations

from safeser.pickles.shims.registry import shim
from safeser.pickles.shims.site import Draft, Site, are_plain_keys, bad

__all__ = ["Draft", "Site", "are_plain_keys", "bad", "shim"]
