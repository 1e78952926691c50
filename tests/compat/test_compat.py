"""The releases that are tested are those whose patched sources were reviewed."""

from __future__ import annotations

from safeser.dask.patches.fingerprints import known_sources
from tests.compat import environments


def test_each_release_that_has_a_lock_was_reviewed():
    known = known_sources().releases
    assert set(environments.releases()) <= set(known)
    assert environments.releases()[0] == known[0]
    assert environments.releases()[-1] == known[-1]
