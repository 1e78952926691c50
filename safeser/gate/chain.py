"""The keyed chain, as pure functions: what makes a record depend on every record before it.

The one rule: mac_i = HMAC-SHA256(K_file, PAE(mac_i-1, i, record_i)). Without the key no record can
be made, changed, moved or taken out of the middle; the head says where the end was.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from binascii import hexlify
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from safeser.gate.refusals import AuditError

#: What stands for the MAC before the first record; the key is the file's own, so no two collide.
ZERO = bytes(32)

_BLOCK = 64  # bytes of a block of SHA-256, which no key here is longer than
STEP = struct.Struct("<QQ32sQQQ")
_HEAD = re.compile(
    rb'\{"count":"([0-9]{16})","file":"([0-9a-f]{32})","mac":"([0-9a-f]{64})",'
    rb'"size":"([0-9]{16})","tag":"([0-9a-f]{64})"\}\n\Z'
)


def pae(*parts: bytes) -> bytes:
    """Return the pre-authentication encoding of *parts*: a count, then each length and its bytes.

    The construction of PASETO and DSSE, with 64-bit little-endian numbers.
    """
    return struct.pack("<Q", len(parts)) + b"".join(
        struct.pack("<Q", len(part)) + part for part in parts
    )


def step(key: bytes, previous: bytes, sequence: int, body: bytes) -> bytes:
    """Return the MAC of record *sequence*, counted from 0; *previous* is that of the one before.

    The packed prefix and *body* are PAE(previous, sequence, body) exactly.
    """
    prefix = STEP.pack(3, 32, previous, 8, sequence, len(body))
    return mac_of(key, prefix + body)


def mac_of(key: bytes, data: bytes) -> bytes:
    """Return HMAC-SHA256 (RFC 2104) of *data*."""
    inner, outer = keyed(key)
    inner, outer = inner.copy(), outer.copy()
    inner.update(data)
    outer.update(inner.digest())
    return outer.digest()


def hmac_of(key: bytes, data: bytes) -> bytes:
    """Return HMAC-SHA256 (RFC 2104) of *data* by a key of at most 64 bytes that is used once.

    Where other work has emptied the processor's caches this takes 6 us, and ``hmac.digest`` 17.
    """
    block = key.ljust(_BLOCK, b"\0")
    inner = hashlib.sha256(block.translate(_INNER) + data).digest()
    return hashlib.sha256(block.translate(_OUTER) + inner).digest()


_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))


@lru_cache(maxsize=8)
def keyed(key: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Return the two hashes of HMAC with the key, of 32 bytes, taken in.

    To take in the key takes as long as to hash a record, and a copy of these takes half the time of
    a copy of the HMAC objects of hmac or cryptography, of which verification makes millions.
    """
    block = key.ljust(_BLOCK, b"\0")
    return hashlib.sha256(block.translate(_INNER)), hashlib.sha256(block.translate(_OUTER))


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one file, 32 bytes each; ``safeser.audit.key`` derives them, one way."""

    chain: bytes = field(repr=False)
    head: bytes = field(repr=False)


def forget_keys() -> None:
    """Forget the keys of chains that were used lately; they are derived again where needed."""
    keyed.cache_clear()


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chained file ends.

    :param file: id of the file.
    :param count: records in it.
    :param mac: MAC of the last of them.
    :param size: bytes up to its end.
    """

    file: str
    count: int
    mac: bytes
    size: int

    def encode(self, key: bytes) -> bytes:
        """Return the head's fixed number of bytes, so that one write in place replaces it."""
        text = '{"count":"%016d","file":"%s","mac":"%s","size":"%016d","tag":"'
        body = (text % (self.count, self.file, self.mac.hex(), self.size)).encode("ascii")
        return b'%b%b"}\n' % (body, hexlify(mac_of(key, body)))

    def append(self, key: bytes, bodies: Sequence[bytes]) -> tuple[bytes, Head]:
        """Return the lines of the records *bodies*, which follow, and the head after them.

        :param key: of the chain. The MACs are those of :func:`step` for each, in one loop.
        """
        inner_start, outer_start = keyed(key)
        pack = STEP.pack
        parts: list[bytes] = []
        previous = self.mac
        for sequence, body in enumerate(bodies, self.count):
            inner, outer = inner_start.copy(), outer_start.copy()
            inner.update(pack(3, 32, previous, 8, sequence, len(body)) + body)
            outer.update(inner.digest())
            previous = outer.digest()
            parts += (b'{"mac":"', hexlify(previous), b'","record":', body, b"}\n")
        data = b"".join(parts)
        return data, Head(self.file, self.count + len(bodies), previous, self.size + len(data))

    @staticmethod
    def decode(data: bytes, key: bytes) -> Head:
        """Return the head that *data* holds if its tag is right, else raise :class:`AuditError`."""
        head = Head.claimed(data)
        if head is None:
            raise AuditError("this is not a head of an audit file", rule="audit.head")
        if not hmac.compare_digest(head.encode(key), data):
            raise AuditError("the head of an audit file does not verify", rule="audit.head")
        return head

    @staticmethod
    def claimed(data: bytes) -> Head | None:
        """Return the head that *data* has the form of, unverified, or None."""
        found = _HEAD.match(data)
        if found is None:
            return None
        return Head(
            found[2].decode("ascii"),
            int(found[1]),
            bytes.fromhex(found[3].decode("ascii")),
            int(found[4]),
        )


#: Bytes of every head.
HEAD_SIZE = len(Head("0" * 32, 0, ZERO, 0).encode(ZERO))
