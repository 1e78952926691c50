"""Run the tables of attacks in memory: a row is refused by its rule, or admitted if it has none."""

from __future__ import annotations

import pytest

from tests.dask.attacks import rows_of_approved, rows_of_groups, rows_of_handlers

ROWS = (*rows_of_approved.ROWS, *rows_of_groups.ROWS, *rows_of_handlers.ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_ends_as_its_table_says(talk, row):
    t = talk(row.sender, row.recipient, row.policy)
    if row.rule is None:
        t.attack(row.message)
        assert not t.refused_by_server
        return
    t.refuses(row.message)
    assert t.refused_by_server[-1] == row.rule
