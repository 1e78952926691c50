"""Nannies: which peers speak for their worker, and what their worker's process reports.

The one rule: only its own worker, or a principal that may end it anyway, tells a nanny that the
worker retires; what a worker's process reports of its start is about itself.

In distributed 2026.8.0 a nanny that is asked to close gracefully starts no worker any more: with
one worker's key an attacker could lose each node of the cluster when its worker ended next.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil
from distributed.comm.addressing import parse_address, parse_host_port

from safeser.channel.records import note_refusal
from safeser.dask.same_host import is_of_this_machine
from safeser.dask.servers import Served
from safeser.dask.worker.confinement import demand_for
from safeser.dask.worker.start_pipes import START_RULE
from safeser.dask.worker.worker_folders import WorkerFolder
from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.values import UNKNOWN, Context, Kind

logger = logging.getLogger("safeser.dask")


# --- on a nanny ----------------------------------------------------------------------------------


def require_own_worker(nanny: Any, comm: Any, *, worker_key: str | None) -> None:
    """Refuse a peer that tells *nanny* that a worker retires, unless it is its own.

    :param worker_key: the key that its worker has; None if that is not known here.
    :raises PolicyDenied: which was recorded.
    """
    link = comm.link
    ends = link.policy.permits_operation(link.inbound(Kind.CONTROL, "kill"))
    if not ends.permitted and not _is_of(nanny, comm, link, worker_key):
        link.refuse(
            link.inbound(Kind.CONTROL, "close_gracefully"),
            "nanny.another",
            "a nanny is told by its own worker alone that this retires",
        )


def _is_of(nanny: Any, comm: Any, link: Any, key: str | None) -> bool:
    """Tell whether the peer on *comm* is the worker of *nanny*: by its key, or by its process."""
    if key is not None and link.session.peer_key.text == key:
        return True
    # It may have been given another key than this process knows of.
    pid = nanny.pid
    if not pid:
        return False
    peer = parse_host_port(parse_address(comm.peer_address)[1])
    try:
        held = psutil.Process(pid).net_connections(kind="inet")
    except psutil.Error:
        return False
    return any(tuple(each.laddr[:2]) == peer for each in held)


# --- a worker that starts ------------------------------------------------------------------------


def require_own_start(
    nanny: Any, folder: WorkerFolder, said: Mapping[str, Any], *, pid: int | None
) -> None:
    """Refuse a worker process's report of its start, unless it is about itself.

    Once the process ends, the nanny deletes that folder and unregisters that address.

    :param folder: what was made for this start.
    :param said: the ``address`` and ``dir`` that it reported.
    :raises PolicyDenied: if another address or folder is named.
    """
    if not folder.has(said["dir"]):
        what = "names a folder that is not one of its workers'"
    elif not _is_address_of(nanny, said["address"], pid):
        what = "names an address at which that process does not listen"
    else:
        return
    raise PolicyDenied(
        f"what a worker process tells its nanny of its start {what}",
        rule=START_RULE,
        fix="Check which code ran in this worker's process. A nanny accepts folders in the one that"
        " it made for its workers, and its contact_address or where the process listens.",
    )


def _is_address_of(nanny: Any, address: str, pid: int | None) -> bool:
    if nanny.contact_address is not None:
        return bool(address == nanny.contact_address)
    try:
        host, port = parse_host_port(parse_address(address, strict=True)[1])
        held = psutil.Process(pid).net_connections(kind="inet") if pid else []
    except (ValueError, psutil.Error):
        return False
    if not is_of_this_machine(host):
        return False
    return any(each.laddr[1] == port for each in held if each.status == psutil.CONN_LISTEN)


@contextlib.contextmanager
def refusing_start(known: Served, said: Callable[[], SafeserError | None]) -> Iterator[None]:
    """Record what is refused of a worker's start.

    :param said: returns the refusal of its message, if there was one.
    """
    try:
        yield
    except SafeserError as error:
        # The worker's own error has been told in such a message, which was taken.
        if error is said() or (isinstance(error, PolicyDenied) and error.rule == START_RULE):
            context = Context(known.worker or UNKNOWN, known.channel.identity.principal, Kind.ADMIN)
            note_refusal(known.channel.audit, context, error)
        raise


# --- a worker that is confined -------------------------------------------------------------------

_CONFINED = "nanny.confined"
_CONFINED_TEXT = "the nanny of a confined worker takes no functions, plugins or environment"
_CONFINED_FIX = (
    "Run it on workers, if policy lets you. Set variables of the environment where the worker is"
    " started."
)


def starts_confined(known: Served) -> bool:
    """Tell whether the policy of a nanny demands confinement of the worker that it starts.

    A nanny that does not know its worker may start any that the policy confines.
    """
    policy = known.channel.policy
    workers = [known.worker] if known.worker else policy.principals
    return any(demand_for(policy, each) is not None for each in workers)


def require_unconfined(known: Served, comm: Any, operation: str) -> None:
    """Refuse code for the nanny of a confined worker: it would run outside of the sandbox.

    :raises PolicyDenied: which was recorded.
    """
    if starts_confined(known):
        link = comm.link
        context = link.inbound(Kind.CONTROL, operation)
        link.refuse(context, _CONFINED, _CONFINED_TEXT, fix=_CONFINED_FIX)


def refused_plugin(known: Served, name: Any) -> PolicyDenied | None:
    """Return why a nanny leaves the plugin *name* out, which is recorded; None if it takes it.

    The scheduler sends those that are registered when a nanny starts. The others of the cluster
    take them, and the confined workers are to start nevertheless.
    """
    if not starts_confined(known):
        return None
    error = PolicyDenied(_CONFINED_TEXT, rule=_CONFINED, fix=_CONFINED_FIX)
    context = Context(UNKNOWN, known.channel.identity.principal, Kind.CONTROL, "plugin_add")
    note_refusal(known.channel.audit, context, error)
    logger.warning("The plugin %.64r is left out: %s", name, error)
    return error
