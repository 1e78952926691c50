"""Identities of principals: an X25519 key for sessions and an Ed25519 key for signatures.

The one rule: private bytes leave an identity through :meth:`Identity.save` alone. They are never
printed, pickled, copied, compared or put into an error.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from safeser.errors import AuthenticationError, ConfigError
from safeser.identity.files import read_file, reason, refused, write_new
from safeser.identity.material import (
    FIELD_PRIME,
    KEY_SIZE,
    KeepsSecrets,
    decode,
    encode,
    fingerprint,
)
from safeser.identity.signing import SigningKey, VerifyingKey
from safeser.values import check_principal

__all__ = ["Identity", "PrivateKey", "PublicKey", "public_text"]

# The u-coordinates of the points whose order divides 8, on the curve and on its twist: with one of
# these as public key the shared secret is a known constant (RFC 7748, section 6.1).
_LOW_ORDER = frozenset(
    {
        0,
        1,
        FIELD_PRIME - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)

_PUBLIC_TEXT = re.compile(r"x25519:([A-Za-z0-9_-]{43})\Z")
_SECRET = rb"([A-Za-z0-9_-]{43})\n"
_IDENTITY_TEXT = re.compile(
    rb"safeser-identity-(?:1|(2))\n"
    rb"principal: ([A-Za-z0-9][A-Za-z0-9_.@-]{0,63})\n"
    rb"private: " + _SECRET + rb"(?(1)signing: " + _SECRET + rb")\Z"
)
_IDENTITY_MAX = 256  # the longest legal file has 201 bytes


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One X25519 public key: 32 bytes, canonical, and not a point of low order.

    Encodings that X25519 would reduce to another key are refused, so that equal keys have equal
    bytes and no second spelling of a retired key passes a roster.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.raw, bytes) or len(self.raw) != KEY_SIZE:
            raise ConfigError("a public key has 32 bytes", rule="config.key")
        coordinate = int.from_bytes(self.raw, "little")
        if coordinate >= FIELD_PRIME or coordinate in _LOW_ORDER:
            raise ConfigError(
                "that is not the public key of any private key",
                rule="config.key",
                fix="Copy the key again from its owner.",
            )

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Return the key that *text* spells, ``x25519:`` and 43 characters of base64url."""
        match = _PUBLIC_TEXT.match(text) if isinstance(text, str) else None
        raw = decode(match[1]) if match else None
        if raw is None:
            raise ConfigError(
                "that is not a public key; one is 'x25519:' and 43 letters, digits, '-' or '_'",
                rule="config.key",
            )
        return cls(raw)

    @property
    def text(self) -> str:
        return "x25519:" + encode(self.raw)

    @property
    def fingerprint(self) -> str:
        """80 bits of the key's SHA-256 in four groups, for people to compare by eye or voice."""
        return fingerprint(self.raw)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"PublicKey({self.text!r})"


class PrivateKey(KeepsSecrets):
    """One X25519 private key that can agree on shared secrets and show its public half."""

    __slots__ = ("_key", "public")

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> PrivateKey:
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, raw: bytes) -> PrivateKey:
        return cls(X25519PrivateKey.from_private_bytes(raw))

    def exchange(self, public: PublicKey) -> bytes:
        """Return the 32 bytes that this key and *public* share."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public.raw))
        except ValueError:
            # All zero: a low-order point. PublicKey refuses them; this is the library's own check.
            raise AuthenticationError("the peer could not be authenticated") from None

    def _secret_text(self) -> str:
        return encode(self._key.private_bytes_raw())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(public={self.public.text!r})"


class Identity(KeepsSecrets):
    """Who this process is: one principal and its private keys.

    :param signing: None for an identity of before there were signing keys, which signs nothing.
    """

    __slots__ = ("_principal", "_private", "_signing")

    def __init__(
        self, principal: str, private: PrivateKey, signing: SigningKey | None = None
    ) -> None:
        self._principal = check_principal(principal)
        self._private = private
        self._signing = signing

    @classmethod
    def generate(cls, principal: str) -> Identity:
        """Make new keys for *principal*; nothing is written until :meth:`save`."""
        return cls(principal, PrivateKey.generate(), SigningKey.generate())

    @property
    def principal(self) -> str:
        return self._principal

    @property
    def public(self) -> PublicKey:
        return self._private.public

    @property
    def verifying(self) -> VerifyingKey | None:
        """The public half of the signing key; None where there is none."""
        return None if self._signing is None else self._signing.public

    @property
    def public_text(self) -> str:
        """The public halves as a roster line begins, for the operator who lists them."""
        return public_text(self.public, self.verifying)

    def exchange(self, public: PublicKey) -> bytes:
        """Return the 32 secret bytes that this identity and the owner of *public* share."""
        return self._private.exchange(public)

    def sign(self, data: bytes) -> bytes:
        """Return this identity's Ed25519 signature over *data*, 64 bytes.

        *data* must begin with bytes that say what is signed: one key signs several things.

        :raises ConfigError: if the identity has no signing key.
        """
        self.require_verifying()
        assert self._signing is not None
        return self._signing.sign(data)

    def require_verifying(self) -> VerifyingKey:
        """Return the public half of the signing key.

        :raises ConfigError: if the identity has none.
        """
        if self._signing is None:
            raise ConfigError(
                f"the identity of {self.principal!r} has no signing key, which sealed submissions"
                " need",
                rule="config.signing",
                fix="Make a new key with 'safeser keys rotate', or with 'safeser keys new' where"
                " the roster is on another machine.",
            )
        return self._signing.public

    def __repr__(self) -> str:
        signing = "" if self.verifying is None else f", verifying={self.verifying.text!r}"
        return f"Identity(principal={self.principal!r}, public={self.public.text!r}{signing})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the keys to a new file at *path*, readable by its owner only, and sync it.

        Never replaces a file: an overwritten key cannot be brought back.
        """
        version = 1 if self._signing is None else 2
        lines = [f"safeser-identity-{version}", f"principal: {self.principal}"]
        lines.append(f"private: {self._private._secret_text()}")
        if self._signing is not None:
            lines.append(f"signing: {self._signing._secret_text()}")
        text = "\n".join((*lines, ""))
        try:
            write_new(Path(path), text.encode("ascii"), mode=0o600)
        except FileExistsError:
            raise refused(
                path, "exists already", fix="Choose another path; keys are never overwritten."
            ) from None
        except (OSError, ValueError) as error:
            raise refused(path, f"cannot be written: {reason(error)}") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Identity:
        """Read the key file at *path*, which belongs to this user or root and is read by no other.

        Groups of this process may read it, and symbolic links of this user or root may lead to it,
        as with mounted secrets. A file of format 1 has no signing key.

        Raises :class:`ConfigError` that names the path and the fix, never the content.
        """
        data = read_file(
            path, "private", limit=_IDENTITY_MAX, rule="config.identity", make="safeser keys new"
        )
        match = _IDENTITY_TEXT.match(data)
        texts = [each.decode("ascii") for each in match.groups()[2:] if each] if match else []
        secrets = [raw for text in texts if (raw := decode(text)) is not None]
        if match is None or len(secrets) < len(texts):
            raise refused(
                path,
                "is not an identity file",
                fix="Make one with 'safeser keys new', or name the right file.",
            )
        return cls(
            match[2].decode("ascii"),
            PrivateKey.from_bytes(secrets[0]),
            *map(SigningKey.from_bytes, secrets[1:]),
        )


def public_text(public: PublicKey, verifying: VerifyingKey | None) -> str:
    """Return both public halves as one text, as a roster line begins."""
    return public.text if verifying is None else f"{public.text} {verifying.text}"
