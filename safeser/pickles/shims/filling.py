"""Blocks that fill the array that Dask makes of them.

The one rule: what joins blocks is handed lists that leave no element of the result unwritten. Dask
takes room for as many blocks as the first lists hold, and whatever none is written to is memory
that others have used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from safeser.errors import PolicyDenied

__all__ = ["in_full", "places_in_full"]


def in_full(blocks: Any) -> Any:
    """Return *blocks* as lists of one depth that are equally long, of which nothing is an iterator.

    :raises PolicyDenied: if they are not.
    """
    made = _listed(blocks)
    lengths, first = [], made
    while isinstance(first, list) and first:
        lengths.append(len(first))
        first = first[0]
    if not _is_grid(made, lengths):
        raise _refused("blocks that leave a part of the array out")
    return made


def _listed(blocks: Any) -> Any:
    """Return copies, which nobody else can change, and no iterator, which is read once."""
    if isinstance(blocks, list | tuple | Iterator):
        return [_listed(part) for part in blocks]
    return blocks


def _is_grid(blocks: Any, lengths: list[int]) -> bool:
    if not lengths:
        return not isinstance(blocks, list) or not blocks
    return (
        isinstance(blocks, list)
        and len(blocks) == lengths[0]
        and all(_is_grid(part, lengths[1:]) for part in blocks)
    )


def places_in_full(locations: Any, parts: Any) -> tuple[list[list[int]], list[Any]]:
    """Return *locations* and *parts*, if those have one for each part and name each place once.

    :raises PolicyDenied: if they do not.
    """
    places = [[int(place) for place in part] for part in locations]
    made = list(parts)
    named = [place for part in places for place in part]
    if len(places) != len(made) or sorted(named) != list(range(len(named))):
        raise _refused("places that leave a part of the array out")
    return places, made


def _refused(what: str) -> PolicyDenied:
    return PolicyDenied(
        f"{what} are none that an approved task may join",
        rule="submission.filling",
        fix="Give as many blocks as the array has, each at a place of its own.",
    )
