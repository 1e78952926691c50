"""Policy: which sender may hand which recipient which kind of message, in which family.

The one rule: default deny. :class:`Policy` is immutable, :meth:`Policy.decide` pure and total.
"""

from __future__ import annotations

from safeser.policy.confined import Confined
from safeser.policy.policy import Policy
from safeser.policy.ready import locate, ready_policies
from safeser.policy.rules import Principal
from safeser.policy.source.context import Rule

__all__ = [
    "Confined",
    "Policy",
    "Principal",
    "Rule",
    "locate",
    "ready_policies",
]
