"""The days on which a key has sessions: how lines spell them, and what two rosters agree on."""

from __future__ import annotations

import datetime

import pytest

from safeser.errors import ConfigError
from safeser.identity import Identity, KeyState, Roster, RosterEntry
from tests.refusal import refusal

DAY = datetime.date(2026, 3, 1)
NEXT = DAY + datetime.timedelta(1)
KEY = Identity.generate("ann").public
START = f"{KEY.text} ann active 2026-01-01"


@pytest.mark.parametrize(
    ("rest", "first", "last", "comment"),
    [
        ("", None, None, ""),
        (" her laptop", None, None, "her laptop"),
        (" not_before=2026-03-01", DAY, None, ""),
        (" not_after=2026-03-01 laptop", None, DAY, "laptop"),
        (" not_before=2026-03-01 not_after=2026-03-02 a b", DAY, NEXT, "a b"),
    ],
)
def test_a_line_spells_its_days_before_the_comment(rest, first, last, comment):
    entry = RosterEntry.parse(START + rest)
    assert (entry.not_before, entry.not_after, entry.comment) == (first, last, comment)
    assert entry.text() == START + rest
    assert RosterEntry.parse(entry.text()) == entry


@pytest.mark.parametrize(
    "rest",
    [
        *("not_before=2026-3-1", "not_before=", "not_after=never", "not_after=2026-02-30"),
        "not_before=2026-03-02 not_after=2026-03-01",
        "not_after=2026-03-01 not_before=2026-03-01",
        "not_after=2026-03-01 not_after=2026-03-02",
    ],
)
def test_other_days_are_refused(rest):
    with refusal(ConfigError, "config.roster"):
        RosterEntry.parse(f"{START} {rest}")


@pytest.mark.parametrize(
    ("state", "day", "speaks"),
    [
        (KeyState.ACTIVE, DAY - datetime.timedelta(1), False),
        (KeyState.ACTIVE, DAY, True),
        (KeyState.ACTIVE, NEXT, True),
        (KeyState.ACTIVE, NEXT + datetime.timedelta(1), False),
        (KeyState.PENDING, DAY, False),
        (KeyState.RETIRED, DAY, False),
    ],
)
def test_a_key_speaks_on_the_first_and_the_last_of_its_days(state, day, speaks):
    entry = RosterEntry(KEY, "ann", state, DAY, "", DAY, NEXT)
    assert entry.speaks(day) is speaks
    assert Roster([entry]).principal_of(KEY, on=day) == ("ann" if speaks else None)


def test_of_two_rosters_the_days_that_allow_less_count():
    one = Roster.parse(f"{START} not_before=2026-03-01")
    two = Roster.parse(f"{START} not_before=2026-02-01 not_after=2026-03-02")
    for merged in (one.merged(two), two.merged(one)):
        [entry] = merged.entries
        assert (entry.not_before, entry.not_after) == (DAY, NEXT)


def test_a_roster_of_another_format_is_named_as_one():
    with refusal(ConfigError, "config.roster-version") as refused:
        Roster.parse(f"# keys\nsafeser-roster 2\n{START}\n")
    assert "line 2" in refused.value.where


def test_equal_lines_have_one_hash_whatever_stands_between_them():
    one, two = Roster.parse(START), Roster.parse(f"# a comment\n\n  {START}  \n")
    assert one.sha256 == two.sha256
    assert one.sha256 != Roster.parse(f"{START} not_after=2026-03-02").sha256
