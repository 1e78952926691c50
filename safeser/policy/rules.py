"""What a context means once its names are resolved: the values that decisions are made from.

The one rule: nothing here knows YAML, and nothing here needs to be checked again to be safe to
decide from; the floors hold in :mod:`safeser.policy.decide` whatever a rule says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from safeser.keys import PublicKey
from safeser.operations import GROUPS, OPERATIONS
from safeser.values import Allowed, Kind

__all__ = [
    "CODE_OPERATIONS",
    "HARMLESS",
    "PICKLES",
    "PROFILES",
    "SUBMIT",
    "UNKNOWN_OPERATIONS",
    "UNLISTED",
    "WEAKEST",
    "Principal",
    "Query",
    "Rule",
]

#: Families that can reach code; never for ``unknown``, never in a message without payloads.
PICKLES = frozenset({"pickle", "cloudpickle"})

#: Families that pass even where the author of a payload is lost.
HARMLESS = frozenset({"msgpack", "error", "dask"})

#: Profiles of restricted pickle that a policy may name in this version.
PROFILES = (
    "data",
    "numpy",
    "pandas",
    "scipy",
    "sklearn",
    "exceptions",
    "functions",
    "dask-internal",
    "dask-graph",
)

#: The operation that hands a graph to the scheduler, which unpickles it: ``submission`` gates it.
SUBMIT = "update-graph"

#: Operations that run what the sender sends, or write it to a path of the sender's choice.
#: ``upload_file`` does both in plain msgpack, so that families alone could not hold it back.
CODE_OPERATIONS = GROUPS["run"] | GROUPS["plugins"] | GROUPS["files"]

#: The weakest kind that a message of each operation can have; payloads only make it stronger.
WEAKEST: Mapping[str, Kind] = MappingProxyType(
    {
        row.name: min(
            (other.kind for other in OPERATIONS if other.name == row.name),
            key=lambda kind: kind.strength,
        )
        for row in OPERATIONS
    }
)

#: What may be granted to whom nobody authenticated.
UNKNOWN_OPERATIONS = GROUPS["basic"]


#: Stands for every name that safeser does not know, so that a peer's inventions share one entry
#: of the cache and none of them is printed.
UNLISTED = "?"


class Query(NamedTuple):
    """A question in the policy's own names; hashable, and one of finitely many."""

    sender: str
    recipient: str
    kind: Kind
    operation: str | None
    family: str
    sealing: bool
    relayed: bool


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal as the policy lists it: its inline public keys and its groups."""

    keys: tuple[PublicKey, ...] = ()
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    """One context with its groups and operations spelled out.

    :param line: where it stands in the file.
    """

    name: str
    line: int
    senders: frozenset[str]
    recipients: frozenset[str]
    kinds: frozenset[Kind]
    serializers: tuple[str, ...] = ("msgpack",)
    deserializers: tuple[str, ...] = ("msgpack",)
    profiles: tuple[str, ...] = ("data",)
    allow: tuple[Allowed, ...] = ()
    submission: str = "none"
    operations: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def families(self, *, sealing: bool) -> tuple[str, ...]:
        return self.serializers if sealing else self.deserializers
