"""The roster: which public key speaks for which principal, in which state and between which dates.

The one rule: a key belongs to one line, thus to one principal. It opens sessions only while it is
active, its signing key's signatures verify only while it is active or verify-only, and both only on
the days that its line names.
"""

from __future__ import annotations

import datetime
import enum
import hashlib
import os
import re
import shlex
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from safeser.errors import ConfigError
from safeser.gate.key_pairs import Owner, Owners, PublicKey
from safeser.gate.values import check_principal
from safeser.identity.files import read_file, refused, replace_file
from safeser.identity.identities import Identity, public_text
from safeser.identity.paths import shown
from safeser.identity.signing import VerifyingKey

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_ROSTER_MAX_BYTES = 4 << 20
_ROSTER_MAX_ENTRIES = 20_000  # a key for each node of the largest clusters; 4 MiB of lines
_COMMENT_MAX = 200
#: How a roster of a later format begins; this one has lines of keys and no header.
_OTHER_FORMAT = "safeser-roster"
#: The closing line: without it, a file that was cut between two lines would be a roster with fewer
#: keys, and what is missing could be that a key is retired.
_CLOSING = re.compile(r"^end (0|[1-9][0-9]{0,5})\r?\n", re.MULTILINE)


class KeyState(enum.Enum):
    """Where a key is in its life: which of sessions and signatures it stands for.

    ``active`` keys open sessions, and signatures by them verify. ``verify-only`` keys open none,
    while signatures by them still verify. ``pending`` and ``retired`` keys stand for neither.
    """

    PENDING = "pending"
    ACTIVE = "active"
    VERIFY_ONLY = "verify-only"
    RETIRED = "retired"


# When two rosters disagree about a key, the more careful state wins: the key may do what both
# rosters allow. Verify-only and pending have nothing in common, so pending is the more careful one,
# and a signature verifies only where no roster says that the key is not in use yet. Retired is for
# good.
_CAREFUL = (KeyState.ACTIVE, KeyState.VERIFY_ONLY, KeyState.PENDING, KeyState.RETIRED)
_VERIFIES = frozenset({KeyState.ACTIVE, KeyState.VERIFY_ONLY})


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One line of a roster: a public key, whose it is, its state, and since when it is listed.

    :param not_before: the first day on which it opens sessions; None for any.
    :param not_after: the last day on which it has sessions; None for no end. Days are UTC.
    :param verifying: the Ed25519 key of the same identity, for which state and days count as well.
    """

    public: PublicKey
    principal: str
    state: KeyState
    created: datetime.date
    comment: str = ""
    not_before: datetime.date | None = None
    not_after: datetime.date | None = None
    verifying: VerifyingKey | None = None

    def __post_init__(self) -> None:
        check_principal(self.principal)
        comment = self.comment
        if comment != comment.strip() or not comment.isprintable() or len(comment) > _COMMENT_MAX:
            raise ConfigError(
                f"a comment in a roster is at most {_COMMENT_MAX} printable characters",
                rule="config.roster",
            )
        if comment.startswith(_DATED):
            raise ConfigError(
                "a comment in a roster does not begin with not_before= or not_after=",
                rule="config.roster",
                fix="Write each of the two dates once, not_before= first, before the comment.",
            )
        if self.not_before and self.not_after and self.not_before > self.not_after:
            raise ConfigError(
                f"not_before={self.not_before} is later than not_after={self.not_after}",
                rule="config.roster",
                fix="Exchange the two dates, or leave one out.",
            )

    def speaks(self, on: datetime.date) -> bool:
        """Tell whether the key opens sessions for its principal on the day *on*."""
        return self.state is KeyState.ACTIVE and self.owner.has_on(on)

    @property
    def owner(self) -> Owner:
        """Whose its keys are, and on which days, whatever its state."""
        return Owner(self.principal, self.not_before, self.not_after)

    def ended(self, on: datetime.date) -> bool:
        """Tell whether the last day of the key is before *on*."""
        return self.not_after is not None and self.not_after < on

    @property
    def keys(self) -> tuple[PublicKey | VerifyingKey, ...]:
        """The public keys of the line, one or two."""
        return (self.public,) if self.verifying is None else (self.public, self.verifying)

    @classmethod
    def of(cls, identity: Identity, *, created: datetime.date) -> RosterEntry:
        """Return the line that lists the public keys of *identity* as active."""
        return cls(
            identity.public,
            identity.principal,
            KeyState.ACTIVE,
            created,
            verifying=identity.verifying,
        )

    @classmethod
    def parse(cls, line: str) -> RosterEntry:
        """Return the entry of one line: keys, principal, state, date, maybe dates, a comment."""
        key, rest = _word(line.strip())
        if key == _OTHER_FORMAT:
            raise ConfigError(
                "this is a roster of another format than this version of safeser reads",
                rule="config.roster-version",
                fix="Install the version of safeser that wrote it, or list one key a line.",
            )
        signing, behind = _word(rest)
        has_signing = ":" in signing  # no principal has one in its name
        fields = (behind if has_signing else rest).split(None, 3)
        if len(fields) < 3:
            raise ConfigError(
                "a roster line is: key, signing key if there is one, principal, state, date and, if"
                " you like, not_before=DATE, not_after=DATE and a comment",
                rule="config.roster",
            )
        rest = fields[3] if len(fields) == 4 else ""
        not_before, rest = _dated(rest, "not_before=")
        not_after, rest = _dated(rest, "not_after=")
        return cls(
            PublicKey.parse(key),
            fields[0],
            _state(fields[1]),
            parse_date(fields[2]),
            rest,
            not_before,
            not_after,
            VerifyingKey.parse(signing) if has_signing else None,
        )

    def text(self) -> str:
        fields = [public_text(self.public, self.verifying), self.principal, self.state.value]
        fields.append(self.created.isoformat())
        for word, date in zip(_DATED, (self.not_before, self.not_after), strict=True):
            fields += [f"{word}{date.isoformat()}"] if date is not None else []
        return " ".join([*fields, self.comment] if self.comment else fields)


_DATED = ("not_before=", "not_after=")


def _word(text: str) -> tuple[str, str]:
    """Return the first word of *text* and what follows it."""
    first, *rest = text.split(None, 1) or [""]
    return first, "".join(rest)


def _state(text: str) -> KeyState:
    try:
        return KeyState(text)
    except ValueError:
        raise ConfigError(
            "the state of a key is pending, active, verify-only or retired", rule="config.roster"
        ) from None


def _dated(rest: str, word: str) -> tuple[datetime.date | None, str]:
    """Return the date that *rest* names after *word*, if it begins so, and what follows it."""
    if not rest.startswith(word):
        return None, rest
    first, _, rest = rest.partition(" ")
    return parse_date(first.removeprefix(word)), rest.strip()


def parse_date(text: str) -> datetime.date:
    """Return the day that *text* spells, like 2026-01-31."""
    try:
        # fromisoformat alone would take week dates and the basic format too.
        return datetime.date.fromisoformat(text if _DATE.match(text) else "")
    except ValueError:
        raise ConfigError(
            "a date in a roster is written like 2026-01-31", rule="config.roster"
        ) from None


def today() -> datetime.date:
    """Return the day that roster dates are compared with: that of UTC."""
    return datetime.datetime.now(datetime.UTC).date()


class Roster:
    """The public keys of all principals. Immutable; a changed roster is a new value."""

    __slots__ = ("_entries", "_lines", "_owners")

    def __init__(self, entries: Iterable[RosterEntry] = ()) -> None:
        self._entries = tuple(entries)
        self._lines: _Lines = {}
        for entry in self._entries:
            _claim(self._lines, entry)
        if len(self._entries) > _ROSTER_MAX_ENTRIES:
            raise ConfigError(
                f"a roster lists at most {_ROSTER_MAX_ENTRIES} keys", rule="config.roster"
            )
        owners: dict[Hashable, Owner] = {}
        for entry in self._entries:
            if entry.state is KeyState.ACTIVE:
                owners[entry.public] = entry.owner
            if entry.verifying is not None and entry.state in _VERIFIES:
                owners[entry.verifying] = entry.owner
        self._owners = Owners(owners)

    @property
    def entries(self) -> tuple[RosterEntry, ...]:
        return self._entries

    def entry_of(self, key: PublicKey | VerifyingKey) -> RosterEntry | None:
        """Return the line of *key*, whatever its state; None if it is not listed."""
        return self._lines.get(key)

    def principal_of(self, public: PublicKey, *, on: datetime.date | None = None) -> str | None:
        """Return whose key *public* is; None unless it is listed, active and within its dates.

        :param on: the day that the dates are compared with; None for today.
        """
        return self._owners.of(public, on or today())

    def author_of(self, verifying: VerifyingKey, *, on: datetime.date | None = None) -> str | None:
        """Return whose signatures *verifying* verifies.

        None unless it is listed, active or verify-only, and within its dates. A signature counts
        for this principal only; the caller compares it with the author that the statement names.

        :param on: the day that the dates are compared with; None for today.
        """
        return self._owners.of(verifying, on or today())

    def keys_of(self, principal: str) -> tuple[PublicKey, ...]:
        """Return the active keys of *principal* whose dates include today, in this order."""
        day = today()
        entries = self._entries
        return tuple(e.public for e in entries if e.principal == principal and e.speaks(day))

    def with_entry(self, entry: RosterEntry) -> Roster:
        """Return this roster with *entry* added, or in place of the same key's entry."""
        listed = {each.public: each for each in self._entries}
        known = listed.get(entry.public)
        if known is not None and known.principal != entry.principal:
            raise _listed_twice(known, entry, entry.public)
        return Roster({**listed, entry.public: entry}.values())

    def merged(self, other: Roster) -> Roster:
        """Return the keys of both. Where they differ, retired wins, then pending, then verify-only,
        and the dates that allow less. A signing key that one of the two lists counts.
        """
        merged = {each.public: each for each in self._entries}
        for entry in other.entries:
            known = merged.setdefault(entry.public, entry)
            if known.principal != entry.principal:
                raise _listed_twice(known, entry, entry.public)
            if known.verifying and entry.verifying and known.verifying != entry.verifying:
                raise ConfigError(
                    f"key {entry.public.fingerprint} of {entry.principal} is listed with two"
                    " signing keys",
                    rule="config.roster",
                    fix="List the signing key that its owner shows; 'safeser keys fingerprint'"
                    " prints it.",
                )
            careful = max(known, entry, key=lambda each: _CAREFUL.index(each.state))
            merged[entry.public] = replace(
                careful,
                not_before=max(filter(None, (known.not_before, entry.not_before)), default=None),
                not_after=min(filter(None, (known.not_after, entry.not_after)), default=None),
                verifying=known.verifying or entry.verifying,
            )
        return Roster(merged.values())

    @classmethod
    def parse(cls, text: str, source: str = "roster") -> Roster:
        """Return the roster that *text* spells; empty lines and # comments don't count.

        A text need not have the closing line of a file; one that it has must be its last and right.

        :param source: name of the file, for errors.
        """
        if len(text.encode("utf-8", "surrogatepass")) > _ROSTER_MAX_BYTES:
            raise refused(source, "is too large for a roster", rule="config.roster")
        lines: _Lines = {}
        entries: list[RosterEntry] = []
        body, count = _split(text)
        for number, line in meaningful(body):
            try:
                entry = RosterEntry.parse(line)
                _claim(lines, entry)
            except ConfigError as error:
                where = f"{shown(source)} line {number}"
                rule = error.rule if error.rule == "config.roster-version" else "config.roster"
                raise ConfigError(error.message, rule=rule, where=where, fix=error.fix) from None
            entries.append(entry)
        if count not in (None, len(entries)):
            raise _unfinished(source, f"lists {len(entries)} keys, and ends with 'end {count}'")
        return cls(entries)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Roster:
        """Read the roster at *path*, which only its owner, we or root, may be able to write."""
        return cls.decode(cls.read(path), os.fspath(path))

    @staticmethod
    def read(path: str | os.PathLike[str]) -> bytes:
        """Return the bytes of the file at *path*; :meth:`decode` reads them as a roster."""
        return read_file(
            path, "public", limit=_ROSTER_MAX_BYTES, rule="config.roster", make="safeser keys init"
        )

    @classmethod
    def decode(cls, data: bytes, source: str, *, closed: bool = True) -> Roster:
        """Return the roster that the bytes of a file spell; *source* names the file in errors.

        :param closed: whether it must have its closing line; otherwise any such line is ignored.
        :raises ConfigError: if it has not, or one line of it is wrong.
        """
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise refused(source, "is not UTF-8 text", rule="config.roster") from None
        if not closed:
            text = without_closing(text)
        elif len(data) <= _ROSTER_MAX_BYTES and _split(text)[1] is None:
            raise _unfinished(source, "does not end with the line 'end' and the number of its keys")
        return cls.parse(text, source)

    def text(self) -> str:
        """Return the keys as :meth:`parse` reads them, one a line, without the closing line."""
        return "".join(entry.text() + "\n" for entry in self._entries)

    @property
    def closing(self) -> str:
        """The last line of a file that lists these keys; it says that the file is whole."""
        return f"end {len(self._entries)}\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Replace the roster at *path* whole, or leave it as it was."""
        data = (self.text() + self.closing).encode("utf-8")
        replace_file(Path(path), data, rule="config.roster")

    @property
    def sha256(self) -> str:
        """The SHA-256 of :meth:`text`, hexadecimal: equal where the same lines are listed."""
        return hashlib.sha256(self.text().encode("utf-8")).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Roster) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        active = sum(entry.state is KeyState.ACTIVE for entry in self._entries)
        return f"Roster({len(self._entries)} keys, {active} active)"


def meaningful(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line of a roster's text that lists a key, with its number, the first being 1."""
    # Only \n ends a line: str.splitlines would let U+2028 in a comment start a second entry.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.startswith("#"):
            yield number, line


def without_closing(text: str) -> str:
    """Return *text* without any closing line, wherever it is."""
    return _CLOSING.sub("", text)


def _split(text: str) -> tuple[str, int | None]:
    """Return the lines of *text* above its closing line, and the count in it; None for none."""
    last = text.rfind("\n", 0, -1) + 1
    closing = _CLOSING.fullmatch(text, last)
    return (text, None) if closing is None else (text[:last], int(closing[1]))


def _unfinished(source: str, what: str) -> ConfigError:
    return refused(
        source,
        what,
        rule="roster.unfinished",
        fix="If no key is missing in it, 'safeser keys check --fix"
        f" {shlex.quote(source)}' writes its last line; else put the whole file in its place.",
    )


#: Which line of a roster lists a key.
_Lines = dict[PublicKey | VerifyingKey, RosterEntry]


def _claim(lines: _Lines, entry: RosterEntry) -> None:
    """Put the keys of *entry* into *lines*; a key belongs to one line."""
    for key in entry.keys:
        if key in lines:
            raise _listed_twice(lines[key], entry, key)
        lines[key] = entry


def _listed_twice(
    first: RosterEntry, second: RosterEntry, key: PublicKey | VerifyingKey
) -> ConfigError:
    named = f"{'signing ' if isinstance(key, VerifyingKey) else ''}key {key.fingerprint}"
    if first.principal != second.principal:
        return ConfigError(
            f"{named} is listed for {first.principal} and {second.principal}",
            rule="config.roster",
            fix="Give each principal a key of its own.",
        )
    return ConfigError(
        f"{named} of {first.principal} is listed twice",
        rule="config.roster",
        fix="Keep one line for each key.",
    )
