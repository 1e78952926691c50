"""``safeser up``: a local cluster on ``safeser://`` that runs until it is told to stop.

The one rule: it prints the one line that connects to it, with paths of keys and never a key.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeser.cli.screen import line, say
from safeser.errors import ConfigError, SafeserError

if TYPE_CHECKING:
    from safeser.dask.cluster import LocalCluster

__all__ = ["up"]


def up(
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="Empty folder for keys and logs. [default: a temporary one, deleted at the end]"
        ),
    ] = None,
    policy: Annotated[str, typer.Option(help="A file, or a ready policy.")] = "default",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes. [default: by cores]")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = 8786,
) -> None:
    """Run a local cluster with identities made for it; Ctrl-C ends it."""
    from safeser.dask import require_distributed

    require_distributed()
    from safeser.dask import cluster

    def announce(cluster: LocalCluster) -> None:
        base = cluster.directory.absolute()
        keys, logs = base / "keys", base / "audit"
        say(f"Running at {cluster.scheduler_address} under policy {policy}. Ctrl-C ends it.")
        line(f"Keys       {keys}")
        line(f"Logs       {logs}")
        line(f"Dashboard  {cluster.dashboard_link}")
        line("Connect from Python with:")
        line()
        line("import safeser")
        line(
            f"client = safeser.Client({cluster.scheduler_address!r},"
            f" deserializers=['dask', 'msgpack'], security=safeser.Security("
            f"identity={str(keys / 'client.key')!r}, audit={str(logs)!r}, policy={policy!r}))"
        )

    try:
        cluster.up(
            directory=directory, policy=policy, n_workers=workers, port=port, announce=announce
        )
    except (OSError, RuntimeError, SafeserError) as error:
        raise _cause(error) from None
    if directory is None:
        line("Ended. Its keys and logs are deleted; 'safeser up DIR' keeps them.")
    else:
        line(f"Ended. Keys and logs are in {directory.absolute()}")


def _cause(error: BaseException) -> SafeserError:
    """Return what kept the cluster from starting; Dask wraps it, sometimes more than once."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SafeserError):
            return cause
        if isinstance(cause, OSError):
            return ConfigError(
                f"the cluster could not be started: {cause.strerror or cause}",
                rule="config.up",
                fix="If the port is taken, name another with --port, or 0 for any free one.",
            )
        cause = cause.__cause__ or cause.__context__
    return ConfigError(f"the cluster could not be started: {error}", rule="config.up")
