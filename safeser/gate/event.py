"""Events of the log and their one encoding: a JSON object a line, bounded, ASCII.

The one rule: whatever a peer makes us log stays one line, below a fixed size, without a byte that a
terminal or another reader would act on. Payload bytes have no field to stand in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from safeser.gate.refusals import AuditError


@dataclass(frozen=True, slots=True, eq=False)
class SessionFacts:
    """What all records of one session have in common, such as its peer's key and address.

    The log writes them once, in a record of their own, and their number in those that follow.
    :func:`clean` does not bound them: they are what a handshake proved, and an address.

    :param id: the start of the session's id, which both ends know.
    :param fields: further fields; those of an event come before them.
    """

    id: str
    fields: Mapping[str, str | bool]


#: What a field of an event may hold; the field ``session`` holds facts, and no other does.
Field: TypeAlias = str | int | bool | Sequence[str] | SessionFacts | None

# A peer chooses the text of some fields (operation, where, globals), so each bound is one on what
# a peer can make us write. The longest real names in Dask traffic are below 120 characters.
MAX_FIELDS = 32
MAX_TEXT = 256  # characters of one string
MAX_ITEMS = 64  # strings of one list
MAX_CHARS = 4_096  # characters of all strings of one record; 12 bytes each when escaped

MAX_INT = (1 << 53) - 1  # what every JSON reader still holds exactly
MAX_BODY = 64 << 10  # bytes of one encoded record

#: Fields that the log itself writes into records, or that reading adds.
RESERVED = frozenset(
    {"case", "decision", "delayed", "n", "policy", "s", "seq", "session", "time", "type"}
)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


def clean(event: Mapping[str, Field]) -> dict[str, object]:
    """Return a copy of *event* that is within every bound; text that is cut ends with ``[+N]``.

    :raises AuditError: if a name or the type of a value is not one that the log knows. Those come
        from code, never from a peer, and a caller that gets this refuses the message.
    """
    if len(event) > MAX_FIELDS:
        raise _refused(f"an event has at most {MAX_FIELDS} fields")
    left = MAX_CHARS
    fields: dict[str, object] = {}
    for name, value in event.items():
        kind = type(value)
        if name not in _free:
            if name == "session" and kind is SessionFacts:
                fields[name] = value
                continue
            _require_free(name)
        if kind is str and len(value) <= MAX_TEXT and len(value) <= left:  # type: ignore[arg-type]
            fields[name] = value
            left -= len(value)  # type: ignore[arg-type]
        elif kind is bool or value is None:
            fields[name] = value
        else:
            fields[name], left = _cleaned(value, left)
    return fields


def _cleaned(value: object, left: int) -> tuple[object, int]:
    """Return a value that is no short text within its bound, and what is left for others."""
    if isinstance(value, str):
        text = _cut(value, left)
        return text, left - min(left, len(text))
    if isinstance(value, int):
        number = int.__int__(value)
        return (number if -MAX_INT <= number <= MAX_INT else "out of range"), left
    if isinstance(value, (list, tuple)):
        return _cut_items(value, left)
    raise _refused("a field holds a string, an integer, a bool, None or a list of strings")


def _require_free(name: object) -> None:
    if type(name) is not str or _NAME.match(name) is None or name in RESERVED:
        raise _refused("a field's name must be a short lower-case word that the log leaves free")
    if len(_free) < _MAX_NAMES:
        _free.add(name)


#: Names that were found to be free. They come from code, never from a peer.
_free: set[str] = set()
_MAX_NAMES = 256


def _cut(text: str, left: int) -> str:
    text = str.__str__(text)  # a subclass could bring its own slicing or encoding
    limit = min(MAX_TEXT, left)
    if len(text) <= limit:
        return text
    return f"{text[:limit]}[+{len(text) - limit}]"


def _cut_items(items: Sequence[str], left: int) -> tuple[list[str], int]:
    kept: list[str] = []
    for item in items:
        if not isinstance(item, str):
            raise _refused("a list in an event holds strings only")
        # Each item pays for its quotes and comma, or a list of empty strings would be free.
        if len(kept) == MAX_ITEMS or left < 4:
            kept.append(f"[+{len(items) - len(kept)} more]")
            break
        text = _cut(item, left - 4)
        kept.append(text)
        left -= min(left, len(text) + 4)
    return kept, left


def encode(fields: Mapping[str, object]) -> bytes:
    """Return the canonical bytes of one record: sorted keys, no spaces, ASCII only."""
    return checked_body(_encode(fields))


def checked_body(text: str) -> bytes:
    """Return the canonical bytes of a record, of which *text* is the JSON as :func:`encode` has it.

    :raises AuditError: if it is too large.
    """
    body = text.encode("ascii")  # JSON escapes all that is not printable ASCII
    if len(body) > MAX_BODY:
        raise _refused("a record is larger than the log allows")
    return body


def _refused(why: str) -> AuditError:
    return AuditError(f"this event cannot be recorded: {why}", rule="audit.event")
