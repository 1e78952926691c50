"""What reading, checking and loading may each take for all that one message holds.

The one rule: a budget belongs to its message for as long as anybody holds that, so that elements of
two messages in turn, or one message looked at twice, have no more than each message has.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from safeser.channel.admitted import Arrived
from safeser.families import Budget
from safeser.values import Limits

__all__ = ["UNUSED", "Budgets", "MessageBudgets"]

#: For reading pickles to derive their families, for checking what a message holds, for loading it.
Budgets = tuple[Budget, Budget, Budget]

#: Of a message without payloads.
UNUSED: Budgets = (Budget(Limits()),) * 3


class MessageBudgets:
    """The budgets of each message of one connection."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits  # of messages that come from now on
        self._of: WeakKeyDictionary[Arrived, Budgets] = WeakKeyDictionary()

    def of(self, verified: Arrived) -> Budgets:
        """Return the budgets of *verified*; one message of Dask's has many elements."""
        found = self._of.get(verified)
        if found is None:
            limits = self.limits
            found = self._of[verified] = (Budget(limits), Budget(limits), Budget(limits))
        return found
