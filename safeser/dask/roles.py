"""The role of each socket of this process: scheduler, worker, nanny or client.

The one rule: a listener's role is the class of the server behind it, which no peer influences. What
a server connects to, it connects to in that role, and a client as a client; a connection that names
no role takes that of the only server that listens in its process.

A server that can never work under its policy is refused before it listens: otherwise Dask would
print pages of tracebacks, or run a scheduler that no client can reach.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from safeser.channel import Channel
from safeser.confinement import Unconfined
from safeser.dask.settings import (
    Settings,
    channel_for,
    close_channels_in,
    settings_for,
    unrecorded_channel,
)
from safeser.errors import ConfigError, SafeserError
from safeser.operations import Server
from safeser.policy import Policy
from safeser.policy.taken_tasks import anywhere

#: The last parts of the path of whatever runs Dask's command line: installed, or by ``python -m``.
_COMMANDS = frozenset(
    {
        ("dask",),
        ("dask-scheduler",),
        ("dask-worker",),
        ("dask", "__main__.py"),
        ("cli", "dask_scheduler.py"),
        ("cli", "dask_worker.py"),
    }
)

_SERVERS = {"Scheduler": Server.SCHEDULER, "Worker": Server.WORKER, "Nanny": Server.NANNY}

#: What each server asks the scheduler for before it is of any use.
REGISTRATIONS = {Server.WORKER: "register-worker", Server.NANNY: "register_nanny"}

#: How a process ends that could not run.
UNABLE = 2


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


def scheduler_of(comm_handler: Callable[[Any], Any]) -> str | None:
    """Return ``host:port`` of the scheduler that the worker or nanny behind a listener works for.

    Both keep it as an RPC of that name, which is made before they listen.
    """
    owner = getattr(comm_handler, "__self__", None)
    address = getattr(getattr(owner, "scheduler", None), "address", None)
    return address.partition("://")[2] if isinstance(address, str) else None


class Roles:
    """The roles that this process has taken so far."""

    def __init__(self) -> None:
        self._listening: list[Server] = []
        self._schedulers: set[str] = set()
        self._answered: dict[str, str] = {}  # who did, by the address of such a scheduler
        #: Whether a peer has accepted this process: its settings are not altogether wrong.
        self.was_accepted = False

    def listening(
        self, server: Server, given: Mapping[str, Any], *, scheduler: str | None = None
    ) -> Channel:
        """Return the channel for a listener of *server*.

        :param scheduler: ``host:port`` of the scheduler that a worker or nanny was started for.
        """
        channel = channel_for(server.value, _overrides(given, server.value))
        require_fit(server, channel.policy, channel.identity.principal)
        if server is Server.NANNY:
            # A worker that cannot start is said here, in one line, before it is started: what its
            # own process says ends in tracebacks of this one.
            worker = unrecorded_channel("worker", _overrides(given, "worker"))
            if worker is not None:
                require_fit(Server.WORKER, worker.policy, worker.identity.principal)
                require_no_nanny(worker.policy, worker.identity.principal)
        if server not in self._listening:
            self._listening.append(server)
        if scheduler is not None:
            self._schedulers.add(scheduler)
        return channel

    @staticmethod
    def settings(server: Server, given: Mapping[str, Any]) -> Settings:
        """Return the settings of a listener of *server*."""
        return settings_for(server.value, _overrides(given, server.value))

    def connecting(self, given: Mapping[str, Any]) -> Channel:
        """Return the channel for a connection that this process opens."""
        role = self._role(given.get("role"), given)
        return channel_for(role, _overrides(given, role))

    def expected_at(self, address: str, given: Mapping[str, Any]) -> str | None:
        """Return which principal must answer at *address*, if the settings name one.

        Policy bounds what a peer may do by its principal, not by its address: an attacker with
        another worker's key who takes the scheduler's address could otherwise hand out tasks, as
        far as policy lets workers do that for each other.
        """
        at = given.get("scheduler_at")
        if address != at and address not in self._schedulers:
            return None
        role = self._role(given.get("role"), given)
        return settings_for(role, _overrides(given, role)).expected_scheduler

    def _role(self, named: str | None, given: Mapping[str, Any]) -> str:
        listening = self._listening
        if named == Server.WORKER.value and Server.WORKER not in listening:
            # Nanny asks for the worker's arguments too; a process with a nanny and no worker is
            # the nanny's.
            return Server.NANNY.value if Server.NANNY in listening else named
        # Dask's own Security names a role and no identity. Where that role has none here, the
        # process has one that it shares: a worker's, say, in which a task makes a client.
        known = named is not None and ("roles" in given or _configured(named))
        if known or not listening:
            return named or Server.CLIENT.value
        candidates = {
            replace(settings_for(s.value, _overrides(given, s.value)), expected_scheduler=None)
            for s in listening
        }
        if len(candidates) > 1 and _configured(Server.CLIENT.value):
            return Server.CLIENT.value  # servers say which they are
        if len(candidates) > 1:
            raise ConfigError(
                "this process hosts servers with different identities, so it is unclear which of"
                " them opens this connection",
                rule="config.role",
                fix="Pass security=safeser.Security(...) to the cluster, or use safeser.Client().",
            )
        return listening[0].value

    def note_connected(self, address: str, principal: str) -> None:
        """Record that a peer accepted this process: from here on no refusal is the command's end.

        :param principal: the principal that it proved.
        """
        self.was_accepted = True
        if address in self._schedulers:
            self._answered[address] = principal

    def answered(self, address: str | None, principal: str) -> bool:
        """Tell whether *principal* answered at *address* as the scheduler of this process."""
        return address is not None and self._answered.get(address) == principal

    def stop_command_line(self, error: SafeserError, *, connecting_to: str | None = None) -> None:
        """End ``dask scheduler`` or ``dask worker`` with one line instead of a traceback.

        Only while the command starts: what fails later is for Dask to handle.

        :param connecting_to: ``host:port`` where *error* happened. Only at the scheduler that this
            process was started for does it end the command: other addresses are what peers name,
            and a scheduler, which was started for none, would end when a guest names a wrong one.
        """
        from_elsewhere = connecting_to is not None and connecting_to not in self._schedulers
        if is_command() and not self.was_accepted and not from_elsewhere:
            stop_command(error)

    def stop_registering(self, error: SafeserError, *, at: str) -> None:
        """End ``dask worker`` with one line where its scheduler's policy takes no such worker.

        :param at: ``host:port`` of the peer that refused. Only the scheduler of this process ends
            it so: it could tell the process to close as well.
        """
        if is_command() and at in self._schedulers:
            stop_command(error)


def stop_command(error: SafeserError) -> NoReturn:
    """End this process, which could not run, with *error* as its one line.

    A worker that is not confined has a line for each thing that has to be mended.
    """
    for each in error.each if isinstance(error, Unconfined) else (error,):
        sys.stderr.write(f"safeser: {each}\n")
    sys.stderr.flush()
    close_channels_in(Path("/"))
    # SystemExit would pass through tasks of Dask's, each of which prints it as a traceback.
    os._exit(UNABLE)


def _configured(role: str) -> bool:
    return settings_for(role).identity is not None


def is_command() -> bool:
    """Tell whether this process runs ``dask scheduler`` or ``dask worker``."""
    parts = Path(sys.argv[0]).parts
    return parts[-1:] in _COMMANDS or parts[-2:] in _COMMANDS


def require_no_nanny(policy: Policy, principal: str) -> None:
    """Raise :class:`ConfigError` if *policy* confines workers of *principal*, which have a nanny.

    A nanny runs plugins before it starts its worker.
    """
    listed = policy.principals.get(principal)
    if listed is not None and listed.confined is not None:
        raise ConfigError(
            "a nanny starts this worker, which its policy confines, and runs outside of the"
            " sandbox",
            rule="confined.nanny",
            fix="Start it with 'safeser confined -- dask worker ... --no-nanny'.",
        )


def require_fit(server: Server, policy: Policy, principal: str) -> None:
    """Raise unless *policy* lets *principal* be a *server* of some cluster."""
    peers = policy.counterparts(principal)
    if server is Server.SCHEDULER:
        asked = [hop for peer in peers for hop in anywhere(peer, principal, "register-worker")]
        lacking = f"lets no principal register a worker with {principal!r}"
    else:
        operation = REGISTRATIONS[server]
        asked = [hop for peer in peers for hop in anywhere(principal, peer, operation)]
        lacking = f"does not let {principal!r} register a {server.value} with any principal"
    if any(policy.permits_operation(context).permitted for context in asked):
        return
    setting = "NANNY__IDENTITY" if server is Server.NANNY else "IDENTITY"
    raise ConfigError(
        f"policy {policy.name!r} {lacking}, so it cannot be a {server.value}",
        rule="config.role-principal",
        fix=f"Set DASK_SAFESER__{setting} to the key of a {server.value}, or grant"
        f" {asked[0].operation if asked else 'register-worker'} in a context.",
    )


def _overrides(given: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    roles = given.get("roles")
    return roles.get(role, {}) if isinstance(roles, Mapping) else {}
