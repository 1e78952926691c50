"""All tables of attacks together."""

from __future__ import annotations

from tests.dask.attacks import (
    rows_of_answers,
    rows_of_approved,
    rows_of_groups,
    rows_of_handlers,
    rows_of_requests,
    rows_of_streams,
    rows_of_the_demo,
)

__all__ = ["ROWS", "STRANGERS", "TABLES"]

TABLES = (
    rows_of_answers,
    rows_of_approved,
    rows_of_groups,
    rows_of_handlers,
    rows_of_requests,
    rows_of_streams,
    rows_of_the_demo,
)
_ALL = tuple(row for table in TABLES for row in table.ROWS)
#: Peers without a session, of whom nothing is read.
STRANGERS = tuple(row for row in _ALL if row.sender == "unknown")
ROWS = tuple(row for row in _ALL if row.sender != "unknown")
