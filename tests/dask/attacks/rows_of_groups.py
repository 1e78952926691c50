"""Attacks on groups of workers on one scheduler."""

from __future__ import annotations

from tests.dask.attacks.rows import Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = ()
