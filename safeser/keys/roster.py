"""The roster: which public key speaks for whom, and since when.

The one rule: a key speaks for one principal, and only while it is active.
"""

from __future__ import annotations

import datetime
import enum
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from safeser.errors import ConfigError
from safeser.keys.files import read_file, reason, refused, shown, sync_directory, write_new
from safeser.keys.identity import PublicKey
from safeser.values import check_principal

__all__ = ["KeyState", "Roster", "RosterEntry"]

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_ROSTER_MAX_BYTES = 4 << 20
_ROSTER_MAX_ENTRIES = 20_000  # a key for each node of the largest clusters; 4 MiB of lines
_COMMENT_MAX = 200


class KeyState(enum.Enum):
    """Where a key is in its life. Only ``active`` keys speak for their principal."""

    PENDING = "pending"
    ACTIVE = "active"
    RETIRED = "retired"


# When two rosters disagree about a key, the more careful state wins.
_CAREFUL = {KeyState.ACTIVE: 0, KeyState.PENDING: 1, KeyState.RETIRED: 2}


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One line of a roster: a public key, whose it is, its state, and since when it is listed."""

    public: PublicKey
    principal: str
    state: KeyState
    created: datetime.date
    comment: str = ""

    def __post_init__(self) -> None:
        check_principal(self.principal)
        comment = self.comment
        if comment != comment.strip() or not comment.isprintable() or len(comment) > _COMMENT_MAX:
            raise ConfigError(
                f"a comment in a roster is at most {_COMMENT_MAX} printable characters",
                rule="config.roster",
            )

    @classmethod
    def parse(cls, line: str) -> RosterEntry:
        """Return the entry that one line spells: key, principal, state, date, maybe a comment."""
        fields = line.strip().split(None, 4)
        if len(fields) < 4:
            raise ConfigError(
                "a roster line is: key, principal, state, date and, if you like, a comment",
                rule="config.roster",
            )
        try:
            state = KeyState(fields[2])
        except ValueError:
            raise ConfigError(
                "the state of a key is pending, active or retired", rule="config.roster"
            ) from None
        comment = fields[4] if len(fields) == 5 else ""
        return cls(PublicKey.parse(fields[0]), fields[1], state, _parse_date(fields[3]), comment)

    def text(self) -> str:
        fields = (self.public.text, self.principal, self.state.value, self.created.isoformat())
        return " ".join((*fields, self.comment) if self.comment else fields)


def _parse_date(text: str) -> datetime.date:
    try:
        # fromisoformat alone would take week dates and the basic format too.
        return datetime.date.fromisoformat(text if _DATE.match(text) else "")
    except ValueError:
        raise ConfigError(
            "a date in a roster is written like 2026-01-31", rule="config.roster"
        ) from None


class Roster:
    """The public keys of all principals. Immutable; a changed roster is a new value."""

    __slots__ = ("_active", "_entries")

    def __init__(self, entries: Iterable[RosterEntry] = ()) -> None:
        listed: dict[PublicKey, RosterEntry] = {}
        for entry in entries:
            if entry.public in listed:
                raise _listed_twice(listed[entry.public], entry)
            listed[entry.public] = entry
        if len(listed) > _ROSTER_MAX_ENTRIES:
            raise ConfigError(
                f"a roster lists at most {_ROSTER_MAX_ENTRIES} keys", rule="config.roster"
            )
        self._entries = listed
        self._active = {
            key: entry.principal for key, entry in listed.items() if entry.state is KeyState.ACTIVE
        }

    @property
    def entries(self) -> tuple[RosterEntry, ...]:
        return tuple(self._entries.values())

    def principal_of(self, public: PublicKey) -> str | None:
        """Return whose key *public* is; None unless it is listed and active."""
        return self._active.get(public)

    def keys_of(self, principal: str) -> tuple[PublicKey, ...]:
        """Return the active keys of *principal*, in the roster's order."""
        return tuple(key for key, name in self._active.items() if name == principal)

    def with_entry(self, entry: RosterEntry) -> Roster:
        """Return this roster with *entry* added, or in the place of the same key's entry."""
        known = self._entries.get(entry.public)
        if known is not None and known.principal != entry.principal:
            raise _two_principals(known, entry)
        return Roster({**self._entries, entry.public: entry}.values())

    def merged(self, other: Roster) -> Roster:
        """Return the keys of both. Where states differ, retired wins, then pending."""
        merged = dict(self._entries)
        for entry in other.entries:
            known = merged.setdefault(entry.public, entry)
            if known.principal != entry.principal:
                raise _two_principals(known, entry)
            if _CAREFUL[entry.state] > _CAREFUL[known.state]:
                merged[entry.public] = entry
        return Roster(merged.values())

    @classmethod
    def parse(cls, text: str, source: str = "roster") -> Roster:
        """Return the roster that *text* spells; empty lines and # comments don't count.

        :param source: name of the file, for errors.
        """
        if len(text) > _ROSTER_MAX_BYTES:
            raise refused(source, "is too large for a roster", rule="config.roster")
        lines: dict[PublicKey, int] = {}
        entries: list[RosterEntry] = []
        for number, line in _meaningful(text):
            try:
                entry = RosterEntry.parse(line)
                if entry.public in lines:
                    raise _listed_twice(entries[lines[entry.public]], entry)
            except ConfigError as error:
                where = f"{shown(source)} line {number}"
                raise ConfigError(
                    error.message, rule="config.roster", where=where, fix=error.fix
                ) from None
            lines[entry.public] = len(entries)
            entries.append(entry)
        return cls(entries)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Roster:
        """Read the roster at *path*, which only its owner, we or root, may be able to write."""
        data = read_file(
            path,
            "public",
            limit=_ROSTER_MAX_BYTES,
            rule="config.roster",
            make="safeser keys init",
        )
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise refused(path, "is not UTF-8 text", rule="config.roster") from None
        return cls.parse(text, os.fspath(path))

    def text(self) -> str:
        """Return the roster as :meth:`parse` reads it, one key a line."""
        return "".join(entry.text() + "\n" for entry in self._entries.values())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Replace the roster at *path* whole, or leave it as it was."""
        try:
            target = Path(path)
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
            write_new(temporary, self.text().encode("utf-8"), mode=0o644)
            try:
                temporary.replace(target)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
            sync_directory(target.parent)
        except (OSError, ValueError) as error:
            raise refused(
                path, f"cannot be written: {reason(error)}", rule="config.roster"
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Roster) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Roster({len(self._entries)} keys, {len(self._active)} active)"


def _meaningful(text: str) -> Iterator[tuple[int, str]]:
    # Only \n ends a line: str.splitlines would let U+2028 in a comment start a second entry.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.startswith("#"):
            yield number, line


def _listed_twice(first: RosterEntry, second: RosterEntry) -> ConfigError:
    if first.principal != second.principal:
        return _two_principals(first, second)
    return ConfigError(
        f"key {first.public.fingerprint} of {first.principal} is listed twice",
        rule="config.roster",
        fix="Keep one line for each key.",
    )


def _two_principals(first: RosterEntry, second: RosterEntry) -> ConfigError:
    return ConfigError(
        f"key {first.public.fingerprint} is listed for {first.principal} and {second.principal}",
        rule="config.roster",
        fix="Give each principal a key of its own.",
    )
