"""Changing a roster file: a line added or replaced, all others and their comments as they were.

The one rule: the file is replaced whole, by renaming a complete one that loads over it, or it stays
as it was. Two commands at once change it one after the other.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from safeser.errors import ConfigError
from safeser.gate.key_pairs import PublicKey
from safeser.identity.files import locked, replace_file, require_ended
from safeser.identity.roster import (
    KeyState,
    Roster,
    RosterEntry,
    meaningful,
    today,
    without_closing,
)

__all__ = ["RosterFile"]


class RosterFile:
    """A roster file that is being changed; :meth:`edit` gives one.

    :ivar roster: what it lists, with the changes so far.
    """

    def __init__(self, path: Path, *, close: bool = False, empty: bool = False) -> None:
        self.path = path
        self._data = Roster().closing.encode("ascii") if empty else Roster.read(path)
        if close:
            require_ended(self._data, path, rule="roster.unfinished")
        self.roster = Roster.decode(self._data, str(path), closed=not close)
        self._text = without_closing(self._data.decode("utf-8"))

    @classmethod
    @contextlib.contextmanager
    def edit(cls, path: Path, *, close: bool = False, make: bool = False) -> Iterator[RosterFile]:
        """Yield the roster at *path*, locked; write it back at the end if nothing was raised.

        :param close: whether a closing line that is missing or wrong is written anew: the operator
            states that the file lists every key.
        :param make: whether a roster is begun where no file is.
        :raises ConfigError: if it cannot be read or written, or would not load.
        """
        if not make or os.path.lexists(path):
            Roster.read(path)  # judges the folders and links of its path, which are followed next
        target = path.resolve()  # a link stays a link
        with locked(target.parent, path, rule="roster.locked"):
            like = target.stat() if not make or target.exists() else None
            file = cls(target, close=close, empty=like is None)
            yield file
            data = (file._text + file.roster.closing).encode("utf-8")
            if data != file._data:
                Roster.decode(data, str(path))
                before = None if like is None else file._data
                replace_file(target, data, like=like, before=before, rule="config.roster")

    # --- changes ---------------------------------------------------------------------------------

    def add(self, entry: RosterEntry) -> RosterEntry:
        """List *entry* and return its line; a key that is listed as pending takes its place.

        :raises ConfigError: if the key is listed otherwise, or with another signing key, or its
            last day is over.
        """
        if entry.ended(today()):
            raise ConfigError(
                f"not_after={entry.not_after} is over, and the key would never be let in",
                rule="roster.dates",
                fix="Name a later day, or none.",
            )
        known = self.roster.entry_of(entry.public)
        if known is None:
            self._change(f"{self._text}{entry.text()}\n")
            return entry
        if known.principal != entry.principal or known.state is not KeyState.PENDING:
            over = known.state in (KeyState.RETIRED, KeyState.VERIFY_ONLY)
            raise _unfit(
                known.public,
                f"is listed already, as {known.state.value} for {known.principal!r}",
                "roster.duplicate",
                fix="Such a key opens no sessions again: make another with 'safeser keys new'."
                if over
                else "Nothing needs to be added; each principal has keys of its own.",
            )
        if entry.verifying not in (None, known.verifying):
            # What was checked when the key was listed as pending stays with it.
            raise _unfit(
                entry.public,
                f"is pending for {known.principal!r} with"
                f" {'another' if known.verifying else 'no'} signing key",
                "roster.signing",
                fix="Ask its owner for the fingerprints of both keys, which 'safeser keys"
                " fingerprint' prints. Retire the line if they are others.",
            )
        added = replace(entry, created=known.created, verifying=known.verifying)
        self._replace(added)
        return added

    def end(self, principal: str, *, last_day: datetime.date, keep: PublicKey) -> None:
        """Let the active and verify-only keys of *principal* but *keep* end with *last_day*."""
        ended = []
        for entry in self.roster.entries:
            in_use = entry.state in (KeyState.ACTIVE, KeyState.VERIFY_ONLY)
            own = entry.principal == principal and in_use
            earlier = entry.not_after is not None and entry.not_after <= last_day
            if own and entry.public != keep and not earlier:
                ended.append(replace(entry, not_after=last_day))
        self._replace(*ended)

    def retire(self, *keys: PublicKey) -> None:
        """Retire *keys*, for good.

        :raises ConfigError: if one is not listed, or retired already.
        """
        self._replace(*map(self._retired, keys))

    def verify_only(self, *keys: PublicKey) -> None:
        """Give *keys* the state verify-only: no sessions, while their signatures still verify.

        :raises ConfigError: if one is not listed, not active, or has no signing key.
        """
        self._replace(*map(self._verify_only, keys))

    def _retired(self, public: PublicKey) -> RosterEntry:
        entry = self._listed(public)
        if entry.state is KeyState.RETIRED:
            raise _unfit(public, "is retired already", "roster.retired")
        return replace(entry, state=KeyState.RETIRED)

    def _verify_only(self, public: PublicKey) -> RosterEntry:
        entry = self._listed(public)
        if entry.state is not KeyState.ACTIVE:
            # From any other state it would bring signatures back.
            raise _unfit(
                public, f"is {entry.state.value}; an active key becomes verify-only", "roster.state"
            )
        if entry.verifying is None:
            raise _unfit(
                public,
                "has no signing key, and no signature could verify",
                "roster.signing",
                fix="Retire it without --verify-only.",
            )
        return replace(entry, state=KeyState.VERIFY_ONLY)

    def _listed(self, public: PublicKey) -> RosterEntry:
        entry = self.roster.entry_of(public)
        if entry is None:
            raise _unfit(public, "is not listed here", "roster.unknown-key")
        return entry

    def _replace(self, *entries: RosterEntry) -> None:
        by_key = {entry.public: entry for entry in entries}
        lines = self._text.split("\n")
        for number, line in meaningful(self._text):
            entry = by_key.get(RosterEntry.parse(line).public)
            if entry is not None:
                lines[number - 1] = entry.text()
        self._change("\n".join(lines))

    def _change(self, text: str) -> None:
        self.roster = Roster.parse(text, str(self.path))
        self._text = text


def _unfit(
    public: PublicKey,
    what: str,
    rule: str,
    *,
    fix: str = "'safeser keys list' shows the keys of a roster, their states and fingerprints.",
) -> ConfigError:
    return ConfigError(f"key {public.fingerprint} {what}", rule=rule, fix=fix)
