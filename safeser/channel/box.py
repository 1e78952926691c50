"""Messages without a connection: a box seals an object to bytes, which are opened later, elsewhere.

The one rule: what a box opens goes the way of a message of a session, decide, record, build, and no
other. The bytes are those of ``docs/reference/envelope.md``, "Detached messages".

:mod:`safeser.channel.box_keys` says whose keys count. It gives a box a *hop* for each pair of keys:
the ends, from which each message's own keys are made, and the link that decides and records. The
steps of :meth:`Box.open`, in order:

1. the bytes are parsed, and the hop is found by the keys that they name;
2. the message is verified, by the keys of both ends;
3. it must be about what the caller says, within its dates, and signed if the caller wants that;
4. its payload is decided, as on any link;
5. where the caller keeps a store, it must not have been opened before;
6. the decision is recorded, and then the object is built.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from safeser import families as serialization
from safeser.channel.box_keys import AnyLog, BoxKeys, RosterKeys, SecretKeys
from safeser.errors import ConfigError, EnvelopeError, PayloadError, SafeserError
from safeser.gate import canonical, detached
from safeser.gate.detached import READERS, SIGNED, Facts
from safeser.gate.format import Buffer, check_payload
from safeser.gate.values import Kind, Payload
from safeser.identity.secret import Secret, load_secrets
from safeser.policy import Policy

if TYPE_CHECKING:
    from safeser.once import Once

__all__ = ["Box", "Opened"]

#: A generated secret, or the path of its file.
AnySecret = Secret | str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Opened:
    """What one detached message held, and what was proven of it.

    :param value: the object.
    :param sender: the principal whose key sealed it; ``"shared"`` where a shared secret did, which
        proves no sender; the end that seals where about names a direction.
    :param to: the principal that it was sealed for, or the end that opens; None for many readers.
    :param id: 16 random bytes that the sender chose for this message alone.
    :param made: when it was sealed, seconds since 1970 on the sender's clock.
    """

    value: Any
    sender: str
    to: str | None
    id: bytes
    made: int


class Box:
    """Seals objects to bytes for a queue, a socket, a cache or a file, and opens such bytes.

    Made by :meth:`at` or :meth:`shared`. Safe for many threads.
    """

    def __init__(self, keys: BoxKeys) -> None:
        self._keys = keys

    @classmethod
    def at(
        cls,
        folder: str | os.PathLike[str],
        principal: str,
        *,
        policy: str | os.PathLike[str] | None = None,
        audit: AnyLog | None = None,
    ) -> Self:
        """Return the box of *principal*, whose files are in *folder*.

        These are ``<principal>.key`` and ``roster``, as ``safeser keys init`` makes them, and
        ``policy.yaml``; a change of one of them counts within a second or two. Where ``audit.key``
        is there, decisions are recorded in ``audit``.

        :param policy: in place of ``policy.yaml``: its path, or the name of a ready one.
        :param audit: in place of that log.
        :raises ConfigError: if a file is missing or wrong, the roster does not list the key as
            active, or the policy wants a log and there is no key.
        """
        return cls(RosterKeys(Path(folder), principal, policy=policy, audit=audit))

    @classmethod
    def shared(
        cls,
        secret: AnySecret | Sequence[AnySecret] | None = None,
        *,
        policy: Policy | str | os.PathLike[str] = "shared",
        audit: AnyLog | None = None,
    ) -> Self:
        """Return a box of all who have *secret*: one principal, ``"shared"``, and no roster.

        Such a box never opens cloudpickle, nor what a box with a roster sealed.

        :param secret: the path of a file that ``safeser keys secret`` generated, or a
            :class:`safeser.Secret`; two while the secret is replaced, of which the first one seals
            and both open. None takes the paths that the environment variable ``SAFESER_SECRET``
            holds, separated as in ``PATH``.
        :param policy: a policy that extends the ready one.
        :raises ConfigError: if it is no generated secret, or the policy wants a log and *audit* is
            None.
        """
        return cls(SecretKeys(load_secrets(secret), policy=policy, audit=audit))

    def seal(
        self,
        obj: object,
        *,
        to: str | None = None,
        about: str,
        ttl: float | None,
        signed: bool = False,
    ) -> bytes:
        """Return *obj* sealed, as the policy lets it leave.

        :param to: the principal that may open it. None in a shared box; and, with *signed*, for
            all readers: such a message is signed, and **not encrypted**. The policy then needs a
            context from this principal to itself.
        :param about: what it is about: a queue, a key of a cache, a file's name. It opens about
            nothing else. In a shared box ``"a -> b"``, or ``"a -> b: tasks"``, names a direction,
            in which one box does not both seal and open; any other text with ``->`` is refused.
        :param ttl: seconds until it opens no more; None for no end.
        :param signed: whether to sign it by this principal's Ed25519 key.
        :raises PolicyDenied: if the policy lets it leave by no family that can carry it.
        :raises PayloadError: if it is larger than the policy's limits.
        :raises ConfigError: if an argument means nothing, or the roster lists no key of *to*.
        :raises AuthenticationError: if the roster does not let this process's own key seal.
        """
        keys = self._keys
        detached.encode_about(about)
        random = os.urandom(detached.SALT_SIZE + detached.ID_SIZE)
        salt, identity = random[: detached.SALT_SIZE], random[detached.SALT_SIZE :]
        facts = Facts(identity, int(keys.clock()), _seconds(ttl), about)
        hop = keys.sealing(to, about, signed=signed)
        link = hop.link
        context = link.outbound(Kind.DATA)
        header, frames = link.serialize(obj, link.allowed(context), context=context)
        family = serialization.claimed(header)
        link.permit_sending(context, Payload("message", family, header, tuple(frames), link.local))
        limits = link.policy.limits
        check_payload(frames, limits)
        return detached.seal(
            hop.ends,
            facts,
            canonical.pack(header),
            frames,
            salt=salt,
            limits=limits,
            sign=keys.sign if signed else None,
        )

    def open(
        self, data: Buffer, *, about: str, once: Once | None = None, signed: bool = False
    ) -> Opened:
        """Return what *data* holds, verified, decided and recorded before it was built.

        Arrays use memory that is this message's alone.

        :param about: what it must be about.
        :param once: the store of what was opened already; None lets it open again.
        :param signed: whether it must be signed by its sender. A message for many readers opens
            only where this is True; :attr:`Opened.to` tells which it was.
        :raises EnvelopeError: if it is no whole message for this box about *about*, is expired, of
            the future, or was opened before (rules ``envelope.*`` and ``box.*``).
        :raises AuthenticationError: if the roster does not list its sender's key any more, or yet.
        :raises PolicyDenied: if the policy does not let this sender send it here.
        :raises PayloadError: if it is malformed inside.
        :raises AuditError: if the decision cannot be recorded.
        """
        keys = self._keys
        detached.encode_about(about)
        limits = keys.channel.policy.limits
        try:
            sealed = detached.parse(data, limits)  # step 1
            hop = keys.opening(sealed, about)
            message = detached.unseal(sealed, hop.ends, limits=limits, verify=hop.verify)  # step 2
            keys.opened(about)
        except EnvelopeError as error:
            keys.note_unauthenticated(error)
            raise
        link, facts = hop.link, message.facts
        unsealed = link.heard(message)
        context = link.inbound(Kind.DATA)
        try:
            facts.check(about, keys.clock())  # step 3
            if signed and sealed.mode not in (SIGNED, READERS):
                raise EnvelopeError(
                    "a message without a signature is opened as a signed one",
                    rule="box.unsigned",
                    fix="Seal it with signed=True.",
                )
            if sealed.mode == READERS and not signed:
                raise EnvelopeError(
                    "a message for many readers is opened as one for this principal",
                    rule="box.readers",
                    fix="Open it with signed=True, where it may come from anywhere.",
                )
            header = _family_header(message.header)
            payload = link.payload(unsealed, context, "message", header, message.frames)
            if once is None:
                admitted = link.admit(unsealed, context, [payload])  # steps 4 and 6
            else:
                with once.taking(hop.ends.sender, facts), link.recorded_together() as records:
                    admitted = link.admit(unsealed, context, [payload], records=records)
        except SafeserError as error:
            if not error.recorded:
                link.note_message(context, error, facts)
            raise
        (value,) = link.load(admitted)
        return Opened(value, hop.ends.sender, hop.ends.recipient or None, facts.id, facts.made)

    def close(self) -> None:
        """Close the log, unless the caller opened it, and stop looking at the files."""
        self._keys.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Box({self._keys.principal!r})"


def _seconds(ttl: float | None) -> int:
    """Return whole seconds, at least one; 0 for no end."""
    if ttl is None:
        return 0
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < 1 << 40:
        raise ConfigError(
            "ttl is a number of seconds above 0, or None for no end",
            rule="box.seconds",
            fix="Write ttl=3600 for an hour.",
        )
    return ceil(ttl)


def _family_header(data: bytes) -> dict[str, Any]:
    try:
        header = canonical.unpack(data)
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise PayloadError(
            "the message's header is not canonical MessagePack of a family header",
            rule="payload.header",
            fix="Seal messages with safeser.Box, or as docs/reference/envelope.md says.",
        )
    return header
