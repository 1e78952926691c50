"""Nannies: which peers speak for their worker, and what their worker's process reports.

The one rule: only its own worker, or a principal that may end it anyway, tells a nanny that the
worker retires; what a worker's process reports of its start is about itself.

In distributed 2026.8.0 a nanny that is asked to close gracefully starts no worker any more: with
one worker's key an attacker could lose each node of the cluster when its worker ended next.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import psutil
from distributed.comm.addressing import parse_address, parse_host_port
from distributed.core import error_message

from safeser.channel.records import note_refusal
from safeser.dask.roles import UNABLE
from safeser.dask.same_host import is_of_this_machine
from safeser.dask.servers import Part
from safeser.dask.worker.confinement import demand_for
from safeser.dask.worker.start_pipes import START_RULE
from safeser.dask.worker.worker_folders import WorkerFolder
from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.values import UNKNOWN, Context, Kind

__all__ = ["OwnWorker"]

logger = logging.getLogger("safeser.dask")

_CONFINED = "nanny.confined"
_CONFINED_TEXT = "the nanny of a confined worker takes no functions, plugins or environment"
_CONFINED_FIX = (
    "Run it on workers, if policy lets you. Set variables of the environment where the worker is"
    " started."
)


class OwnWorker(Part):
    """The worker that one nanny starts."""

    @property
    def _folder(self) -> WorkerFolder:
        return self._known.part(self._server, WorkerFolder)

    def _note(self, kind: Kind, operation: str | None, error: SafeserError, who: str) -> None:
        own = self._known.channel.identity.principal
        note_refusal(self._known.channel.audit, Context(who, own, kind, operation), error)

    # --- which starts ----------------------------------------------------------------------------

    async def instantiate(self, stock: Callable[[], Awaitable[Any]]) -> Any:
        """Start it as *stock* does, with a folder of its own."""
        self._folder.make()
        return await stock()

    async def wait_until_connected(self, stock: Any, *args: Any) -> Any:
        """Return what its process reports of its start, as *stock* does, if it is about itself.

        :raises SafeserError: if it is not, or why it could not start; what the process was refused
            is recorded.
        """
        process = stock.__self__
        pipe = process.init_result_q
        try:
            said = await stock(*args)
            if said is not None:
                self.require_own_start(said, pid=process.pid)
                said["dir"] = self._folder.path  # which Dask deletes by this name
        except SafeserError as error:
            # The worker's own error has been told in such a message, which was taken.
            ours = isinstance(error, PolicyDenied) and error.rule == START_RULE
            if ours or error is pipe.refused:
                self._note(Kind.ADMIN, None, error, self._known.worker or UNKNOWN)
            raise
        return said

    def require_own_start(self, said: Mapping[str, Any], *, pid: int | None) -> None:
        """Refuse a worker process's report of its start, unless it is about itself.

        Once the process ends, the nanny deletes that folder and unregisters that address.

        :param said: the ``address`` and ``dir`` that it reported.
        :raises PolicyDenied: if another address or folder is named.
        """
        if not self._folder.has(said["dir"]):
            what = "names a folder that is not one of its workers'"
        elif not _is_address_of(self._server, said["address"], pid):
            what = "names an address at which that process does not listen"
        else:
            return
        raise PolicyDenied(
            f"what a worker process tells its nanny of its start {what}",
            rule=START_RULE,
            fix="Check which code ran in this worker's process. A nanny accepts folders in the one"
            " that it made for its workers, and its contact_address or where the process listens.",
        )

    def exited(self, stock: Callable[[Any], None], exitcode: int | None) -> None:
        """Delete the folder of a worker that ended, and go on as *stock* does if that could run.

        Else ``dask worker`` ends as it: its process has said why, in one line, and Dask prints
        tracebacks of what follows.
        """
        self._folder.delete()
        starts = self._server.status.name in ("init", "starting")
        if self._known.is_command and exitcode == UNABLE and starts:
            # This is a callback of the event loop and no task of Dask's: it ends the loop.
            raise SystemExit(UNABLE)
        stock(exitcode)

    # --- which speaks for itself -----------------------------------------------------------------

    def require_own(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse a peer that says that a worker retires, unless it is the nanny's own.

        :raises PolicyDenied: which was recorded.
        """
        link = comm.link
        ends = link.policy.permits_operation(link.inbound(Kind.CONTROL, "kill"))
        if not ends.permitted and not self._is_at(comm):
            link.refuse(
                link.inbound(Kind.CONTROL, request["op"]),
                "nanny.another",
                "a nanny is told by its own worker alone that this retires",
            )

    def _is_at(self, comm: Any) -> bool:
        """Tell whether the peer on *comm* is that worker: by its key, or by its process."""
        key, pid = self._known.worker_key, self._server.pid
        if key is not None and comm.link.session.peer_key.text == key:
            return True
        # It may have been given another key than this process knows of.
        peer = parse_host_port(parse_address(comm.peer_address)[1])
        return any(tuple(each.laddr[:2]) == peer for each in _held_by(pid))

    # --- which is confined -----------------------------------------------------------------------

    def _is_confined(self) -> bool:
        """Tell whether the policy of this nanny demands confinement of the worker.

        A nanny that does not know its worker may start any that the policy confines.
        """
        policy, worker = self._known.channel.policy, self._known.worker
        workers = [worker] if worker else policy.principals
        return any(demand_for(policy, each) is not None for each in workers)

    def require_unconfined(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse code for the nanny of a confined worker: it would run outside of the sandbox.

        :raises PolicyDenied: which was recorded.
        """
        if self._is_confined():
            context = comm.link.inbound(Kind.CONTROL, request["op"])
            comm.link.refuse(context, _CONFINED, _CONFINED_TEXT, fix=_CONFINED_FIX)

    async def plugin_add(
        self, stock: Callable[..., Awaitable[Any]], plugin: Any, name: str | None = None
    ) -> Any:
        """Add a *plugin* as *stock* does, unless the worker is confined: then it is left out.

        The scheduler sends those that are registered when a nanny starts. The others of the cluster
        take them, and the confined workers are to start nevertheless.
        """
        if not self._is_confined():
            return await stock(plugin=plugin, name=name)
        error = PolicyDenied(_CONFINED_TEXT, rule=_CONFINED, fix=_CONFINED_FIX)
        self._note(Kind.CONTROL, "plugin_add", error, UNKNOWN)
        logger.warning("The plugin %.64r is left out: %s", name, error)
        return error_message(error)


def _is_address_of(nanny: Any, address: str, pid: int | None) -> bool:
    if nanny.contact_address is not None:
        return bool(address == nanny.contact_address)
    try:
        host, port = parse_host_port(parse_address(address, strict=True)[1])
    except ValueError:
        return False
    listening = (each for each in _held_by(pid) if each.status == psutil.CONN_LISTEN)
    return is_of_this_machine(host) and any(each.laddr[1] == port for each in listening)


def _held_by(pid: int | None) -> list[Any]:
    """Return the sockets of the process *pid*; none of one that is gone."""
    try:
        return list(psutil.Process(pid).net_connections(kind="inet")) if pid else []
    except psutil.Error:
        return []
