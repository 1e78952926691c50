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

from safeser.dask.patches import client, display, scheduler, small_tasks, worker
from safeser.dask.patches.fingerprints import installed, known_sources, unknown
from safeser.dask.patches.patch import Patch, apply, is_applied, rebind
from safeser.errors import ConfigError
from safeser.operations import release

__all__ = ["PATCHES", "Patch", "install", "rebind", "require_known"]

logger = logging.getLogger("safeser.dask")

PATCHES: tuple[Patch, ...] = (
    *scheduler.ROWS,
    *small_tasks.ROWS,
    *worker.ROWS,
    *client.ROWS,
    *display.ROWS,
)

_lock = Lock()


def require_known(patches: Iterable[Patch] = PATCHES) -> None:
    """Refuse a Dask in which a needed row of *patches* relies on source that was not reviewed.

    :raises ConfigError: with a table of all rows that differ.
    """
    with _lock:
        _require_known(unknown(_left(patches)))


def install(patches: Iterable[Patch] = PATCHES) -> None:
    """Replace what *patches* name, once; calling it again changes nothing.

    Says in one warning that the installed release was not tested, and in another which rows are
    left out.

    :raises ConfigError: as :func:`require_known`, before anything is replaced.
    """
    with _lock:
        left = _left(patches)
        strange = unknown(left)
        _require_known(strange)
        known, newest = [each for each in left if each not in strange], known_sources().releases[-1]
        if known and release(version("distributed")) > release(newest):
            logger.warning(
                "distributed %s is untested: safeser was tested up to %s. Its source is known where"
                " guarantees rest on it; operations and fields that are new in it are refused.",
                version("distributed"),
                newest,
            )
        if known and strange:
            logger.warning(
                "distributed %s has %d functions in a form that safeser does not know. They are not"
                " replaced, and no guarantee depends on them: %s",
                version("distributed"),
                len(strange),
                ", ".join(each.target for each in strange),
            )
        for each in known:
            apply(each)


def _left(patches: Iterable[Patch]) -> list[Patch]:
    return [each for each in patches if not (is_applied(each) or each.waits)]


def _require_known(strange: Sequence[Patch]) -> None:
    if not any(each.needed for each in strange):
        return
    releases = known_sources().releases
    raise ConfigError(
        f"distributed {version('distributed')} is not supported: source that safeser's guarantees"
        f" rest on is not as it was reviewed:\n{_table(strange)}\n",
        rule="config.distributed-version",
        fix=f"Install a release from {releases[0]} to {releases[-1]}; docs/reference/releases.md"
        " says how another one is supported.",
    )


def _table(strange: Sequence[Patch]) -> str:
    """Return one line for each of *strange*, the needed ones first."""
    rows = [("what safeser replaces", "source", "needed")]
    for each in sorted(strange, key=lambda row: (not row.needed, row.target)):
        source = "not found" if installed(each) is None else "changed"
        rows.append((each.target, source, "yes" if each.needed else "no"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(f"  {line}" for line in lines)
