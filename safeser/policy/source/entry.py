"""One context as the file spells it, and how to say what is wrong with it.

The one rule: each complaint names the context and the place of the very value that is at fault.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn

from safeser.policy.source.faults import fault
from safeser.policy.source.loader import Document, Path
from safeser.policy.source.model import ContextModel

__all__ = ["Entry"]


class Entry:
    """The context at *index* of a policy's list."""

    def __init__(self, context: ContextModel, index: int, document: Document) -> None:
        self.context = context
        self.document = document
        self.path: Path = ("contexts", index)

    def refuse(self, message: str, *path: str | int, rule: str, fix: str = "") -> NoReturn:
        raise fault(
            f"context {self.context.name!r}: {message}",
            source=self.document.source,
            place=self.document.place((*self.path, *path)),
            rule=rule,
            fix=fix,
        )

    def listing(self, families: Collection[str]) -> tuple[str, str] | None:
        """Return the first field that lists one of *families*, and that family."""
        for field in ("serializers", "deserializers"):
            for family in getattr(self.context, field):
                if family in families:
                    return field, family
        return None
