"""A reader and a writer of messages, written from docs/reference/envelope.md alone.

It imports no safeser.

The one rule: where it and safeser differ, one of them, or the document, is wrong.
"""

from __future__ import annotations

import base64
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = [
    "FamilyHeaderError",
    "HeaderError",
    "RefusedBy",
    "Value",
    "decode",
    "derive",
    "parse_key",
    "read_canonical",
    "read_message",
    "write_message",
]

MAX_DEPTH, MAX_VALUES = 100, 1_000_000


class HeaderError(Exception):
    """The library header is refused."""


class FamilyHeaderError(Exception):
    """The family header is refused."""


# --- "Key schedule" --------------------------------------------------------------------------


def derive(half: bytes, direction: str, session_id: bytes) -> dict[str, bytes]:
    """Return the keys of one direction. HKDF-Expand of 32 bytes is one HMAC."""
    return {
        purpose: hmac.digest(
            half,
            f"safeser envelope 2 {direction} {purpose}".encode() + session_id + b"\1",
            "sha256",
        )
        for purpose in ("HMAC-SHA256", "AES-256-GCM")
    }


# --- "A message", "The tags", "Sequence" -----------------------------------------------------

MAX_HEADER, MAX_FRAMES, MAX_BYTES, TOGETHER = 1 << 20, 100_000, 2 << 30, 65_536
DATA, CLOSE = 1, 2


class RefusedBy(Exception):
    """The message is refused by the layer that is its argument."""


def demand(fits: bool, layer: str) -> None:
    if not fits:
        raise RefusedBy(layer)


def read_message(
    keys: dict[str, bytes], sequence: int, data: bytes
) -> tuple[bytes, list[bytes]] | None:
    """Return header and frames of the message *data*, which must have number *sequence*.

    Of a close message, None.
    """
    fields, tag, rest = data[:32], data[32:64], data[64:]
    magic, kind, reserved, number, block_length, rest_length = struct.unpack("<4sB3sQQQ", fields)
    demand(magic == b"SSm2" and kind in (DATA, CLOSE) and reserved == bytes(3), "format")
    demand(block_length <= 8 + 8 * MAX_FRAMES + MAX_HEADER + TOGETHER, "format")
    demand(rest_length <= MAX_BYTES + 32 * (MAX_BYTES // TOGETHER) + 32, "format")
    demand(kind == DATA or block_length == rest_length == 0, "format")
    demand(number == sequence, "sequence")
    sealed, rest = rest[: block_length + 16], rest[block_length + 16 :]
    covered = [fields, sealed[-16:]]
    demand(_tag(keys, 1, covered) == tag, "mac")
    block = _decrypt(keys, number, 0, sealed)
    if kind == CLOSE:
        return None
    header, plain, first, groups = block_of(block)
    rest_of = sum(sum(group) + 16 for group in groups) + 32 if groups else 0
    demand(rest_length == rest_of, "format")
    frames = _cut(plain, first)
    for index, group in enumerate(groups, 1):
        sealed, rest = rest[: sum(group) + 16], rest[sum(group) + 16 :]
        frames += _cut(_decrypt(keys, number, index, sealed), group)
        covered.append(sealed[-16:])
    demand(rest == (_tag(keys, 2, covered) if groups else b""), "mac")
    return header, frames


def write_message(
    keys: dict[str, bytes], sequence: int, header: bytes, frames: Sequence[bytes], kind: int = DATA
) -> bytes:
    """Return the message number *sequence* with *header* and *frames*."""
    lengths = [len(frame) for frame in frames]
    first, *groups = groups_of(lengths)
    numbers = struct.pack(f"<II{len(lengths)}Q", len(header), len(lengths), *lengths)
    block = b"".join((numbers, header, *frames[: len(first)])) if kind == DATA else b""
    sealed, at = [_encrypt(keys, sequence, 0, block)], len(first)
    for index, group in enumerate(groups, 1):
        plain = b"".join(frames[at : at + len(group)])
        sealed.append(_encrypt(keys, sequence, index, plain))
        at += len(group)
    rest = sum(map(len, sealed[1:])) + 32 if groups else 0
    fields = struct.pack("<4sB3xQQQ", b"SSm2", kind, sequence, len(block), rest)
    covered = [fields, *(each[-16:] for each in sealed)]
    last = _tag(keys, 2, covered) if groups else b""
    return b"".join((fields, _tag(keys, 1, covered[:2]), *sealed, last))


def groups_of(lengths: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = [[]]
    for length in lengths:
        if sum(groups[-1]) + length < TOGETHER:
            groups[-1].append(length)
        else:
            groups.append([length])
    return groups


def block_of(block: bytes) -> tuple[bytes, bytes, list[int], list[list[int]]]:
    """Return header, frames of the first group, their lengths, and those of the other groups."""
    demand(len(block) >= 8, "format")
    header_length, count = struct.unpack("<II", block[:8])
    demand(header_length <= MAX_HEADER and count <= MAX_FRAMES, "format")
    at = 8 + 8 * count
    demand(len(block) >= at + header_length, "format")
    lengths = struct.unpack(f"<{count}Q", block[8:at])
    demand(sum(lengths) <= MAX_BYTES, "format")
    header, plain = block[at : at + header_length], block[at + header_length :]
    first, *groups = groups_of(lengths)
    demand(len(plain) == sum(first), "format")
    return header, plain, first, groups


def _cut(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    made = []
    for length in lengths:
        made.append(data[:length])
        data = data[length:]
    assert data == b""
    return made


def _tag(keys: dict[str, bytes], first: int, covered: Sequence[bytes]) -> bytes:
    return hmac.digest(keys["HMAC-SHA256"], bytes((first,)) + b"".join(covered), "sha256")


def _gcm(keys: dict[str, bytes], sequence: int, index: int, tag: bytes | None = None) -> Any:
    nonce = struct.pack(">QI", sequence, index)
    return Cipher(algorithms.AES256(keys["AES-256-GCM"]), modes.GCM(nonce, tag))


def _encrypt(keys: dict[str, bytes], sequence: int, index: int, plain: bytes) -> bytes:
    gcm = _gcm(keys, sequence, index).encryptor()
    return bytes(gcm.update(plain) + gcm.finalize() + gcm.tag)


def _decrypt(keys: dict[str, bytes], sequence: int, index: int, sealed: bytes) -> bytes:
    gcm = _gcm(keys, sequence, index, sealed[-16:]).decryptor()
    try:
        return bytes(gcm.update(sealed[:-16]) + gcm.finalize())
    except InvalidTag:
        raise RefusedBy("gcm") from None


# --- "Canonical MessagePack" -----------------------------------------------------------------


class _Canonical:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise HeaderError("cut off")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int, *, least: int) -> int:
        found = int.from_bytes(self.take(size), "big")
        if found < least:
            raise HeaderError("not the shortest form")
        return found

    def value(self, depth: int = 0) -> Any:
        if depth > 400:
            raise HeaderError("nested deeper than any header")
        first = self.take(1)[0]
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 256
        if first < 0x90:
            return self.map(first & 15, depth)
        if first < 0xA0:
            return self.array(first & 15, depth)
        if first < 0xC0:
            return self.text(first & 31)
        match first:
            case 0xC0:
                return None
            case 0xC2 | 0xC3:
                return first == 0xC3
            case 0xC4 | 0xC5 | 0xC6:
                return self.take(self.size(first - 0xC4, 0))
            case 0xCB:
                return struct.unpack(">d", self.take(8))[0]
            case 0xCC | 0xCD | 0xCE | 0xCF:
                size = 1 << first - 0xCC
                return self.number(size, least=128 if size == 1 else 1 << 4 * size)
            case 0xD0 | 0xD1 | 0xD2 | 0xD3:
                size = 1 << first - 0xD0
                found = int.from_bytes(self.take(size), "big", signed=True)
                if found >= (-32 if size == 1 else -(1 << 4 * size - 1)):
                    raise HeaderError("not the shortest form")
                return found
            case 0xD9 | 0xDA | 0xDB:
                return self.text(self.size(first - 0xD9, 32))
            case 0xDC | 0xDD:
                return self.array(self.size(first - 0xDB, 16), depth)
            case 0xDE | 0xDF:
                return self.map(self.size(first - 0xDD, 16), depth)
        raise HeaderError("no such type")

    def size(self, power: int, fixed: int) -> int:
        """Read a length of 1, 2 or 4 bytes that no shorter form could have said."""
        size = 1 << power
        shorter = 1 << 4 * size
        if size == 1 or (fixed == 16 and size == 2):
            shorter = fixed
        return self.number(size, least=shorter)

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise HeaderError("not UTF-8") from None

    def array(self, count: int, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(count)]

    def map(self, count: int, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if type(key) is not str or key in made:
                raise HeaderError("keys are text, each once")
            made[key] = self.value(depth + 1)
        return made


def read_canonical(data: bytes) -> Any:
    reader = _Canonical(data)
    value = reader.value()
    if reader.at != len(data):
        raise HeaderError("bytes follow the value")
    return value


# --- "The header" ----------------------------------------------------------------------------


@dataclass
class Value:
    """One value of a family header, with the frames that are its own."""

    serializer: str
    header: dict[str, Any]
    frames: list[bytes]
    children: list[Value] = field(default_factory=list)


def decode(header: bytes, frames: list[bytes]) -> tuple[Value, str, str | None]:
    """Return the value that a library message describes, its kind and its operation."""
    words = read_canonical(header)
    if type(words) is not list or len(words) != 3 or type(words[0]) is not dict:
        raise HeaderError("no array of three")
    family, kind, operation = words
    if type(kind) is not str or kind not in ("admin", "data", "task", "control"):
        raise HeaderError("no kind")
    if operation is not None and (type(operation) is not str or len(operation) > 128):
        raise HeaderError("no operation")
    return _value(family, frames, 0, [MAX_VALUES]), kind, operation


# --- "The family header" ---------------------------------------------------------------------

_KEYS = {
    "msgpack": ((), ()),
    "error": ((), ("failed",)),
    "pickle": (("writeable",), ()),
    "cloudpickle": (("writeable",), ()),
    "dask": (("type", "sub-header"), ("sub-headers", "frame-lengths")),
    "collection": (("type", "sub-headers", "frame-lengths"), ()),
}


def _need(fits: bool, problem: str) -> None:
    if not fits:
        raise FamilyHeaderError(problem)


def _value(header: Any, frames: list[bytes], depth: int, room: list[int]) -> Value:
    room[0] -= 1
    _need(depth <= MAX_DEPTH and room[0] >= 0, "over a limit")
    _need(type(header) is dict, "no map")
    serializer = header.get("serializer")
    _need(type(serializer) is str and serializer in _KEYS, "no serializer")
    required, optional = _KEYS[serializer]
    keys = set(header) - {"serializer"}
    _need(set(required) <= keys <= {*required, *optional}, "other keys")
    own = _check(serializer, header, len(frames))
    lengths = header.get("frame-lengths", [])
    value = Value(serializer, header, frames[:own])
    at = own
    for child, length in zip(header.get("sub-headers", []), lengths, strict=True):
        value.children.append(_value(child, frames[at : at + length], depth + 1, room))
        at += length
    return value


def _check(serializer: str, header: dict[str, Any], given: int) -> int:
    """Check the types of a header's values; return how many frames are its own."""
    below = 0
    if "sub-headers" in header or "frame-lengths" in header:
        children, lengths = header.get("sub-headers"), header.get("frame-lengths")
        _need(type(children) is list and type(lengths) is list, "no lists")
        _need(len(children) == len(lengths), "lists of different lengths")
        _need(all(type(each) is int and each >= 0 for each in lengths), "no counts")
        below = sum(lengths)
    if serializer == "dask":
        name = header["type"]
        _need(type(name) is str and 1 <= len(name) <= 128 and name.isprintable(), "no type")
        _need(type(header["sub-header"]) is dict, "no sub-header")
        _need(given >= below, "too few frames")
        return given - below
    own = 1
    if serializer == "collection":
        _need(header["type"] in ("list", "tuple", "set", "frozenset", "dict"), "no collection")
        own = 0
    elif serializer == "error":
        _need(type(header.get("failed", False)) is bool, "no flag")
    elif serializer != "msgpack":
        flags = header["writeable"]
        _need(type(flags) is list and all(type(flag) is bool for flag in flags), "no flags")
        own += len(flags)
    _need(own + below == given, "frames do not add up")
    return own


# --- values: "msgpack" and "collection" ------------------------------------------------------


def read_value(value: Value) -> Any:
    """Return what *value* stands for; of a typed one what its header says."""
    match value.serializer:
        case "msgpack":
            return _plain(value.frames[0])
        case "collection":
            return _collection(value.header["type"], list(map(read_value, value.children)))
        case "error":
            failed = value.header.get("failed", False)
            return {"failures": _plain(value.frames[0]), "failed": failed}
        case "dask":
            known = {"type": value.header["type"], "sub-header": value.header["sub-header"]}
            return {
                **known,
                "frames": value.frames,
                "children": list(map(read_value, value.children)),
            }
    return {"pickle": value.frames[0], "buffers": value.frames[1:]}


def _collection(kind: str, items: list[Any]) -> Any:
    if kind == "dict":
        return dict(zip(items[0], items[1:], strict=True))
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](items)


_MARKS = {1: tuple, 2: set, 3: frozenset}
_MARK = object()


def _plain(data: bytes) -> Any:
    def extended(code: int, body: bytes) -> Any:
        if code in _MARKS and not body:
            return _MARK, _MARKS[code]
        assert code in (4, 5)
        if code == 5:
            return body.decode("utf-8", "surrogatepass")
        return int.from_bytes(body, "big", signed=True)

    def marked(items: list[Any]) -> Any:
        if items and type(items[0]) is tuple and items[0][0] is _MARK:
            return items[0][1](items[1:])
        return items

    return msgpack.unpackb(data, ext_hook=extended, list_hook=marked, strict_map_key=False)


# --- "Names and keys" ------------------------------------------------------------------------

_P = 2**255 - 19
_LOW = {
    0, 1, _P - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
}  # fmt: skip


def parse_key(text: str) -> bytes:
    """Return the key that *text* spells, or raise ValueError."""
    body = text.removeprefix("x25519:")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    if body == text or len(body) != 43 or not set(body) <= set(alphabet):
        raise ValueError("not the form of a key")
    if alphabet.index(body[-1]) & 3:
        raise ValueError("spare bits are set")
    raw = base64.urlsafe_b64decode(body + "=")
    number = int.from_bytes(raw, "little")
    if number >= _P or number in _LOW:
        raise ValueError("no canonical key")
    return raw
