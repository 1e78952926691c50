"""Confinement: prove that the kernel confines this process as its policy demands.

The one rule: nothing here confines by itself, and no demand counts as met without a try. Each probe
tries what must fail; one that succeeds, or that finds nothing to try, keeps the process from
starting.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safeser.confinement.outcome import Outcome, State, Unconfined

if TYPE_CHECKING:
    from safeser.confinement.own import Own, readable, writable
    from safeser.confinement.probes import PROBES, probe

__all__ = ["PROBES", "Outcome", "Own", "State", "Unconfined", "probe", "readable", "writable"]

#: Imported when first used: most policies demand no confinement.
_PROBING = {
    "Own": "safeser.confinement.own",
    "PROBES": "safeser.confinement.probes",
    "probe": "safeser.confinement.probes",
    "readable": "safeser.confinement.own",
    "writable": "safeser.confinement.own",
}


def __getattr__(name: str) -> Any:
    if name not in _PROBING:
        raise AttributeError(f"module 'safeser.confinement' has no attribute {name!r}")
    value = getattr(import_module(_PROBING[name]), name)
    globals()[name] = value
    return value
