"""Release tasks of ``fire_and_forget`` once all keys of their principal are retired.

The one rule: a scheduler computes nothing for a principal whose keys are retired. Tasks of a
connected client are released when its session ends; those of ``fire_and_forget`` are wanted by the
scheduler itself until they are done.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any
from weakref import ref

from safeser.channel import Channel

__all__ = ["release_unattended"]

logger = logging.getLogger("safeser.dask")

_CLIENT = "fire-and-forget"


def release_unattended(scheduler: Any, channel: Channel, owner_of: Callable[[Any], str]) -> None:
    """Have *scheduler* release what silenced principals left to it, now and from now on.

    :param owner_of: returns the principal that submitted a task.
    """
    known = ref(scheduler)

    def release(names: frozenset[str]) -> None:
        found = known()
        state = None if found is None else found.clients.get(_CLIENT)
        if found is None or state is None:
            return
        keys = [task.key for task in state.wants_what if owner_of(task) in names]
        if keys:
            logger.warning("Releasing %d tasks of principals without an active key", len(keys))
            found.client_releases_keys(keys=keys, client=_CLIENT, stimulus_id="safeser-retired")

    def silenced(names: frozenset[str]) -> None:
        found = known()
        if found is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                found.loop.add_callback(release, names)

    channel.when_silenced(silenced)
