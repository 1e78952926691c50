"""What came in and may be decided, and what may be loaded: each made only by the step before it.

The one rule: whoever has one of these values went through the door. They cannot be made elsewhere,
and what was admitted is known by identity, never by equality.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from safeser import families as serialization
from safeser.envelope import Verified
from safeser.errors import PolicyDenied
from safeser.values import Context, Grant, Kind, Limits, Payload

__all__ = ["MADE_BY_ADMIT", "MADE_BY_PAYLOAD", "Admitted", "Arrived", "Received", "Unverified"]

#: For safeser.channel.link alone, which shows that it made a value by handing in its proof.
MADE_BY_PAYLOAD = object()
MADE_BY_ADMIT = object()

_NONE: frozenset[int] = frozenset()

#: Kinds of messages that need authority, whatever they carry.
_AUTHORITY = (Kind.TASK, Kind.CONTROL)


class Unverified:
    """A message that nobody vouches for, of a connection without an envelope.

    Only :meth:`safeser.channel.OpenLink.hear` makes one, and only that link decides it.
    """

    __slots__ = ("__weakref__", "frames", "sequence", "session_id")

    def __init__(self, frames: tuple[memoryview, ...], session_id: bytes, sequence: int) -> None:
        self.frames = frames
        self.session_id = session_id
        self.sequence = sequence

    def __repr__(self) -> str:
        return f"Unverified({len(self.frames)} frames)"


#: What a link decides: a link with a session takes only what that session verified.
Arrived = Verified | Unverified


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Payload):
    """One payload of a verified message, of which only the shape was read; not yet decided.

    Only a :class:`Link` makes one.

    :param verified: the message that it came in.
    :param wraps: whoever handles it unpickles the bytes that it may hold.
    :param bare: whoever handles it unpickles it, and nobody is asked by which family.
    :param relayed: this process passes it on and never opens it.
    :param denial: which names of a pickle make it code, where that was read.
    :param nodes: what its header describes, where that is one value alone.
    :param sealed: the graph or task that it is, whose author's signature was verified.
    """

    verified: Arrived = field(repr=False, compare=False)
    wraps: bool = False
    bare: bool = False
    relayed: bool = False
    denial: PolicyDenied | None = field(default=None, repr=False, compare=False)
    nodes: tuple[serialization.Node] | None = field(default=None, repr=False, compare=False)
    sealed: Any = field(default=None, repr=False, compare=False)
    _proof: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._proof is not MADE_BY_PAYLOAD:
            raise TypeError("only a Link makes a Received")


@dataclass(frozen=True, slots=True)
class Admitted:
    """Payloads of one message that policy permits and the log has recorded; not yet loaded.

    Only :meth:`Link.admit` makes one.
    """

    context: Context
    payloads: tuple[Received, ...]
    grant: Grant
    #: Those of the policy that decided, which may not be in force any more when they are loaded.
    limits: Limits
    #: What all of them together may take when they are loaded.
    budget: serialization.Budget = field(repr=False, compare=False)
    _proof: object = field(repr=False)
    _inside: Mapping[int, Received] = field(default_factory=dict, repr=False)
    _known: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self._proof is not MADE_BY_ADMIT:
            raise TypeError("only Link.admit makes an Admitted")
        # Identities hold as long as this value does, since it keeps the payloads.
        payloads = (*self.payloads, *self._inside.values())
        object.__setattr__(self, "_known", frozenset(map(id, payloads)) if payloads else _NONE)

    @property
    def is_plain(self) -> bool:
        """Whether it holds no payload and asks for no authority: it is counted, not recorded."""
        return not self._known and self.context.kind not in _AUTHORITY

    def has(self, payload: Received) -> bool:
        """Tell whether *payload* is one of those admitted: the very object, not an equal one."""
        return id(payload) in self._known

    def inside(self, payload: Received) -> Received | None:
        """Return the pickle that *payload* holds as bytes and that was admitted with it, if any."""
        return self._inside.get(id(payload))
