"""The values between the steps of receiving: received, permitted and admitted messages.

The one rule: each value is made only by its step, so that its existence proves the step. The result
of reading or checking is passed on with it, and the next step takes that result once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from safeser import families as serialization
from safeser.channel.events import PendingRecords
from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.format import byte_count
from safeser.gate.session import Verified, set_left
from safeser.gate.values import Context, Grant, Kind, Limits
from safeser.policy import Policy
from safeser.policy.questions.shadow import Allowance
from safeser.policy.rules import WEAKEST

if TYPE_CHECKING:
    from safeser.gate.detached import Message


def is_counted(context: Context) -> bool:
    """Tell whether messages of *context* without payloads are counted, and have no records.

    Those with authority have records. A count does not say the kind, which replaying it needs: so
    what is of a stronger kind than its operation has a record as well, such as a relay of data.
    """
    name, kind = context.operation, context.kind
    return kind is Kind.ADMIN or (kind is Kind.DATA and (name is None or WEAKEST.get(name) is kind))


class Unverified:
    """A message of a connection without an envelope, whose sender is not authenticated.

    Only :meth:`safeser.channel.OpenLink.hear` makes one, and only that link decides it.
    """

    __slots__ = ("frames", "left", "sequence", "session_id")

    def __init__(self, frames: tuple[memoryview, ...], session_id: bytes, sequence: int) -> None:
        self.frames = frames
        self.left: object = None
        self.session_id = session_id
        self.sequence = sequence

    def __repr__(self) -> str:
        return f"Unverified({len(self.frames)} frames)"


class Unsealed:
    """A verified message that no session carried.

    Only :meth:`safeser.channel.box_keys.BoxLink.heard` makes one, and only that link decides it.
    """

    __slots__ = ("__weakref__", "facts", "frames", "left", "sequence", "session_id")

    def __init__(self, message: Message, session_id: bytes, sequence: int) -> None:
        self.facts = message.facts
        self.frames = message.frames
        self.left: object = None
        self.session_id = session_id
        self.sequence = sequence


#: A message that a link decides; a link with a session takes only those that session verified.
Arrived = Verified | Unverified | Unsealed


class MessageBudgets:
    """What is left of the limits of one message, for all of its elements, as long as it lives.

    Neither interleaving the elements of two messages nor reading one message twice gives more than
    one budget for each.

    :ivar reading: for reading pickles to derive their families, *checking* for checking payloads,
        and *loading* for loading them.
    :ivar allowance: what may be read for a shadow policy.
    """

    __slots__ = ("allowance", "checking", "limits", "loading", "reading")

    reading: serialization.Budget
    checking: serialization.Budget
    loading: serialization.Budget
    allowance: Allowance

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def __getattr__(self, name: str) -> Any:
        """Return what was not asked for before: most messages need one of these."""
        made = Allowance() if name == "allowance" else serialization.Budget(self.limits)
        setattr(self, name, made)
        return made

    @classmethod
    def of(cls, verified: Arrived, limits: Limits) -> MessageBudgets:
        """Return the budgets of *verified*, of *limits* if they are asked for the first time."""
        left = verified.left
        if type(left) is not cls:
            left = cls(limits)
            if type(verified) is Verified:
                set_left(verified, left)
            else:
                verified.left = left
        return left


#: Of a message without payloads.
UNUSED = MessageBudgets(Limits())


class Received(NamedTuple):
    """One payload of a verified message: its shape is read, and it is not decided yet.

    Only a :class:`Link` makes one.

    :param verified: the message that it came in.
    :param policy: the policy by which its family was derived.
    :param grant: the most that its author may send in *context*.
    :param reading: its shape, to be taken once: nodes hold intermediate results for one object, and
        building two from them would share memory. None for bare and sealed payloads.
    :param denial: the names in a pickle that make it code, where the pickle was read.
    :param wraps: whether its handler unpickles bytes that it may hold.
    :param relayed: whether this process relays it and never opens it.
    :param again: reads it in another context or under another policy; None if bare or sealed.
    :param bare: whether it is bytes that its handler unpickles, not a value of a family.
    :param sealed: the signed graph or task in it; its author's signature is verified.
    """

    where: str
    family: str
    header: dict[str, Any]
    frames: tuple[Any, ...]
    author: str
    verified: Arrived
    task: str = ""
    task_author: str = ""
    digest: str = ""
    policy: Policy | None = None
    context: Context | None = None
    grant: Grant | None = None
    reading: list[serialization.Reading] | None = None
    denial: PolicyDenied | None = None
    wraps: bool = False
    relayed: bool = False
    again: Callable[..., Received] | None = None
    bare: bool = False
    sealed: Any = None

    @property
    def message(self) -> int:
        """The number of its message in the session."""
        return self.verified.sequence

    @property
    def nbytes(self) -> int:
        return byte_count(self.frames)

    def __repr__(self) -> str:
        return f"Received({self.where!r}, {self.family!r} of {self.author!r})"


class Admission(NamedTuple):
    """How the payloads of one message were admitted.

    :param policy: the policy that decided; another may be in force when the payloads are loaded.
    :param budgets: the limits that all of the payloads share.
    :param records: the batch of records that must be written before anything is loaded; None where
        the records are written already.
    """

    context: Context
    policy: Policy
    budgets: MessageBudgets
    records: PendingRecords | None = None

    @property
    def grant(self) -> Grant:
        """The most that the policy lets pass in the context."""
        return self.policy.grant(self.context)


class Permitted(NamedTuple):
    """One payload that policy permits and that describes exactly one object; not yet loaded.

    Only :meth:`Link.admit` makes one.

    :param checked: at most one result of the check, which the first load takes; empty if nothing is
        built here or the package of its type is not imported yet.
    :param inside: the pickle in a payload of bytes that its handler unpickles.
    """

    payload: Received
    admission: Admission
    checked: list[serialization.Checked]
    inside: Permitted | None

    def __repr__(self) -> str:
        return f"Permitted({self.payload!r})"


class Admitted(NamedTuple):
    """A message that policy permits, with the decision on each of its payloads.

    Only :meth:`Link.admit` makes one.

    :param outcomes: for each payload, in order, a :class:`Permitted` or the error that refuses it.
    """

    admission: Admission
    outcomes: tuple[Permitted | SafeserError, ...]

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
        return not self.outcomes and is_counted(self.admission.context)


def _refuse(cls: Any, /, *_: object, **__: object) -> NoReturn:
    raise TypeError(f"only a Link makes {cls.__name__} values")


# What only safeser.channel.receiving calls. From here on, the classes themselves refuse, and so do
# copies with another field, which _make makes.
make_received = partial(Received.__new__, Received)
make_permitted = partial(Permitted.__new__, Permitted)
make_admitted = partial(Admitted.__new__, Admitted)
for _each in (Received, Permitted, Admitted):
    for _name, _method in (("__new__", _refuse), ("_make", classmethod(_refuse))):
        setattr(_each, _name, _method)
