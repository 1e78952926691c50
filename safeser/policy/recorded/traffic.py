"""Gather what audit records say was permitted: who sent whom what, how often and when.

The one rule: records are unverified text. A record that does not name a message which a policy can
be asked about is skipped and counted, and so is everything that was refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from safeser.errors import ConfigError
from safeser.gate.values import ANY_AUTHOR, FAMILY, SEALED, UNKNOWN, Context, Kind, check_principal
from safeser.operations import IN_ANY_RELEASE, NAMES, Channel
from safeser.policy.rules import WEAKEST

__all__ = ["Example", "Message", "Recorded", "Seen", "Traffic", "gather"]

#: Different messages that are told apart: a cluster of hundreds of principals has fewer.
MOST_MESSAGES = 200_000

_PLAIN = "msgpack"

#: Families of which no payload of a relay is asked for beside what it relays.
_APART = frozenset({_PLAIN, "error", "cloudpickle", SEALED})

#: By their names, what operations are without payloads and without what they relay.
_ROWS = {name: [row for row in IN_ANY_RELEASE if row.name == name] for name in NAMES}
_COUNTED = 6  # cells of a row of counts
_MOST_TEXT = 128  # characters of an example; a task's key in a record has no more


class Recorded(Protocol):
    """One record of an audit log; :class:`safeser.audit.Record` is one."""

    @property
    def time(self) -> int: ...

    @property
    def type(self) -> str: ...

    @property
    def fields(self) -> Mapping[str, object]: ...


class Message(NamedTuple):
    """What a policy is asked about, as a record names it.

    :param operation: None for a message that names none.
    :param author: who wrote the payload, or whose value is read, if not the sender.
    :param transport: ``safeser``, or ``library`` for what a program seals itself.
    :param reads: whether the question is if the sender may read values of *author*.
    """

    sender: str
    recipient: str
    kind: Kind
    operation: str | None
    family: str
    author: str | None
    transport: str = "safeser"
    reads: bool = False

    def context(self, *, same_host: bool) -> Context:
        """Return its context, if both ends are on one machine or not, which no log says."""
        return Context(*self[:4], transport=self.transport, same_host=same_host)

    @property
    def is_request(self) -> bool:
        """Whether its sender asks its own policy first, whatever it carries."""
        return any(row.channel is Channel.RPC for row in _ROWS.get(self.operation or "", ()))

    def halves(self) -> Iterator[Message]:
        """Yield what its sender also asks for where its contents make it of a stronger kind.

        Who broadcasts a function asks whether it may ``broadcast`` at all, which is admin.
        """
        rows = _ROWS.get(self.operation or "", ())
        asked = [row.kind for row in rows if row.channel is Channel.RPC]
        if not asked or self.reads or any(row.kind is self.kind for row in rows):
            return
        named = Kind.strongest(asked)
        yield self._replace(kind=named, family=_PLAIN, author=None)
        if self.family not in _APART:
            yield self._replace(kind=Kind.strongest((named, Kind.DATA)))


class Example(NamedTuple):
    """Where the record of one message stands, so that a person finds it.

    :param log: the principal whose process recorded it.
    :param task: key of the task that it was about.
    :param where: the field that held the payload.
    :param single: True if the message has a record of its own; False if it is one of those that a
        record of counts sums up.
    """

    time: int
    log: str = ""
    task: str = ""
    where: str = ""
    single: bool = False


@dataclass(slots=True)
class Seen:
    """How often one message was recorded, and when; times are microseconds since 1970.

    :param example: the first of them that has a record of its own, or else the first counts.
    """

    times: int = 0
    first: int = (1 << 62) - 1
    last: int = 0
    example: Example | None = None

    def add(self, times: int, example: Example) -> None:
        time = example.time
        self.times += times
        self.first, self.last = min(self.first, time), max(self.last, time)
        if self.example is None or (example.single and not self.example.single):
            self.example = example

    def join(self, other: Seen) -> None:
        """Add what *other* has seen."""
        if other.example is None:
            return  # nothing: its times are no moments
        self.add(other.times, other.example)
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)


@dataclass(slots=True)
class Traffic:
    """All messages that some records name.

    :param skipped: permitted messages that no policy can be asked about.
    """

    messages: dict[Message, Seen] = field(default_factory=dict)
    skipped: int = 0

    @property
    def times(self) -> int:
        return sum(seen.times for seen in self.messages.values())


def gather(records: Iterable[Recorded]) -> Traffic:
    """Return the permitted messages that *records* name.

    :raises ConfigError: if they name more different ones than a cluster has.
    """
    traffic = Traffic()
    log = ""
    for record in records:
        if record.type == "genesis":  # the first of each file
            log = _text(record.fields, "principal")
        for message, times, example in _messages(record, log):
            if message is None:
                traffic.skipped += times
                continue
            seen = traffic.messages.get(message)
            if seen is None:
                if len(traffic.messages) >= MOST_MESSAGES:
                    raise ConfigError(
                        f"these logs name more than {MOST_MESSAGES:,} different messages",
                        rule="config.log-size",
                        fix="Name fewer logs at a time.",
                    )
                seen = traffic.messages[message] = Seen()
            seen.add(times, example)
    return traffic


def _messages(record: Recorded, log: str) -> Iterator[tuple[Message | None, int, Example]]:
    fields = record.fields
    if record.type == "counts":
        rows = fields.get("counts")
        example = Example(record.time, log)
        for row in rows if isinstance(rows, list) else ():
            for message, times in _counted(row):
                yield message, times, example
    elif fields.get("event") in ("admit", "read") and fields.get("permitted") is True:
        task, where = _text(fields, "task"), _text(fields, "where")
        yield _admitted(fields), 1, Example(record.time, log, task, where, True)


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value[:_MOST_TEXT] if isinstance(value, str) else ""


def _counted(row: object) -> Iterator[tuple[Message | None, int]]:
    """Yield the message that one row of counts names; the kind is the weakest that it can be."""
    if not isinstance(row, list) or len(row) != _COUNTED:
        return
    sender, recipient, operation, rule, permitted, times = row
    decided = rule == "permit" or (isinstance(rule, str) and rule.startswith("shadow."))
    if permitted is not True or not decided or type(times) is not int or times < 1:
        return
    named = operation if isinstance(operation, str) and operation else None
    kind = Kind.ADMIN if named is None else WEAKEST.get(named)
    message = _message(sender, recipient, kind=kind, operation=named, family=_PLAIN, author=None)
    yield message, times


def _admitted(fields: Mapping[str, object]) -> Message | None:
    text = {
        name: value if isinstance(value, str) else ""
        for name in ("sender", "recipient", "kind", "operation", "family", "author")
        for value in (fields.get(name),)
    }
    kind = next((each for each in Kind if each.value == text["kind"]), None)
    author = None if text["author"] in ("", text["sender"]) else text["author"]
    operation = text["operation"] or None
    reads = fields.get("event") == "read"
    found = _message(
        text["sender"],
        text["recipient"],
        kind=kind,
        operation=operation,
        family=text["family"] or _PLAIN,
        author=author,
    )
    if found is None or (reads and found.author is None):
        return None
    way = fields.get("transport")
    return found._replace(transport=way if way in ("library", "box") else "safeser", reads=reads)


def _message(
    sender: object,
    recipient: object,
    *,
    kind: Kind | None,
    operation: str | None,
    family: str,
    author: str | None,
) -> Message | None:
    """Return the message of these facts, or None if a policy cannot be asked about it."""
    try:
        ends = check_principal(sender), check_principal(recipient)
        if author is not None:
            check_principal(author)
    except ConfigError:
        return None
    unasked = (
        UNKNOWN in (*ends, author, family)
        or ANY_AUTHOR in (*ends, family)  # no policy can declare a family of that name
        or kind is None
        or not FAMILY.match(family)
        or (operation is not None and operation not in NAMES)
    )
    if unasked or kind is None:
        return None
    if operation is not None and WEAKEST[operation].strength > kind.strength:
        return None
    if family == SEALED and operation is None and author == ends[1]:
        return None  # it returns to the principal that signed it, which no policy decides
    return Message(*ends, kind, operation, family, author)
