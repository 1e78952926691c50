"""What the processes of a cluster ask of each other because of their roles.

The one rule: an operation is listed if Dask asks for it sooner or later in every cluster, whatever
its users do, and something waits, stays or dies where it is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from safeser.gate.decision import SUBMITTING
from safeser.gate.values import Kind
from safeser.operations import IN_ANY_RELEASE, Channel, Server
from safeser.policy.rules import HANDING, READING

__all__ = ["REGISTERING", "Need", "Roles"]

#: By what a process takes its role. Heartbeats do not: anyone may send one and register nothing.
REGISTERING: Mapping[str, Server] = MappingProxyType(
    {
        "register-worker": Server.WORKER,
        "register_nanny": Server.NANNY,
        "register-client": Server.CLIENT,
    }
)

#: What each role asks of another: at work, when a worker falls behind, fails or leaves, and when a
#: process ends.
_ASKED: Mapping[tuple[Server, Server], str] = MappingProxyType(
    {
        (Server.WORKER, Server.SCHEDULER): (
            "heartbeat_worker keep-alive worker-status-change task-finished task-erred add-keys"
            " release-worker-data reschedule long-running steal-response request-refresh-who-has"
            " log-event close-stream"
        ),
        (Server.SCHEDULER, Server.WORKER): (
            "compute-task free-keys cancel-compute acquire-replicas remove-replicas steal-request"
            " refresh-who-has worker-status-change remove-worker close close-stream"
        ),
        (Server.WORKER, Server.WORKER): "get_data shuffle_receive",
        (Server.NANNY, Server.SCHEDULER): "unregister",
        (Server.WORKER, Server.NANNY): "close_gracefully",
        (Server.CLIENT, Server.SCHEDULER): (
            "register-client heartbeat-client client-desires-keys client-releases-keys gather"
            " close-client close-stream"
        ),
        (Server.SCHEDULER, Server.CLIENT): (
            "stream-start key-in-memory task-erred task-retried cancelled-keys lost-data"
            " adjust-heartbeat-interval stream-closed"
        ),
    }
)

#: What they ask besides where frames are shuffled, in some runs of a program and not in others.
_SHUFFLING: Mapping[tuple[Server, Server], str] = MappingProxyType(
    {
        (Server.WORKER, Server.SCHEDULER): "shuffle_get shuffle_barrier shuffle_restrict_task",
        (Server.SCHEDULER, Server.WORKER): "shuffle-fail",
    }
)

#: Operations that run code in the recipient, hand it code to run, or read values.
_OF_WORK = READING | SUBMITTING | HANDING


def _kind(server: Server, name: str) -> Kind:
    """Return the weakest kind of what roles say; ``close`` ends a worker on its stream alone."""
    rows = {
        row.channel: row.kind for row in IN_ANY_RELEASE if (row.server, row.name) == (server, name)
    }
    return rows.get(Channel.STREAM) or rows[Channel.RPC]


class Need(NamedTuple):
    """One operation that *sender* asks of *recipient* because of its role.

    :param kind: the weakest kind of such a message.
    """

    sender: str
    recipient: str
    kind: Kind
    operation: str

    @property
    def is_upkeep(self) -> bool:
        """Whether it neither hands out code nor reads values."""
        return self.operation not in _OF_WORK


@dataclass(frozen=True, slots=True)
class Roles:
    """Who plays which role around one scheduler."""

    scheduler: str
    workers: Collection[str] = ()
    nannies: Collection[str] = ()
    clients: Collection[str] = ()

    def needs(self, *, shuffling: bool = False) -> Iterator[Need]:
        """Yield what they ask of each other, principal by principal."""
        names = {
            Server.SCHEDULER: (self.scheduler,),
            Server.WORKER: sorted(self.workers),
            Server.NANNY: sorted(self.nannies),
            Server.CLIENT: sorted(self.clients),
        }
        for (asking, asked), listed in (*_NEEDED, *(_SHUFFLED if shuffling else ())):
            for sender, recipient in itertools.product(names[asking], names[asked]):
                # Groups of workers do not reach each other: only what one shares is needed.
                if asking is not asked or sender == recipient:
                    for name, kind in listed:
                        yield Need(sender, recipient, kind, name)


_NEEDED, _SHUFFLED = (
    [
        (ends, tuple((name, _kind(ends[1], name)) for name in names.split()))
        for ends, names in asked.items()
    ]
    for asked in (_ASKED, _SHUFFLING)
)
