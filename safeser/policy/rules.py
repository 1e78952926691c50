"""The constants of rules, and the values that questions about them are made of.

The one rule: nothing here knows YAML. A context is a :class:`safeser.policy.source.context.Rule`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import HARMLESS as HARMLESS  # noqa: PLC0414 - rules are read with it
from safeser.gate.values import TRANSPORTS, KeyConflicts, Kind
from safeser.operations import GROUPS, IN_ANY_RELEASE
from safeser.operations.groups import PARTS
from safeser.policy.confined import Confined

#: Families that can reach code; never for ``unknown``, never in a message without payloads.
PICKLES = frozenset({"pickle", "cloudpickle"})

#: Profiles of restricted pickle that a policy may name in this version.
PROFILES = ("data", "numpy", "pandas", "scipy", "sklearn", "exceptions", "functions")

#: Profiles that listed functions and classes of Dask, NumPy and pandas for graphs.
RETIRED_PROFILES = frozenset({"dask-graph", "dask-tasks"})

#: The operation that hands a graph to the scheduler, which unpickles it: ``submission`` gates it.
SUBMIT = "update-graph"

#: The operation by which a scheduler hands a task to a worker.
COMPUTE = "compute-task"

#: The operations by which the statement of a sealed graph is renewed: its author's client tells the
#: scheduler, and the scheduler the workers that have tasks of the graph.
RENEW, RENEWED = "renew-statement", "statement-renewed"

#: What a client may say that may submit work, and what a scheduler says of tasks to workers.
SUBMITTING, HANDING = frozenset({SUBMIT, RENEW}), frozenset({COMPUTE, RENEWED})

#: The operations by which a sender reads values of others from the recipient, or has them used.
READING = GROUPS["actors"] | {SUBMIT, "gather", "get_data", "publish_put", "shuffle_receive"}

#: Operations that run what the sender sends, or write it to a path of the sender's choice.
#: ``upload_file`` does both in plain msgpack, so that families alone could not hold it back.
#: An actor's methods are whatever its class has, with arguments of the caller's choice: an array's
#: write files.
CODE_OPERATIONS = GROUPS["run"] | GROUPS["plugins"] | GROUPS["files"] | GROUPS["actors"]

#: Those whose code workers and nannies alone open, so that it can be signed by its author; an
#: actor's calls take data, in the session of their caller.
SIGNED_OPERATIONS = PARTS["worker-run"] | PARTS["worker-plugins"] | GROUPS["actors"]

#: What sealed calls pass by: graphs, tasks, renewals of their statements, requests that carry code
#: to workers, what relays those, and replies, which name no operation.
SEALED_IN: frozenset[str | None] = frozenset(
    {"broadcast", "proxy", None, *PARTS["worker-run"], *PARTS["worker-plugins"]}
).union(SUBMITTING, HANDING)

#: The weakest kind that a message of each operation can have; payloads only make it stronger.
WEAKEST: Mapping[str, Kind] = MappingProxyType(
    {
        row.name: min(
            (other.kind for other in IN_ANY_RELEASE if other.name == row.name),
            key=lambda kind: kind.strength,
        )
        for row in IN_ANY_RELEASE
    }
)

#: How a message may have come, and where from; None where that is not known.
ANY_TRANSPORT: frozenset[str | None] = frozenset((*TRANSPORTS, None))
ANYWHERE: frozenset[bool | None] = frozenset((True, False, None))

#: Transports whose connections are sessions of the envelope.
SESSION_TRANSPORTS = frozenset({"safeser", "library"})

#: What becomes of taken keys where no context matches.
REFUSED = KeyConflicts(definition="refuse", principal="refuse")

#: What becomes of them where a context that matches says nothing.
UNSAID = KeyConflicts()

#: What may be granted to peers that are not authenticated.
UNKNOWN_OPERATIONS = GROUPS["basic"]


#: Stands for every name that safeser does not know, so that a peer's inventions share one entry
#: of the cache and none of them is printed.
UNLISTED = "?"


class Hop(NamedTuple):
    """What contexts match, in the policy's own names; all that they match."""

    sender: str
    recipient: str
    kind: Kind
    transport: str | None = None
    same_host: bool | None = None


class Query(NamedTuple):
    """A question in the policy's own names; hashable, and one of finitely many.

    :param author: who wrote it, if not the sender: a principal or ``unknown``; otherwise empty.
    """

    hop: Hop
    operation: str | None
    family: str
    sealing: bool
    author: str

    @property
    def relayed(self) -> bool:
        """Whether another principal than the sender wrote it."""
        return self.author != ""


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal as the policy lists it: its inline public keys, its groups, its confinement."""

    keys: tuple[PublicKey, ...] = ()
    groups: frozenset[str] = frozenset()
    confined: Confined | None = None
