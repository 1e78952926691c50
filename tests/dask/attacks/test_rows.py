"""Run the tables of attacks in memory: a row is refused by its rule, or admitted if it has none."""

from __future__ import annotations

from contextlib import suppress

import pytest

from safeser.errors import SafeserError
from tests.dask.attacks import rows_of_approved, rows_of_groups, rows_of_handlers
from tests.dask.conftest import Talk
from tests.dask.sealed.test_hostile_scheduler import Signing

ROWS = (*rows_of_approved.ROWS, *rows_of_groups.ROWS, *rows_of_handlers.ROWS)


def refusals(row):
    """Return the rules by which the recipient of *row* refuses what is said.

    A mapping is a request. A list is elements of the stream of a client or worker that registered,
    or of the scheduler to such a worker.
    """
    message = row.message() if callable(row.message) else row.message
    if row.asked is not None:
        return refusals_of_answer(row, message)
    if row.sender == "scheduler" and isinstance(message, list):
        t = Talk(Signing(), row.recipient, row.sender, row.policy).greet().worker_stream()
        t.attack_back(message)
        return t.refused_by_asker
    t = Talk(Signing(), row.sender, row.recipient, row.policy).greet()
    if not isinstance(message, list):
        t.attack(message) if row.rule is None else t.refuses(message)
        return t.refused_by_server
    t = t.worker_stream() if row.sender == "worker" else t.client_stream()
    got = t.attack(message)
    assert row.rule is None or got is Talk.SKIP
    return t.refused_by_server


def refusals_of_answer(row, message):
    t = Talk(Signing(), row.recipient, row.sender, row.policy).greet()
    t.request({"reply": True, **row.asked})
    with suppress(SafeserError):
        t.attack_back(message)
    return t.refused_by_asker


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_ends_as_its_table_says(row):
    assert refusals(row) == ([] if row.rule is None else [row.rule])


def test_names_are_unique():
    assert len({row.name for row in ROWS}) == len(ROWS)
