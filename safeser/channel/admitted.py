"""The values between the steps of receiving: received, permitted and admitted messages.

The one rule: each value is made only by its step, so that its existence proves the step. The result
of reading or checking is passed on with it, and the next step takes that result once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from safeser import families as serialization
from safeser.channel.events import PendingRecords
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

#: Proofs that safeser.channel.receiving, and nothing else, passes to the constructors here.
MADE_BY_PAYLOAD = object()
MADE_BY_ADMIT = object()

#: Kinds of messages that need authority even without payloads.
_AUTHORITY = (Kind.TASK, Kind.CONTROL)

_T = TypeVar("_T")


class Once(Generic[_T]):
    """A value that can be taken once, by any thread.

    Nodes hold intermediate results for one object; building two from them would share memory.
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
    """A message of a connection without an envelope, whose sender is not authenticated.

    Only :meth:`safeser.channel.OpenLink.hear` makes one, and only that link decides it.
    """

    __slots__ = ("__weakref__", "frames", "sequence", "session_id")

    def __init__(self, frames: tuple[memoryview, ...], session_id: bytes, sequence: int) -> None:
        self.frames = frames
        self.session_id = session_id
        self.sequence = sequence

    def __repr__(self) -> str:
        return f"Unverified({len(self.frames)} frames)"


#: A message that a link decides; a link with a session takes only those that session verified.
Arrived = Verified | Unverified


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Payload):
    """One payload of a verified message: its shape is read, and it is not decided yet.

    Only a :class:`Link` makes one.

    :param verified: the message that it came in.
    :param policy: the policy by which its family was derived.
    :param grant: the most that its author may send in *context*.
    :param reading: its shape; None for bare and sealed payloads.
    :param wraps: whether its handler unpickles bytes that it may hold.
    :param bare: whether it is bytes that its handler unpickles, not a value of a family.
    :param relayed: whether this process relays it and never opens it.
    :param denial: the names in a pickle that make it code, where the pickle was read.
    :param sealed: the signed graph or task in it; its author's signature is verified.
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

    @property
    def message(self) -> int:
        return self.verified.sequence

    def __post_init__(self) -> None:
        if self._proof is not MADE_BY_PAYLOAD:
            raise TypeError("only a Link makes a Received")


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """How the payloads of one message were admitted.

    :param policy: the policy that decided; another may be in force when the payloads are loaded.
    :param budget: the limits that loading all of the payloads shares.
    :param records: the batch of records that must be written before anything is loaded; None where
        the records are written already.
    """

    context: Context
    policy: Policy
    budget: serialization.Budget = field(repr=False)
    records: PendingRecords | None = field(default=None, repr=False)

    @property
    def grant(self) -> Grant:
        """The most that the policy lets pass in the context."""
        return self.policy.grant(self.context)


@dataclass(frozen=True, slots=True, eq=False)
class Permitted:
    """One payload that policy permits and that describes exactly one object; not yet loaded.

    Only :meth:`Link.admit` makes one.

    :param checked: the checked nodes to build from; None where this process does not build it.
    :param inside: the pickle in a payload of bytes that its handler unpickles.
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
    """A message that policy permits, with the decision on each of its payloads.

    Only :meth:`Link.admit` makes one.

    :param outcomes: for each payload, in order, a :class:`Permitted` or the error that refuses it.
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
        """The payloads that may be loaded, in order."""
        return tuple([each for each in self.outcomes if isinstance(each, Permitted)])

    @property
    def payloads(self) -> tuple[Received, ...]:
        """The same payloads as they were received, in order."""
        return tuple([each.payload for each in self.permitted])

    @property
    def is_plain(self) -> bool:
        """Whether it has no payload and needs no authority, and so is counted, not recorded."""
        return not self.outcomes and self.admission.context.kind not in _AUTHORITY
