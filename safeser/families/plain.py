"""Encode and decode plain values as one frame of strict msgpack, with exact types.

The one rule: every count is charged against the remaining bytes and limits before memory is
allocated, so a small frame cannot make a large object. msgpack's C code reads and writes only runs
of scalars, which have a size of their own; it trusts no count.

Lists, tuples, sets and frozensets are msgpack arrays; all but the list open with an empty extension
that names them. Integers beyond 64 bits and text with lone surrogates have extensions of their own.
"""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import msgpack

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

#: Shorter runs of scalars are not worth asking whether they are such; long ones are read in pieces.
_RUN, _PIECE = 16, 1 << 17

#: Exact types whose msgpack is the same from every writer.
_SCALAR_TYPES: frozenset[type] = frozenset({type(None), bool, int, float, str})

_TUPLE, _SET, _FROZENSET, _BIGINT, _SURROGATES = 1, 2, 3, 4, 5
_MARKED: dict[int, type] = {_TUPLE: tuple, _SET: set, _FROZENSET: frozenset}
_MARK_OF = {kind: code for code, kind in _MARKED.items()}

_DOUBLE = struct.Struct(">Bd")

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
    writer = _Writer(limits, room, largest)
    writer.put(value, min(limits.max_depth, DEPTH_CEILING) - depth)
    return bytes(writer.out), writer.left


def is_plain(cls: type) -> bool:
    """Tell whether direct instances of *cls* may be plain, as far as their class says."""
    return cls in _PUT


class _Writer:
    __slots__ = ("largest", "left", "limits", "out")

    def __init__(self, limits: Limits, room: int, largest: int | None) -> None:
        self.out = bytearray()
        self.limits = limits
        self.left = room
        self.largest = limits.max_array if largest is None else largest

    def put(self, value: Any, room: int) -> None:
        put = _PUT.get(type(value))
        if put is None:
            raise Unencodable(value)
        put(self, value, room)

    def head(self, fixed: int, fixed_max: int, codes: Sequence[int], count: int) -> None:
        """Write the shortest msgpack header for *count* bytes or elements."""
        if count <= fixed_max:
            self.out.append(fixed | count)
        elif count < 1 << 8 and codes[0]:
            self.out += bytes((codes[0], count))
        elif count < 1 << 16:
            self.out += struct.pack(">BH", codes[1], count)
        elif count < 1 << 32:
            self.out += struct.pack(">BI", codes[2], count)
        else:
            raise Unencodable(None, "it is longer than msgpack can say")

    def ext(self, code: int, body: bytes) -> None:
        self.head(0, -1, (0xC7, 0xC8, 0xC9), len(body))
        self.out.append(code)
        self.out += body

    def put_none(self, value: None, room: int) -> None:
        self.out.append(0xC0)

    def put_bool(self, value: Any, room: int) -> None:
        self.out.append(0xC3 if value else 0xC2)

    def put_int(self, value: int, room: int) -> None:
        if -32 <= value < 128:
            self.out.append(value & 0xFF)
        elif -(1 << 63) <= value < 1 << 63:
            self.out += struct.pack(">Bq", 0xD3, value)
        elif 0 < value < 1 << 64:
            self.out += struct.pack(">BQ", 0xCF, value)
        else:
            size = value.bit_length() // 8 + 1
            if size > self.limits.max_int:
                raise Unencodable(value, "it is longer than max_int bytes")
            self.ext(_BIGINT, value.to_bytes(size, "big", signed=True))

    def put_float(self, value: Any, room: int) -> None:
        self.out += _DOUBLE.pack(0xCB, value)

    def put_str(self, value: Any, room: int) -> None:
        try:
            body = value.encode()
        except UnicodeEncodeError:
            self.ext(_SURROGATES, value.encode("utf-8", "surrogatepass"))
            return
        self.head(0xA0, 31, (0xD9, 0xDA, 0xDB), len(body))
        self.out += body

    def put_bytes(self, value: Any, room: int) -> None:
        if len(value) > self.largest:
            raise Unencodable(value, "it is too large to stand inside one msgpack frame")
        self.head(0, -1, (0xC4, 0xC5, 0xC6), len(value))
        self.out += value

    def enter(self, value: object, count: int, room: int) -> None:
        if room <= 0:
            raise Unencodable(
                value,
                f"it is nested more than {min(self.limits.max_depth, DEPTH_CEILING)} deep",
                final=True,
            )
        self.left -= memory_of(type(value), count)
        if self.left < 0:
            raise Unencodable(value, TOO_MUCH, final=True, fix=LESS)

    def put_array(self, value: Any, room: int) -> None:
        self.enter(value, len(value), room)
        mark = _MARK_OF.get(type(value))
        self.head(0x90, 15, (0, 0xDC, 0xDD), len(value) + (mark is not None))
        if mark is not None:
            self.out += bytes((0xC7, 0, mark))
        if len(value) >= _RUN and self.run(value):
            return
        for position, item in enumerate(value):
            try:
                self.put(item, room - 1)
            except Unencodable as error:
                error.inside(value, f"[{position}]")
                raise

    def run(self, values: Iterable[Any]) -> bool:
        """Write *values* at once if all of them are scalars that msgpack itself keeps exactly."""
        if not set(map(type, values)) <= _SCALAR_TYPES:
            return False
        items = list(values)
        try:
            packed = msgpack.packb(items)
        except (OverflowError, UnicodeEncodeError):  # large integers and lone surrogates
            return False
        self.out += packed[1 if len(items) < 16 else 3 if len(items) < 1 << 16 else 5 :]
        return True

    def put_map(self, value: dict[Any, Any], room: int) -> None:
        self.enter(value, 2 * len(value), room)
        self.head(0x80, 15, (0, 0xDE, 0xDF), len(value))
        if len(value) >= _RUN and set(map(type, value)) <= _SCALAR_TYPES:
            flat = list(itertools.chain.from_iterable(value.items()))
            if self.run(flat):
                return
        for key, item in value.items():
            try:
                self.put(key, room - 1)
                self.put(item, room - 1)
            except Unencodable as error:
                error.inside(value, f"[{label(key)}]")
                raise


def label(key: object) -> str:
    """Return *key* as it may stand in an error: short, printable, only for the plainest types."""
    if type(key) is int and abs(key) < 1 << 64:
        return str(key)
    if type(key) is str:
        short = key if len(key) <= 40 else key[:40] + "..."
        return repr("".join(char if char.isprintable() else "?" for char in short))
    return f"a {type(key).__name__[:40]}"


_PUT: dict[type, Callable[[_Writer, Any, int], None]] = {
    type(None): _Writer.put_none,
    bool: _Writer.put_bool,
    int: _Writer.put_int,
    float: _Writer.put_float,
    str: _Writer.put_str,
    bytes: _Writer.put_bytes,
    **dict.fromkeys((list, tuple, set, frozenset), _Writer.put_array),
    dict: _Writer.put_map,
}

_CODES = zip(range(0xCA, 0xD4), "fdBHIQbhiq", strict=True)
_SCALARS = {code: struct.Struct(f">{form}") for code, form in _CODES}
_SINGLE = {0xC0: None, 0xC2: False, 0xC3: True}

# First byte to what it opens and how many bytes its length takes.
_STR, _BIN, _EXT, _ARRAY, _MAP = "text", "bytes", "extension", "array", "map"
_SIZED = {
    first + at: (what, 1 << at)
    for first, what in ((0xC4, _BIN), (0xC7, _EXT), (0xD9, _STR))
    for at in range(3)
}
_SIZED |= {0xDC: (_ARRAY, 2), 0xDD: (_ARRAY, 4), 0xDE: (_MAP, 2), 0xDF: (_MAP, 4)}


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
        _refuse("a msgpack frame is larger than max_array", "families.too-large", 0)
    data = data if type(data) is bytes else bytes(data)
    scalar = _SCALARS.get(data[0]) if data else None
    if scalar is not None and len(data) == 1 + scalar.size:
        return scalar.unpack_from(data, 1)[0], room  # a number alone, as many results are
    if len(data) == 1 and not 0x80 <= data[0] < 0xE0:
        return (data[0] if data[0] < 0x80 else data[0] - 256), room
    reader = _Reader(data, limits, room, depth)
    return reader.value(), reader.left


def _refuse(message: str, rule: str, position: int) -> NoReturn:
    raise PayloadError(message, rule=rule, where=f"byte {position}")


class _Reader:
    __slots__ = ("data", "depth", "left", "most", "pos")

    def __init__(self, data: bytes, limits: Limits, room: int, depth: int) -> None:
        self.data = data
        self.pos = 0
        self.left = room
        self.depth = min(limits.max_depth, DEPTH_CEILING) - depth
        self.most = limits.max_int

    def value(self) -> Any:
        """Read one value, containers on a stack of our own: depth costs no interpreter frames."""
        open_: list[tuple[type, int, list[Any]]] = []
        while True:
            item, opened = self.token()
            if opened is not None:
                kind, count = opened
                if len(open_) >= self.depth:
                    _refuse("msgpack is nested too deep", "families.depth", self.pos)
                open_.append((kind, count, self.run(count) if count >= _RUN else []))
            while True:
                if opened is None:
                    if not open_:
                        return self.last(item)
                    open_[-1][2].append(item)
                kind, count, items = open_[-1]
                if len(items) < count:
                    break
                open_.pop()
                item, opened = self.close(kind, items), None

    def run(self, count: int) -> list[Any]:
        """Read *count* scalars at once; of anything else among them read nothing.

        msgpack reserves memory for as many elements as an array claims, at each depth: here it may
        not open any container.
        """
        stream = io.BytesIO(self.data)
        stream.seek(self.pos)
        unpacker = msgpack.Unpacker(
            stream,
            read_size=min(9 * count, 1 << 14),
            max_buffer_size=max(len(self.data), 1 << 14),
            max_array_len=0,
            max_map_len=0,
            max_ext_len=0,
        )
        items: list[Any] = []
        try:
            while len(items) < count:  # no other thread runs while one piece is read
                piece = list(itertools.islice(unpacker, min(count - len(items), _PIECE)))
                if not piece or not set(map(type, piece)) <= _SCALAR_TYPES:
                    return []
                items += piece
        except (ValueError, msgpack.UnpackException):
            return []
        self.pos += unpacker.tell()
        return items

    def last(self, item: Any) -> Any:
        if self.pos != len(self.data):
            _refuse("bytes follow the value in a msgpack frame", "families.trailing", self.pos)
        return item

    def token(self) -> tuple[Any, tuple[type, int] | None]:  # noqa: PLR0911 - one per kind
        """Read one scalar, or the kind of a container and the number of its values."""
        code = self.take(1)[0]
        if code < 0x80:
            return code, None
        if code >= 0xE0:
            return code - 256, None
        if code < 0x90:
            return None, self.opens(_MAP, code & 15)
        if code < 0xA0:
            return None, self.opens(_ARRAY, code & 15)
        if code < 0xC0:
            return self.text(code & 31), None
        if code in _SINGLE:
            return _SINGLE[code], None
        scalar = _SCALARS.get(code)
        if scalar is not None:
            return scalar.unpack(self.take(scalar.size))[0], None
        sized = _SIZED.get(code)
        if sized is None:
            _refuse("unknown msgpack type", "families.msgpack", self.pos)
        what, width = sized
        size = int.from_bytes(self.take(width), "big")
        if what is _STR:
            return self.text(size), None
        if what is _BIN:
            return self.take(size), None
        if what is _EXT:
            return self.extension(self.take(1)[0], size), None
        return None, self.opens(what, size)

    def take(self, size: int) -> bytes:
        end = self.pos + size
        if end > len(self.data):
            _refuse("a msgpack frame ends too early", "families.truncated", self.pos)
        piece = self.data[self.pos : end]
        self.pos = end
        return piece

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            _refuse("text in a msgpack frame is not UTF-8", "families.utf8", self.pos)

    def extension(self, code: int, size: int) -> int | str:
        body = self.take(size)
        if code == _BIGINT:
            if size > self.most:
                _refuse("an integer is longer than max_int bytes", "families.integer", self.pos)
            number = int.from_bytes(body, "big", signed=True)
            if -(1 << 63) <= number < 1 << 64:
                _refuse("a large integer is not large", "families.msgpack", self.pos)
            return number
        if code == _SURROGATES:
            try:
                text = body.decode("utf-8", "surrogatepass")
            except UnicodeDecodeError:
                _refuse("text in a msgpack frame is not UTF-8", "families.utf8", self.pos)
            if not any("\ud800" <= char <= "\udfff" for char in text):
                _refuse("text with surrogates has none", "families.msgpack", self.pos)
            return text
        _refuse("unknown or misplaced msgpack extension", "families.extension", self.pos)

    def opens(self, what: str, count: int) -> tuple[type, int]:
        """Charge a container's values before any is read: each takes a byte at the very least."""
        kind: type = list
        if what is _MAP:
            kind, count = dict, 2 * count
        elif count and self.data[self.pos : self.pos + 2] == b"\xc7\x00":
            mark = self.take(3)[2]
            if mark not in _MARKED:
                _refuse("unknown msgpack extension", "families.extension", self.pos)
            kind, count = _MARKED[mark], count - 1
        if count > len(self.data) - self.pos:
            _refuse("a msgpack container is longer than its frame", "families.count", self.pos)
        self.left -= memory_of(kind, count)
        if self.left < 0:
            raise PayloadError(TOO_MUCH, rule="families.memory", fix=LESS, where=f"byte {self.pos}")
        return kind, count

    def close(self, kind: type, items: list[Any]) -> Any:
        if kind is list:
            return items
        if kind is tuple:
            return tuple(items)
        where = f"byte {self.pos}"
        if kind is dict:
            return table_of(items[0::2], items[1::2], where=where)
        members = table_of(items, where=where)
        return members if kind is set else frozenset(members)
