"""``safeser confined``: confine this process as its policy demands, then become a worker.

The one rule: what a process may do is stated in the policy alone; the command has no option for it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from safeser.errors import ConfigError

if TYPE_CHECKING:
    from safeser.policy import Confined

__all__ = ["confined"]


def confined(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="Such as dask worker ADDRESS.")
    ],
) -> NoReturn:
    """Confine this process as the policy says of the worker's principal, and become COMMAND.

    The kernel confines it, by Landlock and seccomp. Settings are those of the worker.
    """
    from safeser.confinement import readable, writable
    from safeser.confinement.launch import Rules, command_line, require_kernel
    from safeser.confinement.own import DEVICES
    from safeser.dask import require_distributed

    require_distributed()
    from safeser.dask.confined import demand_for, own_files
    from safeser.dask.settings import settings_for, unrecorded_channel

    require_kernel()
    channel = unrecorded_channel("worker")
    settings = settings_for("worker")
    settings.require_complete("worker")
    assert channel is not None  # its key is set
    demand = demand_for(channel.policy, channel.identity.principal)
    if demand is None:
        raise ConfigError(
            f"policy {channel.policy.name!r} does not say how {channel.identity.principal!r} is"
            " confined",
            rule="confined.undemanded",
            where=channel.policy.source,
            fix="Add 'confined: {...}' to that principal, or start it without this command.",
        )
    own = own_files(settings, channel.policy)
    own.audit.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_paths(demand)
    _keep_inside(demand)
    ports = [port for each in demand.ports for port in each]
    rules = Rules(
        read=readable(demand, own),
        write=writable(demand, own),
        devices=DEVICES,
        execute=demand.execute,
        ports=tuple(ports) if demand.connect == "cluster" else None,
    )
    line = command_line(rules, command)
    sys.stdout.flush()
    os.execv(line[0], line)  # noqa: S606 - this very interpreter


def _require_paths(demand: Confined) -> None:
    """Raise unless what the policy lists is there: the kernel's rules are of files, not names."""
    for path in (*demand.read, *demand.write):
        if not Path(path).exists():
            raise ConfigError(
                "the policy lets a confined process use a path that does not exist",
                rule="confined.path",
                where=path,
                fix="Make it before the worker starts, or take it out of 'confined'.",
            )


def _keep_inside(demand: Confined) -> None:
    """Have temporary files, Dask's own among them, made in the first folder that can be written."""
    for folder in demand.write[:1]:
        os.environ["TMPDIR"] = folder
        os.environ.setdefault("DASK_TEMPORARY_DIRECTORY", folder)
        os.chdir(folder)
