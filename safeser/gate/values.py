"""What is decided about, and the answer: contexts, limits, grants, payloads, decisions.

The one rule: values are frozen, and their constructors refuse what is wrong, by
:class:`ConfigError`. Nothing here decides, reads or writes.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

from safeser.gate.refusals import ConfigError, legible

#: The sender or recipient that nothing authenticated. Never granted pickle or cloudpickle.
UNKNOWN = "unknown"

#: The author of a payload that a relay lost. Only dask and msgpack pass for it.
ANY_AUTHOR = "any"

#: How a message came: Dask on ``safeser://``, a guarded client's ``tcp://`` or ``tls://``, by a
#: program that seals, opens, serializes or deserializes by itself, or without a connection.
TRANSPORTS = ("safeser", "tcp", "tls", "library", "box")

#: Built-in serialization families, the least powerful first. ``error`` carries failures as data.
FAMILIES = ("msgpack", "error", "dask", "pickle", "cloudpickle")

#: Families that pass from any author: they cannot reach code.
HARMLESS = frozenset({"msgpack", "error", "dask"})

#: The family of graphs that their author signed, and of tasks of them. No list of families names
#: it: it passes where a context says ``submission: sealed``.
SEALED = "sealed"

#: What becomes of a message whose record the log cannot write: it is refused, it passes while so
#: many records wait in memory, or it passes. The later, the less is known.
AUDIT_FAILURES = ("refuse", "queue", "go-on")

#: The submitted work that a context lets through: none, code that workers alone open, any code.
SUBMISSIONS = ("none", "sealed", "code")

#: The grammar of the names of principals and of policies.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}\Z")
FAMILY = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")
_MAX_GLOBAL = 512  # longer than any real name


class Kind(enum.Enum):
    """What a message is for, from its operation and payload fields; later members are stronger."""

    ADMIN = "admin"
    DATA = "data"
    TASK = "task"
    CONTROL = "control"

    # Members are themselves alone; enum's own hash is that of the name, in Python, and each
    # decision asks for several.
    __hash__ = object.__hash__

    @property
    def strength(self) -> int:
        return _STRENGTH[self]

    @staticmethod
    def strongest(kinds: Sequence[Kind]) -> Kind:
        """Return the most powerful of *kinds*; of none at all, :attr:`Kind.ADMIN`."""
        return max(kinds, key=_STRENGTH.__getitem__, default=Kind.ADMIN)


_STRENGTH = {kind: position for position, kind in enumerate(Kind)}


def check_principal(name: object) -> str:
    """Return *name* if it can name a principal, else raise :class:`ConfigError`."""
    if not isinstance(name, str) or not NAME.match(name):
        raise ConfigError(
            "a principal's name must be 1 to 64 letters, digits, '_', '-', '.' or '@',"
            " and start with a letter or digit",
            rule="config.principal",
        )
    return name


def check_family(name: object) -> str:
    """Return *name* if it can name a serialization family, else raise :class:`ConfigError`."""
    if type(name) is not str or not FAMILY.match(name):
        raise ConfigError(
            "that cannot name a serialization family",
            rule="config.family",
            fix="Use up to 32 of a-z, 0-9, - and _, a letter first.",
        )
    return name


def check_global(name: object, *, rule: str = "config.allow") -> str:
    """Return *name* if it names a global exactly, else raise :class:`ConfigError`."""
    text = name if isinstance(name, str) and len(name) <= _MAX_GLOBAL else ""
    module, _, qualname = text.partition(":")
    parts = [*module.split("."), *qualname.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise ConfigError(
            "a global is named as module:qualname, exactly, without patterns",
            rule=rule,
            fix='Write it as in "mylib.models:Point".',
        )
    return text


def _text(text: str) -> str:
    """Return *text* as plain ``str``: a subclass may hash and compare as it likes."""
    return text if type(text) is str else str.__str__(text)


@dataclass(frozen=True, slots=True)
class Context:
    """One communication context: the sender, the recipient and the kind of a message.

    :param sender: principal that the envelope proved, or :data:`UNKNOWN`.
    :param recipient: principal that opens the message, or :data:`UNKNOWN`.
    :param kind: ``"admin"``, ``"data"``, ``"task"`` or ``"control"``, or a :class:`Kind`.
    :param operation: Dask's operation, or None where there is none (replies, library use).
    :param transport: one of :data:`TRANSPORTS`; None where it is not known.
    :param same_host: whether the connection's other end is on this machine; None where that was not
        measured. What is not known never matches a context that asks for it.
    :param addresses: of the connection, the sender's and the recipient's in Dask's form, for
        registered functions; None without a connection. No policy decides by them, and contexts
        that differ in nothing else are equal.
    """

    sender: str
    recipient: str
    kind: Kind = Kind.DATA
    operation: str | None = None
    transport: str | None = None
    same_host: bool | None = None
    addresses: tuple[str, str] | None = field(default=None, compare=False, repr=False)

    def __init__(
        self,
        sender: str,
        recipient: str,
        kind: Kind | str = Kind.DATA,
        operation: str | None = None,
        *,
        transport: str | None = None,
        same_host: bool | None = None,
        addresses: tuple[str, str] | None = None,
    ) -> None:
        object.__setattr__(self, "sender", _text(check_principal(sender)))
        object.__setattr__(self, "recipient", _text(check_principal(recipient)))
        try:
            object.__setattr__(self, "kind", Kind(kind))
        except ValueError:
            kinds = ", ".join(member.value for member in Kind)
            raise ConfigError(
                f"the kind of a context must be one of {kinds}", rule="config.kind"
            ) from None
        if operation is not None and (not isinstance(operation, str) or len(operation) > 128):
            raise ConfigError("an operation must be a short string", rule="config.operation")
        object.__setattr__(self, "operation", None if operation is None else _text(operation))
        # By type first: an object of another class may call itself equal to anything.
        if transport is not None and (type(transport) is not str or transport not in TRANSPORTS):
            raise ConfigError(
                f"the transport of a context must be one of {', '.join(TRANSPORTS)}",
                rule="config.transport",
            )
        object.__setattr__(self, "transport", transport)
        # Exactly these: 1 would be equal to True where contexts are matched, and "no" is true.
        if same_host is not None and type(same_host) is not bool:
            raise ConfigError("same_host is True, False or None", rule="config.same-host")
        object.__setattr__(self, "same_host", same_host)
        object.__setattr__(self, "addresses", addresses)

    def __str__(self) -> str:
        operation = f" {legible(self.operation)}" if self.operation else ""
        return f"{self.sender} -> {self.recipient} {self.kind.value}{operation}"


#: Bytes of memory that one element of a pickle or of a message's structure counts; a container
#: takes twice as many while it is judged.
ELEMENT = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one message, or one principal, may make a process take, checked before it does.

    Sizes are bytes, others are counts. Defaults hold where a policy names none. The envelope checks
    the first three, what builds the objects of a message the others.
    """

    max_bytes: int = 2 << 30  # one message, all frames
    max_frames: int = 100_000  # frames of one message; Dask shards at 64 MiB
    max_header: int = 1 << 20  # the header of one message, which the envelope does not read
    max_depth: int = 100  # nesting of containers
    max_memory: int = 128 << 20  # what the plain values and pickles of one message become
    max_array: int = 1 << 30  # one array or buffer, after decompression
    max_string: int = 1 << 30  # one text or bytes object inside a pickle, as it is written
    max_int: int = 1 << 16  # bytes of one integer in a pickle; arithmetic on it is quadratic
    max_calls: int = 200_000  # objects that the pickles of one message make by calls
    max_sharing: int = 8  # elements once sharing is undone, as a multiple of :attr:`elements`
    max_copies: int = 4  # bytes that building copies, as a multiple of the input's; 1 MiB is free
    max_key_cost: int = 10_000  # parts of one key that hashing it walks
    max_collisions: int = 64  # keys of one dict or set that share a hash
    max_walk: int = 32  # other keys that one is compared with in a table, on average
    max_connections: int = 4_000  # to one process's servers, of one principal at a time

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value, least = getattr(self, name), _LEAST.get(name, 1)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                what = "a positive integer" if least == 1 else f"an integer of {least} or more"
                raise ConfigError(f"limit {name} must be {what}", rule="config.limits")

    @property
    def elements(self) -> int:
        """Elements of structures and pickles that :attr:`max_memory` holds; work follows them."""
        return self.max_memory // ELEMENT


#: What honest numbers do by chance. Fewer cannot be asked for, so that what stays below these
#: needs no look at each key.
LEAST_COLLISIONS, LEAST_WALK = 8, 16
_LEAST = {"max_collisions": LEAST_COLLISIONS, "max_walk": LEAST_WALK}


class AuditFailure(NamedTuple):
    """What becomes of a message whose record the log cannot write; the greater, the less is known.

    :param level: the place of its word in :data:`AUDIT_FAILURES`.
    :param most: with ``queue``, records that may wait; then messages are refused.
    """

    level: int = 0
    most: int = 0

    def __str__(self) -> str:
        word = AUDIT_FAILURES[self.level]
        return f"{word} {self.most}" if word == "queue" else word


@dataclass(frozen=True, slots=True)
class Grant:
    """What one matched context lets through: an upper bound, never widened by a caller.

    :param context: name of the policy's context that matched.
    :param families: families that may pass, in the policy's order of preference.
    :param profiles: names of the pickle profiles that bound family ``pickle``.
    :param allow: further globals for family ``pickle``, each with its role, as
        ``safeser.allowed`` checked it.
    :param submission: ``"none"``, ``"sealed"`` or ``"code"``.
    :param operations: exact names of operations that are granted.
    :param types: exact ``module:qualname`` of types that may be read by what was registered for
        them with distributed's own decorators, which safeser's authors have not reviewed.
    :param authors: principals whose payloads the sender may relay under all of this grant.
    :param direct: principals that might send the same to the recipient themselves: the context that
        matched is theirs, too. What they wrote passes by a relay in a program's own families.
    :param own: principals whose instances of classes of the recipient's program are rebuilt.
    :ivar of_others: what others may write that the sender relays: families that cannot reach code,
        no type that only its library reads. None where that is all of this grant.
    """

    context: str
    families: tuple[str, ...]
    profiles: tuple[str, ...] = ("data",)
    allow: tuple[Any, ...] = ()
    submission: str = "none"
    operations: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    authors: frozenset[str] = frozenset()
    direct: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    of_others: Grant | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for family in self.families:
            check_family(family)
        for name in self.types:
            check_global(name, rule="config.types")
        if self.submission not in SUBMISSIONS:
            words = f"{', '.join(SUBMISSIONS[:-1])} or {SUBMISSIONS[-1]}"
            raise ConfigError(f"submission must be {words}", rule="config.submission")
        kept = tuple([family for family in self.families if family in HARMLESS])
        of_others = None
        if kept != self.families or self.types:
            of_others = replace(self, families=kept, profiles=(), allow=(), types=frozenset())
        object.__setattr__(self, "of_others", of_others)

    def narrowed(self, families: Sequence[str]) -> Grant:
        """Return this grant cut to *families*: callers can take away, never add."""
        kept = tuple(family for family in self.families if family in families)
        typed = self if "dask" in kept else replace(self, types=frozenset(), own=frozenset())
        return replace(typed, families=kept)

    def vouches_for(self, author: str, *, sender: str) -> bool:
        """Tell whether what *author* wrote passes as if *sender*, who hands it over, wrote it."""
        return author == sender or (author not in (UNKNOWN, ANY_AUTHOR) and author in self.authors)

    def written_by(self, author: str, *, sender: str) -> Grant:
        """Return this grant cut to what *author* may write, where *sender* hands it over."""
        grant = self
        if self.of_others is not None and not self.vouches_for(author, sender=sender):
            grant = self.of_others
            if author in self.direct:
                # A family that is not built in is read by functions that the recipient's program
                # registered. They get from *author* without a relay what they get here.
                kept = [each for each in self.families if each in HARMLESS or each not in FAMILIES]
                grant = replace(grant, families=tuple(kept), types=self.types)
        return grant if author in grant.own or not grant.own else replace(grant, own=frozenset())


_view: Callable[[Any], memoryview] = memoryview
_nbytes: Callable[[memoryview], int] = attrgetter("nbytes")


@dataclass(frozen=True, slots=True)
class Payload:
    """One serialized object that is to be sent, or inside a verified message; not yet decided.

    :param where: path of the field inside the message, for errors and records.
    :param family: family derived from the content, never the one that a header claims.
    :param header: the family's header, plain msgpack values.
    :param frames: the family's frames, buffers in order.
    :param author: principal that wrote it; :data:`ANY_AUTHOR` where a relay lost it.
    :param task: key of the task that its message is about, as text for the log.
    :param task_author: principal whose task that is, as the peer states; for the log only.
    :param digest: of what its author signed, for the log; a pickle's is made when it is recorded.
    """

    where: str
    family: str
    header: dict[str, Any] = field(repr=False)
    frames: tuple[Any, ...] = field(repr=False)
    author: str = ANY_AUTHOR
    task: str = ""
    task_author: str = ""
    digest: str = ""

    @property
    def message(self) -> int | None:
        """The number of its message in the session; None where this process wrote it."""
        return None

    @property
    def nbytes(self) -> int:
        return sum(map(_nbytes, map(_view, self.frames)))


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to "may this pass?", with what an operator needs to understand it.

    :param permitted: the answer. ``bool(decision)`` is not defined, so that no code tests the
        object by accident instead of this field.
    :param rule: stable identifier of the rule that decided.
    :param reason: one plain sentence.
    :param context: name of the policy's context that matched, or the empty string.
    :param fix: the smallest change of policy that would permit it, or the empty string.
    """

    permitted: bool
    rule: str
    reason: str
    context: str = ""
    fix: str = ""

    def __bool__(self) -> bool:
        raise TypeError("ask decision.permitted; a Decision has no truth value")
