"""``safeser up``: a local cluster on ``safeser://`` that runs until it is told to stop.

The one rule: it prints the one line that connects to it, with paths of keys and never a key.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeser.cli.screen import line
from safeser.errors import ConfigError

if TYPE_CHECKING:
    from safeser.dask.local import LocalCluster

__all__ = ["up"]


def up(
    directory: Annotated[
        Path | None,
        typer.Argument(help="Empty folder for keys and logs. [default: a new temporary one]"),
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
    from safeser.dask import local

    base = directory or Path(tempfile.mkdtemp(prefix="safeser-"))

    def announce(cluster: LocalCluster) -> None:
        keys, logs = base.absolute() / "keys", base.absolute() / "audit"
        line(f"Running at {cluster.scheduler_address} under policy {policy}. Ctrl-C ends it.")
        line(f"Keys are in {keys}, logs in {logs}. Connect from Python with:")
        line()
        line("import safeser")
        line(
            f"client = safeser.Client({cluster.scheduler_address!r},"
            f" deserializers=['dask', 'msgpack'], security=safeser.Security("
            f"identity={str(keys / 'client.key')!r}, audit={str(logs)!r}, policy={policy!r}))"
        )

    try:
        local.up(directory=base, policy=policy, n_workers=workers, port=port, announce=announce)
    except (OSError, RuntimeError) as error:
        # Dask wraps what kept the scheduler from starting, such as a port that is taken.
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise ConfigError(
            f"the cluster could not be started: {cause}",
            rule="config.up",
            fix="Name another --port, or 0 for any free one.",
        ) from None
    line(f"Ended. Logs are in {base.absolute() / 'audit'}")
