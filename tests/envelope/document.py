"""A reader and a writer of messages, written from docs/reference/envelope-v1.md alone.

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

MAX_FRAME = 1 << 30
MAX_DEPTH, MAX_VALUES = 100, 1_000_000


class HeaderError(Exception):
    """The library header is refused."""


class FamilyHeaderError(Exception):
    """The family header is refused."""


# --- "Key schedule" --------------------------------------------------------------------------

PURPOSES = {1: ("HMAC-SHA256", "AES-256-GMAC"), 2: ("HMAC-SHA256", "AES-256-GCM")}


def derive(half: bytes, direction: str, suite: int, session_id: bytes) -> dict[str, bytes]:
    """Return the keys of one direction. HKDF-Expand of 32 bytes is one HMAC."""
    return {
        purpose: hmac.digest(
            half,
            f"safeser envelope 1 {direction} {purpose}".encode() + session_id + b"\1",
            "sha256",
        )
        for purpose in PURPOSES[suite]
    }


# --- "A message", "The tag", "Sequence" ------------------------------------------------------

MAX_HEADER, MAX_FRAMES, MAX_BYTES = 1 << 20, 100_000, 2 << 30


class RefusedBy(Exception):
    """The message is refused by the layer that is its argument."""


def _demand(fits: bool, layer: str) -> None:
    if not fits:
        raise RefusedBy(layer)


def read_message(
    suite: int, keys: dict[str, bytes], sequence: int, data: bytes
) -> tuple[bytes, list[bytes]]:
    """Return header and frames of the message *data*, which must have number *sequence*."""
    fields, tag, rest = data[:32], data[32:64], data[64:]
    magic, version, kind, reserved, number, header_length, count, body = struct.unpack(
        "<4sBBHQIIQ", fields
    )
    _demand((magic, version, kind, reserved) == (b"SSm1", 1, 1, 0), "format")
    _demand(header_length <= MAX_HEADER and count <= MAX_FRAMES and body <= MAX_BYTES, "format")
    _demand(body <= count << 30, "format")
    _demand(number == sequence, "sequence")
    added = {1: 0, 2: 16}[suite]
    header, rest = rest[: header_length + added], rest[header_length + added :]
    table, rest = rest[: 8 * count], rest[8 * count :]
    lengths = struct.unpack(f"<{count}Q", table)
    _demand(sum(lengths) == body and max(lengths, default=0) <= 1 << 30, "format")
    key = keys["HMAC-SHA256"]
    if suite == 1:
        frames = _cut(rest, lengths)
        parts = [_part_1(keys["AES-256-GMAC"], _nonce(number, i), f) for i, f in enumerate(frames)]
        _demand(hmac.digest(key, _pae(fields, header, *parts), "sha256") == tag, "mac")
        return header, frames
    _demand(hmac.digest(key, _pae(fields, header, table), "sha256") == tag, "mac")
    gcm = keys["AES-256-GCM"]
    opened = _decrypt(gcm, _nonce(number, 2**32 - 1), header)
    sealed = _cut(rest[:-32], [length + 16 for length in lengths])
    frames = [_decrypt(gcm, _nonce(number, i), each) for i, each in enumerate(sealed)]
    parts = [struct.pack("<QB", len(each) - 16, 2) + each[-16:] for each in sealed]
    _demand(hmac.digest(key, _pae(fields, header, *parts), "sha256") == rest[-32:], "mac")
    return opened, frames


def write_message(
    suite: int, keys: dict[str, bytes], sequence: int, header: bytes, frames: Sequence[bytes]
) -> bytes:
    """Return the message number *sequence* with *header* and *frames*."""
    lengths = [len(frame) for frame in frames]
    fields = struct.pack(
        "<4sBBHQIIQ", b"SSm1", 1, 1, 0, sequence, len(header), len(frames), sum(lengths)
    )
    table = struct.pack(f"<{len(lengths)}Q", *lengths)
    key = keys["HMAC-SHA256"]
    if suite == 1:
        gmac = keys["AES-256-GMAC"]
        parts = [_part_1(gmac, _nonce(sequence, i), frame) for i, frame in enumerate(frames)]
        tag = hmac.digest(key, _pae(fields, header, *parts), "sha256")
        return b"".join((fields, tag, header, table, *frames))
    gcm = keys["AES-256-GCM"]
    sealed_header = _encrypt(gcm, _nonce(sequence, 2**32 - 1), header)
    sealed = [_encrypt(gcm, _nonce(sequence, i), frame) for i, frame in enumerate(frames)]
    tag = hmac.digest(key, _pae(fields, sealed_header, table), "sha256")
    parts = [struct.pack("<QB", len(each) - 16, 2) + each[-16:] for each in sealed]
    end = hmac.digest(key, _pae(fields, sealed_header, *parts), "sha256")
    return b"".join((fields, tag, sealed_header, table, *sealed, end))


def _cut(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    made = []
    for length in lengths:
        made.append(data[:length])
        data = data[length:]
    assert data == b""
    return made


def _nonce(sequence: int, index: int) -> bytes:
    return struct.pack(">QI", sequence, index)


def _pae(*elements: bytes) -> bytes:
    encoded = struct.pack("<Q", len(elements))
    return encoded + b"".join(struct.pack("<Q", len(one)) + one for one in elements)


def _part_1(key: bytes, nonce: bytes, frame: bytes) -> bytes:
    if len(frame) < 4096:
        return struct.pack("<Q", len(frame)) + b"\0" + frame
    gmac = Cipher(algorithms.AES256(key), modes.GCM(nonce)).encryptor()
    gmac.authenticate_additional_data(frame)
    gmac.finalize()
    return struct.pack("<Q", len(frame)) + b"\1" + gmac.tag


def _encrypt(key: bytes, nonce: bytes, frame: bytes) -> bytes:
    gcm = Cipher(algorithms.AES256(key), modes.GCM(nonce)).encryptor()
    return gcm.update(frame) + gcm.finalize() + gcm.tag


def _decrypt(key: bytes, nonce: bytes, sealed: bytes) -> bytes:
    ciphertext, tag = sealed[:-16], sealed[-16:]
    gcm = Cipher(algorithms.AES256(key), modes.GCM(nonce, tag)).decryptor()
    try:
        return gcm.update(ciphertext) + gcm.finalize()
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
    if type(words) is not list or len(words) not in (3, 4) or type(words[0]) is not dict:
        raise HeaderError("no array of three or four")
    family, kind, operation = words[:3]
    if type(kind) is not str or kind not in ("admin", "data", "task", "control"):
        raise HeaderError("no kind")
    if operation is not None and (type(operation) is not str or len(operation) > 128):
        raise HeaderError("no operation")
    if len(words) == 4:
        frames = _joined(frames, words[3])
    return _value(family, frames, 0, [MAX_VALUES]), kind, operation


def _joined(parts: list[bytes], counts: Any) -> list[bytes]:
    if type(counts) is not list or any(type(each) is not int or each < 1 for each in counts):
        raise HeaderError("no part counts")
    if sum(counts) != len(parts) or max(counts, default=1) == 1:
        raise HeaderError("part counts that say nothing, or something else")
    made, at = [], 0
    for count in counts:
        own = parts[at : at + count]
        at += count
        if count > 1 and any(len(part) != MAX_FRAME for part in own[:-1]):
            raise HeaderError("a part of another length")
        made.append(b"".join(own))
    return made


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
