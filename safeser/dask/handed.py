"""Futures that this client holds and did not submit: nobody gets their values unawares.

The one rule: where Dask's client answers a submission with a future that it holds already, its
user hears of it, unless this client submitted that future itself.

Dask's ``submit`` looks for its key among the futures that the client holds, before it asks the
scheduler, which alone compares definitions (see conflicts.py). Such a key may have come with a
dataset, a queue or a variable, and keys can be computed: whoever published a future under the key
that Dask gives to ``submit(add, 20, 22)`` would choose that sum for all who opened the dataset.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

__all__ = ["Handed"]

#: As much of a key as the warning shows: whoever submitted it chose it.
_SHOWN = 60


class Handed:
    """What :class:`safeser.Client` has before Dask's client."""

    futures: dict[Any, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # By key, the state that all futures of that key share; another one came after a release.
        self._sent: dict[Any, Any] = {}
        super().__init__(*args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        future = super().submit(*args, **kwargs)  # type: ignore[misc]  # of Dask's client
        self._warn_of([future])
        return future

    def map(self, *args: Any, **kwargs: Any) -> Any:
        futures = super().map(*args, **kwargs)  # type: ignore[misc]  # as above
        self._warn_of(futures)
        return futures

    def _graph_to_futures(self, expr: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        keys = list(keys)
        handed = {key for key in keys if self._is_handed(key)}
        futures = super()._graph_to_futures(expr, keys, *args, **kwargs)  # type: ignore[misc]  # as above
        for key, future in futures.items():
            if key not in handed:
                self._sent[key] = future._state
        return futures

    def _release_key(self, key: Any) -> None:
        self._sent.pop(key, None)
        super()._release_key(key)  # type: ignore[misc]  # as above

    def _is_handed(self, key: Any) -> bool:
        state = self.futures.get(key)
        return state is not None and self._sent.get(key) is not state

    def _warn_of(self, futures: Iterable[Any]) -> None:
        for future in futures:
            if self._sent.get(future.key) is not future._state:
                shown = "".join(char for char in str(future.key)[:_SHOWN] if char.isprintable())
                warnings.warn(
                    f"this client holds a future under key {shown!r} that was not submitted by it"
                    " but handed over or scattered: its value is used, whatever was submitted now."
                    " Name another key, or release that future first.",
                    stacklevel=3,
                )
                return
