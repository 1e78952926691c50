"""Noise_XX_25519_AESGCM_SHA256, as revision 34 of the Noise Protocol Framework writes it.

The one rule: nothing is added, left out or negotiated. The names and the order of the operations
are the specification's (sections 5 and 7.5), so that the two can be read side by side.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from safeser.gate.key_pairs import KeepsSecrets, PrivateKey, PublicKey
from safeser.gate.refusals import AuthenticationError, ConfigError

PROTOCOL_NAME = b"Noise_XX_25519_AESGCM_SHA256"
DH_SIZE = 32
TAG_SIZE = 16
MAX_MESSAGE = 65535  # bytes; section 3

# Section 7.5. Even messages are the initiator's, odd ones the responder's.
_PATTERN_XX = (("e",), ("e", "ee", "s", "es"), ("s", "se"))

_OPAQUE = "the peer could not be authenticated"


class HandshakeRefused(AuthenticationError):
    """A handshake failed. Everything that a peer or a caller may see is constant.

    :ivar detail: what went wrong, for this process's own log; carries no secret, is not in the
        message, and is lost when the error is pickled or copied.
    :ivar key: fingerprint of the key that the peer proved, where no principal has it; likewise.
    """

    def __init__(self, detail: str, *, key: str = "") -> None:
        super().__init__(_OPAQUE)
        self.detail = detail
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        return AuthenticationError, (_OPAQUE,)


class StaticKey(Protocol):
    """A long-term key pair: an Identity, or a PrivateKey."""

    @property
    def public(self) -> PublicKey: ...

    def exchange(self, public: PublicKey) -> bytes: ...


def _hkdf(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes]:
    """HKDF of section 4.3 with two outputs."""
    temp_key = hmac.digest(chaining_key, material, "sha256")
    first = hmac.digest(temp_key, b"\x01", "sha256")
    return first, hmac.digest(temp_key, first + b"\x02", "sha256")


class CipherState(KeepsSecrets):
    """One AES-256-GCM key and the count of messages under it."""

    __slots__ = ("_cipher", "_nonce")

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._nonce = 0

    def _next_nonce(self) -> bytes:
        if self._nonce >= 2**64 - 1:  # section 5.1 reserves the last one
            raise HandshakeRefused("the nonces of a cipher state are used up")
        nonce = bytes(4) + self._nonce.to_bytes(8, "big")  # section 12.3
        self._nonce += 1
        return nonce

    def encrypt_with_ad(self, data: bytes, plaintext: bytes) -> bytes:
        return self._cipher.encrypt(self._next_nonce(), plaintext, data)

    def decrypt_with_ad(self, data: bytes, ciphertext: bytes) -> bytes:
        # A failure spends the nonce too; the handshake ends at the first one.
        try:
            return self._cipher.decrypt(self._next_nonce(), ciphertext, data)
        except InvalidTag:
            raise HandshakeRefused("a handshake message does not authenticate") from None


class SymmetricState(KeepsSecrets):
    """The running hash and chaining key of one handshake."""

    __slots__ = ("_chaining_key", "_cipher", "hash")

    def __init__(self, prologue: bytes) -> None:
        self.hash = PROTOCOL_NAME.ljust(hashlib.sha256().digest_size, b"\0")
        self._chaining_key = self.hash
        self._cipher: CipherState | None = None
        self.mix_hash(prologue)

    def mix_key(self, material: bytes) -> None:
        self._chaining_key, key = _hkdf(self._chaining_key, material)
        self._cipher = CipherState(key)

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        if self._cipher is not None:
            plaintext = self._cipher.encrypt_with_ad(self.hash, plaintext)
        self.mix_hash(plaintext)
        return plaintext

    def decrypt_and_hash(self, ciphertext: bytes) -> bytes:
        cipher = self._cipher
        plaintext = ciphertext if cipher is None else cipher.decrypt_with_ad(self.hash, ciphertext)
        self.mix_hash(ciphertext)
        return plaintext

    @property
    def tag_size(self) -> int:
        return 0 if self._cipher is None else TAG_SIZE

    def split(self) -> tuple[bytes, bytes]:
        """Return the initiator's sending key and the responder's."""
        return _hkdf(self._chaining_key, b"")


class HandshakeState(KeepsSecrets):
    """One side of one XX handshake (section 5.3); messages are written and read in turns.

    Each method raises :class:`HandshakeRefused`, after which the caller drops the state.

    :param generate: makes the ephemeral key; a parameter for test vectors only.
    """

    __slots__ = ("_ephemeral", "_generate", "_initiator", "_remote_e", "_static", "_step",
                 "_symmetric", "remote_static")  # fmt: skip

    def __init__(
        self,
        *,
        initiator: bool,
        prologue: bytes,
        static: StaticKey,
        generate: Callable[[], PrivateKey] = PrivateKey.generate,
    ) -> None:
        self._initiator = initiator
        self._static = static
        self._generate = generate
        self._ephemeral: PrivateKey | None = None
        self._remote_e: PublicKey | None = None
        self.remote_static: PublicKey | None = None
        self._step = 0
        self._symmetric = SymmetricState(prologue)

    @property
    def complete(self) -> bool:
        return self._step == len(_PATTERN_XX)

    @property
    def hash(self) -> bytes:
        """The handshake hash, which names the session once the handshake is complete."""
        return self._symmetric.hash

    def write_message(self, payload: bytes) -> bytes:
        message = b""
        for item in self._next_tokens(writing=True):
            if item == "e":
                self._ephemeral = self._generate()
                self._symmetric.mix_hash(self._ephemeral.public.raw)
                message += self._ephemeral.public.raw
            elif item == "s":
                message += self._symmetric.encrypt_and_hash(self._static.public.raw)
            else:
                self._symmetric.mix_key(self._agree(item))
        return message + self._symmetric.encrypt_and_hash(payload)

    def read_message(self, message: bytes) -> bytes:
        if len(message) > MAX_MESSAGE:
            raise HandshakeRefused("a handshake message is too long")
        rest = message
        for item in self._next_tokens(writing=False):
            if item == "e":
                raw, rest = _cut(rest, DH_SIZE)
                self._symmetric.mix_hash(raw)
                remote = _public_key(raw)
                # A reflected ephemeral key means that our own messages are sent back.
                if self._ephemeral is not None and remote == self._ephemeral.public:
                    raise HandshakeRefused("the peer sent our own ephemeral key back")
                self._remote_e = remote
            elif item == "s":
                raw, rest = _cut(rest, DH_SIZE + self._symmetric.tag_size)
                self.remote_static = _public_key(self._symmetric.decrypt_and_hash(raw))
            else:
                self._symmetric.mix_key(self._agree(item))
        return self._symmetric.decrypt_and_hash(rest)

    def split(self) -> tuple[bytes, bytes]:
        """Return the keys of a complete handshake: from initiator to responder, and back."""
        if not self.complete:
            raise HandshakeRefused("the handshake is not complete")
        return self._symmetric.split()

    def _next_tokens(self, *, writing: bool) -> tuple[str, ...]:
        mine = self._step % 2 == (0 if self._initiator else 1)
        if self.complete or mine is not writing:
            raise HandshakeRefused("a handshake message is out of turn")
        self._step += 1
        return _PATTERN_XX[self._step - 1]

    def _agree(self, item: str) -> bytes:
        """DH of section 7.1: the token names the initiator's key first, then the responder's."""
        mine, theirs = (item[0], item[1]) if self._initiator else (item[1], item[0])
        local = self._ephemeral if mine == "e" else self._static
        remote = self._remote_e if theirs == "e" else self.remote_static
        assert local is not None
        assert remote is not None
        return local.exchange(remote)


def _cut(data: bytes, size: int) -> tuple[bytes, bytes]:
    if len(data) < size:
        raise HandshakeRefused("a handshake message is too short")
    return data[:size], data[size:]


def _public_key(raw: bytes) -> PublicKey:
    try:
        return PublicKey(raw)
    except ConfigError:
        raise HandshakeRefused("the peer's key is of low order or not canonical") from None
