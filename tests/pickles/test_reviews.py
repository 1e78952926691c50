"""Each listed global says what was reviewed of it, and what is said of whole groups is true."""

from __future__ import annotations

import warnings

import pytest

from safeser.errors import PayloadError
from safeser.pickles import DATA_PROFILES, Profile


@pytest.mark.parametrize("name", DATA_PROFILES)
def test_every_entry_says_what_was_reviewed(name):
    entries = Profile.named(name).entries.values()
    assert entries
    assert [entry.name for entry in entries if not entry.why] == []


@pytest.mark.parametrize("name", ["exceptions", "sklearn"])
def test_classes_of_a_group_are_hashed_and_compared_by_identity_and_have_no_del(name):
    profile = Profile.named(name)
    looked_at = 0
    for entry in profile.entries.values():
        if entry.role != "class" or "by identity" not in entry.why:
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                found = profile.object_of(entry)
        except PayloadError:
            continue  # its library is not installed, or has it under another name
        looked_at += 1
        assert not hasattr(found, "__del__"), entry.name
        if not entry.grows and not issubclass(found, dict):
            assert (found.__hash__, found.__eq__) == (object.__hash__, object.__eq__), entry.name
    assert looked_at > 100
