"""Messages without a connection: a box seals an object to bytes, which are opened later, elsewhere.

The one rule: what a box opens goes the way of a message of a session, decide, record, build, and no
other. The bytes are those of ``docs/reference/envelope.md``, "Detached messages".
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from safeser.audit import AuditLog
from safeser.channel.events import AuditSink
from safeser.channel.once import Once
from safeser.gate.format import Buffer
from safeser.identity.secret import Secret
from safeser.policy import Policy

__all__ = ["Box", "Opened"]

#: A generated secret, the path of its file, or two of them: the first seals, both open.
AnySecret = Secret | str | os.PathLike[str]

#: A log, or a folder with the key of one (``audit.key``), whose records go to ``audit`` in it.
AnyLog = AuditLog | AuditSink | str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Opened:
    """What one detached message held, and what was proven of it.

    :param value: the object.
    :param sender: the principal whose key sealed it; ``"shared"`` where a shared secret did, which
        proves no sender.
    :param id: 16 random bytes that the sender chose for this message alone.
    :param made: when it was sealed, seconds since 1970 on the sender's clock.
    """

    value: Any
    sender: str
    id: bytes
    made: int


class Box:
    """Seals objects to bytes for a queue, a socket, a cache or a file, and opens such bytes.

    Made by :meth:`at` or :meth:`shared`. Safe for many threads.
    """

    @classmethod
    def at(
        cls,
        folder: str | os.PathLike[str],
        principal: str,
        *,
        policy: Policy | str | os.PathLike[str] | None = None,
        audit: AnyLog | None = None,
    ) -> Self:
        """Return the box of *principal*, whose files are in *folder*.

        These are ``<principal>.key``, ``roster`` and ``policy.yaml``, as ``safeser keys init`` makes
        the first two; a change of one of them counts within a second or two. Where ``audit.key`` is
        there, decisions are recorded in ``audit/<principal>``.

        :param policy: in place of ``policy.yaml``: a policy, its path, or the name of a ready one.
        :param audit: in place of that log.
        :raises ConfigError: if a file is missing or wrong, the roster does not list the key as
            active, or the policy wants a log and there is no key.
        """
        raise NotImplementedError

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
        raise NotImplementedError

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
            whoever reads: such a message is signed, and **not encrypted**.
        :param about: what it is about: a queue, a key of a cache, a file's name. It opens about
            nothing else. In a shared box ``"a -> b"``, or ``"a -> b: tasks"``, names a direction.
        :param ttl: seconds until it opens no more; None for no end.
        :param signed: whether to sign it by this principal's Ed25519 key.
        :raises PolicyDenied: if the policy lets it leave by no family that can carry it.
        :raises PayloadError: if it is larger than the policy's limits.
        :raises ConfigError: if an argument means nothing, or the roster lists no key of *to*.
        """
        raise NotImplementedError

    def open(self, data: Buffer, *, about: str, once: Once | None = None) -> Opened:
        """Return what *data* holds, verified, decided and recorded before it was built.

        Arrays may use memory that is this message's alone.

        :param about: what it must be about.
        :param once: the store of what was opened already; None lets it open again.
        :raises EnvelopeError: if it is no whole message for this box about *about*, is expired, of
            the future, or was opened before (rules ``envelope.*`` and ``box.*``).
        :raises AuthenticationError: if the roster does not list its sender's key any more, or yet.
        :raises PolicyDenied: if the policy does not let this sender send it here.
        :raises PayloadError: if it is malformed inside.
        :raises AuditError: if the decision cannot be recorded.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the log, unless the caller opened it, and stop looking at the files."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
