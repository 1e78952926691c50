"""Provide budgets, key checks and drafts to the reviewed functions that make objects.

The one rule: such a function takes arguments of exact plain types only, bounds them before it
takes memory or time, and calls constructors, never setters of raw state.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from safeser.errors import PayloadError
from safeser.gate.values import LEAST_COLLISIONS, Limits
from safeser.pickles.budget import Budget, over
from safeser.pickles.nodes import Buffer
from safeser.pickles.reading.layout import HEAP_TYPE, held_by
from safeser.pickles.reading.slots import WALK_FREE, Slots, holds_large, spread_out
from safeser.pickles.stock import PickleError

# hash() of a tuple walks all of it each time and is recursive in C: nested tuples that double took
# 12 s in 214 bytes (limits.max_key_cost), and 300,000 levels overflow the C stack. hash() of a
# number is its value modulo 2**61 - 1, so a peer can make a dict of one long chain
# (limits.max_collisions).
_KEY_DEPTH = 50
# Hashing a Decimal of 4,300 digits or a path takes up to this many times as long as a small int.
_SLOW_HASH = 16
# Python code works out the offset of a moment in a time zone, each time anew.
_ZONED_HASH = 160
_CHECKSUMS = 1 << 31


def bad(rule: str, message: str, *, fix: str = "") -> PayloadError:
    return PayloadError(message, rule=f"pickle.{rule}", fix=fix)


class Draft:
    """An object whose state is still to come; never a value."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: str, *parts: Any) -> None:
        self.kind = kind
        self.parts = parts


def begun(draft: Any, what: str = "an object") -> Draft:
    """Return *draft* if it is one; what is none any more was built before."""
    if type(draft) is not Draft:
        raise bad("build-twice", f"{what} is built twice")
    return draft


class Site:
    """The state of one load for reviewed functions: its budget, and what it may hash.

    :param shared: whether two objects may be handed the same memory, as by a pickle's memo. Then
        what was checked is copied, so that nothing later in the load writes to it.
    """

    def __init__(
        self, limits: Limits, *, given: int, budget: Budget | None = None, shared: bool = True
    ) -> None:
        if given > limits.max_bytes:
            raise over("max-bytes", "the pickle and its buffers are larger than allowed")
        self.limits = limits
        self.shared = shared
        self.given = given
        self._standing = 0.0
        self.budget = Budget(limits) if budget is None else budget
        self.budget.bring(given)
        self._hashes: dict[int, Counter[int]] = {}
        self._slots: dict[int, list[Slots]] = {}
        self._large: dict[int, set[int]] = {}  # by container, hashes of its large keys
        self.hashable: set[type] = set()
        #: Instances whose fields are still to come, by identity; the builder keeps them alive.
        self.unfinished: dict[int, Any] = {}
        #: Containers of which objects hold checked copies, by identity.
        self.copied_from: dict[int, Any] = {}
        #: By identity and place, containers and the copies that were made of them there: a list of
        #: twice itself, twenty levels deep, is 200 bytes, and a million lists when it is copied.
        self.remade: dict[tuple[int, int, str], tuple[Any, Any]] = {}

    def copied(self, container: Any) -> None:
        """Note that an object was made of a copy of *container*, which must not grow any more.

        An unpickler passes the container itself, so that later additions reach the object too,
        unchecked here. A copy without them would differ from what was written.
        """
        self.copied_from[id(container)] = container

    def check_growth(self, container: Any) -> None:
        """Refuse to fill a container of which an object holds a checked copy."""
        if id(container) in self.copied_from:
            raise bad(
                "late-growth",
                "a list, set or dict grows after the object that holds it was made",
                fix="No profile and no limit allows this. pickle writes in this order what contains"
                " itself, and what others refer to before it is complete.",
            )

    def charge(self, elements: int) -> None:
        self.budget.charge(elements)

    def charge_bytes(self, count: int) -> None:
        self.budget.charge_bytes(count)

    def check_room(self, count: int) -> None:
        """Refuse to take *count* bytes that are charged once they are taken, if that would fail."""
        if count > self.budget.copies:
            raise self.budget.over_copies()

    def check_standing(self, count: float) -> None:
        """Bound *count* bytes that a compact value takes once a program expands it.

        Not charged as a copy: such a value is meant to stand for more bytes than it takes.
        """
        self._standing += count
        if count > self.limits.max_array:
            raise over("max-array", "a part of the object stands for more bytes than allowed")
        if self._standing > self.limits.max_bytes:
            raise over("max-bytes", "the object stands for more bytes than allowed")

    def opened(self, node: Buffer, buffers: Sequence[Any]) -> Any:
        """Return the buffer that *node* stands for, as writable as the stream lets it be."""
        buffer = buffers[node.number]
        view = memoryview(buffer)
        if view.nbytes > self.limits.max_array:
            raise over("max-array", "a buffer is larger than allowed")
        if node.readonly and not view.readonly:
            return view.toreadonly()
        return buffer if type(buffer) in (bytes, bytearray, memoryview) else view

    def frozen(self, members: Iterable[Any]) -> frozenset[Any]:
        checked: set[Any] = set()
        for member in members:
            self.check_key(checked, member)
            checked.add(member)
        self._hashes.pop(id(checked), None)
        self._slots.pop(id(checked), None)
        self._large.pop(id(checked), None)
        return frozenset(checked)

    def check_key(self, container: object, key: Any) -> None:
        """Refuse a key or member that is not plain, costly to hash, or made to collide."""
        kind = type(key)
        if kind is str or kind is bytes:
            return
        cost = self.check_hashable(key)
        seen = self._hashes.get(id(container))
        if seen is None:
            seen = self._hashes[id(container)] = Counter()
        try:
            value = hash(key)
        except TypeError:
            raise bad("unhashable", "a key or set member is not hashable") from None
        if cost > 1 + (len(key) if kind is tuple else 1) and holds_large(key):
            self._large.setdefault(id(container), set()).add(value)
        if seen[value]:
            if value in self._large.get(id(container), ()):
                raise bad("collisions", "a key that takes long to compare shares its hash")
            # It is compared with each of those that differ from each other.
            self.charge(cost * min(seen[value], self.limits.max_collisions))
        elif len(seen) >= WALK_FREE and self._walks_far(container, value):
            raise over("collisions", "keys are chosen to collide in a hash table", limit="max-walk")
        seen[value] += 1
        if seen[value] > self.limits.max_collisions and key not in container:  # type: ignore[operator]  # a dict or set
            raise over("collisions", "too many keys share one hash", limit="max-collisions")

    def _walks_far(self, container: object, value: int) -> bool:
        """Tell whether a new hash makes keys probe too many slots, in *container* or the hashes."""
        tables = self._slots.get(id(container))
        if tables is None:
            kinds = (False, True) if isinstance(container, set) else (False,)
            hashes = list(self._hashes[id(container)])
            walk = self.limits.max_walk
            tables = [Slots(hashes, members=members, walk=walk) for members in kinds]
            self._slots[id(container)] = tables
        # Each table gets it, whatever the others say: the first that says yes is the end.
        return any(table.add(value) for table in tables)

    def check_hashable(self, key: Any) -> int:
        """Refuse what is not a plain, hashable value; charge and return what hashing it costs."""
        nested = type(key) in (tuple, frozenset)
        cost = self._hash_cost(key) if nested else self._is_atom(key)
        self.charge(cost)
        return cost

    def _is_atom(self, key: Any) -> int:
        kind = type(key)
        if kind not in _ATOMS and kind not in self.hashable:
            raise bad("unhashable", "a key or set member is not a plain, hashable value")
        if self.unfinished and id(key) in self.unfinished:
            # Its hash would be that of an object without fields.
            raise bad("unfinished", "a key is used before it is finished")
        if kind is int:
            return 1 + int(key.bit_length() >> 9)
        if kind not in self.hashable:
            return 1
        if kind.__flags__ & HEAP_TYPE:
            fields = _field_cost(key, self.limits.max_key_cost)
            return _SLOW_HASH + fields + _computed_cost(key)
        # A structured NumPy scalar hashes all of its fields each time.
        return int(_SLOW_HASH + (getattr(key, "nbytes", 0) >> 2)) + _computed_cost(key)

    def _hash_cost(self, key: Any) -> int:
        cost, level = 0, [key]
        for _ in range(_KEY_DEPTH):
            below: list[Any] = []
            for part in level:
                if type(part) is tuple or type(part) is frozenset:
                    below.extend(part)
                    cost += 1
                else:
                    cost += self._is_atom(part)
                if len(below) > self.limits.max_key_cost:
                    raise over("key-cost", "a key is too costly to hash", limit="max-key-cost")
            if not below:
                return cost
            level = below
        raise bad("key-cost", "a key nests too deep")


def begin(_: Site, name: str) -> Draft:
    """Begin an object that its state makes."""
    return Draft(name)


def _computed_cost(key: Any) -> int:
    """Return how much hashing *key* takes beside its fields, as none of these keep their hash."""
    if isinstance(key, datetime.datetime | datetime.time):
        return 0 if key.tzinfo is None else _ZONED_HASH
    pandas = sys.modules.get("pandas")
    if pandas is not None and type(key) is pandas.Interval:
        return _computed_cost(key.left) + _computed_cost(key.right)
    return key.__sizeof__() >> 2 if isinstance(key, re.Pattern) else 0


def _field_cost(key: Any, most: int) -> int:
    """Return how much the ``__hash__`` of *key*'s class may walk, or refuse it.

    What it looks at is not known, so it is all that the key holds, as often as it holds it.
    """
    cost, level = 0, held_by(key)
    for _ in range(_KEY_DEPTH):
        below: list[Any] = []
        for part in level:
            kind = type(part)
            cost += 1
            if isinstance(part, type):
                continue
            if kind in _CONTAINERS or kind.__flags__ & HEAP_TYPE:
                below.extend(held_by(part))
            elif kind is int:
                cost += part.bit_length() >> 9
            elif kind not in _ATOMS:
                cost += getattr(part, "nbytes", 0) >> 2
            if cost + len(below) > most:
                raise over("key-cost", "a key is too costly to hash", limit="max-key-cost")
        if not below:
            return cost
        level = below
    raise bad("key-cost", "a key nests too deep")


_CONTAINERS = frozenset((tuple, list, dict, set, frozenset))
_ATOMS = frozenset(
    (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
)


_TEXT = frozenset((str, bytes))
_SMALL = 1 << 64


def are_plain_keys(keys: Sequence[Any], *, whole: bool) -> bool:
    """Whether *keys* of a dict or set need no look at each of them.

    Text is, as its hashes are salted; so are integers that cost next to nothing to hash, and of
    which fewer share a hash with another, all together, than any limits forbid.

    :param whole: these are all keys that the container ever gets.
    """
    if _TEXT.issuperset(map(type, keys)):
        return True
    if not whole or set(map(type, keys)) != {int} or max(keys) >= _SMALL or min(keys) <= -_SMALL:
        return False
    # In this order: the second check protects the set that holds the hashes.
    return spread_out(keys) and len(keys) - len(set(map(hash, keys))) < LEAST_COLLISIONS


def plain(value: Any, *kinds: type) -> Any:
    """Return *value* if its type is exactly one of *kinds*; subclasses carry code."""
    if type(value) not in kinds:
        raise bad("arguments", "an argument is not of the type it must have")
    return value


def check_layout(kind: type, checksum: Any) -> None:
    """Refuse a checksum that Cython did not give this *kind*'s fields, as its own reader does."""
    unpickle = getattr(sys.modules[kind.__module__], f"__pyx_unpickle_{kind.__name__}")
    if not 0 <= plain(checksum, int) < _CHECKSUMS:
        raise bad("version", "the layout of a compiled object is unknown in this version")
    try:
        # Without state it makes an empty object, which is dropped.
        unpickle(kind, checksum, None)
    except PickleError:
        raise bad("version", "the layout of a compiled object is unknown in this version") from None


def settled(site: Site, content: Any) -> Any:
    """Return *content* itself if it is immutable, else a copy.

    A pickle may hand one buffer to two objects. What was checked for one of them (Arrow's offsets,
    flags that must be 0 or 1) must not change when the receiver writes to the other.
    """
    view = memoryview(plain(content, bytes, bytearray, memoryview))
    if type(view.obj) is bytes:
        return content
    return bytearray(view) if not view.readonly else bytes(view)
