"""How large one request or stream element may be, known before its body is parsed.

The one rule: a ceiling follows from the fields that the operation takes (:mod:`table`), so that
no operation lacks one. Small fields have fixed sizes. Fields of many elements, lists of keys and
plain data of users, may be larger if the sender may submit work, or if honest workers send many
keys.

The structure of a message, in msgpack, and the values that it carries as frames of their own are
bounded apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["FLOOR", "MANY", "UNBOUNDED", "Ceiling", "Ceilings", "ceilings"]

#: Bytes of msgpack that every operation may have: so few are parsed without looking at them first.
#: Tiny containers cost the most to parse, some 0.3 microseconds for each byte.
FLOOR = 1 << 13

#: What lists of keys, mappings and plain data of one message take at most, in bytes and elements,
#: if the sender may not submit work. Dask's handlers take some ten microseconds for a key.
FEW, FEW_ELEMENTS = 1 << 19, 1 << 14

#: The same where honest workers send many keys: what one of them holds of small values.
BULK, BULK_ELEMENTS = 1 << 24, 1 << 18

#: The same for all others, in bytes; the policy's limits hold beside it. To copy so many takes some
#: 30 milliseconds, during which no other thread of the process runs. A million keys take as many.
MANY = 1 << 26

#: No ceiling but the policy's limits.
UNBOUNDED = 1 << 62

_NUMBER, _WORD, _KEY, _TEXT = 1 << 4, 1 << 12, 1 << 16, 1 << 20

#: What shapes that hold one value take at most, in bytes. All others may have many elements.
_SIZES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("flag", "number", "count"), _NUMBER),
        **dict.fromkeys(("word", "address", "worker", "file"), _WORD),
        **dict.fromkeys(("key", "bytes"), _KEY),
        # Names of packages, of attributes, and of topics.
        "word*": 100 * _WORD,
        # A scheduler keeps each event under each of its topics, and tells it to all who listen.
        **dict.fromkeys(("text", "event"), _TEXT),
    }
)

#: The shape of what Dask's own servers tell of themselves, which carries no values of users.
_TABLE = "text->any"


class Ceiling(NamedTuple):
    """The most that one request or stream element may be.

    :param structure: bytes of its msgpack.
    :param elements: elements and keys of its msgpack.
    :param values: bytes of the frames that belong to its payloads.
    """

    structure: int
    elements: int
    values: int

    def or_more(self, other: Ceiling) -> Ceiling:
        """Return the higher of both ceilings, each bound for itself."""
        return Ceiling(*map(max, self, other))


class Ceilings(NamedTuple):
    """The ceilings of one operation.

    :param submitter: for senders that may submit work.
    :param other: for all others.
    """

    submitter: Ceiling
    other: Ceiling


def ceilings(
    fields: Iterable[str], *, code: bool, bulk: bool, heard: bool, values: bool
) -> Ceilings:
    """Return the ceilings of an operation.

    :param fields: its fields as ``name:shape``.
    :param code: whether it hands over code, as plain bytes of any size.
    :param bulk: whether honest workers send many keys in it.
    :param heard: whether it is what a scheduler tells a client, who asked for all of it.
    :param values: whether the table lists fields that carry users' values.
    """
    shapes = [spelt.partition(":")[2] for spelt in fields]
    sizes = [_size(each) for each in shapes]
    fixed = FLOOR + sum(size for size in sizes if size is not None)
    anything = any("any" in each.removeprefix(_TABLE) or each == "event" for each in shapes)
    carried = UNBOUNDED if values else FEW if anything else FLOOR
    if None not in sizes:
        return Ceilings(*(Ceiling(fixed, UNBOUNDED, carried),) * 2)
    most = UNBOUNDED if code else fixed + MANY
    many = Ceiling(most, UNBOUNDED, UNBOUNDED if anything else carried)
    if heard:
        return Ceilings(many, many)
    size, elements = (BULK, BULK_ELEMENTS) if bulk else (FEW, FEW_ELEMENTS)
    return Ceilings(many, Ceiling(fixed + size, elements, carried))


def _size(spelt: str) -> int | None:
    """Return how many bytes a field of that shape takes; None if it may have many elements."""
    sizes = [_SIZES.get(one) for one in spelt.removesuffix("?").split("|")]
    return None if None in sizes else max(size for size in sizes if size is not None)
