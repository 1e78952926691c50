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
from typing import NamedTuple

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from safeser.audit.key import AuditKey
from safeser.audit.record import MAX_INT, MAX_LINE, split
from safeser.errors import AuditError

#: What stands for the MAC before the first record; the key is the file's own, so no two collide.
ZERO = bytes(32)

_BLOCK = 64  # bytes of a block of SHA-256, which no key here is longer than
# Where the record of a line begins, and what may follow a number in it.
_BODY_AT = len('{"mac":"') + 64 + len('","record":')
_ENDS = (b",", b"}")

_STEP = struct.Struct("<QQ32sQQQ")
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


_MOVE = pae(b"safeser audit v1", b"move")


def step(key: bytes, previous: bytes, sequence: int, body: bytes) -> bytes:
    """Return the MAC of one record. The packed prefix is PAE(previous, sequence, body) exactly."""
    prefix = _STEP.pack(3, 32, previous, 8, sequence, len(body))
    return _mac(key, prefix + body)


def chained(
    key: bytes, previous: bytes, sequence: int, bodies: Sequence[bytes]
) -> tuple[bytes, bytes]:
    """Return the lines of the records *bodies*, the first of which is number *sequence*.

    With them the MAC of the last. The same as :func:`step` for each, in one loop.
    """
    inner_start, outer_start = _keyed(key)
    pack = _STEP.pack
    parts: list[bytes] = []
    for body in bodies:
        inner, outer = inner_start.copy(), outer_start.copy()
        inner.update(pack(3, 32, previous, 8, sequence, len(body)) + body)
        outer.update(inner.digest())
        previous = outer.digest()
        parts += (b'{"mac":"', hexlify(previous), b'","record":', body, b"}\n")
        sequence += 1
    return b"".join(parts), previous


def _mac(key: bytes, data: bytes) -> bytes:
    """Return HMAC-SHA256 (RFC 2104) of *data*."""
    inner, outer = _keyed(key)
    inner, outer = inner.copy(), outer.copy()
    inner.update(data)
    outer.update(inner.digest())
    return outer.digest()


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Return the two hashes of HMAC with the key, of 32 bytes, taken in.

    To take in the key takes as long as to hash a record, and a copy of these takes half the time of
    a copy of the HMAC objects of hmac or cryptography, of which verification makes millions.
    """
    block = key.ljust(_BLOCK, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
    return inner, hashlib.sha256(bytes(byte ^ 0x5C for byte in block))


class Verified(NamedTuple):
    """Records that verified, one after the other.

    :param records: how many.
    :param mac: of the last.
    :param first: the earliest of their times, and *last* the latest, and *time* that of the last.
    """

    records: int
    mac: bytes
    first: int
    last: int
    time: int


def verified_start(key: bytes, sequence: int, previous: bytes, raws: Sequence[bytes]) -> Verified:
    """Verify *raws* from the first on, as far as each is the record that follows the one before.

    What this takes, a scan would take as well, and the scan says what the line is before which this
    ends: one loop for the millions that nothing is wrong with.

    :param key: of the chain.
    :param sequence: number of the record that the first is to be, after the MAC *previous*.
    """
    inner_start, outer_start = _keyed(key)
    pack = _STEP.pack
    start = sequence
    first, last, time = MAX_INT, -1, -1
    for raw in raws:
        body = raw[_BODY_AT:-1]
        inner, outer = inner_start.copy(), outer_start.copy()
        inner.update(pack(3, 32, previous, 8, sequence, len(body)) + body)
        outer.update(inner.digest())
        mac = outer.digest()
        # MACs in the files are not secret, so the time of the comparison reveals nothing.
        head = b'{"mac":"%b","record":' % mac.hex().encode("ascii")
        if raw[:_BODY_AT] != head or raw[-1:] != b"}" or len(raw) > MAX_LINE:
            break
        # A quotation mark inside a JSON string has a backslash before it: neither is found there.
        at = body.rfind(b',"time":') + 8
        digits = body[at : at + 16]
        if b',"seq":%d,' % sequence not in body or not digits.isdigit():
            break
        if body[at + 16 : at + 17] not in _ENDS or digits[:1] == b"0":
            break
        time = int(digits)
        first, last = (time if time < first else first), (time if time > last else last)
        previous = mac
        sequence += 1
    return Verified(sequence - start, previous, first, last, time)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one file: one for its chain, one for its head."""

    chain: bytes = field(repr=False)
    head: bytes = field(repr=False)


def file_keys(key: AuditKey, *, directory: str, file: str) -> Keys:
    """Return the keys of the log file *file* of the directory whose id is *directory*.

    Both ids are in the derivation, so a file that is copied into another directory of the same
    owner, or takes the place of another file, does not verify there.
    """
    return Keys(
        _derive(key, b"file chain", directory, file), _derive(key, b"file head", directory, file)
    )


def index_keys(key: AuditKey, *, directory: str) -> Keys:
    """Return the keys of a directory's index."""
    return Keys(_derive(key, b"index chain", directory), _derive(key, b"index head", directory))


def registry_tag(
    key: AuditKey, *, directory: str, first: int, count: int, digest: bytes, time: int
) -> bytes:
    """Return what vouches for entries of an index under *key*, which made none of them.

    :param first: number of the first entry, and *count* that of the one after the last.
    :param digest: of these entries.
    :param time: of the record that states all this.
    """
    numbers = struct.pack("<QQQ", first, count, time)
    return _mac(_derive(key, b"index registry", directory), pae(numbers, digest))


def key_after(key: AuditKey, moves: int = 1) -> AuditKey:
    """Return what *key* is after so many moves. From there no key before can be computed.

    The forward security of Bellare and Yee (2003) and Schneier and Kelsey (1999), with a key for
    each file and not for each record: ``k_(i+1) = HMAC-SHA256(k_i, PAE(version, "move"))``.
    """
    secret = key.secret
    for _ in range(moves):
        secret = hmac.digest(secret, _MOVE, "sha256")
    return AuditKey(secret, key.moves + moves)


def forget_keys() -> None:
    """Forget the keys of chains that were used lately; they are derived again where needed."""
    _keyed.cache_clear()


def _derive(key: AuditKey, purpose: bytes, *ids: str) -> bytes:
    info = pae(b"safeser audit v1", purpose, *(each.encode("ascii") for each in ids))
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key.secret)


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
        return b'%b%b"}\n' % (body, hexlify(_mac(key, body)))

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


def extends(raw: bytes, keys: Keys, head: Head) -> Head | None:
    """Return the head after *raw*, if that is the record that follows *head*."""
    parts = split(raw)
    if parts is None or step(keys.chain, head.mac, head.count, parts[1]) != parts[0]:
        return None
    return Head(head.file, head.count + 1, parts[0], head.size + len(raw) + 1)


#: Bytes of every head.
HEAD_SIZE = len(Head("0" * 32, 0, ZERO, 0).encode(ZERO))
