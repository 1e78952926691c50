"""Which role a socket of this process plays: scheduler, worker, nanny or client.

The one rule: a listener's role is the class of the server behind it, which no peer influences. Dask
tells connectors less: a nanny asks for the worker's arguments, and a stock ``Security`` names no
role at all, so a connector takes the role of the only server that listens in its process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safeser.channel import Channel
from safeser.dask.settings import channel_for, close_channels_in, settings_for
from safeser.errors import ConfigError, SafeserError
from safeser.operations import Server

__all__ = ["Roles", "served_by"]

_COMMANDS = ("dask", "dask-scheduler", "dask-worker")

_SERVERS = {
    "Scheduler": Server.SCHEDULER,
    "Worker": Server.WORKER,
    "Nanny": Server.NANNY,
}


def served_by(comm_handler: Callable[[Any], Any]) -> Server:
    """Return which of Dask's servers *comm_handler* is a method of, by its classes' names."""
    owner = getattr(comm_handler, "__self__", None)
    for cls in type(owner).__mro__:
        if cls.__module__.split(".")[0] == "distributed" and cls.__name__ in _SERVERS:
            return _SERVERS[cls.__name__]
    raise ConfigError(
        "safeser:// listens only for Dask's scheduler, workers and nannies",
        rule="config.listener",
        fix="Use safeser.Channel for a server of your own.",
    )


class Roles:
    """The roles that this process has taken so far."""

    def __init__(self) -> None:
        self._listening: list[Server] = []
        self._accepted = False

    def listening(self, server: Server, given: Mapping[str, Any]) -> Channel:
        """Return the channel for a listener of *server*."""
        channel = channel_for(server.value, _overrides(given, server.value))
        if server not in self._listening:
            self._listening.append(server)
        return channel

    def connecting(self, given: Mapping[str, Any]) -> Channel:
        """Return the channel for a connection that this process opens."""
        role = self._role(given.get("role"), given)
        return channel_for(role, _overrides(given, role))

    def _role(self, named: str | None, given: Mapping[str, Any]) -> str:
        listening = self._listening
        if named == Server.WORKER.value and Server.WORKER not in listening:
            # Nanny asks for the worker's arguments too; a process with a nanny and no worker is
            # the nanny's.
            return Server.NANNY.value if Server.NANNY in listening else named
        if named is not None:
            return named
        if not listening:
            return Server.CLIENT.value
        candidates = {settings_for(s.value, _overrides(given, s.value)) for s in listening}
        if len(candidates) > 1:
            raise ConfigError(
                "this process hosts servers with different identities, so it is unclear whose this"
                " connection is",
                rule="config.role",
                fix="Pass security=safeser.Security(...) to the cluster, or use safeser.Client().",
            )
        return listening[0].value

    def note_connected(self) -> None:
        """Note that a peer accepted this process: from here on no refusal is the command's end."""
        self._accepted = True

    def stop_command_line(self, error: SafeserError) -> None:
        """End ``dask scheduler`` or ``dask worker`` with one line instead of a traceback.

        Only while the command starts: what fails later is for Dask to handle.
        """
        if self._accepted or os.path.basename(sys.argv[0]) not in _COMMANDS:
            return
        sys.stderr.write(f"safeser: {error}\n")
        sys.stderr.flush()
        close_channels_in(Path("/"))
        # SystemExit would pass through tasks of Dask's, each of which prints it as a traceback.
        os._exit(2)


def _overrides(given: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    roles = given.get("roles")
    return roles.get(role, {}) if isinstance(roles, Mapping) else {}
