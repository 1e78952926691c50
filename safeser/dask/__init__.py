"""safeser for Dask: the comm backend, the client, the security object and local clusters.

The one rule: nothing outside this package imports distributed, and nothing in it hands Dask bytes
or objects that did not come through :mod:`safeser.channel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safeser.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from safeser.dask.comm_backend import Backend

__all__ = ["backend", "require_distributed"]


def require_distributed() -> None:
    """Raise :class:`ConfigError` unless a release of distributed is installed that is supported.

    One that is newer than those tested is supported if :mod:`safeser.dask.patches` knows all source
    that safeser's guarantees rest on.
    """
    from importlib.metadata import PackageNotFoundError, version

    from safeser.operations import FIRST, release

    try:
        installed = version("distributed")
    except PackageNotFoundError:
        raise MissingExtraError(
            "this needs Dask, which is not installed",
            fix="Install safeser with its extra dask: in a clone of it, pip install '.[dask]'.",
        ) from None
    if release(installed) < FIRST:
        oldest = ".".join(map(str, FIRST))
        raise ConfigError(
            f"distributed {installed} is not supported: it is older than {oldest}",
            rule="config.distributed-version",
            fix=f"Install distributed {oldest} or newer; docs/reference/releases.md lists what was"
            " tested.",
        )

    try:
        from safeser.dask.patches import require_known
    except ImportError as error:
        raise ConfigError(
            f"distributed {installed} is not supported here: {error}",
            rule="config.distributed-version",
            fix="Install a release that docs/reference/releases.md lists.",
        ) from error
    require_known()


def backend() -> Backend:
    """Return the comm backend for ``safeser://`` and replace what safeser replaces of Dask.

    distributed calls it through the entry point ``distributed.comm.backends: safeser``.
    """
    try:
        return _backend()
    except ConfigError as error:
        from safeser.dask.roles import is_command, stop_command

        if is_command():
            stop_command(error)
        raise


def _backend() -> Backend:
    require_distributed()
    from safeser.dask.clients import dask_collections, references
    from safeser.dask.clients.decorated import honour_decorators
    from safeser.dask.comm_backend import Backend
    from safeser.dask.log_text import escape_logs, show_logs
    from safeser.dask.patches import install

    # Here, not with safeser.Client: a stock client on safeser:// draws and logs peers' words too.
    install()
    escape_logs()
    show_logs()
    honour_decorators()
    dask_collections.register()
    references.register()
    return Backend()
