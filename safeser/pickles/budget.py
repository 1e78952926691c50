"""What the pickles of one message may take together, charged before it is taken.

The one rule: limits are for one message. A message of ten thousand pickles gets what a message of
one gets, so whoever opens several hands the same budget to each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import length_hint

from safeser.errors import ConfigError, PayloadError
from safeser.values import Limits

__all__ = ["Budget"]

# Copies that calls make (bytearray of bytes, arrays of bytes) may take some times the input, and
# this much whatever the input is.
_COPIES_FREE = 1 << 20
# One list of a million numbers costs some two million opcodes; MARKs and POPs cost nothing else.
_OPCODES_PER_REF = 4
# Building visits an element when it is made, keyed, handed to a call and checked there.
_VISITS = 4


class Budget:
    """What is left of one message's limits.

    :param refs: elements and keys.
    :param calls: objects that calls make.
    :param opcodes: what reading takes, whether it ends well or not.
    :param visits: elements that building, checking and hashing touch.
    :param copies: bytes that building copies.
    """

    __slots__ = ("calls", "copies", "limits", "opcodes", "refs", "visits")

    def __init__(self, limits: Limits) -> None:
        if not isinstance(limits, Limits):
            raise ConfigError(
                f"limits is a safeser.Limits, not a {type(limits).__name__}", rule="config.limits"
            )
        self.limits = limits
        self.refs = limits.max_refs
        self.calls = limits.max_calls
        self.opcodes = limits.max_refs * _OPCODES_PER_REF
        self.visits = limits.max_refs * _VISITS
        self.copies = min(limits.max_bytes, _COPIES_FREE)

    @contextmanager
    def reading(self, turns: Iterator[object]) -> Iterator[None]:
        """Charge the opcodes that are read meanwhile, also of a pickle that is refused midway.

        Else a message of many pickles, each refused or empty after millions of POPs, would cost the
        worst of one pickle as many times.

        :param turns: what gives something for each opcode, :attr:`opcodes` times.
        """
        try:
            yield
        finally:
            self.opcodes = length_hint(turns)

    def spend(self, *, refs: int, calls: int) -> None:
        """Charge for a pickle that was read, or refuse it."""
        self.refs -= refs
        self.calls -= calls
        if self.refs < 0:
            raise over("max-refs", "a message holds more elements than allowed")
        if self.calls < 0:
            raise over("max-calls", "a message makes more objects by calls than allowed")

    def bring(self, size: int) -> None:
        """Note *size* bytes of input, some times of which may be copied."""
        self.copies = min(self.limits.max_bytes, self.copies + size * self.limits.max_copies)

    def charge(self, elements: int) -> None:
        self.visits -= elements
        if self.visits < 0:
            raise over("max-refs", "building the object takes more elements than allowed")

    def charge_bytes(self, count: int) -> None:
        self.copies -= count
        if self.copies < 0:
            raise over("max-bytes", "building the object takes more bytes than allowed")
        if count > self.limits.max_array:
            raise over("max-array", "building the object takes more bytes at once than allowed")


_SETTINGS = {
    "max-refs": "Each element costs some 100 bytes of memory here.",
    "max-calls": "Each costs a call and its object.",
    "max-bytes": "That much memory may then be taken by one message.",
    "max-array": "That much memory may then be taken by one array.",
    "max-string": "That much memory may then be taken by one string.",
    "max-int": "Arithmetic and printing take time that grows with its square.",
    "max-depth": "Deep values meet the recursion limit of whatever walks them.",
    "max-sharing": "Whoever prints, copies or compares the value walks all of them.",
    "max-key-cost": "Each time the key is looked up walks all of it.",
    "max-collisions": "Each of them is compared with all others.",
    "max-walk": "Each look-up is compared with that many keys.",
}


def over(rule: str, message: str, *, where: str = "", limit: str = "") -> PayloadError:
    """Return the refusal of what is over a limit, with the setting that would allow it.

    :param limit: the setting, where the rule is not named after it.
    """
    limit = limit or rule
    setting = limit.replace("-", "_")
    return PayloadError(
        message,
        rule=f"pickle.{rule}",
        where=where,
        fix=f"Raise the policy's limits.{setting} if its sender may. {_SETTINGS[limit]}",
    )
