"""Confinement: prove that the kernel confines this process as its policy demands.

The one rule: nothing here confines by itself, and no demand counts as met without a try. Each probe
tries what must fail; one that succeeds, or that finds nothing to try, keeps the process from
starting.
"""

from __future__ import annotations

from safeser.confinement.outcome import Outcome, State
from safeser.confinement.own import Own, readable, writable
from safeser.confinement.probes import PROBES, Unconfined, probe

__all__ = ["PROBES", "Outcome", "Own", "State", "Unconfined", "probe", "readable", "writable"]
