"""Dask's messages as frames and back: structure only, nothing is imported, decided or built here.

The one rule: what a message says is plain msgpack plus references to payloads; a reference names a
row of the payload table, and a row is a family header and its frames. No decoding hook imports
anything, and the markers of Dask's own codec (``__Pickled__``, ``__Enum__`` ...) are refused: an
honest peer on ``safeser://`` never sends them.

Layout of the verified frames: frame 0 is the message, frame 1 the payload table (present only if
there are payloads), then each payload's frames in the order of the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgpack

from safeser.errors import ConfigError, PayloadError
from safeser.values import Limits, check_principal

__all__ = [
    "Encoder",
    "Parsed",
    "PayloadRow",
    "Reference",
    "parse",
    "parse_apart",
    "paths",
    "substitute",
]

_EXT_OPAQUE = 1  # a payload that a relay passes on unopened, as Dask's Serialized
_EXT_EAGER = 2  # a payload that every recipient opens, as Dask's ToPickle
_EXT_SET = 3

#: Keys by which Dask's own codec smuggles instructions into plain dictionaries.
_MARKERS = {
    "__Pickled__": "marker.pickled",
    "__Serialized__": "marker.serialized",
    "__Enum__": "marker.enum",
    "__Set__": "marker.set",
}


#: Keys that share one hash. Tuples and numbers hash without a secret, so that a peer can make a
#: hundred thousand collide and a dict of them take hours; honest data never has more than a few.
_MAX_SAME_HASH = 64


@dataclass(frozen=True, slots=True)
class Reference:
    """Stands in a parsed message where a payload will be."""

    index: int
    eager: bool


@dataclass(frozen=True, slots=True)
class PayloadRow:
    """One row of the payload table: a family's header, its frames, and who wrote it.

    :param author: principal that a relay names; None where the sender itself wrote it.
    :param failed: the sender could not or may not send the value; the payload says why.
    """

    header: Mapping[str, Any] = field(repr=False)
    frames: tuple[Any, ...] = field(repr=False)
    author: str | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """A verified message, parsed and not yet decided: *body* holds references, not objects."""

    body: Any
    rows: tuple[PayloadRow, ...]


class Encoder:
    """Packs one message, element by element, and collects its payload table.

    :param default: turns a leaf that msgpack does not know into a payload row, or raises. It is
        called with the leaf and returns ``(row, eager)``.
    """

    def __init__(self) -> None:
        self._rows: list[PayloadRow] = []
        self._parts: list[bytes] = []
        self._listed = False

    def add(self, element: Any, default: Callable[[Any], tuple[PayloadRow, bool]]) -> None:
        """Pack *element*; if anything in it is refused, nothing of it is kept."""
        mark = len(self._rows)
        try:
            self._parts.append(self._pack(element, default))
        except BaseException as error:
            del self._rows[mark:]
            if isinstance(error, ValueError | RecursionError | OverflowError):
                raise PayloadError(
                    "the message is nested too deeply or too large to send",
                    rule="payload.unsendable",
                ) from error
            raise

    def _pack(self, value: Any, default: Callable[[Any], tuple[PayloadRow, bool]]) -> bytes:
        # Not a function in a function that names itself: such a cycle would keep the frames of
        # every message in memory until the garbage collector comes by.
        packed: bytes = msgpack.packb(
            value, default=partial(self._encode, default), use_bin_type=True
        )
        return packed

    def _encode(
        self, default: Callable[[Any], tuple[PayloadRow, bool]], leaf: Any
    ) -> msgpack.ExtType:
        if isinstance(leaf, set | frozenset):
            return msgpack.ExtType(_EXT_SET, self._pack(list(leaf), default))
        row, eager = default(leaf)
        self._rows.append(row)
        code = _EXT_EAGER if eager else _EXT_OPAQUE
        return msgpack.ExtType(code, (len(self._rows) - 1).to_bytes(4, "big"))

    def frames(self, *, listed: bool) -> list[Any]:
        """Return the message's frames; *listed* says whether it is a batch of elements."""
        body = b"".join(self._parts)
        if listed:
            body = msgpack.Packer().pack_array_header(len(self._parts)) + body
        if not self._rows:
            return [body]
        table = [[row.header, len(row.frames), row.author, row.failed] for row in self._rows]
        frames: list[Any] = [body, msgpack.packb(table, use_bin_type=True)]
        for row in self._rows:
            frames.extend(row.frames)
        return frames


def parse(frames: Sequence[Any], limits: Limits) -> Parsed:
    """Parse verified *frames* into structure.

    Lists come back as tuples, as Dask's handlers expect. Every row of the table is referred to
    exactly once and every frame belongs to exactly one row.

    :raises PayloadError: for anything else.
    """
    if not frames:
        raise PayloadError("the message has no frames", rule="payload.empty")
    reader = _Reader(limits)
    body = reader.read(frames[0])
    rows: tuple[PayloadRow, ...] = ()
    if len(frames) > 1:
        rows = _table(frames[1], frames[2:], limits)
    if sorted(reader.references) != list(range(len(rows))):
        raise PayloadError(
            "the message does not use each of its payloads exactly once",
            rule="payload.table",
        )
    return Parsed(body, rows)


def parse_apart(frames: Sequence[Any], limits: Limits) -> tuple[Parsed, list[PayloadError]]:
    """Parse a batch of stream elements that cannot be parsed as one; leave out those at fault.

    A scheduler batches what many principals made it say. One element that is nested too deeply, or
    too large, must not take with it those that somebody waits for. All that is kept together stays
    within the limits of one message.

    :returns: what is left, and why the rest is missing.
    :raises PayloadError: if the batch is no list of separate elements.
    """
    rows = _table(frames[1], frames[2:], limits) if len(frames) > 1 else ()
    kept: list[Any] = []
    used: list[int] = []
    errors: list[PayloadError] = []
    left = limits.max_refs
    for data in _slices(frames[0]):
        reader = _Reader(limits, left)
        try:
            value = reader.read(data)
        except PayloadError as error:
            errors.append(error)
            continue
        left = reader.left
        kept.append(value)
        used += reader.references
    if len(set(used)) != len(used) or any(index >= len(rows) for index in used):
        raise PayloadError(
            "the message does not use each of its payloads once", rule="payload.table"
        )
    return Parsed(tuple(kept), rows), errors


def _slices(data: Any) -> Iterable[memoryview]:
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


class _Reader:
    """Reads one msgpack value, counting what it costs."""

    def __init__(self, limits: Limits, left: int | None = None) -> None:
        self._limits = limits
        self.left = limits.max_refs if left is None else left
        self._in_set = False
        self.references: list[int] = []

    def read(self, data: Any) -> Any:
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
        _check_depth(value, self._limits.max_depth)
        return value

    def _unpack(self, data: Any) -> Any:
        return msgpack.unpackb(
            data,
            use_list=False,
            raw=False,
            strict_map_key=False,
            # Before memory is taken for what a container claims to hold.
            max_array_len=self._limits.max_refs,
            max_map_len=self._limits.max_refs,
            object_pairs_hook=self._pairs,
            list_hook=self._list,
            ext_hook=self._ext,
        )

    def _charge(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise self._too_many()

    def _too_many(self) -> PayloadError:
        return PayloadError(
            f"the message has more than {self._limits.max_refs} elements",
            rule="limit.max_refs",
            fix="Raise limits.max_refs in the policy, or send less at once.",
        )

    def _list(self, items: Any) -> Any:
        self._charge(1 + len(items))
        return items

    def _pairs(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        self._charge(1 + 2 * len(pairs))
        value: dict[Any, Any] = {}
        checked = False
        for key, item in pairs:
            if key.__class__ is not str:
                if not checked:
                    _check_hashes("a dictionary's key", [key for key, _ in pairs])
                    checked = True
            elif key in _MARKERS:
                raise PayloadError(
                    f"{key} is an instruction to Dask's own decoder, not data",
                    rule=_MARKERS[key],
                    fix="No honest peer sends it; rename the key if it is your own data.",
                )
            value[key] = item
        if len(value) != len(pairs):
            raise PayloadError("a dictionary repeats a key", rule="payload.duplicate-key")
        return value

    def _ext(self, code: int, data: Any) -> Any:
        if code in (_EXT_OPAQUE, _EXT_EAGER):
            if len(data) != 4:
                raise PayloadError("a payload reference is malformed", rule="payload.table")
            index = int.from_bytes(data, "big")
            self.references.append(index)
            return Reference(index, code == _EXT_EAGER)
        if code == _EXT_SET:
            items = self._set_items(data)
            if not isinstance(items, tuple):
                raise PayloadError("a set is malformed", rule="payload.msgpack")
            _check_hashes("a set's member", items)
            return set(items)
        raise PayloadError(f"msgpack extension {code} is not known here", rule="payload.ext")

    def _set_items(self, data: Any) -> Any:
        # Each unpacker takes 40 KiB of the C stack: a few hundred sets inside each other would end
        # the process. No set can be a member of another, as none is hashable.
        if self._in_set:
            raise PayloadError("a set's member is not hashable", rule="payload.key")
        self._in_set = True
        items = self._unpack(data)
        self._in_set = False
        return items


def _check_hashes(what: str, keys: Iterable[Any]) -> None:
    """Refuse keys that are not hashable or were made to collide, before any dict has them."""
    try:
        shared = Counter(map(hash, keys))
    except TypeError:
        raise PayloadError(f"{what} is not hashable", rule="payload.key") from None
    if shared and max(shared.values()) > _MAX_SAME_HASH:
        raise PayloadError("too many keys were made to share one hash", rule="payload.hash-flood")


def _check_depth(value: Any, limit: int) -> None:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [item for container in level for item in _children(container)]
        if not level:
            return
    raise PayloadError(
        f"the message is nested more than {limit} deep",
        rule="limit.max_depth",
        fix="Raise limits.max_depth in the policy, or send flatter data.",
    )


_LEAVES = frozenset({str, bytes, int, float, bool, type(None)})


def _children(value: Any) -> Iterable[Any]:
    if value.__class__ in _LEAVES:
        return ()
    if isinstance(value, dict):
        return [item for pair in value.items() for item in pair if item.__class__ not in _LEAVES]
    if isinstance(value, tuple | set):
        return [item for item in value if item.__class__ not in _LEAVES]
    return ()


def _table(data: Any, frames: Sequence[Any], limits: Limits) -> tuple[PayloadRow, ...]:
    reader = _Reader(limits)
    entries = reader.read(data)
    if reader.references or not isinstance(entries, tuple):
        raise PayloadError("the payload table is malformed", rule="payload.table")
    rows, start = [], 0
    for entry in entries:
        match entry:
            case (dict() as header, int() as count, str() | None as author, bool() as failed) if (
                not isinstance(count, bool)
                and 0 <= count <= len(frames) - start
                and _can_name(author)
            ):
                rows.append(
                    PayloadRow(header, tuple(frames[start : start + count]), author, failed)
                )
                start += count
            case _:
                raise PayloadError("the payload table is malformed", rule="payload.table")
    if start != len(frames):
        raise PayloadError(
            "the message carries frames that belong to no payload", rule="payload.table"
        )
    return tuple(rows)


def _can_name(author: str | None) -> bool:
    # Errors and logs repeat an author, so that it must be a name and no longer than one.
    try:
        return author is None or bool(check_principal(author))
    except ConfigError:
        return False


def paths(value: Any) -> list[tuple[str, Reference]]:
    """Return each reference in *value* with its path, in order; keys are shortened for people."""
    found: list[tuple[str, Reference]] = []
    _find(value, [], found)
    return found


def _find(value: Any, steps: list[Any], found: list[tuple[str, Reference]]) -> None:
    """Append what is in *value*, which *steps* lead to: a key and True, or a position and False.

    They become text where something was found, since most containers of most messages hold nothing.
    """
    if isinstance(value, Reference):
        found.append((_path(steps), value))
    elif isinstance(value, dict):
        for key, item in value.items():
            if item.__class__ not in _LEAVES:
                steps.append((key, True))
                _find(item, steps, found)
                steps.pop()
            if key.__class__ not in _LEAVES:
                steps.append(("(key)", True))
                _find(key, steps, found)
                steps.pop()
    elif isinstance(value, tuple | set):
        for position, item in enumerate(value):
            if item.__class__ not in _LEAVES:
                steps.append((position, False))
                _find(item, steps, found)
                steps.pop()


def _path(steps: Sequence[tuple[Any, bool]]) -> str:
    named = (f".{_step(step)}" if key else f"[{step}]" for step, key in steps)
    return "".join(named).removeprefix(".")


def _step(key: Any) -> str:
    text = (key if isinstance(key, str) else repr(key))[:64]
    return text if text.isprintable() else "".join(c for c in text if c.isprintable())


def substitute(value: Any, objects: Mapping[int, Any]) -> Any:
    """Return *value* with each reference replaced by ``objects[index]``."""
    if isinstance(value, Reference):
        return objects[value.index]
    if isinstance(value, dict):
        return {
            (k if k.__class__ in _LEAVES else substitute(k, objects)): (
                v if v.__class__ in _LEAVES else substitute(v, objects)
            )
            for k, v in value.items()
        }
    if isinstance(value, tuple):
        return tuple(v if v.__class__ in _LEAVES else substitute(v, objects) for v in value)
    if isinstance(value, set):
        return {v if v.__class__ in _LEAVES else substitute(v, objects) for v in value}
    return value
