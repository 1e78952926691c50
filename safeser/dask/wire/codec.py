"""Dask's messages as frames and back: structure only, nothing is imported, decided or built here.

The one rule: what a message says is plain msgpack plus references to payloads; a reference names a
row of the payload table, and a row is a family header and its frames. No decoding hook imports
anything, and the markers of Dask's own codec (``__Pickled__``, ``__Enum__`` ...) are refused: an
honest peer on ``safeser://`` never sends them.

Layout of the verified frames: frame 0 is the message, frame 1 the payload table (present only if
there are payloads), then each payload's frames in the order of the table, long ones cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import msgpack
from distributed.scheduler import WorkerState

from safeser.dask.wire import ceilings
from safeser.dask.wire.ceilings import CeilingOf
from safeser.dask.wire.reader import (
    EXT_EAGER,
    EXT_OPAQUE,
    EXT_SET,
    LEAVES,
    MARKERS,
    NO_CONTAINER,
    UNSURE,
    Reader,
    Reference,
    check_hashes,
    check_readable,
    packed,
    read_plain,
)
from safeser.dask.wire.structure import structure_of
from safeser.errors import ConfigError, PayloadError, SafeserError
from safeser.gate.values import ELEMENT, SEALED, Limits, check_principal
from safeser.operations import FLOOR

#: Elements of one batch that are malformed or name no known operation, after which its rest is
#: refused as one: encoders of other releases may write a few. Fewer than have a record each
#: (``safeser.channel.SINGLE_REFUSALS``), so that the refusal of the rest has one too.
MOST_STRANGE = 50


#: Bytes without which no element holds a marker that its reader refuses.
_MARKERS = re.compile("|".join(MARKERS).encode())


@dataclass(slots=True)  # one for each payload; a frozen one takes three times as long to make
class PayloadRow:
    """One row of the payload table: a family's header, its frames, and who wrote it.

    :param author: principal that a relay names; None where the sender itself wrote it.
    :param failed: the sender could not or may not send the value; the payload says why.
    :param call: the sealed task that it is, or why it is none, once that was read.
    """

    header: Mapping[str, Any] = field(repr=False)
    frames: tuple[Any, ...] = field(repr=False)
    author: str | None = None
    failed: bool = False
    call: Any = field(default=None, repr=False)

    @property
    def is_sealed(self) -> bool:
        """Whether it says that it is of family ``sealed``."""
        return self.header.get("serializer") == SEALED

    @property
    def structure(self) -> int:
        """Bytes of structure that a sealed graph says it has; 0 for all else, malformed or not."""
        if "sizes" not in self.header or not self.is_sealed:
            return 0
        try:
            return structure_of(self.header, self.frames)
        except PayloadError:
            return 0


class Parsed(NamedTuple):
    """A verified message, parsed and not yet decided: *body* holds references, not objects."""

    body: Any
    rows: tuple[PayloadRow, ...]


#: Turns a leaf that msgpack does not know into a payload row, and tells whether every recipient
#: opens it; or raises.
Leaf = Callable[[Any], tuple[PayloadRow, bool]]

_SETS = (set, frozenset)


#: Makes an extension of a code and bytes; its own constructor asks for what is known here.
_extension: Callable[[tuple[int, bytes]], msgpack.ExtType] = partial(tuple.__new__, msgpack.ExtType)


def _none_known(leaf: Any) -> NoReturn:
    raise TypeError(f"no row stands for {type(leaf).__name__}")


class Encoder:
    """Packs one message, element by element, and collects its payload table.

    :param limits: those of its reader; an element that they refuse is refused here, by the same
        error. None for a message that no reader is meant to accept.
    :ivar is_small: whether a message of any one of its elements is within *limits*, payloads aside.
    """

    __slots__ = ("_default", "_flat", "_parts", "_small", "is_small", "limits", "rows")

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits
        if limits is not None:
            # Bytes (one less, for the header of a batch) and levels that no reader refuses.
            self._small = min(FLOOR, limits.max_memory // (2 * ELEMENT) - 1, limits.max_bytes - 1)
            self._flat = limits.max_depth - 1
        self.clear()

    def clear(self) -> None:
        """Forget the message, to pack another one."""
        self._default: Leaf = _none_known
        self._parts: list[bytes] = []
        self.rows: list[PayloadRow] = []
        self.is_small = True

    def add(self, element: Any, default: Leaf, ceiling_of: CeilingOf | None = None) -> None:
        """Pack *element*; if anything in it is refused, nothing of it is kept.

        :param ceiling_of: of the operations that its reader takes, one of which it names.
        :param default: turns a leaf that msgpack does not know into a payload row.
        """
        mark, limits = len(self.rows), self.limits
        if element.__class__ is dict and "op" in element and next(iter(element)) != "op":
            # A reader asks how large it may be before it reads any further.
            element = {"op": element["op"], **element}
        self._default = default
        try:
            part = packed(element, self._encode)
            if limits is not None and (
                len(part) > self._small or len(part.translate(None, NO_CONTAINER)) > self._flat
            ):
                self.is_small = False
                check_readable(part, limits, levels=1)  # it may be one of a batch
                if ceiling_of is not None and len(part) > FLOOR:
                    ceilings.check_element(part, limits, ceiling_of)
            if limits is not None and _MARKERS.search(part):
                Reader(limits, limits.elements).read(part)
        except BaseException as error:
            del self.rows[mark:]
            if isinstance(error, (ValueError, RecursionError, OverflowError)):
                raise PayloadError(
                    "the message is nested too deeply or too large to send",
                    rule="payload.unsendable",
                ) from None
            raise
        self._parts.append(part)

    def _encode(self, leaf: Any) -> Any:
        # Not a function in a function that names itself: such a cycle would keep the frames of
        # every message in memory until the garbage collector comes by.
        if isinstance(leaf, _SETS):
            return msgpack.ExtType(EXT_SET, packed(list(leaf), self._encode))
        if isinstance(leaf, WorkerState):
            # Scheduler.replicate logs the states of workers, which are no data
            # (docs/explanation/upstream.md): after one replicate, each answer to get_events would
            # hold a value that cannot be sent.
            return leaf.address
        row, eager = self._default(leaf)
        rows = self.rows
        place = len(rows).to_bytes(4, "big")
        rows.append(row)
        return _extension((EXT_EAGER if eager else EXT_OPAQUE, place))

    def frames(self, *, listed: bool) -> list[Any]:
        """Return the message's frames; *listed* says whether it is a batch of elements."""
        parts = self._parts
        body = b"".join((_array_header(len(parts)), *parts) if listed else parts)
        if not self.rows:
            return [body]
        table = [[row.header, len(row.frames), row.author, row.failed] for row in self.rows]
        return [body, packed(table), *chain.from_iterable([row.frames for row in self.rows])]


def _array_header(count: int) -> bytes:
    """Return the msgpack header of an array of *count* items."""
    if count < 16:
        return bytes((0x90 | count,))
    header: bytes = msgpack.Packer().pack_array_header(count)
    return header


def parse(frames: Sequence[Any], limits: Limits, ceiling_of: CeilingOf | None = None) -> Parsed:
    """Parse verified *frames* into structure.

    Lists come back as tuples, as Dask's handlers expect. Every row of the table is referred to
    exactly once and every frame belongs to exactly one row.

    :param ceiling_of: of the operations one of which this asks for, if it is a request.
    :raises PayloadError: for anything else.
    """
    if not frames:
        raise PayloadError("the message has no frames", rule="payload.empty")
    # As most are. No ceiling is lower, and a batch has none: its elements have.
    if len(frames) == 1 and (ceiling_of is None or len(frames[0]) <= FLOOR):
        body = read_plain(frames[0], limits)
        if body is not UNSURE:
            return Parsed(body, ())
    reader = Reader(limits)
    rows: tuple[PayloadRow, ...] = ()
    try:
        if ceiling_of is not None:
            ceilings.check_element(frames[0], limits, ceiling_of)
        body = reader.read(frames[0])
        if len(frames) > 1:
            rows = _table(frames[1], frames[2:], limits)
        if rows or reader.references:
            _check_used(reader.references, rows)
    except PayloadError as error:
        # What a malformed request, or batch of one, names, for its record.
        if not error.operation:
            view = memoryview(frames[0])
            named = view[1:] if view[:1] == _LIST_OF_ONE else view
            error.operation = ceilings.named_first(named)
        raise
    return Parsed(body, rows)


_LIST_OF_ONE = msgpack.Packer().pack_array_header(1)


def _check_used(used: Sequence[int], rows: Sequence[PayloadRow], *, each: bool = True) -> None:
    """Refuse references that share a row or name none; and, if *each*, rows without a reference."""
    if (
        len(set(used)) != len(used)
        or max(used, default=-1) >= len(rows)
        or (each and len(used) != len(rows))
    ):
        raise PayloadError(
            "the message does not use each of its payloads exactly once", rule="payload.table"
        )


def parse_batch(
    frames: Sequence[Any],
    limits: Limits,
    ceiling_of: CeilingOf,
    note: Callable[[SafeserError], None],
    *,
    relayed: bool,
) -> Parsed:
    """Parse a batch of stream elements; element by element where it cannot be parsed as one.

    A scheduler batches what many principals made it say. One element that is nested too deeply, or
    too large, must not take with it those that other clients wait for. All that is kept together
    stays within the limits of one message.

    :param ceiling_of: of the operations of this stream.
    :param note: called with why each element is left out; no error of it is kept here.
    :param relayed: whether others made the peer say what it batches: no number of malformed
        elements that name an operation takes the rest with it then.
    :raises PayloadError: if the batch is no list of separate elements, or none of them is at fault.
    """
    if not frames:
        raise PayloadError("the message has no frames", rule="payload.empty")
    whole: PayloadError | None = None
    # One that is larger than every operation may be is held to its ceiling first.
    if len(frames[0]) <= FLOOR or all(len(element) <= FLOOR for element in slices(frames[0])):
        try:
            return parse(frames, limits)
        except PayloadError as error:
            whole = error.without_frames()  # they hold what was read
            if ceilings.named_first(frames[0]):  # one element and no batch
                raise
    rows = _table(frames[1], frames[2:], limits) if len(frames) > 1 else ()
    kept: list[Any] = []
    used: list[int] = []
    # The batch is a level and an element itself. Of the elements that are left for the others, one
    # that is refused takes none.
    left, strange, complete = limits.elements - 1, 0, True
    limits = replace(limits, max_depth=max(1, limits.max_depth - 1))
    for data in slices(frames[0]):
        if strange == MOST_STRANGE:
            complete = False
            note(rest_refused())
            break
        name = ceilings.named_first(data)
        reader = Reader(limits, left)
        try:
            ceilings.check_element(data, limits, ceiling_of)
            value = reader.read(data)
            reader.charge(1)
        except SafeserError as error:
            strange += not (relayed and name)
            complete = False
            error.operation = error.operation or name
            note(error)
            continue
        strange += not name
        left = reader.left
        kept.append(value)
        used += reader.references
    if complete and whole is not None:
        raise whole
    _check_used(used, rows, each=complete)
    return Parsed(tuple(kept), rows)


def rest_refused() -> PayloadError:
    """Return why the elements of a batch are refused that come after too many strange ones."""
    return PayloadError(
        f"the rest of a batch is refused: {MOST_STRANGE} of its elements are malformed or name no"
        " operation",
        rule="payload.batch",
    )


def slices(data: Any) -> Iterable[memoryview]:
    """Yield the bytes of each element of a msgpack array, without building any of them."""
    view = memoryview(data).cast("B")
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(view)))
    try:
        unpacker.feed(view)
        count = unpacker.read_array_header()
        start = unpacker.tell()
        for _ in range(count):
            unpacker.skip()
            end = unpacker.tell()
            yield view[start:end]
            start = end
    except (msgpack.UnpackException, ValueError) as error:
        if isinstance(error, PayloadError):
            raise
        raise PayloadError(
            "the message is not well-formed msgpack", rule="payload.msgpack"
        ) from None
    if start != len(view):
        raise PayloadError("the message is not well-formed msgpack", rule="payload.msgpack")


def expanded(frames: Sequence[Any], limits: Limits) -> int:
    """Return how many bytes of structure the sealed graphs of a small message say they become."""
    if len(frames) < 2 or _SIZES not in bytes(frames[1]):
        return 0
    try:
        return sum(row.structure for row in _table(frames[1], frames[2:], limits))
    except PayloadError:
        return 0  # what is malformed is refused at once


#: A field of the header of a sealed graph.
_SIZES = msgpack.packb("sizes")


def _table(data: Any, frames: Sequence[Any], limits: Limits) -> tuple[PayloadRow, ...]:
    entries = read_plain(data, limits)
    if entries is UNSURE:
        reader = Reader(limits)
        entries = reader.read(data)
        if reader.references:
            raise _malformed_table()
    if not isinstance(entries, tuple):
        raise _malformed_table()
    rows, start = [], 0
    for entry in entries:
        row, start = _row(entry, frames, start)
        rows.append(row)
    if start != len(frames):
        raise PayloadError(
            "the message carries frames that belong to no payload", rule="payload.table"
        )
    return tuple(rows)


def _row(entry: Any, frames: Sequence[Any], start: int) -> tuple[PayloadRow, int]:
    """Return the row that *entry* of the table spells, and where the frames of the next begin."""
    if type(entry) is not tuple or len(entry) != 4:
        raise _malformed_table()
    header, count, author, failed = entry
    end = start + count if type(count) is int and count >= 0 else -1
    if (
        type(header) is not dict
        or not start <= end <= len(frames)
        or type(failed) is not bool
        or not (author is None or (type(author) is str and _can_name(author)))
    ):
        raise _malformed_table()
    return PayloadRow(header, tuple(frames[start:end]), author, failed), end


def _malformed_table() -> PayloadError:
    return PayloadError("the payload table is malformed", rule="payload.table")


# It keeps names alone, which are short: what is no name raises, and is not kept.
_checked = lru_cache(maxsize=1024)(check_principal)


def _can_name(author: str) -> bool:
    # Errors and logs repeat an author, so that it must be a name and no longer than one.
    try:
        return bool(_checked(author))
    except ConfigError:
        return False


def substitute(value: Any, objects: Mapping[int, Any]) -> Any:
    """Return *value* with each reference replaced by ``objects[index]``.

    :raises PayloadError: if what is a key then is not hashable, or was made to meet other keys.
    """
    if isinstance(value, Reference):
        return objects[value.index]
    if isinstance(value, dict):
        if LEAVES.issuperset(map(type, value)):
            changed = dict(value)
        else:
            keys = [substitute(key, objects) for key in value]
            check_hashes("a dictionary's key", keys)  # again: payloads are keys among them now
            changed = dict(zip(keys, value.values(), strict=True))
        for key, item in changed.items():
            if item.__class__ is Reference:
                changed[key] = objects[item.index]
            elif item.__class__ not in LEAVES:
                changed[key] = substitute(item, objects)
        return changed
    if isinstance(value, tuple):
        return tuple(v if v.__class__ in LEAVES else substitute(v, objects) for v in value)
    if isinstance(value, set) and not LEAVES.issuperset(map(type, value)):
        members = [substitute(member, objects) for member in value]
        check_hashes("a set's member", members, members=True)
        return set(members)
    return value
