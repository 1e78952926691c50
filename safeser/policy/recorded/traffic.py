"""Gather what audit records say was permitted: who sent whom what, how often and when.

The one rule: records are unverified text. A record that does not name a message which a policy can
be asked about is skipped and counted, and so is everything that was refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from safeser.errors import ConfigError
from safeser.operations import NAMES
from safeser.policy.rules import WEAKEST
from safeser.values import (
    ANY_AUTHOR,
    FAMILY,
    SEALED,
    UNKNOWN,
    Context,
    Kind,
    check_principal,
)

__all__ = ["Message", "Recorded", "Seen", "Traffic", "gather"]

#: Different messages that are told apart: a cluster of hundreds of principals has fewer.
MOST_MESSAGES = 200_000

_PLAIN = "msgpack"
_COUNTED = 6  # cells of a row of counts
_TEXT = 120


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
    :param author: who wrote the payload, if not the sender.
    """

    sender: str
    recipient: str
    kind: Kind
    operation: str | None
    family: str
    author: str | None

    @property
    def context(self) -> Context:
        return Context(self.sender, self.recipient, self.kind, self.operation)


@dataclass(slots=True)
class Seen:
    """How often one message was recorded, and when; times are microseconds since 1970.

    :param where: the field of one of them that held the payload.
    """

    times: int = 0
    first: int = (1 << 62) - 1
    last: int = 0
    where: str = ""

    def add(self, time: int, times: int, where: str) -> None:
        self.times += times
        self.first, self.last = min(self.first, time), max(self.last, time)
        self.where = self.where or where


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
    for record in records:
        for message, times, where in _messages(record):
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
            seen.add(record.time, times, where)
    return traffic


def _messages(record: Recorded) -> Iterator[tuple[Message | None, int, str]]:
    fields = record.fields
    if record.type == "counts":
        rows = fields.get("counts")
        for row in rows if isinstance(rows, list) else ():
            yield from _counted(row)
    elif fields.get("event") == "admit" and fields.get("permitted") is True:
        where = fields.get("where")
        yield _admitted(fields), 1, where[:_TEXT] if isinstance(where, str) else ""


def _counted(row: object) -> Iterator[tuple[Message | None, int, str]]:
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
    yield message, times, ""


def _admitted(fields: Mapping[str, object]) -> Message | None:
    text = {
        name: value if isinstance(value, str) else ""
        for name in ("sender", "recipient", "kind", "operation", "family", "author")
        for value in (fields.get(name),)
    }
    kind = next((each for each in Kind if each.value == text["kind"]), None)
    author = None if text["author"] in ("", text["sender"]) else text["author"]
    operation = text["operation"] or None
    return _message(
        text["sender"],
        text["recipient"],
        kind=kind,
        operation=operation,
        family=text["family"] or _PLAIN,
        author=author,
    )


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
