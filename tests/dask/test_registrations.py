"""A client's id stays with the principal that registered it first."""

from __future__ import annotations

from safeser.dask.registrations import ClientIds


def test_the_first_principal_keeps_an_id():
    ids = ClientIds()
    assert ids.claim("Client-1", "alice")
    assert not ids.claim("Client-1", "bob")
    assert ids.claim("Client-1", "alice")
    assert ids.claim("Client-2", "bob")


def test_a_refused_claim_changes_nothing():
    ids = ClientIds()
    ids.claim("Client-1", "alice")
    for _ in range(3):
        assert not ids.claim("Client-1", "bob")
    assert ids.claim("Client-1", "alice")


def test_the_longest_unused_id_is_forgotten_first():
    ids = ClientIds(most=2)
    ids.claim("a", "alice")
    ids.claim("b", "alice")
    ids.claim("a", "alice")
    ids.claim("c", "alice")
    assert not ids.claim("a", "bob")
    assert ids.claim("b", "bob")
