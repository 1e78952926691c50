"""Detached messages: sealed now and opened later, elsewhere, without a session between.

The one rule: nothing behind the fixed fields is interpreted before the tag over them, or the
signature, holds; no plaintext leaves before all of them do. The steps of :func:`unseal`, in order:

1. the HMAC over fields and block holds, which commits to both keys; or, for many readers, the
   signature over all that there is;
2. the block is decrypted, and its lengths must add up to what the fields announced;
3. the other parts are decrypted, and the last HMAC over all tags holds;
4. a signature inside holds over what was decrypted.

Each message has keys of its own, made with a salt, so that no nonce is used twice. No session gives
freshness: :meth:`Facts.check` compares what a message is about, and its dates. Clock, salt and
signing key come from the caller.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM

from safeser.gate.chain import hmac_of, pae
from safeser.gate.direction import NONCE, PIECE, wrong_part
from safeser.gate.format import (
    BEGIN,
    GCM_TAG_SIZE,
    HMAC_SIZE,
    MAGIC,
    SMALL,
    Buffer,
    all_flat,
    check_sizes,
    cut_at,
    grouped,
    longest_block,
    longest_rest,
    malformed,
    pack_block,
    parse_block,
    rest_size,
)
from safeser.gate.key_pairs import KeepsSecrets
from safeser.gate.refusals import ConfigError, EnvelopeError
from safeser.gate.values import Limits

#: The message type of section 6 of the envelope; those below it are a session's.
DETACHED = 3

#: Who may open a message and what proves its sender: the static keys of two principals; these and
#: the sender's signature; a shared secret; the signature alone, for many readers, not encrypted.
PAIR, SIGNED, SHARED, READERS = 1, 2, 3, 4

#: Magic, type, mode, reserved; bytes of the block, its GCM tag aside, and of all behind it; salt;
#: the keys of sender and recipient.
_FIELDS = struct.Struct("<4sBB2xQQ32s32s32s")
SALT_SIZE = 32
SIGNATURE_SIZE = 64

#: What stands in place of a key where there is none.
NO_KEY = bytes(32)

#: How the header of a message begins: id, made, seconds to live, bytes of what it is about.
_FACTS = struct.Struct("<16sQQH")
ID_SIZE = 16
MAX_ABOUT = 1024

#: How ``about`` names a direction in a shared box.
_DIRECTION = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9_.@-]{0,63}) -> ([A-Za-z0-9][A-Za-z0-9_.@-]{0,63})(?:: |\Z)"
)
TWO_ENDS = "Name the end that seals, then the end that opens: about='client -> server: tasks'."
_MOST_SECONDS = (1 << 53) - 1  # what every reader of the log still holds exactly

#: Seconds that a sender's clock may be ahead of the reader's.
FUTURE = 5

#: What the keys of a message are for.
_PURPOSES = (
    b"safeser envelope 2 detached HMAC-SHA256",
    b"safeser envelope 2 detached AES-256-GCM",
)
#: What the signature is made over begins so: the same key signs sealed calls.
_SIGNED = b"safeser detached message v2\n"

#: What the two tags of a message begin with, so that neither is taken for the other.
_FIRST, _LAST = b"\1", b"\2"

Sign = Callable[[bytes], bytes]
Verify = Callable[[bytes, bytes], bool]


class Facts(NamedTuple):
    """What a message says of itself, authentic once it is unsealed.

    :param id: 16 random bytes.
    :param made: when it was sealed, seconds since 1970 on the sender's clock.
    :param ttl: seconds after that in which it opens; 0 for no end.
    :param about: what it is about; it opens about nothing else.
    """

    id: bytes
    made: int
    ttl: int
    about: str

    @property
    def ends(self) -> int | None:
        """The last second in which it opens; None for no end."""
        return self.made + self.ttl if self.ttl else None

    def check(self, about: str, now: float) -> None:
        """Refuse a message that is about something else, expired or of the future.

        :raises EnvelopeError: by rules ``box.about``, ``box.expired`` and ``box.future``.
        """
        if self.about != about:  # neither is said: both may be bearer tokens
            raise EnvelopeError(
                "a message is about something else than what it is opened about",
                rule="box.about",
                fix="Open it about what it was sealed about; a message that was moved from another"
                " queue, key or file is refused.",
            )
        if self.made > now + FUTURE:
            raise EnvelopeError(
                f"a message is dated {self.made - int(now)} seconds ahead of this machine's clock",
                rule="box.future",
                fix=f"Set both clocks; {FUTURE} seconds of difference are allowed.",
            )
        if self.ends is not None and now > self.ends:
            raise EnvelopeError(
                f"a message expired {int(now) - self.ends} seconds ago",
                rule="box.expired",
                fix="Seal it again, or with a longer ttl.",
            )


def encode_about(about: object) -> bytes:
    """Return *about* as bytes.

    :raises ConfigError: if it is no text, empty, or too long.
    """
    try:
        data = about.encode("utf-8") if isinstance(about, str) else b""
    except UnicodeEncodeError:
        data = b""
    if not 0 < len(data) <= MAX_ABOUT:
        raise ConfigError(
            f"what a message is about is a text of 1 to {MAX_ABOUT} bytes",
            rule="box.about-text",
            fix='Name the queue, key or file: about="tasks".',
        )
    return data


def direction(about: str) -> tuple[str, str] | None:
    """Return the ends between which *about* names a direction; None if it names none.

    :raises ConfigError: if it looks like one and is none.
    """
    found = _DIRECTION.match(about)
    if found is None and "->" not in about:
        return None
    if found is None or found[1] == found[2]:
        raise ConfigError("'->' in about names no direction", rule="box.direction", fix=TWO_ENDS)
    return found[1], found[2]


def _pack_facts(facts: Facts) -> bytes:
    about = encode_about(facts.about)
    if not _are_right(facts):
        raise ConfigError("the id or a number of seconds is out of range", rule="box.seconds")
    return _FACTS.pack(facts.id, facts.made, facts.ttl, len(about)) + about


def _parse_facts(header: bytes) -> tuple[Facts, bytes]:
    """Return what an authentic *header* begins with, and the rest of it."""
    if len(header) >= _FACTS.size:
        identity, made, ttl, size = _FACTS.unpack_from(header)
        at = _FACTS.size + size
        try:
            facts = Facts(identity, made, ttl, header[_FACTS.size : at].decode("utf-8"))
        except UnicodeDecodeError:
            at = 0
        if 0 < size <= MAX_ABOUT and _FACTS.size < at <= len(header) and _are_right(facts):
            return facts, header[at:]
    raise malformed("a detached message has malformed facts")


def _are_right(facts: Facts) -> bool:
    in_range = 0 <= facts.made <= _MOST_SECONDS and 0 <= facts.ttl <= _MOST_SECONDS
    return in_range and len(facts.id) == ID_SIZE


class Ends(KeepsSecrets):
    """Sender and recipient of messages of one mode, in one direction, and their secret.

    :param mode: :data:`PAIR`, :data:`SIGNED`, :data:`SHARED` or :data:`READERS`.
    :param sender: names and keys; the recipient's are empty and :data:`NO_KEY` for many readers. In
        place of keys, a shared secret has its public id.
    :param secret: 32 bytes that both ends share; empty for many readers.
    """

    __slots__ = ("_infos", "_names", "_secret", "id", "mode", "recipient", "recipient_key",
                 "sender", "sender_key")  # fmt: skip

    def __init__(
        self,
        mode: int,
        *,
        sender: str,
        recipient: str,
        sender_key: bytes,
        recipient_key: bytes,
        secret: bytes,
    ) -> None:
        self.mode = mode
        self.sender, self.sender_key = sender, sender_key
        self.recipient, self.recipient_key = recipient, recipient_key
        self._names = (sender.encode("utf-8"), recipient.encode("utf-8"))
        said = (bytes((mode,)), sender_key, recipient_key, *self._names)
        self._infos = tuple(pae(purpose, *said) + b"\1" for purpose in _PURPOSES)
        self._secret = secret
        #: Names the ends in a log; it is made of nothing secret.
        self.id = hashlib.sha256(pae(*said)).digest()

    def keys(self, salt: bytes) -> tuple[bytes, bytes]:
        """Return the keys of HMAC and of GCM for one message, by HKDF-SHA256 (RFC 5869)."""
        key = hmac_of(salt, self._secret)
        for_hmac, for_gcm = self._infos
        return hmac_of(key, for_hmac), hmac_of(key, for_gcm)

    def signed(self, fields: bytes, content: Sequence[Buffer]) -> bytes:
        """Return what a signature is made over.

        *fields* say version, mode, salt and keys; *content* begins with about, id and dates.
        """
        digest = hashlib.sha256()
        for each in content:
            digest.update(each)
        return _SIGNED + pae(fields, *self._names, digest.digest())


def seal(
    ends: Ends,
    facts: Facts,
    header: bytes,
    frames: Sequence[Buffer],
    *,
    salt: bytes,
    limits: Limits,
    sign: Sign | None = None,
) -> bytes:
    """Return one message.

    :param salt: 32 random bytes, never used before.
    :param sign: signs; for modes :data:`SIGNED` and :data:`READERS`.
    :raises EnvelopeError: if *limits* do not allow it.
    """
    header = _pack_facts(facts) + header
    views = all_flat(frames)
    lengths = [*map(len, views)]
    size = check_sizes(limits, len(header), lengths)
    counts, sizes = ([len(views)], [size]) if size < SMALL else grouped(lengths)
    block = pack_block(header, lengths, views[: counts[0]])
    parts: list[memoryview] = []
    for count in counts[1:]:
        at = len(views) - sum(counts[len(parts) + 1 :])
        group = views[at : at + count]
        parts.append(group[0] if count == 1 else memoryview(b"".join(group)))
    encrypted = ends.mode != READERS
    rest = rest_size(sizes) if encrypted else sum(sizes[1:])
    inside = SIGNATURE_SIZE if ends.mode == SIGNED else 0
    fields = _FIELDS.pack(
        MAGIC,
        DETACHED,
        ends.mode,
        len(block) + inside,
        rest,
        salt,
        ends.sender_key,
        ends.recipient_key,
    )
    if sign is not None:
        signature = sign(ends.signed(fields, [block, *parts]))
        if not encrypted:
            return b"".join((fields, signature, block, *parts))
        block = signature + block
    for_hmac, for_gcm = ends.keys(salt)
    gcm = AESGCM(for_gcm)
    sealed = gcm.encrypt(NONCE.pack(0, 0), block, None)
    covered = [fields, sealed[-GCM_TAG_SIZE:]]
    tag = hmac_of(for_hmac, _FIRST + b"".join(covered))
    out = [fields, tag, sealed]
    if parts:
        for index, part in enumerate(parts, 1):
            out.append(gcm.encrypt(NONCE.pack(0, index), part, None))
            covered.append(out[-1][-GCM_TAG_SIZE:])
        out.append(hmac_of(for_hmac, _LAST + b"".join(covered)))
    return b"".join(out)


class Sealed(NamedTuple):
    """A message whose fields are well-formed and add up to its size; nothing of it is authentic.

    :param proof: the HMAC, or the signature of a message for many readers.
    """

    mode: int
    sender_key: bytes
    recipient_key: bytes
    salt: bytes
    fields: bytes
    proof: bytes
    block: memoryview
    rest: memoryview


class Message(NamedTuple):
    """An authentic message; its frames are in memory that nothing else refers to."""

    facts: Facts
    header: bytes
    frames: tuple[memoryview, ...]


def parse(data: Buffer, limits: Limits) -> Sealed:
    """Return the fixed fields of *data* and what is behind them.

    :raises EnvelopeError: if it is no detached message of this version, or not a whole one.
    """
    try:
        (view,) = all_flat([data])
    except TypeError:
        raise malformed("a detached message is bytes") from None
    fields = bytes(view[: _FIELDS.size])
    if not fields.startswith(MAGIC):
        other = fields.startswith(MAGIC[:3])
        raise malformed(f"this is no detached message{' of this version' if other else ''}")
    if fields.startswith(tuple(BEGIN.values())):
        raise malformed("this is a message of a connection, not a detached one")
    if len(fields) < _FIELDS.size:
        raise malformed("a detached message is cut off")
    _, kind, mode, block, rest, salt, sender, recipient = _FIELDS.unpack(fields)
    if kind != DETACHED or not PAIR <= mode <= READERS or fields[6:8] != b"\0\0":
        raise malformed("this is no detached message of this version")
    tag, proof = (0, SIGNATURE_SIZE) if mode == READERS else (GCM_TAG_SIZE, HMAC_SIZE)
    longest = longest_block(limits.max_header, limits.max_frames) - GCM_TAG_SIZE + SIGNATURE_SIZE
    if block > longest or rest > longest_rest(limits.max_bytes):
        raise EnvelopeError(
            "a detached message is over the limits",
            rule="envelope.limits",
            fix="Send less at once, or raise the limits in the policy.",
        )
    start = _FIELDS.size + proof
    end = start + block + tag
    if len(view) != end + rest:
        less = len(view) < end + rest
        raise malformed(f"a detached message is {'cut off' if less else 'longer than it says'}")
    said = (mode, sender, recipient, salt, fields)
    return Sealed(*said, bytes(view[_FIELDS.size : start]), view[start:end], view[end:])


def unseal(sealed: Sealed, ends: Ends, *, limits: Limits, verify: Verify | None = None) -> Message:
    """Return what *sealed* holds, of which the sender of *ends* is proven.

    :param ends: of the mode and the keys of *sealed*, by which the caller found them.
    :param verify: tells whether a signature over bytes is the sender's; for modes :data:`SIGNED`
        and :data:`READERS`.
    :raises EnvelopeError: if it does not authenticate, or is malformed inside.
    """
    if (ends.mode, ends.sender_key, ends.recipient_key) != (sealed.mode, *sealed[1:3]):
        raise TypeError("these are the ends of other messages")
    fields = sealed.fields
    if sealed.mode == READERS:
        # Copied, so that what is verified is what is read.
        plain, rest = bytes(sealed.block), memoryview(bytearray(sealed.rest))
        _check_signature(verify, sealed.proof, ends.signed(fields, [plain, rest]))  # step 1
        block = parse_block(plain, len(rest), limits, tags=False)  # step 2
        memory = [block.inside, *cut_at(rest, block.sizes[1:])]
        return _message(block.header, memory, block.counts, block.lengths)
    for_hmac, for_gcm = ends.keys(sealed.salt)
    gcm = AESGCM(for_gcm)
    covered = [fields, bytes(sealed.block[-GCM_TAG_SIZE:])]
    _check_tag(for_hmac, _FIRST, covered, sealed.proof)  # step 1
    plain, signature = _decrypt(gcm, 0, sealed.block), b""  # step 2
    if sealed.mode == SIGNED:
        plain, signature = plain[SIGNATURE_SIZE:], plain[:SIGNATURE_SIZE]
    block = parse_block(plain, len(sealed.rest), limits)
    memory = [block.inside]
    if len(sealed.rest):  # step 3
        pieces = cut_at(sealed.rest, [size + GCM_TAG_SIZE for size in block.sizes[1:]])
        covered += [bytes(piece[-GCM_TAG_SIZE:]) for piece in pieces]
        _check_tag(for_hmac, _LAST, covered, sealed.rest[-HMAC_SIZE:])
        for index, piece in enumerate(pieces, 1):
            if len(piece) < SMALL:
                memory.append(memoryview(bytearray(_decrypt(gcm, index, piece))))
            else:
                memory.append(_decrypt_large(for_gcm, index, piece))
    if sealed.mode == SIGNED:  # step 4
        _check_signature(verify, signature, ends.signed(fields, [plain, *memory[1:]]))
    return _message(block.header, memory, block.counts, block.lengths)


def _message(
    header: bytes, memory: Sequence[memoryview], counts: Sequence[int], lengths: Sequence[int]
) -> Message:
    facts, header = _parse_facts(header)
    frames: list[memoryview] = []
    for part, count in zip(memory, counts, strict=True):
        frames += cut_at(part, lengths[len(frames) : len(frames) + count])
    return Message(facts, header, tuple(frames))


def _check_tag(key: bytes, first: bytes, covered: Sequence[bytes], given: Buffer) -> None:
    if not hmac.compare_digest(hmac_of(key, first + b"".join(covered)), given):
        raise EnvelopeError("a message does not authenticate", rule="envelope.mac")


def _check_signature(verify: Verify | None, signature: bytes, data: bytes) -> None:
    if verify is None or not verify(signature, data):
        raise EnvelopeError("the signature of a message does not verify", rule="box.signature")


def _decrypt(gcm: AESGCM, index: int, sealed: memoryview) -> bytes:
    try:
        return gcm.decrypt(NONCE.pack(0, index), sealed, None)
    except InvalidTag:
        raise wrong_part() from None


def _decrypt_large(key: bytes, index: int, sealed: memoryview) -> memoryview:
    """Return the plaintext in memory that is taken for it, and overwritten if its tag is wrong."""
    import numpy as np  # noqa: PLC0415 - what has no such part starts sooner

    memory = np.empty(len(sealed) - GCM_TAG_SIZE, np.uint8).data
    context = Cipher(AES256(key), GCM(NONCE.pack(0, index))).decryptor()
    for at in range(0, len(memory), PIECE):
        end = min(at + PIECE, len(memory))
        context.update_into(sealed[at:end], memory[at:end])
    try:
        context.finalize_with_tag(bytes(sealed[-GCM_TAG_SIZE:]))
    except InvalidTag:
        memory[:] = bytes(len(memory))
        raise wrong_part() from None
    return memory
