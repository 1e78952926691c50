"""Lists of families: the order in which they are tried, and the families that a list covers.

The one rule: a caller's list narrows what policy grants, and never adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

__all__ = ["FLOOR", "is_asked_for", "ordered"]

#: Families that need no grant of their own: they cannot reach code and carry no types of a library.
FLOOR = ("msgpack", "error")


@lru_cache(maxsize=256)
def ordered(families: tuple[str, ...]) -> tuple[str, ...]:
    """Return in which order to try *families*.

    The order is the policy's, but families without code come first: a value that they can carry
    needs no pickle. Of these dask is first, since it leaves large buffers uncopied and packs plain
    values as msgpack does.
    """
    ordered = [*(family for family in families if family == "dask"), *FLOOR]
    # The writer of family cloudpickle tries plain pickle itself, except for classes of __main__,
    # which must not go by name alone to a process that has another __main__.
    skipped = {"pickle"} if "cloudpickle" in families else set()
    return (*ordered, *(f for f in families if f not in ordered and f not in skipped))


def is_asked_for(family: str, families: Sequence[str]) -> bool:
    """Tell whether a caller's list covers *family*; Dask's ``pickle`` includes cloudpickle."""
    if family in FLOOR or family in families:
        return True
    return family == "cloudpickle" and "pickle" in families
