"""Whose keys count when a box seals or opens, in a process whose files change, and in a fork."""

from __future__ import annotations

import datetime
import os

import pytest

from safeser.errors import (
    AuthenticationError,
    ConfigError,
    EnvelopeError,
    PolicyDenied,
)
from safeser.identity import Identity, KeyState, Roster, RosterEntry
from tests.channel.boxes import NOW, WAYS, Q, events, look, refused
from tests.refusal import refusal

RETIRED = {"state": KeyState.RETIRED}

#: What the roster says of ann's key, and by which rule that refuses, without and with a signature.
KEYS = {
    "retired": (RETIRED, "key.retired", "key.retired"),
    "pending": ({"state": KeyState.PENDING}, "key.pending", "key.pending"),
    "verify-only": ({"state": KeyState.VERIFY_ONLY}, "key.verify-only", ""),
    "over": ({"not_after": datetime.date(2026, 12, 31)}, "key.expired", "key.expired"),
    "not yet": ({"not_before": datetime.date(2027, 2, 1)}, "key.pending", "key.pending"),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("way", WAYS)
def test_the_roster_at_opening_decides_whether_a_key_counts(folder, ann, bea, name, way):
    """``made`` rescues nothing: the messages were sealed before, by the clock of their sender."""
    sealing, opening = WAYS[way]
    change, unsigned, signed = KEYS[name]
    rule = signed if opening else unsigned
    data = ann.seal(5, about=Q, ttl=None, **sealing)
    assert bea.open(data, about=Q, **opening).value == 5
    folder.change("ann", **change)
    look(bea)
    if rule:
        refused(bea, AuthenticationError, rule, data, **opening)
    else:
        assert bea.open(data, about=Q, **opening).value == 5
    if name == "retired":
        folder.change("ann", state=KeyState.ACTIVE)  # no newer roster brings it back
        look(bea)
        refused(bea, AuthenticationError, rule, data, **opening)


def test_a_key_is_over_when_its_last_day_is(folder, ann, bea):
    data = ann.seal(5, to="bea", about=Q, ttl=None)
    folder.change("ann", not_after=datetime.date.fromtimestamp(NOW))
    look(bea)
    assert bea.open(data, about=Q).value == 5
    folder.clock.now += 86_400
    refused(bea, AuthenticationError, "key.expired", data)


@pytest.mark.parametrize("name", sorted(KEYS.keys() - {"not yet"}))
@pytest.mark.parametrize("way", WAYS)
def test_a_process_opens_by_an_active_key_of_its_own_alone(folder, ann, bea, name, way):
    """A running process, too: who stole the key that was retired forges to it."""
    sealing, opening = WAYS[way]
    data = ann.seal(5, about=Q, ttl=None, **sealing)
    assert bea.open(data, about=Q, **opening).value == 5
    change, rule, _ = KEYS[name]
    folder.change("bea", **change)
    look(bea)
    refused(bea, AuthenticationError, rule, data, **opening)


def test_a_process_that_the_roster_lists_no_more_opens_nothing(folder, ann, bea):
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    folder.roster = Roster(each for each in folder.roster.entries if each.principal != "bea")
    folder.write_roster()
    look(bea)
    refused(bea, AuthenticationError, "key.unlisted", data)


def test_a_process_seals_by_an_active_key_alone(folder, ann):
    assert ann.seal(5, to="bea", about=Q, ttl=60)
    folder.change("ann", state=KeyState.VERIFY_ONLY)
    look(ann)
    with refusal(AuthenticationError, "key.verify-only"):
        ann.seal(5, to="bea", about=Q, ttl=60)


def test_a_process_signs_by_a_listed_signing_key_alone(folder, ann):
    folder.change("ann", verifying=None)
    look(ann)
    with refusal(ConfigError, "box.signing"):
        ann.seal(5, to="bea", about=Q, ttl=60, signed=True)


def test_a_replaced_key_of_the_recipient_is_said_so(folder, ann, bea):
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    new = Identity.generate("bea")
    day = datetime.date(2021, 1, 1)
    folder.roster = folder.roster.with_entry(RosterEntry.of(new, created=day))
    folder.write_roster()
    look(ann)
    later = ann.seal(6, to="bea", about=Q, ttl=60)  # to the newest
    assert "another recipient" in refused(bea, EnvelopeError, "box.recipient", later).message
    (folder.path / "bea.key").unlink()
    new.save(folder.path / "bea.key")
    look(bea)
    assert bea.open(later, about=Q).value == 6
    assert "earlier or later key" in refused(bea, EnvelopeError, "box.recipient", data).message


def test_a_withdrawn_grant_counts_at_once(folder, ann, bea):
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    assert bea.open(data, about=Q).value == 5
    path = folder.path / "policy.yaml"
    text = path.read_text().replace("[bea, ann]", "[ann]").replace("revision: 3", "revision: 4")
    path.write_text(text)
    look(bea)
    refused(bea, PolicyDenied, "context.none", data)


def test_a_fork_follows_the_files_by_itself(folder, ann, bea):
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            folder.list_as("ann", KeyState.RETIRED)
            with bea._keys._files._lock, pytest.raises(AuthenticationError):
                bea.open(data, about=Q)
            os.write(writing, b"refused")
        finally:
            os._exit(0)
    os.close(writing)  # or read() waits for ever where the child wrote nothing
    assert os.read(reading, 7) == b"refused"
    os.waitpid(child, 0)


def refused_in_a_fork(box, error, rule, data, *, forks=1):
    """Have *box* refuse *data* twice in a fork, and in forks of that, which record it."""
    child = os.fork()
    if child == 0:
        try:
            for _ in range(2):
                with refusal(error, rule):
                    box.open(data, about=Q)
                assert events(box)[-1]["rule"] == rule
            if forks > 1:
                refused_in_a_fork(box, error, rule, data, forks=forks - 1)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("whose", ["ann", "bea"])
def test_a_fork_forgets_no_key_that_was_retired(folder, ann, bea, whose):
    """Who can put back an old roster brings no key back where a process forks: workers do."""
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    folder.list_as(whose, KeyState.RETIRED)
    look(bea)
    refused(bea, AuthenticationError, "key.retired", data)
    folder.list_as(whose, KeyState.ACTIVE)
    refused_in_a_fork(bea, AuthenticationError, "key.retired", data, forks=2)


def test_a_fork_takes_no_older_policy(folder, ann, bea):
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    path = folder.path / "policy.yaml"
    text = path.read_text()
    path.write_text(text.replace("[bea, ann]", "[ann]").replace("revision: 3", "revision: 4"))
    look(bea)
    path.write_text(text)
    refused_in_a_fork(bea, PolicyDenied, "context.none", data)
