"""The roster as the gate has it: whose a key is on a day, whatever the table lists."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.key_pairs import Owner, Owners, PrivateKey
from tests.draws import draws

KEYS = [PrivateKey.generate().public for _ in range(3)]
DAY = datetime.date(2026, 3, 15)
DAYS = st.none() | st.integers(-2, 2).map(lambda days: DAY + datetime.timedelta(days))
OWNERS = st.builds(Owner, st.sampled_from(("alice", "bob", "unknown", "any")), DAYS, DAYS)


@given(st.dictionaries(st.sampled_from(KEYS), OWNERS), st.sampled_from([*KEYS, None, b"x", "any"]))
@draws(200)
def test_a_key_has_the_owner_that_is_listed_on_that_day_and_never_unknown(owners, key):
    found = Owners(owners).of(key, DAY)
    listed = owners.get(key)
    if found is not None:
        assert found == listed.principal
        assert found not in ("unknown", "any")
        assert listed.first is None or listed.first <= DAY
        assert listed.last is None or listed.last >= DAY
    elif listed is not None and listed.principal in ("alice", "bob"):
        assert (listed.first or DAY) > DAY or (listed.last or DAY) < DAY


def test_what_was_given_changes_nothing_afterwards():
    given = {KEYS[0]: Owner("alice")}
    table = Owners(given)
    given[KEYS[0]] = Owner("mallory")
    assert table.of(KEYS[0], DAY) == "alice"


@pytest.mark.parametrize("name", ["", "*", "group:all", None, 5, "a b"])
def test_what_names_no_principal_owns_nothing(name):
    with pytest.raises(ConfigError):
        Owner(name)
