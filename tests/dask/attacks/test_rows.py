"""Run the tables of attacks in memory: a row is refused by its rule, or admitted if it has none."""

from __future__ import annotations

import pytest

from tests.dask.attacks import rows_of_approved, rows_of_groups, rows_of_handlers
from tests.dask.conftest import Talk
from tests.dask.sealed.test_hostile_scheduler import Signing

ROWS = (*rows_of_approved.ROWS, *rows_of_groups.ROWS, *rows_of_handlers.ROWS)


def refusals(row):
    """Return the rules by which the recipient of *row* refuses what is said.

    A mapping is a request. A list is elements of the stream of a client that registered, or of the
    scheduler to a worker that did.
    """
    message = row.message() if callable(row.message) else row.message
    if not isinstance(message, list):
        t = Talk(Signing(), row.sender, row.recipient, row.policy).greet()
        t.attack(message) if row.rule is None else t.refuses(message)
        return t.refused_by_server
    if row.sender == "scheduler":
        t = Talk(Signing(), row.recipient, row.sender, row.policy).greet().worker_stream()
        t.attack_back(message)
        return t.refused_by_asker
    t = Talk(Signing(), row.sender, row.recipient, row.policy).greet().client_stream()
    assert row.rule is None or t.attack(message) is Talk.SKIP
    return t.refused_by_server


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_ends_as_its_table_says(row):
    assert refusals(row) == ([] if row.rule is None else [row.rule])


def test_names_are_unique():
    assert len({row.name for row in ROWS}) == len(ROWS)
