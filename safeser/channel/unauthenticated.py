"""Decide and load messages of an unauthenticated connection, which has no envelope.

The one rule: the peer is ``unknown``, whatever it claims, and no policy can let other families than
dask and msgpack in from it. Each record in the log says that its sender did not authenticate.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from safeser.audit import SessionFacts
from safeser.channel.admitted import Arrived, Received, Unverified
from safeser.channel.events import AuditSink, Described
from safeser.channel.link import Link
from safeser.channel.records import ID_LENGTH
from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import UNKNOWN, Context
from safeser.identity import VerifyingKey
from safeser.pickles import held_by
from safeser.policy import Policy

__all__ = ["FixedPolicy", "OpenLink", "Unreadable"]

_PICKLES = ("pickle", "cloudpickle")


class Unreadable(dict[str, Any]):
    """Stands for the header of a payload that could not be read; *error* says why."""

    def __init__(self, error: SafeserError) -> None:
        super().__init__()
        self.error = error


class _NoSession:
    """Stands for the session of a link: an unknown peer, and an id that no peer can know."""

    def __init__(self, local: str) -> None:
        self.id = os.urandom(32)
        self.local = local
        self.peer = UNKNOWN


class FixedPolicy:
    """Stands for the channel of a policy that never changes and whose principals have no keys."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def shadow(self) -> Policy | None:
        """The contexts of a policy that only observes; no other policy is compared with."""
        return self.policy.written

    def is_silenced(self, principal: str) -> bool:
        del principal
        return False

    @property
    def identity(self) -> NoReturn:
        raise TypeError("a principal without keys has no identity")

    def author_of(self, key: VerifyingKey) -> None:
        """Return None: principals without keys sign nothing."""

    def owner_of(self, key: PublicKey) -> None:
        """Return None: there are no keys."""


class OpenLink(Link):
    """One connection to an unauthenticated peer, under one policy.

    :param local: the principal that this process is, as *policy* names it.
    :param transport: ``"tcp"`` or ``"tls"``.
    :param address: where the peer was found, for the log.
    :param same_host: whether that is this machine; None where it was not measured.
    """

    def __init__(
        self,
        *,
        local: str,
        policy: Policy,
        audit: AuditSink,
        transport: str,
        address: str,
        same_host: bool | None = None,
    ) -> None:
        session: Any = _NoSession(local)
        channel: Any = FixedPolicy(policy)
        super().__init__(
            session=session,
            channel=channel,
            audit=audit,
            transport=transport,
            same_host=same_host,
            address=address,
        )
        self._heard = 0

    def _session_facts(self) -> SessionFacts:
        return SessionFacts(
            self.session.id.hex()[:ID_LENGTH],
            {"address": self.address, "authenticated": False, "transport": self.transport},
        )

    def hear(self, frames: Sequence[memoryview]) -> Unverified:
        """Return *frames* as the next message of this connection."""
        self._heard += 1
        return Unverified(tuple(frames), self.session.id, self._heard)

    def payload(
        self,
        verified: Arrived,
        context: Context,
        where: str,
        header: Mapping[str, Any],
        frames: Sequence[Any],
        **how: Any,
    ) -> Received:
        if isinstance(header, Unreadable):
            header.error.where = header.error.where or where
            raise header.error
        return super().payload(verified, context, where, header, frames, **how)

    def caller_refusal(
        self, context: Context, payload: Described, deserializers: Sequence[str] | None
    ) -> PolicyDenied | None:
        if payload.family in _PICKLES:
            # Before the caller's list, since no list can permit this.
            held = held_by(bytes(payload.frames[0])) if payload.frames else ""
            of = f" of {held}" if held else ""
            return self.refusal(
                context,
                "floor.unknown",
                f"a pickle{of} never passes from a peer who proved nothing",
                payload=payload,
                fix="Convert the value on the cluster to numbers, text or NumPy arrays; or run the"
                " cluster on safeser://, where policy can let more in.",
            )
        return super().caller_refusal(context, payload, deserializers)

    def _forbid_sending(self) -> NoReturn:
        raise PolicyDenied("nothing is sealed for a peer who proved nothing", rule="floor.unknown")

    def permit_operation(self, context: Context) -> None:
        self._forbid_sending()

    def seal(self, obj: Any, context: Context) -> list[Any]:
        self._forbid_sending()
