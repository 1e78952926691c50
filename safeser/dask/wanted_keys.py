"""Keys that a client wants and that the scheduler does not have.

The one rule: an unknown key costs a lookup. Dask's scheduler formats a warning for each
(distributed 2026.8.0, ``Scheduler.client_desires_keys``, docs/upstream.md), and the registry of
``warnings`` keeps each text for good: one message of a million keys holds the event loop for
fifteen seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from distributed.scheduler import Scheduler

__all__ = ["want_known_keys"]

logger = logging.getLogger("safeser.dask")


def want_known_keys(scheduler: Any) -> None:
    """Have *scheduler* note which known keys a client wants, and no others; once or more."""
    if not isinstance(scheduler, Scheduler) or "client_desires_keys" in vars(scheduler):
        return
    stock, tasks = scheduler.client_desires_keys, scheduler.tasks

    def client_desires_keys(keys: Collection[Any], client: str) -> None:
        # Dask calls it without any keys as well, to make a client of that name.
        known = [key for key in keys if key in tasks]
        if len(known) < len(keys):
            logger.debug("%s wants %d keys that are not known", client, len(keys) - len(known))
        stock(known, client)

    scheduler.client_desires_keys = client_desires_keys
    scheduler.stream_handlers["client-desires-keys"] = client_desires_keys
