"""Handle keys that a client wants and that the scheduler does not have.

The one rule: an unknown key costs a lookup. Dask's scheduler formats a warning for each
(distributed 2026.8.0, ``Scheduler.client_desires_keys``, docs/explanation/upstream.md), and
the registry of ``warnings`` keeps each text for good: one message of a million keys holds the event
loop for fifteen seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container
from typing import Any

__all__ = ["known"]

logger = logging.getLogger("safeser.dask")


def known(tasks: Container[Any], keys: Collection[Any], client: str) -> list[Any]:
    """Return those of *keys* that are *tasks*; there may be none, where Dask makes a *client*."""
    found = [key for key in keys if key in tasks]
    if len(found) < len(keys):
        logger.debug("%s wants %d keys that are not known", client, len(keys) - len(found))
    return found
