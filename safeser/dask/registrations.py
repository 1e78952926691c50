"""Which principal a client's id belongs to on one scheduler.

The one rule: the first principal that registers an id keeps it. Dask lets any client register with
any id, and whoever registers with somebody else's receives that client's reports and releases its
keys when leaving; ids are no secret, since Dask's own event log lists them.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["ClientIds"]

#: Ids that one scheduler remembers. Each takes some 200 bytes; a client makes one each time that it
#: connects anew.
MAX_IDS = 100_000


class ClientIds:
    """Ids of clients and whose they are, the longest unused forgotten first."""

    def __init__(self, most: int = MAX_IDS) -> None:
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._most = most
        self._lock = Lock()

    def claim(self, client: str, principal: str) -> bool:
        """Note that *principal* registers as *client*; False if the id is another's."""
        with self._lock:
            owner = self._owners.setdefault(client, principal)
            self._owners.move_to_end(client)
            if len(self._owners) > self._most:
                self._owners.popitem(last=False)
            return owner == principal

    def is_anothers(self, client: str, principal: str) -> bool:
        """Tell whether somebody else than *principal* registered as *client*."""
        with self._lock:
            return self._owners.get(client, principal) != principal

    @classmethod
    def of(cls, server: Any) -> ClientIds:
        """Return the ids of *server*, which may listen at several addresses."""
        return _of_servers.setdefault(server, cls())

    def owner(self, client: str) -> str | None:
        """Return the principal that registered as *client*, if it is remembered."""
        with self._lock:
            return self._owners.get(client)


_of_servers: WeakKeyDictionary[Any, ClientIds] = WeakKeyDictionary()
