"""Record the keys of scattered data until the scheduler has a task for them, or the scatter fails.

The one rule: while data of a key is on its way, that key is taken. A worker that has the data
already would take it for the result of a task that gets the key meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from safeser.dask.servers import Part

__all__ = ["Arrivals", "ScatteredData"]

#: How long the keys of data that did not all arrive stay taken: no worker takes it in any later.
_SETTLING = 30.0


@dataclass(eq=False)
class ScatteredData:
    """A key whose data is on its way to workers, and no task yet.

    :ivar refused: clients that were refused a task of that key meanwhile.
    """

    key: Any
    owner: str
    times: int = 0
    failed: bool = False
    refused: set[str] = field(default_factory=set)


class Arrivals(Part):
    """What is on its way to the workers of one scheduler."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._coming: dict[Any, ScatteredData] = {}

    def __len__(self) -> int:
        return len(self._coming)

    def get(self, key: Any) -> ScatteredData | None:
        return self._coming.get(key)

    @contextmanager
    def of(self, owner: str, keys: tuple[Any, ...]) -> Iterator[None]:
        """Record for the duration of the block that *owner* brings data of *keys*."""
        for key in keys:
            self._coming.setdefault(key, ScatteredData(key, owner)).times += 1
        arrived = False
        try:
            yield
            arrived = True
        finally:
            if arrived:
                self._end(keys)
            else:  # some worker may have it nevertheless, or be about to
                for key in keys:
                    self._coming[key].failed = True
                asyncio.get_running_loop().call_later(_SETTLING, self._end, keys)

    def _end(self, keys: tuple[Any, ...]) -> None:
        scheduler = self._server
        addresses = tuple(scheduler.stream_comms)
        nowhere = []
        for key in keys:
            self._coming[key].times -= 1
            if self._coming[key].times or not self._coming.pop(key).failed:
                continue
            task = scheduler.tasks.get(key)
            if task is None:
                nowhere.append(key)
            elif task.run_spec is None:
                self.drop({key: addresses})
        if nowhere:  # in one message: they can be a million
            for address in addresses:
                self._free(address, nowhere)

    def drop(self, who_has: Mapping[Any, Iterable[str]]) -> None:
        """Have workers forget what was brought there under keys that are others'.

        They would take it for the result of the task of that name.
        """
        scheduler = self._server
        for key, addresses in who_has.items():
            task = scheduler.tasks.get(key)
            known = {state.address for state in task.who_has or ()} if task is not None else set()
            for address in {scheduler.coerce_address(address) for address in addresses} - known:
                if address in scheduler.stream_comms:
                    self._free(address, [key])

    def _free(self, address: str, keys: list[Any]) -> None:
        free = {"op": "free-keys", "keys": keys, "stimulus_id": "safeser-conflict"}
        self._server.worker_send(address, free)
