"""``gather(errors="skip")``: what comes is handed out, what may not come is left out.

The one rule: a value that is refused, or that its holder could not send, is left out as a future
that failed is, by Dask's own words: of a list it is missing, elsewhere None stands for it. Nothing
else changes: without ``"skip"`` the first refusal is raised, and one of authentication always is.

Dask decides what to skip by the states of futures. A value that exists and may not come here has
done nothing wrong by that measure, and the answer that it is part of fails as a whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from distributed.utils_comm import pack_data, unpack_remotedata

from safeser.errors import PayloadError, PolicyDenied

__all__ = ["Gathering"]


class Gathering:
    """What :class:`safeser.Client` has before Dask's client."""

    async def _gather(
        self, futures: Any, errors: str = "raise", direct: Any = None, local_worker: Any = None
    ) -> Any:
        gather = super()._gather  # type: ignore[misc]  # of Dask's client, which comes behind
        try:
            return await gather(futures, errors, direct, local_worker)
        except (PolicyDenied, PayloadError):
            if errors != "skip":
                raise
        unpacked, wanted = unpack_remotedata(futures, byte_keys=True)
        values = await self._values(tuple(wanted), direct, local_worker)
        missing = {future.key: None for future in wanted if future.key not in values}
        if isinstance(unpacked, list):
            unpacked = [
                each for each in unpacked if not (isinstance(each, Hashable) and each in missing)
            ]
        return pack_data(unpacked, {**values, **missing})

    async def _values(
        self, futures: Sequence[Any], direct: Any, local_worker: Any
    ) -> dict[Any, Any]:
        """Return by their keys the values of those *futures* that come; halves of them, if not."""
        gather = super()._gather  # type: ignore[misc]  # of Dask's client, which comes behind
        try:
            got = await gather({each.key: each for each in futures}, "skip", direct, local_worker)
        except (PolicyDenied, PayloadError):
            if len(futures) == 1:
                return {}
            half = len(futures) // 2
            return {
                **await self._values(futures[:half], direct, local_worker),
                **await self._values(futures[half:], direct, local_worker),
            }
        return {each.key: got[each.key] for each in futures if each.status == "finished"}
