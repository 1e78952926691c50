"""Every change that safeser makes to Dask, as one list that one loop installs.

The one rule: nothing else in safeser replaces a name, a method, a handler or a registry of Dask's,
and nothing is replaced whose source was not reviewed in a release that was tested. Tests compare a
process with the list, and the code of safeser with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from threading import Lock

from safeser.dask.patches import (
    client,
    display,
    extensions,
    node,
    progress,
    scheduler,
    shuffle,
    worker,
)
from safeser.dask.patches.fingerprints import known_sources, unknown
from safeser.dask.patches.patch import Patch, apply, is_applied, rebind
from safeser.errors import ConfigError

__all__ = ["PATCHES", "Patch", "install", "rebind"]

logger = logging.getLogger("safeser.dask")

PATCHES: tuple[Patch, ...] = (
    *node.ROWS,
    *scheduler.ROWS,
    *extensions.ROWS,
    *worker.ROWS,
    *shuffle.ROWS,
    *client.ROWS,
    *progress.ROWS,
    *display.ROWS,
)

_lock = Lock()


def install(patches: Iterable[Patch] = PATCHES) -> None:
    """Replace what *patches* name, once; calling it again changes nothing.

    :raises ConfigError: before anything is replaced, if a needed row relies on source that was not
        reviewed.
    """
    with _lock:
        left = [each for each in patches if not (is_applied(each) or each.waits)]
        strange = unknown(left)
        _require_none([each for each in strange if each.needed])
        if strange:
            logger.warning(
                "distributed %s is left as it is in %d places that safeser does not know there,"
                " none of which a guarantee rests on: %s",
                version("distributed"),
                len(strange),
                ", ".join(each.target for each in strange),
            )
        for each in left:
            if each not in strange:
                apply(each)


def _require_none(strange: Sequence[Patch]) -> None:
    if not strange:
        return
    releases = known_sources().releases
    rows = "".join(f"\n  {each.target}: {each.reason}" for each in strange)
    raise ConfigError(
        f"distributed {version('distributed')} is not supported: what safeser replaces there is not"
        f" what was reviewed, and its guarantees rest on it:{rows}",
        rule="config.distributed-version",
        fix=f"Install a release from {releases[0]} to {releases[-1]}; docs/releases.md says how"
        " another one is supported.",
    )
