"""One context with its text in the file, and the errors that report its faults.

The one rule: each error names the context and the place of the exact value at fault.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from safeser.policy.source.context import Rule
from safeser.policy.source.faults import fault
from safeser.policy.source.loader import Document
from safeser.policy.source.scope import Scope

__all__ = ["Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """The context *rule* at *index* of a policy's list, whose names *scope* defines."""

    rule: Rule
    index: int
    document: Document
    scope: Scope

    def refuse(self, message: str, *path: str | int, rule: str, fix: str = "") -> NoReturn:
        raise fault(
            f"context {self.rule.name!r}: {message}",
            source=self.document.source,
            place=self.document.place(("contexts", self.index, *path)),
            rule=rule,
            fix=fix,
        )

    def spells(self, field: str) -> bool:
        """Tell whether the file has *field* in this context."""
        return field in self._spelled

    def names(self, *path: str) -> tuple[str, ...]:
        """Return the text or the list of texts at *path*, as the file spells them."""
        value: Any = self._spelled
        for part in path:
            value = value.get(part, ())
        return (value,) if isinstance(value, str) else tuple(value)

    def listing(self, families: Collection[str]) -> tuple[str, str] | None:
        """Return the first field that lists one of *families*, and that family."""
        for sealing, field in ((True, "serializers"), (False, "deserializers")):
            for family in self.rule.families(sealing=sealing):
                if family in families:
                    return field, family
        return None

    @property
    def _spelled(self) -> dict[str, Any]:
        contexts: Any = self.document.value["contexts"]
        spelled: dict[str, Any] = contexts[self.index]
        return spelled
