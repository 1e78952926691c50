"""The constants of rules: which operations do what, and what a policy lists of a principal.

The one rule: nothing here knows YAML. A context is a :class:`safeser.policy.source.context.Rule`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from safeser.gate.decision import COMPUTE, SUBMIT, SUBMITTING
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import Kind
from safeser.operations import GROUPS, IN_ANY_RELEASE
from safeser.operations.groups import PARTS
from safeser.policy.confined import Confined

#: Families that can reach code; never for ``unknown``, never in a message without payloads.
PICKLES = frozenset({"pickle", "cloudpickle"})

#: Profiles of restricted pickle that a policy may name in this version.
PROFILES = ("data", "numpy", "pandas", "scipy", "sklearn", "exceptions", "functions")

#: Profiles that listed functions and classes of Dask, NumPy and pandas for graphs.
RETIRED_PROFILES = frozenset({"dask-graph", "dask-tasks"})

#: All that a scheduler says of tasks to workers.
HANDING = frozenset({COMPUTE})

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

#: What sealed calls pass by: graphs, tasks, requests that carry code
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

#: Ways by which the sender of a message is proven: sessions of the envelope, and boxes.
SESSION_TRANSPORTS = frozenset({"safeser", "library", "box"})

#: What the audit log has of decisions: a record of each, records of refusals and of code, or counts
#: alone. The later, the less.
AUDIT_LEVELS = ("all", "refusals", "counts")

#: Which classes of a recipient's program are rebuilt beside those that safeser lists.
CLASSES = ("own", "registered")

#: What may become of a submission whose keys are taken.
CONFLICT_WORDS = ("refuse", "warn")


class KeyConflicts(NamedTuple):
    """What becomes of a submission whose keys are taken; each word is ``refuse`` or ``warn``.

    :param definition: the key stands for another task already.
    :param principal: another principal submitted it first, with the same definition. Both then
        share one result; to refuse it would keep two users from running one notebook.
    """

    definition: str = "refuse"
    principal: str = "warn"


#: What becomes of taken keys where no context matches.
REFUSED = KeyConflicts(definition="refuse", principal="refuse")

#: What may be granted to peers that are not authenticated.
UNKNOWN_OPERATIONS = GROUPS["basic"]


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal as the policy lists it: its inline public keys, its groups, its confinement."""

    keys: tuple[PublicKey, ...] = ()
    groups: frozenset[str] = frozenset()
    confined: Confined | None = None
