"""Record which principal each client id belongs to on one scheduler.

The one rule: the principal that registers an id first keeps it, and no principal gets the ids of
the scheduler itself. Dask lets any client register with any id: a client that registers with the id
of another receives that client's reports and releases its keys when leaving. Ids are no secret,
since Dask's own event log lists them.
"""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict
from threading import Lock

__all__ = ["ClientIds"]

#: Ids that one scheduler remembers of each principal. Each takes some 200 bytes; a client makes one
#: each time that it connects anew.
MAX_IDS = 100_000

#: As Dask's client makes them: the name of its class, and what its user or a UUID adds. Whatever
#: else is the topic of an event log, which ends with the client of that name.
_FORM = re.compile(r"[^\W\d]\w*-.+")

#: What the scheduler keeps keys under by itself (distributed 2026.8.0, ``scheduler.py``,
#: ``queues.py``, ``variable.py``, ``publish.py``). A client that registered as one of these would
#: release what others queued, set, published or left running, and end the scheduler's own with it.
_OF_SCHEDULER = re.compile(r"fire-and-forget$|queue-|variable-|published-")


class ClientIds:
    """Ids of clients and whose they are, each principal's longest unused forgotten first.

    Registrations of one principal evict no id of another: an id that is in use and forgotten could
    be registered by any principal.
    """

    def __init__(self, most: int = MAX_IDS) -> None:
        self._owners: dict[str, str] = {}
        self._used: defaultdict[str, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._most = most
        self._lock = Lock()

    def claim(self, client: str, principal: str) -> bool:
        """Record that *principal* registers as *client*; False if the id is another's or no id."""
        # The scheduler prints it.
        is_name = client.isprintable() and _FORM.fullmatch(client) is not None
        if not (is_name and _OF_SCHEDULER.match(client) is None):
            return False
        with self._lock:
            if self._owners.setdefault(client, principal) != principal:
                return False
            used = self._used[principal]
            used[client] = None
            used.move_to_end(client)
            if len(used) > self._most:
                del self._owners[used.popitem(last=False)[0]]
            return True

    def is_own(self, client: str, principal: str) -> bool:
        """Tell whether *principal* registered as *client*."""
        return self.owner(client) == principal

    def owner(self, client: str) -> str | None:
        """Return the principal that registered as *client*, if it is remembered."""
        with self._lock:
            return self._owners.get(client)
