"""X25519 keys, by which sessions prove their ends, and the table of whose keys they are.

The one rule: 32 bytes have one text, and a text that is not exactly that is refused. Private bytes
are never printed, pickled, copied, compared or put into an error. A key has one owner, on the days
that the table says; a key that it does not list has none.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NoReturn, Self, SupportsIndex

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from safeser.gate.refusals import AuthenticationError, ConfigError
from safeser.gate.values import ANY_AUTHOR, UNKNOWN, check_principal

KEY_SIZE = 32

#: The prime of Curve25519 and edwards25519 (RFC 7748, section 4.1).
FIELD_PRIME = 2**255 - 19

_TEXT = re.compile(r"([a-z0-9]+):([A-Za-z0-9_-]{43})\Z")


def encode(data: bytes) -> str:
    """Return the base64url text of *data*, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode(text: str) -> bytes | None:
    """Return the 32 bytes that *text*, 43 characters of base64url, stands for.

    None if it is another text than :func:`encode` writes for them.
    """
    data = base64.urlsafe_b64decode(text + "=")
    # The last character has two spare bits: without this, four texts would name one key.
    return data if encode(data) == text else None


class KeepsSecrets:
    """Base of what holds secrets: not pickled or copied, since a copy is a second place to leak."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds secrets and is never pickled or copied")

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds secrets and is never pickled or copied")


@dataclass(frozen=True, slots=True)
class PublicHalf:
    """The public half of a key: 32 bytes, canonical, and not a point of low order.

    Encodings that the curve's functions would reduce to another key are refused, so that equal keys
    have equal bytes and no second spelling of a retired key passes a roster. Keys that sign
    (``safeser.identity.signing``) are the other subclass.

    :raises ConfigError: if *raw* is no such key.
    """

    raw: bytes

    #: How its text begins, what errors call it, and what they say that another one is not.
    prefix: ClassVar[str]
    called: ClassVar[str]
    owned: ClassVar[str]
    #: The coordinates of points of low order, which no private key has, and the bit of 32 bytes
    #: that belongs to no coordinate.
    low_order: ClassVar[frozenset[int]]
    sign_bit: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not isinstance(self.raw, bytes) or len(self.raw) != KEY_SIZE:
            raise ConfigError(f"{self.called} has 32 bytes", rule="config.key")
        coordinate = int.from_bytes(self.raw, "little") & ~self.sign_bit
        if coordinate >= FIELD_PRIME or coordinate in self.low_order:
            raise ConfigError(
                f"that is not {self.owned}",
                rule="config.key",
                fix="Copy the key again from its owner.",
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the key that *text* spells: its prefix, a colon and 43 characters of base64url.

        :raises ConfigError: if it spells none.
        """
        match = _TEXT.match(text) if isinstance(text, str) else None
        raw = decode(match[2]) if match and match[1] == cls.prefix else None
        if raw is None:
            raise ConfigError(
                f"that is not {cls.called}; one is '{cls.prefix}:' and 43 letters, digits, '-' or"
                " '_'",
                rule="config.key",
            )
        return cls(raw)

    @property
    def text(self) -> str:
        return f"{self.prefix}:{encode(self.raw)}"

    @property
    def fingerprint(self) -> str:
        """80 bits of the key's SHA-256 in four groups, for people to compare by eye or voice."""
        digest = base64.b32encode(hashlib.sha256(self.raw).digest()[:10]).decode("ascii").lower()
        return "-".join(digest[start : start + 4] for start in range(0, 16, 4))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class PublicKey(PublicHalf):
    """One X25519 public key, by which a session proves whose it is."""

    __slots__ = ()

    prefix, called, owned = "x25519", "a public key", "the public key of any private key"

    # The u-coordinates of the points whose order divides 8, on the curve and on its twist: with one
    # of these as public key the shared secret is a known constant (RFC 7748, section 6.1).
    low_order = frozenset(
        {
            0,
            1,
            FIELD_PRIME - 1,
            325606250916557431795983626356110631294008115727848805560023387167927233504,
            39382357235489614581723060781553021112529911719440698176882885853963445705823,
        }
    )


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
        """Return the 32 bytes that this key and *public* share (RFC 7748, section 6.1).

        :raises AuthenticationError: if they are zeros.
        """
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public.raw))
        except ValueError:
            # All zero: a low-order point. PublicKey refuses them; this is the library's own check.
            raise AuthenticationError("the peer could not be authenticated") from None

    def _secret_text(self) -> str:
        return encode(self._key.private_bytes_raw())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(public={self.public.text!r})"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a key is, on the days from *first* to *last*, both included, UTC; None is no bound."""

    principal: str
    first: datetime.date | None = None
    last: datetime.date | None = None

    def __post_init__(self) -> None:
        check_principal(self.principal)

    def has_on(self, day: datetime.date) -> bool:
        """Tell whether the key is its owner's on *day*."""
        return (self.first or day) <= day <= (self.last or day)


class Owners:
    """The roster as a frozen table: which one principal has a key on a day.

    :param owners: by their public keys, those of sessions and those that sign. Who makes the table
        leaves out keys that prove nothing, such as retired ones. A key of
        :data:`~safeser.gate.values.UNKNOWN` or :data:`~safeser.gate.values.ANY_AUTHOR` has no
        owner.
    """

    __slots__ = ("_owners",)

    def __init__(self, owners: Mapping[Hashable, Owner]) -> None:
        words = (UNKNOWN, ANY_AUTHOR)
        self._owners = {key: each for key, each in owners.items() if each.principal not in words}

    def of(self, key: Hashable, day: datetime.date) -> str | None:
        """Return the principal whose *key* is on *day*, or None."""
        owner = self._owners.get(key)
        return owner.principal if owner is not None and owner.has_on(day) else None
