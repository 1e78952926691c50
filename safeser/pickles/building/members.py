"""Look up members of the enums that a profile lists, and compose flags of them.

The one rule: no method of the enum runs. The standard library's own code composes flags, from
members only, so each composite is the same under every boundary.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from safeser.pickles.building.own import unfit
from safeser.pickles.profiles import Entry
from safeser.pickles.shims import bad

__all__ = ["Members"]

# A class keeps each composite for good: of 30 bits, memory for a billion. Of these, a megabyte.
_MAX_BITS = 12
#: Whose methods compose flags, and what another class would have run by that.
_STOCK = frozenset((enum.Flag, enum.IntFlag, enum.ReprEnum, enum.Enum, int, object))
_RUNS = frozenset(
    ("_missing_", "__setattr__", "__getattr__", "__getattribute__", "__eq__", "__hash__")
)


class Members:
    """The members of one listed enum.

    :raises PayloadError: for what is no enum.
    """

    __slots__ = ("_bits", "_by_value", "_entry", "_found")

    def __init__(self, entry: Entry, found: Any) -> None:
        if not isinstance(found, enum.EnumMeta):
            raise unfit(entry, "is not an enum")
        self._entry = entry
        self._found: Any = found
        self._by_value: dict[tuple[type, Any], Any] = {}
        held: Mapping[str, Any] = vars(found).get("_member_map_", {})
        for member in held.values():
            try:
                self._by_value[type(member._value_), member._value_] = member
            except TypeError:  # a value that cannot be hashed cannot be looked up either
                continue
        self._bits = self._single_bits()

    def of(self, value: Any) -> Any:
        """Return the member of *value*, or the composite of those whose bits it has."""
        member = self._by_value.get((type(value), value))
        if member is None and type(value) is int and self._bits is not None:
            member = self._composed(value, self._bits)
        if member is None:
            raise bad("arguments", f"{self._entry.name} has no such member")
        return member

    def _composed(self, value: int, bits: int) -> Any:
        # Bits of no member mean something else under each boundary; under KEEP, anything at all.
        if value & ~bits:
            return None
        known = self._found._value2member_map_.get(value)
        if known is None and bits.bit_count() <= _MAX_BITS:
            known = self._found(value)
        return known if type(known) is self._found and known._value_ == value else None

    def _single_bits(self) -> int | None:
        """Return the bits that are members of their own, or None where composing runs its code."""
        found = self._found
        if not issubclass(found, enum.Flag) or type(found) is not enum.EnumMeta:
            return None
        if any(_RUNS & vars(base).keys() for base in found.__mro__ if base not in _STOCK):
            return None
        bits = 0
        for kind, value in self._by_value:
            if kind is int and value.bit_count() == 1 and value > 0:
                bits |= value
        return bits
