"""The values of the audit log and their one encoding: a JSON object a line, bounded, ASCII.

The one rule: whatever a peer makes us log stays one line, below a fixed size, without a byte that a
terminal or another reader would act on. Payload bytes have no field to stand in.
"""

from __future__ import annotations

import hashlib
import json
import re
from binascii import unhexlify
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from safeser.errors import AuditError
from safeser.gate.chain import Head, Keys, step
from safeser.gate.event import MAX_BODY, MAX_INT

#: Characters of a task's key, and of the digest at the end of a longer one.
KEY_LENGTH, _KEY_DIGEST = 128, 16

#: Containers inside each other, the record's own included; a record of counts has three.
_MAX_NEST = 8

_PREFIX = b'{"mac":"'
_MIDDLE = b'","record":'
_SUFFIX = b"}"
BODY_AT = len(_PREFIX) + 64 + len(_MIDDLE)

#: Bytes of the longest line, its newline left out.
MAX_LINE = BODY_AT + MAX_BODY + len(_SUFFIX)

# Lower case only: an upper-case digit would be a changed byte that still decodes to the same MAC.
_HEX_MAC = re.compile(rb"[0-9a-f]{64}\Z")
_SEQUENCE = re.compile(rb'[,{]"seq":(0|[1-9][0-9]{0,15})[,}]')
_TIME = re.compile(rb',"time":(0|[1-9][0-9]{0,15})[,}]')
_UNPRINTABLE = re.compile(r"[^ -~]")


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it stands in a file. Reading one does not verify it.

    :param sequence: position in its file; the genesis record is 0.
    :param time: microseconds since 1970, UTC.
    :param type: ``"event"``, which a file does not spell, ``"session"``, ``"counts"``,
        ``"suppressed"``, ``"genesis"``, ``"close"`` and so on.
    :param fields: everything else.
    """

    sequence: int
    time: int
    type: str
    fields: Mapping[str, object]
    mac: bytes = field(repr=False)

    def text(self, name: str) -> str:
        """Return the field *name* if it is a string, else the empty string."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        """Return the field *name* if it is an integer, else -1."""
        value = self.fields.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else -1


def printable(text: str, limit: int = 120) -> str:
    """Return *text* as at most *limit* printable ASCII characters, for messages and terminals."""
    shown = _UNPRINTABLE.sub("?", text[:limit])
    return shown if len(text) <= limit else shown + "..."


def short_key(text: str) -> str:
    """Return the key of a task as records have it: a long one by its start and a digest of all.

    Without the digest a peer could give its tasks keys that no question tells apart.
    """
    if len(text) <= KEY_LENGTH:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_DIGEST]
    return f"{text[: KEY_LENGTH - _KEY_DIGEST - 1]}#{digest}"


def label(text: object) -> str:
    """Return *text* as a label of a count: at most 64 plain characters that JSON never escapes."""
    shown = printable(text, 61) if isinstance(text, str) else "?"
    return shown.replace("\\", "?").replace('"', "?")


def line(mac: bytes, body: bytes) -> bytes:
    """Return the line that stands in the file for one record."""
    return b'{"mac":"%b","record":%b}\n' % (mac.hex().encode("ascii"), body)


def fields_of(raw: bytes) -> tuple[bytes, bytes] | None:
    """Return the hexadecimal MAC, unchecked, and the record bytes of one line, or None."""
    if raw[:8] != _PREFIX or raw[72:BODY_AT] != _MIDDLE or raw[-1:] != _SUFFIX:
        return None
    return raw[8:72], raw[BODY_AT:-1]


def split(raw: bytes) -> tuple[bytes, bytes] | None:
    """Return the MAC and the record bytes of one line without its newline, or None."""
    found = fields_of(raw)
    if found is None or len(raw) > MAX_LINE or _HEX_MAC.match(found[0]) is None:
        return None
    return unhexlify(found[0]), found[1]


def extends(raw: bytes, keys: Keys, head: Head) -> Head | None:
    """Return the head after *raw*, if that is the record that follows *head*."""
    parts = split(raw)
    if parts is None or step(keys.chain, head.mac, head.count, parts[1]) != parts[0]:
        return None
    return Head(head.file, head.count + 1, parts[0], head.size + len(raw) + 1)


def position(body: bytes) -> tuple[int, int] | None:
    """Return the sequence number and time that stand in the canonical *body*, without parsing it.

    A quotation mark inside of a JSON string has a backslash before it, so neither text can be found
    there. Nothing else of *body* is looked at.
    """
    sequence, time = _SEQUENCE.search(body), _TIME.search(body)
    if sequence is None or time is None:
        return None
    found = int(sequence[1]), int(time[1])
    return found if max(found) <= MAX_INT else None


def salvage(raw: bytes) -> tuple[bytes | None, bytes]:
    """Return what stands where a line has its MAC and its record, of a line that may be neither."""
    digits = raw[len(_PREFIX) : len(_PREFIX) + 64]
    mac = bytes.fromhex(digits.decode("ascii")) if _HEX_MAC.match(digits) else None
    return mac, raw[BODY_AT : -len(_SUFFIX)]


def begins_like_a_line(raw: bytes) -> bool:
    """Return whether *raw* can be the start of a line that a kill cut short.

    A loss of power may leave zeros where the rest would have been.
    """
    raw = raw.rstrip(b"\0")
    if len(raw) > MAX_LINE or b"\n" in raw:
        return False
    digits = raw[len(_PREFIX) : len(_PREFIX) + 64]
    middle = raw[BODY_AT - len(_MIDDLE) : BODY_AT]
    return (
        raw[: len(_PREFIX)] == _PREFIX[: len(raw)]
        and re.match(rb"[0-9a-f]*\Z", digits) is not None
        and middle == _MIDDLE[: len(middle)]
    )


#: Number, time, type, other fields and MAC of a record; the fields are the caller's to change.
Parts: TypeAlias = tuple[int, int, str, dict[str, object], bytes]


def parse(raw: bytes) -> Record:
    """Return the record of one line, without its newline. Any bytes give a record or AuditError."""
    return Record(*parts(raw))


def parts(raw: bytes) -> Parts:
    """Return what :func:`parse` makes a record of."""
    found = split(raw)
    if found is None:
        raise _no_record()
    mac, body = found
    fields = _plain(body)
    if fields is None:
        fields = _decoded(body)
    sequence, time, kind = (
        fields.pop("seq", None),
        fields.pop("time", None),
        fields.pop("type", "event"),
    )
    if type(sequence) is not int or type(time) is not int or type(kind) is not str:
        raise _no_record()
    if not (0 <= sequence <= MAX_INT and 0 <= time <= MAX_INT):
        raise _no_record()
    return sequence, time, kind, fields, mac


def own_fields(raw: bytes) -> dict[str, object]:
    """Return everything that stands in the record of a line that parses, in its order."""
    found = split(raw)
    if found is None:
        raise _no_record()
    return _decoded(found[1])


def _plain(body: bytes) -> dict[str, object] | None:
    """Return the fields in *body* if they are texts, bools and numbers in their bounds.

    None says nothing: what it is, :func:`_decoded` finds out. The decoder of json calls nothing
    that is written in Python here, which takes a third of the time.
    """
    try:
        fields, end = _raw_decode(body.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    # Each name is followed by these two characters, and a text may hold them as well.
    if type(fields) is not dict or end != len(body) or body.count(b'":') != len(fields):
        return None
    for value in fields.values():
        kind = type(value)
        if kind is str or kind is bool or value is None:
            continue
        if kind is not int or not -MAX_INT <= value <= MAX_INT:
            return None
    return fields


def _decoded(body: bytes) -> dict[str, object]:
    """Return the fields in *body*."""
    try:
        fields = _decode_strictly(body.decode("ascii"))
    except (ValueError, RecursionError):
        raise _no_record() from None
    if not isinstance(fields, dict) or _is_deep(fields):
        raise _no_record()
    return fields


def _is_deep(fields: dict[str, object]) -> bool:
    """Tell whether *fields* are nested deeper than in any record.

    Writing those as text would exceed the stack.
    """
    level: list[dict[str, object] | list[object]] = [fields]
    for _ in range(_MAX_NEST):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return bool(level)


def _no_record() -> AuditError:
    return AuditError("a line is not a record", rule="audit.record")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name stands twice")
    return fields


def _no_float(_: str) -> NoReturn:
    raise ValueError("the log has no floats")


def _int(text: str) -> int:
    # A sum of longer ones may have more digits than Python prints.
    number = int(text) if len(text) <= _DIGITS else _BEYOND
    if not -MAX_INT <= number <= MAX_INT:
        raise ValueError("the log has no such numbers")
    return number


_DIGITS, _BEYOND = len(str(-MAX_INT)), MAX_INT + 1
_raw_decode = json.JSONDecoder().raw_decode
_decode_strictly = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_int, parse_float=_no_float, parse_constant=_no_float
).decode
