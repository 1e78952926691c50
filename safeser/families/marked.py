"""Mark objects inside a message as to be serialized separately, or as serialized already.

The one rule: a payload that is marked as serialized is parsed before it is forwarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safeser.families import framing
from safeser.gate.values import Limits

__all__ = ["Serialize", "Serialized", "to_serialize"]


class Serialize:
    """Mark *data* to be serialized as a value of its own inside a message."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"<Serialize: {self.data!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Serialize) and bool(self.data == other.data)

    def __hash__(self) -> int:
        return hash(self.data)


#: Dask's name for the same.
to_serialize = Serialize


class Serialized:
    """A result of :func:`safeser.serialize`, which is forwarded without serializing it again."""

    def __init__(self, header: dict[str, Any], frames: Sequence[Any]) -> None:
        self.header = header
        self.frames = frames

    def __repr__(self) -> str:
        return f"<Serialized: {len(self.frames)} frames>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Serialized)
            and self.header == other.header
            and list(self.frames) == list(other.frames)
        )

    __hash__ = None  # type: ignore[assignment]  # its header can change, as a dictionary's

    def plain(self, limits: Limits) -> tuple[dict[str, Any], list[Any]]:
        """Return header and frames without the transport's splits and compression."""
        return framing.opened(self.header, self.frames, limits=limits)
