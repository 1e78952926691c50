"""Frames as a peer without any rule would send them: payload rows stand where it puts them."""

from __future__ import annotations

from typing import Any

from safeser.dask.wire.codec import Encoder, PayloadRow

__all__ = ["Eager", "as_is", "forged"]


class Eager:
    """A payload row that its reader opens at once, as Dask opens ``ToPickle``."""

    def __init__(self, row: PayloadRow) -> None:
        self.row = row


def as_is(leaf: Any) -> tuple[PayloadRow, bool]:
    """Take payload rows as they stand."""
    if isinstance(leaf, Eager):
        return leaf.row, True
    assert isinstance(leaf, PayloadRow), leaf
    return leaf, False


def forged(message: Any) -> list[Any]:
    """Return the frames of *message*."""
    encoder = Encoder()
    for element in message if isinstance(message, list) else [message]:
        encoder.add(element, as_is)
    return encoder.frames(listed=isinstance(message, list))
