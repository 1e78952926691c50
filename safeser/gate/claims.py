"""What each side of a handshake claims about itself, in one canonical encoding.

The one rule: a block of bytes either is exactly what :meth:`Claims.encode` would write, or it is
refused. All blocks have one size, so nothing on the wire says how long a name is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from safeser.gate import canonical
from safeser.gate.refusals import ConfigError, EnvelopeError
from safeser.gate.values import NAME, check_principal

#: The longest claims have 280 bytes and a length of two.
CLAIMS_SIZE = 320

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_REVISION_MAX = 2**63 - 1
_FIELDS = ("principal", "peer", "policy", "revision", "sha256")


@dataclass(frozen=True, slots=True)
class Claims:
    """What one end claims in a handshake: its principal, the expected peer, and its policy.

    :param principal: the principal of the end that writes the claims.
    :param peer: the principal that it expects at the other end; None in the responder's claims,
        which are written before it can know.
    :param policy: name of the speaker's policy. Self-reported, like the next two: the peer's
        honesty is all that vouches for them.
    :param revision: revision of that policy.
    :param sha256: hash of that policy, 64 lower-case hexadecimal digits.
    :raises ConfigError: if one of them is not as :meth:`encode` could write it.
    """

    principal: str
    peer: str | None
    policy: str
    revision: int
    sha256: str

    def __post_init__(self) -> None:
        check_principal(self.principal)
        if self.peer is not None:
            check_principal(self.peer)
        if not isinstance(self.policy, str) or not NAME.match(self.policy):
            raise ConfigError(
                "a policy's name must be 1 to 64 letters, digits, '_', '-', '.' or '@',"
                " and start with a letter or digit",
                rule="config.policy-name",
            )
        revision = self.revision
        if not isinstance(revision, int) or isinstance(revision, bool):
            raise ConfigError("a revision must be an integer", rule="config.revision")
        if not 0 <= revision <= _REVISION_MAX:
            raise ConfigError("a revision must fit 63 bits", rule="config.revision")
        if not isinstance(self.sha256, str) or not _SHA256.match(self.sha256):
            raise ConfigError(
                "a policy's hash must be 64 lower-case hexadecimal digits", rule="config.hash"
            )

    def encode(self) -> bytes:
        """Return the claims as one block of :data:`CLAIMS_SIZE` bytes."""
        values = (self.principal, self.peer, self.policy, self.revision)
        fields = dict(zip(_FIELDS, (*values, bytes.fromhex(self.sha256)), strict=True))
        packed = canonical.pack(fields)
        return (len(packed).to_bytes(2, "little") + packed).ljust(CLAIMS_SIZE, b"\0")

    @classmethod
    def decode(cls, block: bytes) -> Claims:
        """Return the claims that *block* holds; any other bytes are an :class:`EnvelopeError`."""
        claims = cls._read(block)
        # Key order, integer widths, padding and spare bytes: all that could vary is compared here.
        if claims is None or claims.encode() != block:
            raise EnvelopeError("handshake claims are malformed", rule="envelope.claims")
        return claims

    @classmethod
    def _read(cls, block: bytes) -> Claims | None:
        if len(block) != CLAIMS_SIZE:
            return None
        size = int.from_bytes(block[:2], "little")
        try:
            fields = canonical.unpack(block[2 : 2 + size])
        except ValueError:
            return None
        if not isinstance(fields, dict) or tuple(fields) != _FIELDS:
            return None
        digest = fields["sha256"]
        if not isinstance(digest, bytes):
            return None
        try:
            return cls(**{**fields, "sha256": digest.hex()})
        except ConfigError:
            return None
