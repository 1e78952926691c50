"""What came in and may be decided, and what may be loaded: each made only by the step before it.

The one rule: a value of one of these classes went through the step that makes it, since nothing
else can make one. What was read or checked once is handed to the next step, which takes it once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from safeser import families as serialization
from safeser.channel.pending_records import PendingRecords
from safeser.envelope import Verified
from safeser.errors import PolicyDenied, SafeserError
from safeser.policy import Policy
from safeser.values import Context, Grant, Kind, Payload

__all__ = [
    "MADE_BY_ADMIT",
    "MADE_BY_PAYLOAD",
    "Admission",
    "Admitted",
    "Arrived",
    "Once",
    "Permitted",
    "Received",
    "Unverified",
]

#: For safeser.channel.receiving alone, which shows that it made a value by handing in its proof.
MADE_BY_PAYLOAD = object()
MADE_BY_ADMIT = object()

#: Kinds of messages that need authority, whatever they carry.
_AUTHORITY = (Kind.TASK, Kind.CONTROL)

_T = TypeVar("_T")


class Once(Generic[_T]):
    """A value for the first that takes it, in whichever thread.

    Checking and building leave in a payload's nodes what is for one object alone.
    """

    __slots__ = ("_held",)

    def __init__(self, value: _T) -> None:
        self._held = [value]

    def take(self) -> _T | None:
        """Return the value, or None where it was taken before."""
        try:
            return self._held.pop()
        except IndexError:
            return None


class Unverified:
    """A message that does not authenticate its sender, of a connection without an envelope.

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
    :param policy: by which its family was found, and *grant* the most that may pass of its author.
    :param reading: what was read of it; None where it is no value of a family, see *bare*.
    :param wraps: its handler unpickles the bytes that it may hold.
    :param bare: its handler unpickles it, by no family.
    :param relayed: this process passes it on and never opens it.
    :param denial: which names of a pickle make it code, where that was read.
    :param sealed: the graph or task that it is, whose author's signature was verified.
    """

    verified: Arrived = field(repr=False, compare=False)
    policy: Policy | None = field(default=None, repr=False, compare=False)
    context: Context | None = field(default=None, repr=False, compare=False)
    grant: Grant | None = field(default=None, repr=False, compare=False)
    reading: Once[serialization.Reading] | None = field(default=None, repr=False, compare=False)
    wraps: bool = False
    bare: bool = False
    relayed: bool = False
    denial: PolicyDenied | None = field(default=None, repr=False, compare=False)
    sealed: Any = field(default=None, repr=False, compare=False)
    _proof: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._proof is not MADE_BY_PAYLOAD:
            raise TypeError("only a Link makes a Received")


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """How the payloads of one message were admitted.

    :param policy: that decided, which may not be in force any more when the payloads are loaded.
    :param budget: what all of them together may take when they are loaded.
    :param records: those that are written with the records of other messages; nothing is loaded
        before. None where the log has them.
    """

    context: Context
    policy: Policy
    budget: serialization.Budget = field(repr=False)
    records: PendingRecords | None = field(default=None, repr=False)

    @property
    def grant(self) -> Grant:
        """The most that may pass in its context."""
        return self.policy.grant(self.context)


@dataclass(frozen=True, slots=True, eq=False)
class Permitted:
    """One payload that policy permits and that describes exactly one object; not yet loaded.

    Only :meth:`Link.admit` makes one.

    :param checked: what the check left for the build; None where nothing is built here.
    :param inside: the pickle that the payload is as bytes, if its handler unpickles those.
    """

    payload: Received
    admission: Admission
    checked: Once[serialization.Checked] | None = field(repr=False)
    inside: Permitted | None
    _proof: object = field(repr=False)

    def __post_init__(self) -> None:
        if self._proof is not MADE_BY_ADMIT:
            raise TypeError("only Link.admit makes a Permitted")


@dataclass(frozen=True, slots=True, eq=False)
class Admitted:
    """A message that policy permits, with what became of its payloads.

    Only :meth:`Link.admit` makes one.

    :param outcomes: for each payload, in order: what may be loaded, or why that payload alone was
        refused.
    """

    admission: Admission
    outcomes: tuple[Permitted | SafeserError, ...]
    _proof: object = field(repr=False)

    def __post_init__(self) -> None:
        if self._proof is not MADE_BY_ADMIT:
            raise TypeError("only Link.admit makes an Admitted")

    @property
    def context(self) -> Context:
        return self.admission.context

    @property
    def permitted(self) -> tuple[Permitted, ...]:
        """What may be loaded, in order."""
        return tuple([each for each in self.outcomes if isinstance(each, Permitted)])

    @property
    def payloads(self) -> tuple[Received, ...]:
        """The payloads that were admitted, in order."""
        return tuple([each.payload for each in self.permitted])

    @property
    def is_plain(self) -> bool:
        """Whether it holds no payload and asks for no authority: it is counted, not recorded."""
        return not self.outcomes and self.context.kind not in _AUTHORITY
