"""safeser for Dask: the comm backend, the client, the security object and local clusters.

The one rule: nothing outside this package imports distributed, and nothing in it hands Dask bytes
or objects that did not come through :mod:`safeser.channel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safeser.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from types import ModuleType

    from safeser.dask.comm_backend import Backend

__all__ = ["backend", "require_distributed"]


def require_distributed() -> None:
    """Raise :class:`ConfigError` unless a release of distributed is installed that is supported.

    One that is newer than those tested is supported if :mod:`safeser.dask.patches` knows all source
    that safeser's guarantees rest on.
    """
    _patches().require_known()


def _patches() -> ModuleType:
    """Return :mod:`safeser.dask.patches`, which imports what it needs of distributed.

    :raises ConfigError: if there is no distributed, an old one, or one that lacks a module or name.
    """
    from importlib import import_module
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
        return import_module("safeser.dask.patches")
    except ImportError as error:
        raise ConfigError(
            f"distributed {installed} is not supported here: {error}",
            rule="config.distributed-version",
            fix="Install a release that docs/reference/releases.md lists.",
        ) from error


def backend() -> Backend:
    """Return the comm backend for ``safeser://`` and replace what safeser replaces of Dask.

    distributed calls it through the entry point ``distributed.comm.backends: safeser``.
    """
    from safeser.dask.transport.gc_pause import gc_paused

    try:
        # What modules make when they are imported stays: the collector would search it a hundred
        # times and find nothing.
        with gc_paused:
            return _backend()
    except ConfigError as error:
        from safeser.dask.roles import is_command, stop_command

        if is_command():
            stop_command(error)
        raise


def _backend() -> Backend:
    patches = _patches()
    from safeser.dask.clients import dask_collections, references
    from safeser.dask.clients.decorated import honour_decorators
    from safeser.dask.comm_backend import Backend
    from safeser.dask.log_text import escape_logs, shorten_refusals, show_logs

    # Here, not with safeser.Client: a stock client on safeser:// draws and logs peers' words too.
    patches.install()
    escape_logs()
    show_logs()
    shorten_refusals()
    honour_decorators()
    dask_collections.register()
    references.register()
    return Backend()
