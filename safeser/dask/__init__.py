"""safeser for Dask: the comm backend, the client, the security object and local clusters.

The one rule: nothing outside this package imports distributed, and nothing in it hands Dask bytes
or objects that did not come through :mod:`safeser.channel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safeser.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from safeser.dask.sockets import Backend

__all__ = ["backend", "require_distributed"]


def require_distributed() -> None:
    """Raise :class:`ConfigError` unless a supported distributed is installed."""
    from importlib.metadata import PackageNotFoundError, version

    from safeser.operations import SUPPORTED_DISTRIBUTED

    try:
        installed = version("distributed")
    except PackageNotFoundError:
        raise MissingExtraError(
            "this needs Dask, which is not installed",
            fix="Install safeser with its extra dask: in a clone of it, pip install '.[dask]'.",
        ) from None
    if installed not in SUPPORTED_DISTRIBUTED:
        raise ConfigError(
            f"distributed {installed} is not supported: its operations were not compared with"
            " safeser's table",
            rule="config.distributed-version",
            fix=f"Install distributed {' or '.join(SUPPORTED_DISTRIBUTED)}.",
        )


def backend() -> Backend:
    """Return the comm backend for ``safeser://`` and close every other scheme in this process.

    distributed calls it through the entry point ``distributed.comm.backends: safeser``.
    """
    require_distributed()
    from safeser.dask import described, references
    from safeser.dask.around import refuse_downloads
    from safeser.dask.conflicts import require_known_scheduler
    from safeser.dask.decorated import honour_decorators
    from safeser.dask.events import make_no_loggers
    from safeser.dask.gathering import end_what_may_not_come
    from safeser.dask.joblib_calls import end_refused_calls
    from safeser.dask.logged import escape_logs
    from safeser.dask.named import name_roles
    from safeser.dask.partitions import keep_own_partitions
    from safeser.dask.rechunk import join_whole_arrays
    from safeser.dask.schemes import seal_other_schemes
    from safeser.dask.sockets import Backend
    from safeser.dask.widgets import escape_templates

    require_known_scheduler()
    refuse_downloads()
    seal_other_schemes()
    honour_decorators()
    name_roles()
    keep_own_partitions()
    join_whole_arrays()
    # Here, not with safeser.Client: a stock client on safeser:// draws and logs peers' words too.
    escape_templates()
    escape_logs()
    make_no_loggers()
    end_what_may_not_come()
    end_refused_calls()
    described.register()
    references.register()
    return Backend()
