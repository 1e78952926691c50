"""The handshake as a value: bytes in, bytes out, and at the end a session or one opaque error.

The one rule: a peer learns that it failed, never why. A stranger costs a fixed number of bytes and
a few operations on the curve; deadlines and the number of connections are the caller's to bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from safeser.envelope.claims import CLAIMS_SIZE, Claims
from safeser.envelope.noise import DH_SIZE, TAG_SIZE, HandshakeRefused, HandshakeState
from safeser.envelope.session import Session
from safeser.errors import ConfigError, EnvelopeError
from safeser.identity import Identity, KeepsSecrets, PrivateKey, PublicKey
from safeser.values import Limits, Suite, check_principal

__all__ = ["Handshake", "SuiteRefused", "preamble"]

MAGIC = b"\x93SAFESER"  # the first byte is no text, no TLS record, and no count of Dask's
VERSION = 1
_PREAMBLE_SIZE = 12

# All messages have one size, so no length is read from a stranger: 44 bytes from the initiator,
# 428 from the responder, 384 to finish.
_MESSAGE_1 = DH_SIZE
_MESSAGE_2 = DH_SIZE + (DH_SIZE + TAG_SIZE) + (CLAIMS_SIZE + TAG_SIZE)
_MESSAGE_3 = (DH_SIZE + TAG_SIZE) + (CLAIMS_SIZE + TAG_SIZE)

_Step = Callable[[bytes], bytes]


def preamble(suite: Suite) -> bytes:
    """Return what each side sends first: the prologue that the handshake authenticates."""
    return MAGIC + bytes((VERSION, suite, 0, 0))


_SUITE_OF = {preamble(suite): suite for suite in Suite}


class SuiteRefused(HandshakeRefused):
    """A peer that proved its principal has, or proposes, a session that does less than is required.

    :ivar principal: the peer, and *suite* the suite of the session; for this process's own log.
    """

    def __init__(self, principal: str, *, suite: Suite, required: Suite) -> None:
        super().__init__(
            f"the session with {principal} would be of suite {suite.word}, and the policy here"
            f" requires {required.word}"
        )
        self.principal = principal
        self.suite = suite


class Handshake(KeepsSecrets):
    """One side of one handshake.

    Write :attr:`outgoing` first. Then, until :attr:`complete`: read exactly :attr:`wanted` bytes,
    :meth:`feed` them, and write what that returns.

    :param initiator: whether this side opened the connection.
    :param identity: the identity of this process.
    :param principal_of: the roster's answer to whose key this is; None refuses.
    :param required: the least strict suite that this side accepts with a principal. Neither side
        ever talks the other down: a handshake below it is refused.
    :param suite: initiator only: the suite to propose. A responder takes the one proposed.
    :param policy: name, revision and SHA-256 (hexadecimal) of the policy in force here.
    :param expected_peer: initiator only: the principal that must be at the other end.
    :param limits: what one message of the session may take.
    :param clock: seconds that never go back, for the end of the session.
    :param generate: makes the ephemeral key; a parameter for test vectors only.
    """

    __slots__ = ("_begun", "_clock", "_expected_peer", "_generate", "_identity", "_initiator",
                 "_limits", "_outgoing", "_policy", "_principal_of", "_required", "_session",
                 "_steps")  # fmt: skip

    def __init__(
        self,
        *,
        initiator: bool,
        identity: Identity,
        principal_of: Callable[[PublicKey], str | None],
        required: Callable[[str], Suite],
        suite: Suite | None = None,
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
        if initiator is (suite is None):
            raise ConfigError(
                "an initiator proposes a suite, and a responder takes it", rule="config.handshake"
            )
        self._initiator = initiator
        self._identity = identity
        self._principal_of = principal_of
        self._required = required
        self._policy = policy
        self._expected_peer = expected_peer
        self._limits = limits or Limits()
        self._clock = clock
        self._generate = generate
        self._session: Session | None = None
        self._claims(None)  # refuses a policy that cannot be claimed before a peer connects
        # What the preamble says, and the Noise handshake whose prologue it is.
        self._begun: tuple[Suite, HandshakeState] | None = None
        self._outgoing = b""
        if suite is not None:
            self._outgoing = preamble(suite) + self._begin(suite).write_message(b"")
        self._steps = self._plan()

    def _begin(self, suite: Suite) -> HandshakeState:
        noise = HandshakeState(
            initiator=self._initiator,
            prologue=preamble(suite),
            static=self._identity,
            generate=self._generate,
        )
        self._begun = suite, noise
        return noise

    @property
    def _suite(self) -> Suite:
        assert self._begun is not None  # the preamble is the first that is read
        return self._begun[0]

    @property
    def _noise(self) -> HandshakeState:
        assert self._begun is not None
        return self._begun[1]

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
        suite = _SUITE_OF.get(data)
        if suite is None:
            raise HandshakeRefused(f"the peer {_describe(data)}")
        if self._begun is None:
            self._begin(suite)
        elif suite is not self._suite:
            raise HandshakeRefused(
                f"the peer answers with suite {suite.word}, not {self._suite.word} as proposed"
            )
        return b""

    def _read_message_1(self, data: bytes) -> bytes:
        self._noise.read_message(data)
        return preamble(self._suite) + self._noise.write_message(self._claims(None).encode())

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
        required = self._required(principal)
        if self._suite < required:
            raise SuiteRefused(principal, suite=self._suite, required=required)
        return claims

    def _claims(self, peer: str | None) -> Claims:
        name, revision, sha256 = self._policy
        return Claims(self._identity.principal, peer, name, revision, sha256)

    def _finish(self, claims: Claims) -> None:
        key = self._noise.remote_static
        assert key is not None
        self._session = Session(
            suite=self._suite,
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


def _describe(data: bytes) -> str:
    """Say what a peer speaks that does not speak this version, for the operator's log."""
    if data.startswith(MAGIC):
        suites = " and ".join(str(int(suite)) for suite in Suite)
        return (
            f"speaks version {data[8]}, suite {data[9]}; this is version {VERSION}, suites {suites}"
        )
    if data[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP", b"OPTI", b"PRI "):
        return "speaks HTTP, not safeser"
    if data[:2] in (b"\x16\x03", b"\x15\x03"):
        return "speaks TLS, not safeser"
    if int.from_bytes(data[:8], "little") <= 1 << 20:  # Dask starts with a count of frames
        return "speaks plain Dask TCP, not safeser"
    return "does not speak safeser"
