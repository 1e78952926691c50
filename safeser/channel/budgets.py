"""Budgets for reading, checking and loading all payloads of one message.

The one rule: a budget lives as long as its message, so that neither interleaving the elements of
two messages nor reading one message twice gives more than one budget for each.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from safeser.channel.admitted import Arrived
from safeser.families import Budget
from safeser.gate.values import Limits
from safeser.policy.questions.shadow import Allowance

__all__ = ["UNUSED", "Budgets", "MessageBudgets"]

#: For reading pickles to derive their families, for checking payloads, and for loading them.
Budgets = tuple[Budget, Budget, Budget]

#: Of a message without payloads.
UNUSED: Budgets = (Budget(Limits()),) * 3


class MessageBudgets:
    """The budgets of each message of one connection."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits  # of messages that arrive from now on
        self._of: WeakKeyDictionary[Arrived, Budgets] = WeakKeyDictionary()
        self._allowances: WeakKeyDictionary[Arrived, Allowance] = WeakKeyDictionary()

    def of(self, verified: Arrived) -> Budgets:
        """Return the budgets of *verified*, which all of its elements share."""
        found = self._of.get(verified)
        if found is None:
            limits = self.limits
            found = self._of[verified] = (Budget(limits), Budget(limits), Budget(limits))
        return found

    def allowance(self, verified: Arrived) -> Allowance:
        """Return what may be read of *verified* for a shadow policy."""
        return self._allowances.setdefault(verified, Allowance())
