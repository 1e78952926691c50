"""Packing one value and reading it, and telling whether its reader will: what it costs is counted.

The one rule: what a value claims to hold is bounded before memory is taken for it, and no hook does
more than make a plain value or a reference. A packer serves one call at a time and is used again;
one that failed is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from operator import itemgetter, not_
from typing import Any, NoReturn, TypeAlias

import msgpack

from safeser.errors import PayloadError
from safeser.families.keys import are_costly
from safeser.gate.values import ELEMENT, Limits

EXT_OPAQUE = 1  # a payload that a relay passes on unopened, as Dask's Serialized
EXT_EAGER = 2  # a payload that every recipient opens, as Dask's ToPickle
EXT_SET = 3

#: Keys by which Dask's own codec smuggles instructions into plain dictionaries.
MARKERS = {
    "__Pickled__": "marker.pickled",
    "__Serialized__": "marker.serialized",
    "__Enum__": "marker.enum",
    "__Set__": "marker.set",
}


_MARKED = frozenset(MARKERS)
_TEXT = frozenset({str})
_FIRST = itemgetter(0)

#: Large messages are looked through in pieces of so many bytes.
_PIECE = 1 << 18

#: What stands before the type, 0xFF, of msgpack's timestamps, and may stand there in other bytes:
#: no hook is asked about that extension. They are 4, 8 or 12 bytes long; msgpack takes no others.
_TIMES = tuple(bytes((before, 0xFF)) for before in b"\xd6\xd7\x04\x08\x0c")

#: Bytes of a message that :func:`read_plain` reads; a larger one may take longer by its repetition.
_PLAIN = 1 << 15

#: Bytes that are scanned at once, in a millisecond for each MiB, in which no other thread runs.
_SCANNED = 1 << 22

#: What begins each of the markers.
_MARK = b"__"

#: Returned by :func:`read_plain` where it is not sure.
UNSURE: Any = object()


def _refuse_marker(value: dict[Any, Any]) -> NoReturn:
    key = next(key for key in value if key in MARKERS)
    raise PayloadError(
        f"{key} is an instruction to Dask's own decoder, not data",
        rule=MARKERS[key],
        fix="No honest peer sends it; rename the key if it is your own data.",
    )


@dataclass(frozen=True, slots=True)
class Reference:
    """Stands in a parsed message where a payload will be."""

    index: int
    eager: bool


#: The bytes with which msgpack does not begin a container or an extension.
NO_CONTAINER = bytes(
    byte
    for byte in range(256)
    if not (
        0x80 <= byte <= 0x9F or 0xC7 <= byte <= 0xC9 or 0xD4 <= byte <= 0xD8 or 0xDC <= byte <= 0xDF
    )
)


def check_header(header: dict[str, Any], limits: Limits) -> None:
    """Refuse a family's header that a reader would refuse as part of the payload table."""
    if "sub-headers" in header:  # others hold nothing whose depth or number a value sets
        check_readable(msgpack.packb(header, use_bin_type=True), limits, levels=2)


def check_readable(packed: bytes, limits: Limits, *, levels: int = 0) -> None:
    """Refuse one packed value that a reader under *limits* would refuse for its size or depth.

    :param levels: how deep it stands in its message.

    Most are small enough for that to be plain without reading them: a byte is two elements at most,
    as a container and as one of another's, and each level begins with a byte of its own.

    :raises PayloadError: the reader's own.
    """
    refs, depth = max(1, limits.elements - 2 * levels), max(1, limits.max_depth - levels)
    if 2 * len(packed) > refs or _may_be_deeper(packed, depth):
        Reader(replace(limits, max_depth=depth), refs).read(packed)


def _pieces(packed: Any, *, overlap: int = 0) -> Iterable[bytes]:
    """Return *packed* in pieces: no other thread runs while one is looked through."""
    view = memoryview(packed)
    places = range(0, len(view), _PIECE)
    return (bytes(view[at : at + _PIECE + overlap]) for at in places)


def _may_be_deeper(packed: Any, limit: int) -> bool:
    """Tell whether *packed* might be nested more than *limit* deep, by what it could begin."""
    if len(packed) <= _PIECE:  # as nearly all are
        return len(bytes(packed).translate(None, NO_CONTAINER)) > limit
    begun = 0
    for piece in _pieces(packed):
        begun += len(piece.translate(None, NO_CONTAINER))
        if begun > limit:
            return True
    return False


def _may_hold_times(packed: Any) -> bool:
    if len(packed) > _PIECE:
        return any(map(_has_time, _pieces(packed, overlap=1)))
    piece = bytes(packed)
    return 0xFF in piece and _has_time(piece)


def _has_time(piece: bytes) -> bool:
    return any(mark in piece for mark in _TIMES)


def read_plain(sent: Any, limits: Limits) -> Any:
    """Return the one small value in *sent* if it is plainly in order, else :data:`UNSURE`.

    Of nearly all messages that is plain without a look at each container: none can hold too many
    elements or levels, no key can be a marker, all keys are text or bytes, whose hashes are this
    process's own secret, and what was read is packed into the same bytes again, which no repeated
    key would be. Whatever it is not sure of, :class:`Reader` reads.
    """
    size = len(sent)
    if size > _PLAIN or 2 * size * ELEMENT > limits.max_memory or _MARK in (data := bytes(sent)):
        return UNSURE
    if len(data.translate(None, NO_CONTAINER)) > limits.max_depth and not _is_flat(data, limits):
        return UNSURE
    try:
        # A timestamp, about which no hook is asked, becomes a number, which is packed otherwise.
        value = msgpack.unpackb(data, use_list=False, ext_hook=_unsure, timestamp=1)
        return value if packed(value) == data else UNSURE
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError):
        return UNSURE


def _is_flat(data: bytes, limits: Limits) -> bool:
    """Tell whether *data* is surely nested no deeper than *limits* let it; nothing of it is built.

    It is read within so many lists that msgpack takes no more levels than those.
    """
    before = _STACK - limits.max_depth
    if before < 0 or len(data) > _SCANNED:
        return False
    scanner = msgpack.Unpacker(max_buffer_size=before + len(data))
    scanner.feed(b"\x91" * before)
    scanner.feed(data)
    try:
        scanner.skip()
    except (msgpack.UnpackException, ValueError):
        return False
    return True


def _takes(levels: int) -> bool:
    try:
        msgpack.unpackb(b"\x91" * levels + b"\xc0")
    except (msgpack.UnpackException, ValueError):
        return False
    return True


#: Levels that msgpack takes. Where it has no such limit, nothing is flat by it.
_STACK = 1024 if _takes(1024) and not _takes(1025) else -1


def _unsure(code: int, data: Any) -> NoReturn:
    raise ValueError("a reference or a set")


class Reader:
    """Reads one msgpack value, counting what it costs."""

    def __init__(self, limits: Limits, left: int | None = None) -> None:
        self._limits = limits
        self._most = limits.max_memory // ELEMENT
        self.left = self._most if left is None else left
        self._in_set = False
        self.references: list[int] = []

    def read(self, data: Any) -> Any:
        if len(data) <= _PIECE:  # as nearly all are; looked through as bytes, and more than once
            data = bytes(data)
        try:
            value = self._unpack(data)
        except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
            if isinstance(error, PayloadError):
                raise
            if "max_array_len" in str(error) or "max_map_len" in str(error):
                raise self._too_many() from None
            raise PayloadError(
                "the message is not well-formed msgpack", rule="payload.msgpack"
            ) from None
        limit = self._limits.max_depth
        if len(data) > limit and _may_be_deeper(data, limit) and not _is_flat(data, self._limits):
            _check_depth(value, limit)
        return value

    def _unpack(self, data: Any) -> Any:
        most = min(self.left, self._most)
        value = msgpack.unpackb(
            data,
            use_list=False,
            raw=False,
            strict_map_key=False,
            # Before memory is taken for what a container claims to hold.
            max_array_len=most,
            max_map_len=most,
            object_pairs_hook=self._pairs,
            list_hook=self._list,
            ext_hook=self._ext,
        )
        if _may_hold_times(data):
            level = [value]
            while level:
                if msgpack.Timestamp in map(type, level):
                    raise PayloadError("msgpack extension -1 is not known here", rule="payload.ext")
                level = _below(level)
        return value

    def charge(self, count: int) -> None:
        """Count so many elements more.

        :raises PayloadError: if those are too many.
        """
        self.left -= count
        if self.left < 0:
            raise self._too_many()

    def _too_many(self) -> PayloadError:
        return PayloadError(
            "the message has more keys and elements than max_memory holds",
            rule="limit.max_memory",
            fix="Raise limits.max_memory in the policy, or send less at once.",
        )

    def _list(self, items: Any) -> Any:
        self.left -= 1 + len(items)
        if self.left < 0:
            raise self._too_many()
        return items

    def _pairs(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        count = len(pairs)
        self.left -= 1 + 2 * count
        if self.left < 0:
            raise self._too_many()
        # The hashes of text are this process's own secret.
        if not _TEXT.issuperset(map(type, map(_FIRST, pairs))):
            check_hashes("a dictionary's key", [key for key, _ in pairs])
        value = dict(pairs)
        if not _MARKED.isdisjoint(value):
            _refuse_marker(value)
        if len(value) != count:
            raise PayloadError("a dictionary repeats a key", rule="payload.duplicate-key")
        return value

    def _ext(self, code: int, data: Any) -> Any:
        if code in (EXT_OPAQUE, EXT_EAGER):
            if len(data) != 4:
                raise PayloadError("a payload reference is malformed", rule="payload.table")
            index = int.from_bytes(data, "big")
            self.references.append(index)
            return Reference(index, code == EXT_EAGER)
        if code == EXT_SET:
            # Each unpacker takes 40 KiB of the C stack: a few hundred sets inside each other would
            # end the process. No set can be a member of another, as none is hashable.
            if self._in_set:
                raise PayloadError("a set's member is not hashable", rule="payload.key")
            self._in_set = True
            items = self._unpack(data)
            self._in_set = False
            if not isinstance(items, tuple):
                raise PayloadError("a set is malformed", rule="payload.msgpack")
            return self.make_set(items)
        raise PayloadError(f"msgpack extension {code} is not known here", rule="payload.ext")

    def make_set(self, items: tuple[Any, ...]) -> set[Any]:
        """Return the set of *items*, if their hashes were not made to collide."""
        check_hashes("a set's member", items, members=True)
        return set(items)


def check_hashes(what: str, keys: Sequence[Any], *, members: bool = False) -> None:
    """Refuse keys that are not hashable or were made to collide, before any dict has them."""
    try:
        costly = are_costly(keys, members=members)
    except TypeError:
        raise PayloadError(f"{what} is not hashable", rule="payload.key") from None
    if costly:
        raise PayloadError("too many keys were made to share one hash", rule="payload.hash-flood")


def _check_depth(value: Any, limit: int) -> None:
    level: list[Any] = [value]
    for _ in range(limit):
        level = _below(level)
        if not level:
            return
    raise PayloadError(
        f"the message is nested more than {limit} deep",
        rule="limit.max_depth",
        fix="Raise limits.max_depth in the policy, or send flatter data.",
    )


LEAVES = frozenset({str, bytes, int, float, bool, type(None)})

#: What is read as a container is of exactly these types.
_CONTAINERS, _MAPPINGS = frozenset({dict, tuple, set}), frozenset({dict})


def _below(level: list[Any]) -> list[Any]:
    """Return what stands in the containers of *level* and is no leaf.

    A message may have a million of them, so that none takes a step of this function's own.
    """
    containers = [*_of_kinds(level, _CONTAINERS)]
    values = map(dict.values, _of_kinds(containers, _MAPPINGS))
    inner = [*chain.from_iterable(containers), *chain.from_iterable(values)]
    return [*compress(inner, map(not_, map(LEAVES.__contains__, map(type, inner))))]


def _of_kinds(values: list[Any], kinds: frozenset[type]) -> Iterable[Any]:
    return compress(values, map(kinds.__contains__, map(type, values)))


# --- packing -------------------------------------------------------------------------------------

_Default: TypeAlias = Callable[[Any], Any]

#: Packers that no call uses now, in whichever thread, each with the place of the function that it
#: asks about a leaf: to make one takes longer than to pack most messages.
_idle: list[tuple[list[_Default], msgpack.Packer]] = []

#: A packer keeps the memory of the longest value that it packed; it is kept up to this one.
_KEPT = 1 << 16


def _unknown(leaf: Any) -> Any:
    raise TypeError(f"msgpack has no form for {type(leaf).__name__}")


def packed(value: Any, default: _Default = _unknown) -> bytes:
    """Return the msgpack of *value*.

    :param default: returns what is packed in place of a leaf that msgpack does not know.
    :raises TypeError: for such a leaf, where there is none.
    """
    try:
        asked, packer = _idle.pop()
    except IndexError:
        asked, packer = _made()
    asked[0] = default
    data: bytes = packer.pack(value)
    asked[0] = _unknown
    if len(data) <= _KEPT:
        _idle.append((asked, packer))
    return data


def _made() -> tuple[list[_Default], msgpack.Packer]:
    asked: list[_Default] = [_unknown]

    def ask(leaf: Any) -> Any:
        return asked[0](leaf)

    return asked, msgpack.Packer(default=ask, use_bin_type=True)
