"""Attacks on handlers of Dask that safeser bounded."""

from __future__ import annotations

from tests.dask.attacks.rows import Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = ()
