"""Every operation of Dask's protocol: its server, its fields, and its kind.

The one rule: an operation that is not in this table is not known, and an unknown one is refused.
``python -m verification.compat.operations`` compared the rows, in both directions, with the
handlers that running servers register in each release from :data:`FIRST` on. A row or field that
not all have says ``since`` or ``until``; a newer release has those of the newest compared one.

Grants are by name and a name may stand for different things on different servers. Four do:
``gather``, ``task-erred`` and ``close`` are in two groups, and ``restart``, which a client merely
hears of, stays with the authority that it is on a scheduler or nanny.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from safeser.operations.ceilings import FLOOR, MANY, UNBOUNDED, Ceiling
from safeser.operations.operation import Channel, Encoding, Operation, Server
from safeser.operations.releases import FIRST, Release, release
from safeser.operations.table import ROWS

if TYPE_CHECKING:
    from safeser.operations.rows import (
        ENVELOPE,
        OPERATIONS,
        installed,
        is_alone,
        lookup,
        operations_in,
    )

__all__ = [
    "ENVELOPE",
    "FIRST",
    "FLOOR",
    "GROUPS",
    "IN_ANY_RELEASE",
    "MANY",
    "NAMES",
    "OPERATIONS",
    "UNBOUNDED",
    "Ceiling",
    "Channel",
    "Encoding",
    "Operation",
    "Release",
    "Server",
    "installed",
    "is_alone",
    "lookup",
    "operations_in",
    "release",
]

#: The rows of all releases, without their fields: what a policy is about. A policy file is valid or
#: not whatever release is installed where it is read.
IN_ANY_RELEASE: tuple[Operation, ...] = ROWS

#: Every name that stands for an operation on any server in any release: what a policy can grant.
NAMES = frozenset(operation.name for operation in IN_ANY_RELEASE)

#: Names of operations, by group.
GROUPS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        group: frozenset(row.name for row in IN_ANY_RELEASE if row.group == group)
        for group in sorted({row.group for row in IN_ANY_RELEASE})
    }
)


#: Imported when first used: a policy is about no release, and to find the installed one takes as
#: long as to read the policy.
_OF_A_RELEASE = {"ENVELOPE", "OPERATIONS", "installed", "is_alone", "lookup", "operations_in"}


def __getattr__(name: str) -> Any:
    if name not in _OF_A_RELEASE:
        raise AttributeError(f"module 'safeser.operations' has no attribute {name!r}")
    found = import_module("safeser.operations.rows")
    globals().update({each: getattr(found, each) for each in _OF_A_RELEASE})
    return globals()[name]
