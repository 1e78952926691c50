"""Records as text: a line of a terminal, a row of CSV, a line of JSON.

The one rule: what a peer wrote stays text. No byte of it moves a cursor, and no cell is a formula.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from safeser.audit.outputs.lines import line_with
from safeser.audit.reading.alike import copied_fields
from safeser.audit.reading.rendering import Rendering
from safeser.audit.reading.search import Found
from safeser.audit.record import Record
from safeser.audit.report import stamp

#: The columns of CSV.
COLUMNS = (
    *("time", "log", "type", "event", "permitted", "rule", "sender", "recipient", "context"),
    *("kind", "operation", "family", "author", "task_author", "task", "where", "global", "bytes"),
    *("digest", "decision", "session", "address", "key", "suite", "policy", "shadow_rule"),
    *("reason", "times", "sequence"),
)

# A spreadsheet takes a cell that begins with one of these for a formula, spaces in front or not.
# Where it separates cells by another character, one begins within a value, quotes in front or not.
_FORMULA = re.compile(r"""(^|[;|])(?=[ "]*[=+\-@])""")

# Cells that escaping would leave as they are: no ";" or "|", behind which a formula could begin, no
# backslash, and a first character that begins no formula. Longer ones take the general way.
_PLAIN_CELL = re.compile(r"[A-Za-z0-9_][ -:<-\[\]-{}~]{0,255}")

# The same without a comma or quotation mark, for which CSV puts quotation marks around a cell.
_PLAIN_TEXT = re.compile(rb"[A-Za-z0-9_][ !#-+\--:<-\[\]-{}~]*")

#: What a line shows of one text.
_SHOWN = 120


def escaped(text: str, limit: int = _SHOWN) -> str:
    """Return the start of *text* as printable ASCII, in which an escape shows as an escape."""
    if len(text) <= limit and text.isascii() and text.isprintable() and "\\" not in text:
        return text
    shown = text[:limit].encode("unicode_escape", "backslashreplace").decode("ascii")
    return shown if len(text) <= limit else shown + "..."


def when(time: int, *, short: bool = False) -> str:
    """Return microseconds since 1970 as text, UTC."""
    found = stamp(time)
    if found == "-" or not short:
        return found
    return f"{found[5:10]} {found[11:19]}"


def lines(found: Iterable[Found], width: int | None) -> Iterator[str]:
    """Yield each of *found* as one line, UTC, of at most *width* columns if that is given."""
    for text in map(Rendering(_line, when=partial(when, short=True)), found):
        yield text if width is None or len(text) <= width else text[: max(0, width - 2)] + ".."


def _line(found: Found) -> str:
    record = found.record
    permitted = record.fields.get("permitted")
    outcome = "ok" if permitted is True else "REFUSED" if permitted is False else "-"
    return " ".join([when(record.time, short=True), outcome.ljust(7), *_parts(found.log, record)])


def _parts(log: str, record: Record) -> list[str]:
    """Return who, what and why; of a record about the log itself, its type."""
    sender, recipient = record.text("sender"), record.text("recipient")
    if not sender:
        others = [
            f"{escaped(name)}={escaped(_text(value))}"
            for name, value in sorted(record.fields.items())
            if name != "policy" and not isinstance(value, list)
        ]
        return [escaped(log), escaped(record.type), *others]
    who = f"{escaped(sender)} -> {escaped(recipient)}" if recipient else escaped(sender)
    event = record.text("event")
    refused = record.fields.get("permitted") is False
    author = user_of(record)
    named = record.text("global") or record.text("task") or record.text("where")
    if not named and not record.text("operation"):
        named = record.text("reason")  # such as whose key ended a session
    parts = [
        who,
        escaped(event) if event not in ("", "admit", "refuse") else "",
        escaped(record.text("operation")) or ("reply" if record.text("family") else ""),
        escaped(record.text("family")),
        escaped(record.text("rule")) if refused else "",
        f"by {escaped(author)}" if author not in ("", sender) else "",
        f"x{record.number('times')}" if "times" in record.fields else "",
        escaped(named),
        f"shadow {escaped(record.text('shadow_rule'))}" if "shadow_rule" in record.fields else "",
    ]
    return [part for part in parts if part]


def user_of(record: Record) -> str:
    """Return whose task a record is about, as its sender states, or else who wrote the payload."""
    return record.text("task_author") or record.text("author")


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return (
        json.dumps(value, ensure_ascii=True) if not isinstance(value, int) else str(value).lower()
    )


def cell(value: object) -> str:
    """Return *value* as one cell of CSV that no spreadsheet takes for a formula."""
    return _cell(_text(value))


@lru_cache(maxsize=256)  # of 29 cells some five are new; the others repeat earlier rows
def _cell(text: str) -> str:
    if not text or _PLAIN_CELL.fullmatch(text):
        return text
    return _FORMULA.sub(r"\1'", escaped(text, 4_096))


def csv_lines(found: Iterable[Found]) -> Iterator[str]:
    """Yield each of *found* as a line of CSV under :data:`COLUMNS`, ASCII."""
    yield _csv_line(COLUMNS)
    yield from map(Rendering(lambda each: _csv_line(_row(each)), spelled=_csv_text), found)


class _Echo:
    """A file that returns what is written to it, as the writer of CSV then does."""

    @staticmethod
    def write(text: str) -> str:
        return text


_csv_line: Callable[[Iterable[str]], str] = csv.writer(_Echo(), lineterminator="").writerow


def _csv_text(text: bytes) -> bytes:
    if _PLAIN_TEXT.fullmatch(text):
        return text
    return _csv_line([cell(text.decode("ascii"))]).encode("ascii")


def _row(found: Found) -> list[str]:
    record = found.record
    said = copied_fields(record.fields)
    said["time"] = when(record.time)
    said["log"] = found.log
    said["type"] = record.type
    said["sequence"] = record.sequence
    return [cell(said[name]) if name in said else "" for name in COLUMNS]


def json_lines(found: Iterable[Found]) -> Iterator[str]:
    """Yield each of *found* as one line of JSON, ASCII."""
    return map(Rendering(_json_line), found)


def _json_line(found: Found) -> str:
    said = copied_fields(found.record.fields)
    said["log"] = found.log
    return line_with(found.record, said)


class Counted(NamedTuple):
    """How often the same values of some fields were found, and from when to when."""

    times: int
    values: tuple[str, ...]
    first: int
    last: int


def counted(found: Iterable[Found], fields: Sequence[str]) -> list[Counted]:
    """Return how often each combination of the values of *fields* occurs, the most frequent first.

    A record of counts is as many as it says. Beside fields of records there are ``log``, ``type``
    and ``user``: whose task it is, or else who wrote the payload.
    """
    table: dict[tuple[str, ...], list[int]] = {}
    ways = [(name, name not in _DERIVED) for name in fields]
    for each in found:
        record = each.record
        said = record.fields
        values = tuple(
            [
                value if type(value) is str else _text(value)
                for value in [said.get(name) if own else _value(each, name) for name, own in ways]
            ]
        )
        times = record.number("times") if "times" in said else 1
        entry = table.get(values)
        if entry is None:
            table[values] = [times, record.time, record.time]
        else:
            entry[0] += times
            entry[2] = record.time
    rows = [Counted(times, values, *span) for values, (times, *span) in table.items()]
    return sorted(rows, key=lambda each: (-each.times, each.values))


#: What is counted by and is no field of a record.
_DERIVED = frozenset({"log", "type", "user"})


def _value(found: Found, name: str) -> str:
    if name == "log":
        return found.log
    if name == "user":
        return user_of(found.record)
    return found.record.type
