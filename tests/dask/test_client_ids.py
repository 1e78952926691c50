"""A client's id stays with the principal that registered it first."""

from __future__ import annotations

import pytest

from safeser.dask.client_ids import ClientIds


def test_the_first_principal_keeps_an_id():
    ids = ClientIds()
    assert ids.claim("Client-1", "alice")
    assert not ids.claim("Client-1", "bob")
    assert ids.claim("Client-1", "alice")
    assert ids.claim("Client-2", "bob")


def test_each_principals_longest_unused_id_is_forgotten_first():
    ids = ClientIds(most=2)
    for client in ("C-a", "C-b", "C-a", "C-c"):
        assert ids.claim(client, "alice")
    assert not ids.claim("C-a", "bob")
    assert ids.claim("C-b", "bob")


def test_nobody_makes_the_scheduler_forget_whose_an_id_is():
    ids = ClientIds(most=2)
    ids.claim("Client-1", "alice")
    for number in range(2, 20):
        assert ids.claim(f"Client-{number}", "bob")
    assert not ids.is_own("Client-1", "bob")
    assert ids.is_own("Client-1", "alice")
    assert not ids.claim("Client-1", "bob")


@pytest.mark.parametrize(
    "client",
    [
        "fire-and-forget",
        "queue-jobs",
        "variable-model",
        "published-data",
        "all",
        "safeser://127.0.0.1:1",
        "",
        "Client-\x1b[2J",
        "Client-1\n",
        "1-2",
    ],
)
def test_what_is_the_schedulers_own_or_no_id_is_nobodys(client):
    ids = ClientIds()
    assert not ids.claim(client, "bob")
    assert not ids.is_own(client, "bob")
    assert ids.owner(client) is None


@pytest.mark.parametrize(
    "client",
    ["Client-1", "Client-worker-5b0e", "Client-Übung-1", "Client-my own-1", "_Größe-1", "queues-1"],
)
def test_what_dask_calls_its_clients_is_free(client):
    ids = ClientIds()
    assert not ids.is_own(client, "bob")
    assert ids.claim(client, "bob")
