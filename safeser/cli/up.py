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
    group: Annotated[
        list[str] | None,
        typer.Option(help="Run a cluster of its own for each group, below DIRECTORY; repeatable."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="A file, or a ready policy. [default: 'default', or that of the group]"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes. [default: by cores]")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = 8786,
) -> None:
    """Run a local cluster with identities made for it; Ctrl-C ends it.

    With --group, what was made stays, and the next start goes on with its keys and policy.
    """
    from safeser.dask import require_distributed

    require_distributed()
    try:
        if group:
            _up_groups(directory, group, policy, workers, port)
        else:
            _up(directory, policy or "default", workers, port)
    except (OSError, RuntimeError, SafeserError) as error:
        raise _cause(error) from None
    if directory is None:
        line("Ended. Its keys and logs are deleted; 'safeser up DIR' keeps them.")
    else:
        line(f"Ended. Keys and logs are in {directory.absolute()}")


def _up(directory: Path | None, policy: str, workers: int | None, port: int) -> None:
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

    cluster.up(directory=directory, policy=policy, n_workers=workers, port=port, announce=announce)


def _up_groups(
    directory: Path | None, groups: list[str], policy: str | None, workers: int | None, port: int
) -> None:
    from safeser.dask.group_clusters import GroupCluster, up_groups

    if directory is None:
        raise ConfigError(
            "clusters of groups keep their keys and policies, and no folder is named",
            rule="config.directory",
            fix="Write 'safeser up DIR --group NAME'.",
        )

    def announce(cluster: GroupCluster) -> None:
        name, told = cluster.directory.name, cluster.policy.title
        say(f"{name}: running at {cluster.address} under policy {told}. Ctrl-C ends it.")
        line(f"Files      {cluster.directory}")
        line(f"Policy     {cluster.policy_path}")
        for user in cluster.users[:1]:
            settings = {
                "identity": str(cluster.key(user)),
                "audit": str(cluster.audit(user)),
                "audit_key": str(cluster.key(user).with_name("audit.key")),
                "policy": str(cluster.policy_path),
                "roster": str(cluster.policy_path.with_name("roster")),
            }
            line(f"Connect as {user} from Python with:")
            line()
            line("import safeser")
            told = ", ".join(f"{key}={value!r}" for key, value in settings.items())
            line(
                f"client = safeser.Client({cluster.address!r},"
                f" security=safeser.Security({told}, expected_scheduler='scheduler'))"
            )

    up_groups(
        directory.absolute(),
        groups,
        policy=policy,
        workers=workers or 1,
        port=port,
        announce=announce,
    )


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
