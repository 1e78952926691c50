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
    from safeser.dask.settings import settings_for, unrecorded_channel
    from safeser.dask.worker.confinement import demand_for, own_files

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
    write = writable(demand, own)
    _require_modules(write)
    os.chdir("/")  # what relative paths of the environment find there, a worker does not write
    ports = [port for each in demand.ports for port in each]
    rules = Rules(
        read=readable(demand, own),
        write=write,
        devices=DEVICES,
        execute=demand.execute,
        ports=tuple(ports) if demand.connect == "cluster" else None,
        work=next(iter(demand.write), None),
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


def _require_modules(write: tuple[str, ...]) -> None:
    """Raise if the worker could write what is imported at its next start, before it is confined."""
    from safeser.confinement.own import is_within, modules

    told = os.environ.get("PYTHONPATH", "")
    if told and not all(map(os.path.isabs, told.split(os.pathsep))):
        raise ConfigError(
            "PYTHONPATH has an entry that means another folder wherever a process starts",
            rule="confined.modules",
            where="PYTHONPATH",
            fix="Write absolute paths, with no ':' at its start or end.",
        )
    for folder in modules():
        if is_within(folder, write):
            raise ConfigError(
                "the worker could write what it imports before it is confined",
                rule="confined.modules",
                where=folder,
                fix="Take the folder out of 'write' of the policy, or Python's modules out of it.",
            )
