"""How many connections to the servers of one process each principal may hold.

The one rule: no principal holds more than three quarters of those that the others leave, nor more
than policy says. A connection costs a file descriptor and some 40 kB, and a process without
descriptors accepts no connection: a principal that may only look could otherwise lock out all.
"""

from __future__ import annotations

import resource
from collections import Counter

__all__ = ["Connections", "connections"]


def descriptors() -> int:
    """Return how many file descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


class Connections:
    """Whose the connections are that a process has accepted and not closed."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    def take(self, principal: str, most: int) -> bool:
        """Count one more for *principal*; return False if that is one too many.

        :param most: that policy lets one principal hold.
        """
        own = self._held[principal]
        others = self._held.total() - own
        if own >= min(most, (descriptors() - others) * 3 // 4):
            return False
        self._held[principal] = own + 1
        return True

    def leave(self, principal: str) -> None:
        """Count one less for *principal*, whose last one is forgotten."""
        self._held[principal] -= 1
        if not self._held[principal]:
            del self._held[principal]


#: Descriptors are the process's, whichever of its servers a connection is to.
connections = Connections()
