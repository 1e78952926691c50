"""All tables of attacks together."""

from __future__ import annotations

from tests.dask.attacks import rows_of_approved, rows_of_groups, rows_of_handlers, rows_of_answers, rows_of_requests, rows_of_streams

__all__ = ["ROWS"]

ROWS = (*rows_of_approved.ROWS, *rows_of_groups.ROWS, *rows_of_handlers.ROWS, *rows_of_requests.ROWS, *rows_of_streams.ROWS, *rows_of_answers.ROWS)
