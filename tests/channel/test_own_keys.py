"""Keys of the process itself: which new ones it takes, and when it starts and ends."""

from __future__ import annotations

import pytest

from safeser.errors import ConfigError
from safeser.identity import Identity, KeyState, Roster
from tests.channel.rosters import changed, entry
from tests.channel.test_standing import signer
from tests.refusal import refusal


def test_a_listed_key_of_the_same_principal_is_taken(doors, policy, bea):
    second = doors.identity("bea", "second")
    bea.adopt(roster=Roster([*bea.standing.listed.entries, entry(second)]))
    assert bea.adopt(identity=second)
    assert bea.identity is second
    assert not bea.adopt(identity=doors.identity("bea", "second"))


def test_it_waits_until_sessions_that_last_have_gone_over(doors, policy, bea, link):
    second = doors.identity("bea", "second")
    first = bea.identity
    link.lasts = True
    asked = []
    link.when_stale(lambda: asked.append(1))
    bea.adopt(roster=Roster([*bea.standing.listed.entries, entry(second)]), identity=second)
    assert bea.identity is first
    assert asked == [1]
    assert bea.renewing(link, initiator=False).local_key == second.public
    link.own_key = second.public
    bea.tend()
    assert bea.identity is second


def test_and_no_longer_than_ten_looks_for_a_peer_that_does_not(doors, policy, bea, link):
    second = doors.identity("bea", "second")
    link.lasts = True
    bea.adopt(roster=Roster([*bea.standing.listed.entries, entry(second)]), identity=second)
    for _ in range(10):
        assert bea.identity is not second
        bea.tend()
    assert bea.identity is second


def test_a_key_that_is_retired_while_it_waits_is_not_taken(doors, policy, bea, link):
    second = doors.identity("bea", "second")
    link.lasts = True
    listed = bea.standing.listed
    bea.adopt(roster=Roster([*listed.entries, entry(second)]), identity=second)
    bea.adopt(roster=Roster([*listed.entries, entry(second, KeyState.RETIRED)]))
    link.lasts = False
    bea.tend()
    assert bea.identity.public == doors.identity("bea").public
    assert "identity.unlisted" in bea.audit.rules


@pytest.mark.parametrize(
    ("identity", "rule"), [("bea", "identity.unlisted"), ("ann", "identity.principal")]
)
def test_another_principals_key_and_one_that_nobody_lists_are_refused(bea, identity, rule):
    with refusal(ConfigError, rule):
        bea.adopt(identity=Identity.generate(identity))


@pytest.mark.parametrize("own", [signer(1), None])
def test_a_process_does_not_start_where_its_key_is_listed_with_anothers_signing_key(
    doors, policy, own
):
    """Who changes the public text on its way to the operator could sign as its owner."""
    listed = changed(doors.roster(doors.policy(policy)), "bea", verifying=signer(2).public)
    bea = doors.identity("bea", signing=own)
    with refusal(ConfigError, "identity.signing") as refused:
        doors.channel("bea", policy, identity=bea, roster=listed)
    assert signer(2).public.fingerprint in refused.value.message
    assert (signer(1).public.fingerprint if own else "none") in refused.value.message


def test_a_new_identity_is_not_taken_with_anothers_signing_key(doors, bea):
    second = doors.identity("bea", "second", signing=signer(1))
    before = bea.standing.listed.entries
    bea.adopt(roster=Roster([*before, entry(second, verifying=signer(2).public)]))
    with refusal(ConfigError, "identity.signing"):
        bea.adopt(identity=second)
    bea.adopt(roster=Roster([*before, entry(second, verifying=signer(1).public)]))
    assert bea.adopt(identity=second)
    assert bea.identity is second


def test_a_signing_key_that_is_added_to_the_same_key_is_taken(doors, bea):
    for taken in (True, False):
        assert bea.adopt(identity=doors.identity("bea", signing=signer(1))) is taken
    assert bea.identity.verifying == signer(1).public
