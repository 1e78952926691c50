"""Entries, rosters and policies that follow others, and a calendar of one day."""

from __future__ import annotations

import datetime
from dataclasses import replace

from safeser.identity import KeyState, Roster, RosterEntry
from safeser.policy import Policy

DAY = datetime.date(2026, 3, 1)


class Calendar:
    """The day that a channel believes it is."""

    def __init__(self, day=DAY):
        self.day = day

    def __call__(self):
        return self.day


def entry(identity, state=KeyState.ACTIVE, **more):
    return RosterEntry(identity.public, identity.principal, state, DAY, **more)


def changed(roster, whose, **more):
    """Return *roster* with all lines of *whose* changed."""
    found = (replace(e, **more) if e.principal == whose else e for e in roster.entries)
    return Roster(found)


def without(roster, principal):
    return Roster(e for e in roster.entries if e.principal != principal)


def raised(text, by=1):
    """Return the policy of *text* with a higher revision."""
    return Policy.parse(text.replace("revision: 3", f"revision: {3 + by}"))
