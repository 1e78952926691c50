"""A reader and a writer of detached messages, written from docs/reference/envelope.md alone.

It imports no safeser.

The one rule: where it and safeser differ, one of them, or the document, is wrong.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.gate.document import (
    MAX_BYTES,
    MAX_FRAMES,
    MAX_HEADER,
    TOGETHER,
    RefusedBy,
    block_of,
    demand,
    groups_of,
)

__all__ = ["Person", "Said", "read_detached", "secret_id", "write_detached"]

PAIR, SIGNED, SHARED, READERS = 1, 2, 3, 4


class Person(NamedTuple):
    """A principal as the roster has it; its private keys where they are ours."""

    name: str
    public: bytes
    verifying: bytes
    private: bytes = b""
    signing: bytes = b""


class Said(NamedTuple):
    """What a message says of itself, and what it carries."""

    id: bytes
    made: int
    ttl: int
    about: str
    header: bytes
    frames: list[bytes]


def pae(*parts: bytes) -> bytes:
    counted = (struct.pack("<Q", len(part)) + part for part in parts)
    return struct.pack("<Q", len(parts)) + b"".join(counted)


def secret_id(secret: bytes) -> bytes:
    return hmac.digest(secret, b"safeser secret 1 id", "sha256")


def _exchange(private: bytes, public: bytes) -> bytes:
    mine = X25519PrivateKey.from_private_bytes(private)
    return mine.exchange(X25519PublicKey.from_public_bytes(public))


_NAME = r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}"


def direction(about: str) -> tuple[str, str]:
    found = re.match(rf"({_NAME}) -> ({_NAME})(?:: |\Z)", about)
    demand("->" not in about or (found is not None and found[1] != found[2]), "about")
    return (found[1], found[2]) if found else ("shared", "shared")


def _keys(fields: bytes, names: Sequence[str], secret: bytes) -> tuple[bytes, bytes]:
    """Return the keys of HMAC and GCM. HKDF-Expand of 32 bytes is one HMAC."""
    key = hmac.digest(fields[24:56], secret, "sha256")
    said = (fields[5:6], fields[56:88], fields[88:120], *(name.encode() for name in names))
    labels = ("HMAC-SHA256", "AES-256-GCM")
    infos = (pae(f"safeser envelope 2 detached {label}".encode(), *said) for label in labels)
    one, other = (hmac.digest(key, info + b"\1", "sha256") for info in infos)
    return one, other


def _signed(fields: bytes, names: Sequence[str], content: bytes) -> bytes:
    said = (fields, *(name.encode() for name in names), hashlib.sha256(content).digest())
    return b"safeser detached message v2\n" + pae(*said)


def _nonce(index: int) -> bytes:
    return struct.pack(">QI", 0, index)


def write_detached(
    mode: int, sender: Person, recipient: Person, said: Said, *, salt: bytes, secret: bytes
) -> bytes:
    """Return the message of one mode; *secret* is the shared one."""
    about = said.about.encode()
    facts = said.id + struct.pack("<QQH", said.made, said.ttl, len(about)) + about
    header, lengths = facts + said.header, [len(frame) for frame in said.frames]
    groups, at = [], 0
    for group in groups_of(lengths):
        groups.append(b"".join(said.frames[at : at + len(group)]))
        at += len(group)
    numbers = struct.pack(f"<II{len(lengths)}Q", len(header), len(lengths), *lengths)
    block, parts = numbers + header + groups[0], groups[1:]
    from_, to = {
        PAIR: (sender.public, recipient.public),
        SIGNED: (sender.public, recipient.public),
        SHARED: (secret_id(secret), bytes(32)),
        READERS: (sender.verifying, bytes(32)),
    }[mode]
    rest = sum(map(len, parts)) + (16 * len(parts) + 32 if parts and mode != READERS else 0)
    size = len(block) + (64 if mode == SIGNED else 0)
    fields = struct.pack("<4sBB2xQQ", b"SSm2", 3, mode, size, rest) + salt + from_ + to
    names = [sender.name, recipient.name]
    if mode == SHARED:
        names = [*direction(said.about)]
    elif mode == READERS:
        names[1] = ""
    signature = b""
    if mode in (SIGNED, READERS):
        data = _signed(fields, names, b"".join((block, *parts)))
        signature = Ed25519PrivateKey.from_private_bytes(sender.signing).sign(data)
    if mode == READERS:
        return b"".join((fields, signature, block, *parts))
    shared = secret if mode == SHARED else _exchange(sender.private, recipient.public)
    for_hmac, for_gcm = _keys(fields, names, shared)
    plain = [signature + block, *parts]
    sealed = [AESGCM(for_gcm).encrypt(_nonce(at), part, None) for at, part in enumerate(plain)]
    covered = [fields, *(each[-16:] for each in sealed)]
    tag = hmac.digest(for_hmac, b"\1" + b"".join(covered[:2]), "sha256")
    last = hmac.digest(for_hmac, b"\2" + b"".join(covered), "sha256") if parts else b""
    return b"".join((fields, tag, *sealed, last))


def read_detached(
    data: bytes,
    reader: Person | bytes,
    roster: Mapping[str, Person],
    *,
    about: str,
    now: float,
) -> Said:
    """Return what *data* says to *reader*, a principal or who has a secret, or raise RefusedBy."""
    # 1. Format
    demand(data[:4] == b"SSm2" and len(data) >= 120, "format")
    fields, rest = data[:120], data[120:]
    kind, mode, reserved, block_length, rest_length = struct.unpack("<BB2sQQ", fields[4:24])
    demand(kind == 3 and mode in (1, 2, 3, 4) and reserved == b"\0\0", "format")
    demand(block_length <= 8 + 8 * MAX_FRAMES + MAX_HEADER + TOGETHER + 64, "format")
    demand(rest_length <= MAX_BYTES + 32 * (MAX_BYTES // TOGETHER) + 32, "format")
    proof, tags = (64, 0) if mode == READERS else (32, 16)
    demand(len(rest) == proof + block_length + tags + rest_length, "format")
    # 2. Keys
    from_, to = fields[56:88], fields[88:120]
    sender: Person | None = None
    if isinstance(reader, bytes):
        demand(mode == SHARED and from_ == secret_id(reader) and to == bytes(32), "keys")
        names, secret = direction(about), reader
    else:
        demand(mode != SHARED, "keys")
        demand(to == (bytes(32) if mode == READERS else reader.public), "keys")
        which: Callable[[Person], bytes] = lambda each: (  # noqa: E731 - one word of the document
            each.verifying if mode == READERS else each.public
        )
        sender = next((each for each in roster.values() if which(each) == from_), None)
        if sender is None:
            raise RefusedBy("keys")
        names = (sender.name, "" if mode == READERS else reader.name)
        secret = b"" if mode == READERS else _exchange(reader.private, from_)
    proven, rest = rest[:proof], rest[proof:]
    sealed, rest = rest[: block_length + tags], rest[block_length + tags :]
    # 3. Tag, or signature
    for_hmac, for_gcm, covered = b"", b"", [fields, sealed[-16:]]
    if mode == READERS:
        _verify(sender, proven, _signed(fields, names, sealed + rest))
        block = sealed
    else:
        for_hmac, for_gcm = _keys(fields, names, secret)
        wanted = hmac.digest(for_hmac, b"\1" + b"".join(covered), "sha256")
        demand(hmac.compare_digest(wanted, proven), "mac")
        # 4. GCM, lengths
        block = _decrypt(for_gcm, 0, sealed)
    signature = b""
    if mode == SIGNED:
        demand(len(block) >= 64, "format")
        signature, block = block[:64], block[64:]
    header, inside, first, groups = block_of(block)
    behind = sum(map(sum, groups))
    if groups and mode != READERS:
        behind += 16 * len(groups) + 32
    demand(rest_length == behind, "format")
    # 5. Last tag, parts
    parts: list[bytes] = []
    pieces = []
    for group in groups:
        size = sum(group) + tags
        pieces.append(rest[:size])
        rest = rest[size:]
    if mode == READERS:
        parts = pieces
    elif groups:
        covered += [piece[-16:] for piece in pieces]
        demand(rest == hmac.digest(for_hmac, b"\2" + b"".join(covered), "sha256"), "mac")
        parts = [_decrypt(for_gcm, index, piece) for index, piece in enumerate(pieces, 1)]
    # 6. Signature
    if mode == SIGNED:
        _verify(sender, signature, _signed(fields, names, b"".join((block, *parts))))
    # 7. Facts
    demand(len(header) >= 34, "format")
    made, ttl, size = struct.unpack("<QQH", header[16:34])
    demand(made < 1 << 53 and ttl < 1 << 53 and 1 <= size <= 1_024, "format")
    demand(len(header) >= 34 + size, "format")
    try:
        told = header[34 : 34 + size].decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedBy("format") from None
    # 8. and 9.
    demand(told == about, "about")
    demand(made <= now + 5 and (not ttl or now <= made + ttl), "dates")
    body, frames = b"".join((inside, *parts)), []
    for length in (*first, *(each for group in groups for each in group)):
        frames.append(body[:length])
        body = body[length:]
    return Said(header[:16], made, ttl, told, header[34 + size :], frames)


def _verify(sender: Person | None, signature: bytes, data: bytes) -> None:
    assert sender is not None
    try:
        Ed25519PublicKey.from_public_bytes(sender.verifying).verify(signature, data)
    except InvalidSignature:
        raise RefusedBy("signature") from None


def _decrypt(key: bytes, index: int, sealed: bytes) -> Any:
    try:
        return AESGCM(key).decrypt(_nonce(index), sealed, None)
    except InvalidTag:
        raise RefusedBy("gcm") from None
