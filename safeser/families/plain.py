"""Encode and decode plain values as one frame of strict msgpack, with exact types.

The one rule: msgpack's C code makes nothing of bytes before it has passed over them once, which
proves each count and the depth, and large containers are counted before what they hold is made. So
a small frame cannot make a large object.

Lists, tuples, sets and frozensets are msgpack arrays; all but the list open with an empty extension
that names them. Integers beyond 64 bits and text with lone surrogates have extensions of their own.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from contextlib import suppress
from itertools import chain
from typing import Any, NoReturn

import msgpack
from msgpack import ExtType, Timestamp

from safeser.errors import PayloadError
from safeser.families.keys import table_of
from safeser.gate.values import Limits

__all__ = [
    "CYCLE",
    "DEFAULTS",
    "DEPTH_CEILING",
    "Unencodable",
    "decode",
    "decode_counted",
    "encode",
    "label",
    "memory_of",
]

#: Whatever a policy's max_depth says, deeper nesting would meet CPython's own recursion limit when
#: the object is used: compared, copied, printed or freed.
DEPTH_CEILING = 200

#: Steps of a path that an error shows.
_MAX_STEPS = 24

#: Limits where a caller names none.
DEFAULTS = Limits()

_TUPLE, _SET, _FROZENSET, _BIGINT, _SURROGATES = 1, 2, 3, 4, 5
_MARKED: dict[int, type] = {_TUPLE: tuple, _SET: set, _FROZENSET: frozenset}
_MARK_OF = {kind: ExtType(code, b"") for code, kind in _MARKED.items()}

_CONTAINERS = frozenset({list, dict, *_MARK_OF})
_PLAIN: frozenset[type] = _CONTAINERS | {type(None), bool, int, float, str, bytes}

#: Bytes of memory of a container that is not empty, and of each value in it with the place that it
#: takes, on a 64-bit CPython just after the container grew; text that is not ASCII takes up to 40
#: more. Content is bounded by the bytes that arrived: one becomes four at most, in text.
_TABLES: dict[type, tuple[int, int]] = {dict: (96, 64), set: (176, 144), frozenset: (176, 144)}
_ITEMS = (48, 48)


def memory_of(kind: type, count: int) -> int:
    """Return what a container of so many values, keys too, counts on both sides of a message."""
    base, each = _TABLES.get(kind, _ITEMS)
    return base + each * count


#: Why an object is refused that only pickles can carry.
CYCLE = "it holds itself, and only pickles can carry that"

#: Why a value is refused that is larger in memory than its message may be, and what to do about it.
TOO_MUCH = "its plain values and pickles take more memory than max_memory"
LESS = (
    "Send numbers as arrays and tables as frames, which do not count, or send less at once."
    " Or raise limits.max_memory: in the policy, or by limits=safeser.Limits(...)."
)

#: What to do about a value that is over a limit.
RAISE = "Raise that limit on both sides: in the policy, or by limits=safeser.Limits(...)."


class Unencodable(Exception):
    """Some object cannot be sent this way; says which and why. Never leaves this package.

    :param final: it is too deep or too large, so taking it apart would not help either.
    :param fix: what to do about it, where the check that refused it knows.
    :ivar within: the containers that it was met in, the innermost first.
    """

    def __init__(
        self, value: object, reason: str = "", *, final: bool = False, fix: str = ""
    ) -> None:
        super().__init__(reason)
        self.fix = fix
        self.value = value
        self.reason = reason
        self.final = final
        self.path: list[str] = []
        self.within: list[object] = []
        self._met: dict[int, tuple[int, object]] = {id(value): (-1, value)}

    @property
    def where(self) -> str:
        path = self.path[::-1]
        if len(path) > _MAX_STEPS:
            path[_MAX_STEPS // 2 : -_MAX_STEPS // 2] = ["..."]
        return "".join(path)

    def inside(self, container: object, label: str) -> None:
        """Prepend *container* and *label* to the path while the error propagates.

        What was met too deep below itself is a cycle, of which one lap is path enough.
        """
        if self.final:
            # Containers on the path are kept alive, so that no other object reuses their id().
            if id(container) in self._met:
                self.reason = CYCLE
                del self.path[: self._met[id(container)][0] + 1]
                self._met = {}
            self._met[id(container)] = (len(self.path), container)
        self.path.append(label)
        self.within.append(container)


def encode(value: object, *, limits: Limits = DEFAULTS, largest: int | None = None) -> bytes:
    """Return *value* as msgpack, or raise :class:`Unencodable` for a value that is not plain.

    :param largest: bytes longer than this are not plain: they deserve a frame of their own.
    """
    return encode_counted(value, limits=limits, room=limits.max_memory, largest=largest)[0]


def encode_counted(
    value: object, *, limits: Limits, room: int, largest: int | None = None, depth: int = 0
) -> tuple[bytes, int]:
    """Return *value* as msgpack and what is left of *room* bytes of memory for other values.

    :param depth: how many containers *value* stands in.
    """
    writer = _Writer(limits, room, limits.max_array if largest is None else largest)
    deepest = min(limits.max_depth, DEPTH_CEILING) - depth
    try:
        if writer.charge(value, deepest):
            packed = msgpack.packb(value, default=writer.spelled, strict_types=True)
            return packed, writer.left
    except (Unencodable, ValueError):  # of text with surrogates, among others
        pass
    writer.left = room
    packer = msgpack.Packer(default=writer.spelled, autoreset=False)
    writer.put(packer, value, deepest)
    return packer.bytes(), writer.left


def is_plain(cls: type) -> bool:
    """Tell whether direct instances of *cls* may be plain, as far as their class says."""
    return cls in _PLAIN


class _Writer:
    """Writes a value by msgpack: at once, or value by value where something in it prevents that.

    :ivar left: bytes of memory that further values may count.
    """

    __slots__ = ("_largest", "_limits", "left")

    def __init__(self, limits: Limits, room: int, largest: int) -> None:
        self._limits = limits
        self._largest = largest
        self.left = room

    def charge(self, value: object, deepest: int) -> bool:
        """Count what *value* holds, level by level; return False if it cannot be written.

        msgpack looks at exact types only of what it does not know, and at no limit.
        """
        level: list[Any] = [[value]]  # what is gone through, one after the other
        while True:
            kinds = set(map(type, chain.from_iterable(level)))
            if not kinds <= _PLAIN:
                return False
            if bytes in kinds:
                sizes = [len(one) for one in chain.from_iterable(level) if type(one) is bytes]
                if max(sizes) > self._largest:
                    return False
            inner: list[Any] = []
            for kind in kinds & _CONTAINERS:
                ones: Any = chain.from_iterable(level)
                ones = [*ones] if len(kinds) == 1 else [one for one in ones if type(one) is kind]
                base, each = _TABLES.get(kind, _ITEMS)
                count = sum(map(len, ones)) * (2 if kind is dict else 1)
                self.left -= base * len(ones) + each * count
                inner += ones
                if kind is dict:
                    inner += map(dict.values, ones)
            if not inner:
                return True
            deepest -= 1
            if self.left < 0 or deepest < 0:
                return False
            level = inner

    def spelled(self, value: Any) -> Any:
        """Return what msgpack writes for a value that it does not know."""
        mark = _MARK_OF.get(type(value))
        if mark is not None:
            return [mark, *value]
        if type(value) is not int:
            raise Unencodable(value)
        size = value.bit_length() // 8 + 1
        if size > self._limits.max_int:
            raise Unencodable(value, "it is longer than max_int bytes")
        return ExtType(_BIGINT, value.to_bytes(size, "big", signed=True))

    def put(self, packer: msgpack.Packer, value: Any, room: int) -> None:
        """Write *value*; raise for the first value in it that cannot be written, saying where."""
        kind = type(value)
        if kind not in _PLAIN:
            raise Unencodable(value)
        if kind not in _CONTAINERS:
            if kind is bytes and len(value) > self._largest:
                raise Unencodable(value, "it is too large to stand inside one msgpack frame")
            if kind is str and (body := value.encode("utf-8", "surrogatepass")):
                surrogates = body.decode("utf-8", "ignore") != value
                value = ExtType(_SURROGATES, body) if surrogates else value
            packer.pack(value)
            return
        if room <= 0:
            deepest = min(self._limits.max_depth, DEPTH_CEILING)
            raise Unencodable(value, f"it is nested more than {deepest} deep", final=True)
        count, mark = len(value), _MARK_OF.get(kind)
        self.left -= memory_of(kind, 2 * count if kind is dict else count)
        if self.left < 0:
            raise Unencodable(value, TOO_MUCH, final=True, fix=LESS)
        if kind is dict:
            packer.pack_map_header(count)
        else:
            packer.pack_array_header(count + (mark is not None))
        if mark is not None:
            packer.pack(mark)
        for position, item in enumerate(value):
            try:
                self.put(packer, item, room - 1)
                if kind is dict:
                    self.put(packer, value[item], room - 1)
            except Unencodable as error:
                error.inside(value, f"[{label(item) if kind is dict else position}]")
                raise


def label(key: object) -> str:
    """Return *key* as it may stand in an error: short, printable, only for the plainest types."""
    if type(key) is int and abs(key) < 1 << 64:
        return str(key)
    if type(key) is str:
        short = key if len(key) <= 40 else key[:40] + "..."
        return repr("".join(char if char.isprintable() else "?" for char in short))
    return f"a {type(key).__name__[:40]}"


#: First bytes of containers.
_OPENERS = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))

#: What stands first in an array that is no list.
_MARK = re.compile(rb"(?:\xC7\0|\xC8\0\0|\xC9\0\0\0\0)([\1-\3])")

#: Ends of the headers of msgpack's own timestamps, of which it makes objects without asking.
_STAMPS = (b"\xd6\xff", b"\xd7\xff", b"\x04\xff", b"\x08\xff", b"\x0c\xff")

#: Bytes of which those that could open a container are counted.
_SHORT = 1 << 11

#: Bytes that are read at once: more than any text or bytes whose length takes 16 bits. No other
#: thread runs for some 20 ms meanwhile. A container is counted once it is whole, and until then
#: each of these bytes takes 40 at most, as a key and a value of one byte do in a pair.
_PIECE = 1 << 17

#: How many times the bytes of a value may be passed over in vain, to find where its large items
#: end. One takes at most four pieces, each no longer than the item is: so much for items that are
#: just larger than a piece, four in each other.
_SCANS = 16

#: Failures after which whole items are counted one by one.
_MISSES = 2


def _scan(*pieces: bytes | memoryview) -> int:
    """Pass over the value that begins *pieces*, making nothing, and return where it ends.

    :raises msgpack.UnpackException: if it does not end, is nested too deep, or is no msgpack.
    """
    size = sum(map(len, pieces)) + 1
    scanner = msgpack.Unpacker(read_size=size, max_buffer_size=size)
    for piece in pieces:
        scanner.feed(piece)
    scanner.skip()
    end: int = scanner.tell()
    return end


def _end_of(*pieces: bytes) -> int:
    """Return where the value that begins *pieces* ends; 0 if it does not end there."""
    try:
        return _scan(*pieces)
    except msgpack.UnpackException:  # what is no msgpack is refused when it is read alone
        return 0


def _whole_items(data: bytes, most: int) -> int:
    """Return how many values, at most so many, stand one after another at the start of *data*."""
    scanner = msgpack.Unpacker(read_size=len(data), max_buffer_size=len(data))
    scanner.feed(data)
    count = 0
    with suppress(msgpack.UnpackException):
        while count < most:
            scanner.skip()
            count += 1
    return count


#: As many arrays in each other as msgpack reads: with all but the last *n* of them before it, a
#: value is read if it is nested at most *n* deep.
_NESTED = b"\x91" * (
    bisect_left(range(1 << 12), 1, key=lambda deep: not _end_of(b"\x91" * deep + b"\xc0")) - 1
)


def decode(data: bytes | bytearray | memoryview, *, limits: Limits = DEFAULTS) -> Any:
    """Return the one value that *data* holds; anything else is a :class:`PayloadError`."""
    return decode_counted(data, limits=limits, room=limits.max_memory)[0]


def decode_counted(
    data: bytes | bytearray | memoryview, *, limits: Limits, room: int, depth: int = 0
) -> tuple[Any, int]:
    """Return the value that *data* holds and what is left of *room* bytes of memory.

    :param depth: how many containers that value stands in.
    """
    if len(data) > limits.max_array:
        _refuse("a msgpack frame is larger than max_array", "families.too-large")
    data = data if type(data) is bytes else bytes(data)
    reader = _Reader(limits, room, len(data))
    deepest = max(min(limits.max_depth, DEPTH_CEILING) - depth, 0)
    if len(data) <= _PIECE:
        value, end = reader.at_once(data, deepest)
    else:
        value, end = reader.by_parts(data, 0, deepest)
    if end != len(data):
        _refuse("bytes follow the value in a msgpack frame", "families.trailing")
    return value, reader.left


def _refuse(message: str, rule: str) -> NoReturn:
    raise PayloadError(message, rule=rule)


def _refuse_extension() -> NoReturn:
    _refuse("unknown or misplaced msgpack extension", "families.extension")


class _Reader:
    """Makes values by msgpack, which calls it for each container once that is whole.

    :ivar left: bytes of memory that further values may count.
    """

    __slots__ = ("_again", "_marks", "_most", "_stamps", "left")

    def __init__(self, limits: Limits, room: int, size: int) -> None:
        self.left = room
        self._again = _SCANS * size + (1 << 22)  # bytes that may be passed over in vain
        self._most = limits.max_int
        self._marks = 0  # that were read, and not found to be the first in an array
        self._stamps = False  # whether there may be timestamps

    def at_once(self, data: bytes, deepest: int) -> tuple[Any, int]:
        """Return the value that begins *data* and where it ends, nested at most so deep."""
        # Most values are too small, or have too few bytes that could open a container, to be deep.
        before = b""
        if len(data) > deepest and data[:1] in _OPENERS:
            openers = len(data)
            if len(data) <= _SHORT:
                openers -= len(data.translate(None, _OPENERS))
            if openers > deepest:
                before = _NESTED[deepest:]
        try:
            end = _scan(before, data) - len(before)
        except msgpack.OutOfData:
            _opened(data, 0)
            _refuse("a msgpack frame ends too early", "families.truncated")
        except msgpack.StackError:
            _refuse("msgpack is nested too deep", "families.depth")
        except msgpack.UnpackException:
            _refuse("unknown msgpack type", "families.msgpack")
        return self.made(data[:end]), end

    def made(self, data: bytes) -> Any:
        """Return the value that *data* is, whose end, counts and depth are proven."""
        left = self.left
        self._stamps = b"\xff" in data and any(stamp in data for stamp in _STAMPS)
        # Keys of other types than text and bytes can be made to collide: their hooks take longer.
        for table in (self._named, self._keyed):
            self.left, self._marks = left, 0
            try:
                value = msgpack.unpackb(
                    data,
                    object_pairs_hook=table,
                    list_hook=self._array,
                    ext_hook=self._extension,
                    strict_map_key=table == self._named,
                    max_ext_len=min(len(data), 1 << 31),
                )
            except UnicodeDecodeError:
                _refuse("text in a msgpack frame is not UTF-8", "families.utf8")
            except (ValueError, OverflowError):
                continue
            if not self._marks and type(value) is not Timestamp:
                return value
            break
        _refuse_extension()

    def by_parts(self, data: bytes, at: int, deepest: int) -> tuple[Any, int]:
        """Return the value that stands at *at*, which is large, and where it ends.

        What a container holds is counted before any of it is made; what is small is made at once.
        """
        opened = _opened(data, at)
        if opened is None:  # long text or bytes, whose length takes 32 bits, or no value at all
            length = int.from_bytes(data[at + 1 : at + 5], "big")
            value, end = self.at_once(data[at : at + 9 + length], deepest)
            return value, at + end
        kind, count, at = opened
        if not deepest:
            _refuse("msgpack is nested too deep", "families.depth")
        self._charge(kind, count)
        items: list[Any] = []
        before, several, missed = _NESTED[deepest:], 1, 0
        while len(items) < count:
            several = min(several, count - len(items))
            # In an array, which takes the place of the container.
            piece = b"\xdd%b%b" % (several.to_bytes(4, "big"), data[at : at + _PIECE])
            end = _end_of(before, piece) - len(before)
            if end > 0:
                self.left += memory_of(list, several)
                made = self.made(piece[:end])
                if type(made) is not list:  # the first of them is a mark
                    _refuse_extension()
                items += made
                at, several = at + end - 5, 2 * several if missed < _MISSES else 1
                missed = 0
                continue
            self._again -= len(piece)
            if self._again < 0:
                _refuse("msgpack is nested too deep for its size", "families.depth")
            # Items of one size are found by halves; else those that are whole in the piece are
            # counted, and tried once: one of them may be nested too deep.
            missed += 1
            if missed < _MISSES:
                several //= 2
            else:
                several = _whole_items(piece[5:], several - 1) if missed == _MISSES else 0
            if not several:
                item, at = self.by_parts(data, at, deepest - 1)
                items.append(item)
                several, missed = 1, 0
        return _closed(kind, items), at

    def _charge(self, kind: type, count: int) -> None:
        base, each = _TABLES.get(kind, _ITEMS)
        self.left -= base + each * count
        if self.left < 0:
            raise PayloadError(TOO_MUCH, rule="families.memory", fix=LESS)

    def _array(self, items: list[Any]) -> Any:
        if self._stamps and Timestamp in map(type, items):
            _refuse_extension()
        kind = list
        if items and type(items[0]) is type:
            self._marks -= 1
            kind = items.pop(0)
        self._charge(kind, len(items))
        return items if kind is list else _closed(kind, items)

    def _named(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            _refuse("a key occurs twice", "families.duplicate-key")
        if self._stamps and Timestamp in map(type, made.values()):
            _refuse_extension()
        self._charge(dict, 2 * len(pairs))
        return made

    def _keyed(self, pairs: list[tuple[Any, Any]]) -> Any:
        items = [*chain.from_iterable(pairs)]
        if self._stamps and Timestamp in map(type, items):
            _refuse_extension()
        self._charge(dict, len(items))
        return _closed(dict, items)

    def _extension(self, code: int, body: bytes) -> int | str | type:
        if code in _MARKED and not body:
            self._marks += 1
            return _MARKED[code]
        if code == _BIGINT:
            if len(body) > self._most:
                _refuse("an integer is longer than max_int bytes", "families.integer")
            number = int.from_bytes(body, "big", signed=True)
            if -(1 << 63) <= number < 1 << 64:
                _refuse("a large integer is not large", "families.msgpack")
            return number
        if code == _SURROGATES:
            text = body.decode("utf-8", "surrogatepass")
            if not any("\ud800" <= char <= "\udfff" for char in text):
                _refuse("text with surrogates has none", "families.msgpack")
            return text
        _refuse_extension()


def _opened(data: bytes, at: int) -> tuple[type, int, int] | None:
    """Return what container opens at *at*, how many values it claims, and where they begin."""
    code = data[at] if at < len(data) else 0
    if 0x80 <= code < 0xA0:
        count, at = code & 15, at + 1
    elif 0xDC <= code < 0xE0:
        end = at + (5 if code & 1 else 3)
        count, at = int.from_bytes(data[at + 1 : end], "big"), end
    else:
        return None
    kind: type = list
    if code < 0x90 or code >= 0xDE:
        kind, count = dict, 2 * count
    elif count and (mark := _MARK.match(data, at)):
        kind, count, at = _MARKED[mark[1][0]], count - 1, mark.end()
    if count > len(data) - at:
        _refuse("a msgpack container is longer than its frame", "families.count")
    return kind, count, at


def _closed(kind: type, items: list[Any]) -> Any:
    """Return the container of *items*, a dict of keys and values in turn."""
    if kind is list or kind is tuple:
        return items if kind is list else tuple(items)
    if kind is dict:
        return table_of(items[0::2], items[1::2])
    members = table_of(items)
    return members if kind is set else frozenset(members)
