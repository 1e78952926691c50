"""Read strict YAML: the bytes of a policy, or of its tests, into plain values with their places.

The one rule: a policy means what its text shows. Whatever makes YAML mean something else (anchors,
merges, tags, directives, duplicate keys, `no` as false, line breaks that editors do not draw) is
refused. Size and number of values are bounded before parsing, depth while parsing.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import yaml
from yaml.error import Mark, MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
)

from safeser.errors import ConfigError
from safeser.policy.source.faults import Place, fault, shown

__all__ = ["INTEGER", "MAX_BYTES", "MAX_MARKS", "Document", "Path", "Value", "is_plain", "read"]

MAX_BYTES = 1 << 20  # a policy for thousands of principals has a tenth of this

#: A second of parsing; a policy of 100 contexts has 5,000, and 10,000 principals without keys fit.
MAX_MARKS = 30_000

_MAX_DEPTH = 8  # contexts > one context > operations > grant > name needs 5
_MAX_SCALAR = 256  # the longest legal values are operations, 128 characters
_MAX_DIGITS = 19  # 2**63 has 19; Python's int() is quadratic in the number of digits
_MAX_PROBLEM = 100  # characters of what a parser says was wrong

Path = tuple[str | int, ...]
Value = str | int | bool | list["Value"] | dict[str, "Value"]

#: Keys whose value is true or false. Anywhere else those words are refused: a principal or a class
#: of that name is text to one reader of YAML and none to another.
_BOOLEANS = frozenset({"execute", "same_host"})

#: What begins or separates values in YAML, wherever it stands. Counting takes milliseconds, and no
#: text has more than three values for each two of these.
_MARK = re.compile(r"""[\n,\[{] | [:?-](?=[\s,\[\]{}]|\Z) | (?<=["']):""", re.VERBOSE)

INTEGER = re.compile(r"(?:0|[1-9][0-9]*(?:_[0-9]+)*)\Z")

# What some YAML reader, of version 1.1 or 1.2, takes for something other than text. The union of
# both, so that the file means the same to whatever else reads it.
_NOT_TEXT = re.compile(
    r"""(?: ~ | null | y | n | yes | no | on | off | true | false | << | =
      | [-+]? \. (?: inf | nan )
      | [-+]? 0 [box] [0-9a-f_]+
      | [-+]? (?: [0-9][0-9_]* \.? | \.[0-9] ) [0-9_.]* (?: e [-+]? [0-9]+ )?
      | [-+]? [0-9][0-9_]* (?: : [0-5]?[0-9] )+ (?: \. [0-9_]* )?
      | [0-9]{4} - [0-9]{1,2} - [0-9]{1,2} (?: [tT\ ] .* )?
    )\Z""",
    re.VERBOSE | re.IGNORECASE,
)


_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.:-]*[A-Za-z0-9_.-])?\Z")


def is_plain(text: str) -> bool:
    """Tell whether every reader of YAML takes *text*, without quotes, for text."""
    return bool(_PLAIN.match(text)) and not _NOT_TEXT.match(text)


@dataclass(frozen=True, slots=True)
class Document:
    """One policy's text as plain values, with the places that error messages need.

    :param value: the mapping at the top.
    :param source: file or label, for messages.
    :param sha256: of the exact bytes.
    :param places: path of each value to its place.
    :param keys: path of each value to the place of its key, where it has one.
    :param faults: of values that YAML readers disagree on, with their paths.
        :func:`safeser.policy.source.shape.shape_as` refuses the text for them and for the rest.
    """

    value: dict[str, Value]
    source: str
    sha256: str
    places: Mapping[Path, Place]
    keys: Mapping[Path, Place]
    faults: Sequence[tuple[Path, ConfigError]] = ()

    def place(self, path: Path) -> Place | None:
        """Return the place of the value at *path*, or of the nearest value that encloses it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path)

    def key_place(self, path: Path) -> Place | None:
        return self.keys.get(path) or self.place(path)


@dataclass(slots=True)
class _Open:
    """A mapping or sequence whose end has not been read yet."""

    path: Path
    into: dict[str, Value] | list[Value]
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    """Builds the values from parser events, with a stack instead of recursion.

    :param what: what the file is, for messages.
    """

    source: str
    what: str
    root: Value | None = None
    stack: list[_Open] = field(default_factory=list)
    places: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    documents: int = 0
    faults: list[tuple[Path, ConfigError]] = field(default_factory=list)

    def refuse(
        self, message: str, event: Event, *, rule: str = "config.yaml", fix: str = ""
    ) -> NoReturn:
        place = _place(event.start_mark)
        raise fault(message, source=self.source, place=place, rule=rule, fix=fix)

    def take(self, event: Event) -> None:
        if isinstance(event, DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self.refuse(f"{self.what} is one YAML document; another one starts", event)
        elif isinstance(event, NodeEvent):
            self._node(event)
        elif self.stack and event.__class__.__name__ in ("MappingEndEvent", "SequenceEndEvent"):
            self.stack.pop()

    def _node(self, event: NodeEvent) -> None:
        if isinstance(event, AliasEvent) or event.anchor is not None:
            self.refuse(
                f"anchors and aliases are not allowed in {self.what}", event, fix="Write it out."
            )
        if getattr(event, "tag", None) is not None:
            self.refuse(
                f"YAML tags are not allowed in {self.what}", event, fix="Leave the tag out."
            )
        if isinstance(event, CollectionStartEvent):
            self._collection(event)
        else:
            assert isinstance(event, ScalarEvent)
            self._scalar(event)

    def _collection(self, event: CollectionStartEvent) -> None:
        if len(self.stack) >= _MAX_DEPTH:
            self.refuse(f"{self.what} does not nest this deep", event)
        if self._at_key():
            self.refuse("a key must be plain text", event)
        mark = event.start_mark
        if re.fullmatch(r"[^\"']:", mark.buffer[max(0, mark.pointer - 2) : mark.pointer]):
            # {a:[b]}: one parser takes it for {a: [b]}, others for a mistake.
            self.refuse("a space is missing after ':'", event)
        into: dict[str, Value] | list[Value] = {} if isinstance(event, MappingStartEvent) else []
        path = self._put(into, event)
        self.stack.append(_Open(path, into))

    def _scalar(self, event: ScalarEvent) -> None:
        value = self._text(event)
        doubtful = None if event.style or type(value) is not str else self._doubtful(value, event)
        if not self._at_key():
            path = self._put(value, event)
            if doubtful is not None:
                self.faults.append((path, doubtful))
            return
        if doubtful is not None:
            raise doubtful
        if not isinstance(value, str):
            self.refuse("a key must be text", event, fix="Write it in quotes.")
        top = self.stack[-1]
        if value in top.into:
            first = self.keys[(*top.path, value)]
            self.refuse(
                f"key {shown(value)} was already given at {first}",
                event,
                rule="config.duplicate-key",
                fix="Keep one of the two.",
            )
        top.key = value
        self.keys[(*top.path, value)] = _place(event.start_mark)

    def _at_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].into, dict) and not self.stack[-1].key

    def _put(self, value: Value, event: NodeEvent) -> Path:
        path: Path = ()
        if not self.stack:
            self.root = value
        else:
            top = self.stack[-1]
            if isinstance(top.into, list):
                path = (*top.path, len(top.into))
                top.into.append(value)
            else:
                assert top.key is not None
                path = (*top.path, top.key)
                top.into[top.key] = value
                top.key = None
        self.places[path] = _place(event.start_mark)
        return path

    def _text(self, event: ScalarEvent) -> str | int | bool:
        text = event.value
        if len(text) > _MAX_SCALAR:
            self.refuse(f"no value in {self.what} is longer than {_MAX_SCALAR} characters", event)
        if not text:
            self._refuse_empty(event)
        if not (text.isascii() and text.isprintable()):
            # Another alphabet's letter that looks like ours would name another principal.
            self.refuse(
                f"{shown(text)} has characters outside printable ASCII",
                event,
                rule="config.characters",
            )
        if event.style:
            return str(text)
        if INTEGER.match(text):
            digits = text.replace("_", "")
            if len(digits) > _MAX_DIGITS:
                self.refuse("that number is too large", event, rule="config.number")
            return int(digits)
        if text in ("true", "false") and self.stack and self.stack[-1].key in _BOOLEANS:
            return bool(text == "true")
        return str(text)

    def _doubtful(self, text: str, event: ScalarEvent) -> ConfigError | None:
        """Return the fault of a plain *text* that some YAML reader takes for something else."""
        if not _NOT_TEXT.match(text):
            return None
        key = self.stack[-1].key if self.stack else None
        return fault(
            f"{shown(text)} is not text to every YAML reader",
            source=self.source,
            place=_place(event.start_mark),
            rule="config.ambiguous",
            fix=_unambiguous(text, boolean=key in _BOOLEANS),
        )

    def _refuse_empty(self, event: ScalarEvent) -> NoReturn:
        # YAML places an absent value after the blank lines and comments that follow its key.
        top = self.stack[-1] if self.stack else None
        place = _place(event.start_mark)
        if top is not None and top.key is not None and not event.style:
            place = self.keys[(*top.path, top.key)]
        raise fault(
            "there is no value here",
            source=self.source,
            place=place,
            rule="config.yaml",
            fix="Give one, or leave the key out; for no entries write [] or {}.",
        )


#: What some readers take for true, and what for false.
_YES, _NO = frozenset({"yes", "y", "on", "true"}), frozenset({"no", "n", "off", "false"})


def _unambiguous(text: str, *, boolean: bool) -> str:
    """Return what to write in place of *text*.

    :param boolean: whether it stands where true or false belongs.
    """
    if boolean and text.lower() in _YES | _NO:
        return f"Write {'true' if text.lower() in _YES else 'false'}."
    if text.startswith("-"):
        return f"Write '{text}' in quotes if it is a name. Numbers have no sign: none is negative."
    if text.count("-") == 2:
        return f"Write a date in quotes: '{text}'."
    return f"Write '{text}' in quotes if it is a name, or a plain number without sign."


def read(data: bytes, *, source: str, what: str = "a policy") -> Document:
    """Return the values in *data*, the bytes of one file.

    :param what: what the file is, for messages.
    :raises ConfigError: if they are not strict YAML within the bounds of this module.
    """
    # 1. Bound, then decode, then look for what an editor would not show, then parse.
    text = _decode(data, source, what)
    # More values than are worth parsing, before any of it is parsed.
    beyond = next(itertools.islice(_MARK.finditer(text), MAX_MARKS, None), None)
    if beyond is not None:
        raise fault(
            f"{what} has {MAX_MARKS} line ends and marks of YAML at most",
            source=source,
            place=Place(text.count("\n", 0, beyond.start()) + 1, 1),
            rule="config.size",
            fix="Give principals groups, and name those in contexts; keys can stand in a roster.",
        )
    _check_characters(text, source, what)
    builder = _Builder(source, what)
    try:
        for event in yaml.parse(text):
            builder.take(event)
    except MarkedYAMLError as error:
        place = _place(error.problem_mark) if error.problem_mark else None
        message, fix = _not_yaml(error, text)
        raise fault(message, source=source, place=place, rule="config.yaml", fix=fix) from None
    except (YAMLError, ValueError, OverflowError):
        # ValueError and OverflowError: escapes such as "\\UFFFFFFFF" that name no character.
        raise fault("that is not YAML", source=source, place=None, rule="config.yaml") from None
    # 2. The top is a mapping.
    if not isinstance(builder.root, dict):
        raise fault(
            f"{what} is a mapping that starts with 'safeser: 1'",
            source=source,
            place=Place(1, 1),
            rule="config.yaml",
        )
    digest = hashlib.sha256(data).hexdigest()
    return Document(
        builder.root, source, digest, builder.places, builder.keys, tuple(builder.faults)
    )


def _not_yaml(error: MarkedYAMLError, text: str) -> tuple[str, str]:
    """Return what the parser says, where an incomplete construct began, and a fix."""
    what = "that is not YAML"
    shifted = _shifted(error, text)
    if shifted is not None:
        above, spaces, own = shifted
        return (
            f"this line is indented by {own} spaces, and line {above}, which it follows, by"
            f" {spaces}",
            f"Indent it by {spaces} if it belongs beside that line.",
        )
    # What it says of escapes in quotes names characters; everything else was checked before.
    if error.problem and error.problem.isascii() and error.problem.isprintable():
        what += f": {error.problem[:_MAX_PROBLEM]}"
    began, seen = error.context_mark, error.problem_mark
    if began and seen and began.line != seen.line:
        what += f" ({error.context}, which began at {_place(began)})"
    return what, ""


def _shifted(error: MarkedYAMLError, text: str) -> tuple[int, int, int] | None:
    """Return the line above that of *error* and the spaces before both, if that is what is wrong.

    A line that opens a block, or ends with a comma or bracket, may have any line below it.
    """
    if error.problem_mark is None or not (error.problem or "").startswith(_OF_INDENTATION):
        return None
    lines = text.split("\n")[: error.problem_mark.line + 1]
    written = [(n, t) for n, t in enumerate(lines, 1) if t.strip() and t.lstrip()[0] != "#"]
    if len(written) < 2:
        return None
    (above, line), (_, here) = written[-2:]
    spaces = len(line) - len(line.lstrip(" -"))  # an entry's keys stand behind its dash
    own = len(here) - len(here.lstrip(" "))
    opens = line.rstrip().endswith((":", ",", "[", "{"))
    near = not opens and here[own] != "-" and 0 < abs(own - spaces) <= _NEARLY
    return (above, spaces, own) if near else None


#: What the parser says of a line that stands too far left or right, among other things.
_OF_INDENTATION = ("expected <block end>", "mapping values are not allowed")

#: Spaces by which a line is off that was meant to stand beside the one above it.
_NEARLY = 3


def _decode(data: bytes, source: str, what: str) -> str:
    if len(data) > MAX_BYTES:
        raise fault(
            f"{what} has {MAX_BYTES} bytes at most", source=source, place=None, rule="config.size"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise fault(
            f"{what} is UTF-8 text", source=source, place=Place(line, 1), rule="config.encoding"
        ) from None


def _check_characters(text: str, source: str, what: str) -> None:
    """Refuse what YAML and an editor would show or break into lines differently.

    A second end of the document is refused as well, which one parser skips and another does not.
    """
    ends = 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        ends += line[:4].rstrip() == "..."
        if ends > 1:
            raise fault(
                f"{what} is one YAML document; another one starts",
                source=source,
                place=Place(number, 1),
                rule="config.yaml",
            )
        if line.startswith("%"):
            raise fault(
                f"YAML directives are not allowed in {what}",
                source=source,
                place=Place(number, 1),
                rule="config.yaml",
            )
        if line.isascii() and line.isprintable():
            continue
        for column, character in enumerate(line, 1):
            # Cc: controls, a lone CR and NEL; Cf: BOM, bidirectional overrides, zero width;
            # Zl, Zp: line breaks to YAML 1.1 that end a comment unseen; Cs, Co, Cn: nothing at all.
            if unicodedata.category(character) in _UNSEEN:
                raise fault(
                    f"U+{ord(character):04X} is invisible or changes how lines are shown",
                    source=source,
                    place=Place(number, column),
                    rule="config.characters",
                    fix="Delete it, and use spaces for indentation.",
                )


_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"})


def _place(mark: Mark) -> Place:
    return Place(mark.line + 1, mark.column + 1)
