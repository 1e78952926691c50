"""The handshake as a value: bytes in, bytes out, and at the end a session or one opaque error.

The one rule: a peer learns that it failed, never why. A stranger costs a fixed number of bytes and
a few operations on the curve; deadlines and the number of connections are the caller's to bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from safeser.gate.claims import CLAIMS_SIZE, Claims
from safeser.gate.format import PRELUDE_SIZE
from safeser.gate.key_pairs import KeepsSecrets, PrivateKey, PublicKey
from safeser.gate.noise import DH_SIZE, TAG_SIZE, HandshakeRefused, HandshakeState, StaticKey
from safeser.gate.refusals import ConfigError, EnvelopeError
from safeser.gate.session import Session
from safeser.gate.values import Limits, check_principal

MAGIC = b"\x93SAFESER"  # the first byte is no text, no TLS record, and no count of Dask's
VERSION = 2
_PREAMBLE_SIZE = 12

# All messages have one size, so no length is read from a stranger: 44 bytes from the initiator,
# 428 from the responder, 384 to finish.
_MESSAGE_1 = DH_SIZE
_MESSAGE_2 = DH_SIZE + (DH_SIZE + TAG_SIZE) + (CLAIMS_SIZE + TAG_SIZE)
_MESSAGE_3 = (DH_SIZE + TAG_SIZE) + (CLAIMS_SIZE + TAG_SIZE)

_Step = Callable[[bytes], bytes]


#: What each side sends first: the prologue that the handshake authenticates.
PREAMBLE = MAGIC + bytes((VERSION, 0, 0, 0))

#: The frame of the first sealed message from the responder: the initiator's key was accepted.
ACCEPTED = b"accepted"

#: What the responder writes, in the clear, instead of a prelude: the initiator did not
#: authenticate, whatever the reason. Without it a refused key looks like a network fault, which
#: Dask's workers retry for ever. Forging it has the effect of cutting the connection.
REFUSED = b"\x93SAFESER refused".ljust(PRELUDE_SIZE, b"\0")


class OtherVersion(HandshakeRefused):
    """The peer speaks safeser, in another version of the envelope."""


class LocalIdentity(StaticKey, Protocol):
    """The principal of this process, and its key pair, as :class:`safeser.Identity` has them."""

    @property
    def principal(self) -> str: ...


class Handshake(KeepsSecrets):
    """One side of one handshake.

    Write :attr:`outgoing` first. Then, until :attr:`complete`: read exactly :attr:`wanted` bytes,
    :meth:`feed` them, and write what that returns. The initiator is complete before the responder
    has read its last message, and may have refused it: the first message that verifies tells.

    :param initiator: whether this side opened the connection.
    :param identity: the identity of this process.
    :param principal_of: the roster's answer to whose key this is today; None refuses.
    :param policy: name, revision and SHA-256 (hexadecimal) of the policy in force here.
    :param expected_peer: initiator only: the principal that must be at the other end.
    :param limits: what one message of the session may take.
    :param clock: seconds that never go back, for the end of the session.
    :param generate: makes the ephemeral key; a parameter for test vectors only.
    """

    __slots__ = ("_clock", "_expected_peer", "_identity", "_initiator", "_limits", "_noise",
                 "_outgoing", "_policy", "_principal_of", "_session", "_steps")  # fmt: skip

    def __init__(
        self,
        *,
        initiator: bool,
        identity: LocalIdentity,
        principal_of: Callable[[PublicKey], str | None],
        policy: tuple[str, int, str],
        expected_peer: str | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        generate: Callable[[], PrivateKey] = PrivateKey.generate,
    ) -> None:
        if expected_peer is not None:
            check_principal(expected_peer)
            if not initiator:
                raise ConfigError("only an initiator can expect a peer", rule="config.handshake")
        self._initiator = initiator
        self._identity = identity
        self._principal_of = principal_of
        self._policy = policy
        self._expected_peer = expected_peer
        self._limits = limits or Limits()
        self._clock = clock
        self._session: Session | None = None
        self._claims(None)  # refuses a policy that cannot be claimed before a peer connects
        self._noise = HandshakeState(
            initiator=initiator, prologue=PREAMBLE, static=identity, generate=generate
        )
        self._outgoing = PREAMBLE + self._noise.write_message(b"") if initiator else b""
        self._steps = self._plan()

    def _plan(self) -> list[tuple[int, _Step]]:
        """Return what this side reads, the last first: how many bytes, and who takes them."""
        start: tuple[int, _Step] = (_PREAMBLE_SIZE, self._read_preamble)
        if self._initiator:
            return [(_MESSAGE_2, self._read_message_2), start]
        return [(_MESSAGE_3, self._read_message_3), (_MESSAGE_1, self._read_message_1), start]

    @property
    def outgoing(self) -> bytes:
        """The first bytes to write; a responder has none."""
        return self._outgoing

    @property
    def wanted(self) -> int:
        """How many bytes to read next, exactly; 0 when there is nothing more to read."""
        return self._steps[-1][0] if self._steps else 0

    @property
    def complete(self) -> bool:
        return self._session is not None

    @property
    def local_key(self) -> PublicKey:
        """The key by which this side proves its principal."""
        return self._identity.public

    @property
    def stated_policy(self) -> str:
        """The hash of the policy that this side claims to decide by."""
        return self._policy[2]

    def feed(self, data: bytes) -> bytes:
        """Take the :attr:`wanted` bytes and return the bytes to write in answer, maybe none.

        Raises :class:`AuthenticationError`, always the same, whatever is wrong; its ``detail`` is
        for this process's own log.
        """
        steps, self._steps = self._steps, []  # a step that raises, whatever, is the last one
        if not steps:
            raise HandshakeRefused("the handshake is over")
        size, step = steps.pop()
        if len(data) != size:
            raise HandshakeRefused("a handshake message has another size")
        try:
            answer = step(bytes(data))
        except HandshakeRefused:
            raise
        except EnvelopeError as error:
            raise HandshakeRefused(error.message) from None
        self._steps = steps
        return answer

    def session(self) -> Session:
        """Return the session of a complete handshake, the same one each time."""
        if self._session is None:
            raise HandshakeRefused("the handshake is not complete")
        return self._session

    def _read_preamble(self, data: bytes) -> bytes:
        if data == PREAMBLE:
            return b""
        raise (OtherVersion if _is_other(data) else HandshakeRefused)(_describe(data))

    def _read_message_1(self, data: bytes) -> bytes:
        self._noise.read_message(data)
        return PREAMBLE + self._noise.write_message(self._claims(None).encode())

    def _read_message_2(self, data: bytes) -> bytes:
        claims = self._authenticate(self._noise.read_message(data))
        if claims.peer is not None:
            raise HandshakeRefused("a responder claims to know its peer")
        if self._expected_peer not in (None, claims.principal):
            raise HandshakeRefused(
                f"reached {claims.principal}, not {self._expected_peer} as expected"
            )
        answer = self._noise.write_message(self._claims(claims.principal).encode())
        self._finish(claims)
        return answer

    def _read_message_3(self, data: bytes) -> bytes:
        claims = self._authenticate(self._noise.read_message(data))
        if claims.peer != self._identity.principal:
            raise HandshakeRefused(f"{claims.principal} meant to reach {claims.peer}")
        self._finish(claims)
        return b""

    def _authenticate(self, payload: bytes) -> Claims:
        """Return the peer's claims once the roster says that its key may make them."""
        # Its key is proven by now. Claims are parsed for a key of the roster only.
        key = self._noise.remote_static
        assert key is not None
        principal = self._principal_of(key)
        if principal is None:
            detail = f"{key.text} is not an active key of any principal"
            raise HandshakeRefused(detail, key=key.fingerprint)
        claims = Claims.decode(payload)
        if claims.principal != principal:
            raise HandshakeRefused(f"a key of {principal} claims to be {claims.principal}")
        return claims

    def _claims(self, peer: str | None) -> Claims:
        name, revision, sha256 = self._policy
        return Claims(self._identity.principal, peer, name, revision, sha256)

    def _finish(self, claims: Claims) -> None:
        key = self._noise.remote_static
        assert key is not None
        self._session = Session(
            initiator=self._initiator,
            split=self._noise.split(),
            session_id=self._noise.hash,
            local=self._identity.principal,
            peer=claims.principal,
            peer_key=key,
            peer_claims=claims,
            limits=self._limits,
            clock=self._clock,
        )

    def __repr__(self) -> str:
        role = "initiator" if self._initiator else "responder"
        return f"Handshake({role} {self._identity.principal}, complete={self.complete})"


def _is_other(data: bytes) -> bool:
    return data.startswith(MAGIC) and data[len(MAGIC)] != VERSION


def _describe(data: bytes) -> str:
    """Say what a peer speaks that does not speak this version, for the operator's log."""
    if data.startswith(PREAMBLE[:-3]):
        return "the peer begins as safeser does, and goes on with what is reserved"
    if _is_other(data):
        older = "that end" if data[8] < VERSION else "this process"
        return (
            f"the peer speaks version {data[8]} of safeser's envelope, and this process version"
            f" {VERSION}: upgrade safeser at {older}"
        )
    if data[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP", b"OPTI", b"PRI "):
        return "the peer speaks HTTP, not safeser"
    if data[:2] in (b"\x16\x03", b"\x15\x03"):
        return "the peer speaks TLS, not safeser"
    if int.from_bytes(data[:8], "little") <= 1 << 20:  # Dask starts with a count of frames
        return "the peer speaks plain Dask TCP, not safeser"
    return "the peer does not speak safeser"
