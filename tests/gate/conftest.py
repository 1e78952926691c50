"""Two sessions back to back in memory, and a reader that does what a connection would do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from safeser.gate.claims import Claims
from safeser.gate.handshake import Handshake
from safeser.gate.key_pairs import PrivateKey
from safeser.gate.session import Arrival, Session, Verified
from safeser.gate.values import Limits
from safeser.identity import Identity
from tests.conftest import exchange

POLICY = ("production", 7, "ab" * 32)


class Truncated(Exception):
    """The stream ended inside a message: a reader would wait, then close."""


class World:
    """Principals with fixed keys, and the verbs that tests need."""

    Truncated = Truncated
    policy = POLICY

    def __init__(self) -> None:
        self.alice = self.identity("alice")
        self.bob = self.identity("bob")
        self.mallory = self.identity("mallory")
        self.roster = {one.public: one.principal for one in (self.alice, self.bob)}

    def key(self, name: str) -> PrivateKey:
        return PrivateKey.from_bytes(hashlib.sha256(name.encode()).digest())

    def identity(self, principal: str, name: str = "") -> Identity:
        return Identity(principal, self.key(name or principal))

    def initiator(self, identity: Identity | None = None, **options: Any) -> Handshake:
        return self._side(identity or self.alice, initiator=True, **options)

    def responder(self, identity: Identity | None = None, **options: Any) -> Handshake:
        return self._side(identity or self.bob, initiator=False, **options)

    def _side(self, identity: Identity, **options: Any) -> Handshake:
        usual = {"principal_of": self.roster.get, "policy": POLICY}
        return Handshake(identity=identity, **{**usual, **options})

    def shake(self, initiator: Handshake, responder: Handshake) -> tuple[Session, Session]:
        exchange(initiator, responder)
        return initiator.session(), responder.session()

    def pair(self, **options: Any) -> tuple[Session, Session]:
        return self.shake(self.initiator(**options), self.responder(**options))

    def sessions(
        self,
        number: int = 0,
        limits: Limits | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> tuple[Session, Session]:
        """Return both ends of session *number* without the cost of a handshake."""

        def side(local: Identity, peer: Identity, *, initiator: bool) -> Session:
            seed = hashlib.sha512(str(number).encode()).digest()
            return Session(
                initiator=initiator,
                split=(seed[:32], seed[32:]),
                session_id=hashlib.sha256(seed).digest(),
                local=local.principal,
                peer=peer.principal,
                peer_key=peer.public,
                peer_claims=Claims(peer.principal, None, *POLICY),
                limits=limits or Limits(),
                clock=clock,
            )

        return (
            side(self.alice, self.bob, initiator=True),
            side(self.bob, self.alice, initiator=False),
        )

    def sealed(self, session: Session, header: bytes, frames: Sequence[Any]) -> bytes:
        return b"".join(session.seal(header, frames))

    def begin(self, session: Session, data: bytes) -> tuple[Arrival, bytes]:
        """Read the beginning of a message as a connection does; return it and what follows."""
        if len(data) < 64:
            raise Truncated
        prelude = session.prelude(data[:64])
        if len(data) < 64 + prelude.block + prelude.rest:
            # A connection reads this much before it waits for the rest.
            if len(data) >= 64 + prelude.block:
                session.arrival(prelude, data[64 : 64 + prelude.block])
            raise Truncated
        block, rest = data[64 : 64 + prelude.block], data[64 + prelude.block :]
        return session.arrival(prelude, block), rest[: prelude.rest]

    def read(self, session: Session, data: bytes) -> Verified:
        """Read one message, and nothing after it."""
        arrival, rest = self.begin(session, data)
        return arrival.whole(memoryview(rest))


@pytest.fixture(scope="session")
def world() -> World:
    return World()
