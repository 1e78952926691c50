"""Charge memory and work of all pickles in one message against its limits.

The one rule: limits apply to one message. A message of ten thousand pickles has the same limits as
a message of one, so a caller that loads several passes the same budget to each load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import length_hint

from safeser.errors import ConfigError, PayloadError
from safeser.gate.values import ELEMENT, Limits

__all__ = ["RISKS", "Budget", "over"]

# Copies that calls make (bytearray of bytes, arrays of bytes) may take some times the input, and
# this much whatever the input is.
_COPIES_FREE = 1 << 20
# What calls make beside data: half a megabyte, and so much for each byte of input, as small tables
# of Arrow and pandas need; in all, what reading as many elements takes.
_REFS_PER_OBJECT, _MOST_OBJECTS_PER_REF = 2, 256
_OBJECTS_PER_BYTE = 26
# Containers that opcodes made count as objects once a call's result holds them, at two bytes each.
_OBJECTS_PER_CONTAINER = 336
# One list of a million numbers costs some two million opcodes; MARKs and POPs cost nothing else.
_OPCODES_PER_REF = 4
# Building, checking and hashing are counted in visits of an element, of a quarter of a microsecond
# or so. A message may take half a second of them and as much again for each 100 kB that it has, up
# to four seconds: less than reading takes of the largest.
_VISITS_PER_REF, _MOST_PER_REF = 2, 16
_VISITS_PER_BYTE = 20
# One call may take a tenth of what its message may: nothing else runs meanwhile.
_CALLS = 10


class Budget:
    """The remainder of one message's limits.

    :param memory: bytes that plain values and pickles take: the elements of these, some 100 each.
    :param calls: objects that calls make.
    :param opcodes: what reading takes, whether it ends well or not.
    :param visits: elements that building, checking and hashing touch, out of those *granted*.
    :param copies: bytes of arrays, buffers and text that building copies.
    :param objects: bytes of objects that calls make around them.
    :param given: bytes of input that were brought.
    """

    __slots__ = (
        "calls",
        "copies",
        "given",
        "granted",
        "limits",
        "memory",
        "objects",
        "opcodes",
        "visits",
    )

    def __init__(self, limits: Limits) -> None:
        if not isinstance(limits, Limits):
            raise ConfigError(
                f"limits is a safeser.Limits, not a {type(limits).__name__}", rule="config.limits"
            )
        self.limits, elements = limits, limits.max_memory // ELEMENT
        self.memory = limits.max_memory
        self.calls = limits.max_calls
        self.opcodes = elements * _OPCODES_PER_REF
        self.granted = self.visits = elements * _VISITS_PER_REF
        self.copies = min(limits.max_bytes, _COPIES_FREE)
        self.objects = elements // _REFS_PER_OBJECT
        self.given = 0

    @property
    def refs(self) -> int:
        """Return how many elements of pickles are left."""
        return self.memory // ELEMENT

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
        self.memory -= refs * ELEMENT
        self.calls -= calls
        if self.memory < 0:
            raise over("max-memory", "a message holds more elements than allowed")
        if self.calls < 0:
            raise over("max-calls", "a message makes more objects by calls than allowed")

    def bring(self, size: int) -> None:
        """Add the allowance of *size* input bytes, which may be copied and visited some times."""
        most = self.limits.elements * _MOST_PER_REF - self.granted
        visits = min(most, self.brought(size))
        self.granted += visits
        self.visits += visits
        self.given += size
        self.copies = min(self.limits.max_bytes, self.copies + size * self.limits.max_copies)
        most = self.limits.elements * _MOST_OBJECTS_PER_REF
        self.objects = min(most, self.objects + size * _OBJECTS_PER_BYTE)

    def hold(self, containers: int) -> None:
        """Note how many *containers* a pickle has, which results may hold."""
        self.objects += containers * _OBJECTS_PER_CONTAINER

    def charge(self, elements: int) -> None:
        self.visits -= elements
        if self.visits < 0:
            raise over("max-memory", "building the object takes more elements than allowed")

    def brought(self, size: int) -> int:
        """Return how many visits *size* bytes of input bring."""
        return size * _VISITS_PER_BYTE

    def allows(self, elements: int) -> bool:
        """Tell whether one call may visit so many *elements*."""
        return elements * _CALLS <= self.granted

    def work(self, elements: int) -> None:
        """Charge for one call, before it is made."""
        if not self.allows(elements):
            raise over("max-memory", "one call of the pickle visits more elements than allowed")
        self.charge(elements)

    def charge_memory(self, data: int, objects: int) -> None:
        """Charge for what a call has made: the bytes of its data, and those of its objects."""
        self.copies -= data
        self.objects -= objects
        if self.copies < 0:
            raise self.over_copies()
        if self.objects < 0:
            raise over("max-memory", "the objects that calls make take more memory than allowed")

    def charge_bytes(self, count: int) -> None:
        """Charge for one piece of memory, before it is taken."""
        self.charge_memory(count, 0)
        if count > self.limits.max_array:
            raise over("max-array", "building the object takes more bytes at once than allowed")

    def over_copies(self) -> PayloadError:
        """Return the error for copies beyond what is left, with the limit that binds here."""
        bound = _COPIES_FREE + self.given * self.limits.max_copies
        limit = "max-copies" if bound < self.limits.max_bytes else "max-bytes"
        return over("max-bytes", "building the object takes more bytes than allowed", limit=limit)


#: What raising a limit costs, by its name in a rule.
RISKS = {
    "max-memory": "That much memory, and time with it, may then be taken by one message.",
    "max-calls": "Each costs a call and its object.",
    "max-bytes": "That much memory may then be taken by one message.",
    "max-copies": "So many times the size of a message may then be taken by copies.",
    "max-array": "That much memory may then be taken by one array.",
    "max-string": "That much memory may then be taken by one string.",
    "max-int": "Arithmetic and printing take time that grows with its square.",
    "max-depth": "Functions that walk deep values exceed the recursion limit.",
    "max-sharing": "Printing, copying or comparing the value walks all of them.",
    "max-key-cost": "Each time the key is looked up walks all of it.",
    "max-collisions": "Each of them is compared with all others.",
    "max-walk": "Each look-up is compared with that many keys.",
}


def over(rule: str, message: str, *, where: str = "", limit: str = "") -> PayloadError:
    """Return the error for an exceeded limit, with the setting that raises it.

    :param limit: the setting, where the rule is not named after it.
    """
    limit = limit or rule
    setting = limit.replace("-", "_")
    error = PayloadError(
        message,
        rule=f"pickle.{rule}",
        where=where,
        fix=f"Raise the policy's limits.{setting} if its sender may. {RISKS[limit]}",
    )
    error.limit = setting
    return error
