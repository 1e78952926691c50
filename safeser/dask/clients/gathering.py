"""``gather(errors="skip")``: return the values that may be read, leave out those that are refused.

The one rule: a value that is refused, or that its holder could not send, is treated as Dask treats
a future that failed: a list leaves it out, other containers hold None for it. Nothing else changes:
without ``"skip"`` the first refusal is raised, and one of authentication always is.

Dask decides what to skip by the states of futures. A future whose value is refused is finished, and
the reply that the value is part of fails as a whole.

Dask's client also puts all values that callers in its process wait for at the moment into one
request. A refusal is raised for the callers that asked for the refused value; for the others the
client asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import ContextVar
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from distributed.utils import offload
from distributed.utils_comm import pack_data, unpack_remotedata

from safeser.dask.clients.stock_frames import rebuild_value, write_value, writer_source
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.gate.values import Kind
from safeser.policy.questions.readable import reads_all
from safeser.policy.questions.task_workers import task_workers
from safeser.policy.taken_tasks import anywhere

__all__ = ["Gathering", "track_future"]

#: What a gather keeps for itself that asks alone; else Dask's client has one of each, for all.
_ALONE: ContextVar[dict[str, Any] | None] = ContextVar("safeser-gather-alone", default=None)

#: The keys that one request asked for, where it is made.
_ASKED: ContextVar[frozenset[Any]] = ContextVar("safeser-gather-asked", default=frozenset())

#: The keys of a failed request: all callers that waited for one of them get the same error.
_TOGETHER: WeakKeyDictionary[SafeserError, frozenset[Any]] = WeakKeyDictionary()


#: Rules by which a value is refused that a stock cluster may write as a typed value.
_WRITTEN_THERE = frozenset({"stock.unsent", "stock.type"})


def _shared(name: str) -> Any:
    """Return an attribute that all gathers of a client share, but for those that ask alone."""

    def kept(client: Any) -> dict[str, Any]:
        alone = _ALONE.get()
        return vars(client) if alone is None else alone

    def put(client: Any, value: Any) -> None:
        held = kept(client)
        if value is None and isinstance(held.get(name), set):
            _ASKED.set(frozenset(held[name]))  # these keys are being sent off
        held[name] = value

    return property(lambda client: kept(client).get(name), put)


class Gathering:
    """What :class:`safeser.Client` has before Dask's client."""

    _gather_keys = _shared("_gather_keys")
    _gather_future = _shared("_gather_future")

    async def _gather_remote(self, direct: Any, local_worker: Any) -> Any:
        if direct and not local_worker and not self._reads_all():
            direct = False  # the scheduler hands out what this client may read
        try:
            return await super()._gather_remote(direct, local_worker)  # type: ignore[misc]  # of Dask's
        except (PolicyDenied, PayloadError) as error:
            _TOGETHER[error] = _ASKED.get()
            raise

    def _reads_all(self) -> bool:
        """Tell whether workers give this client values: the policy lets it read all of them."""
        link = self._policy_link()  # type: ignore[attr-defined]  # of the client that this is part of
        if link is None:
            return True
        # While a policy only observes, values take the way that they take once it is enforced.
        policy = link.policy.written or link.policy
        workers = task_workers(policy, link.peer).takes
        return not workers or any(
            reads_all(policy, each)
            for worker in workers
            for each in anywhere(link.local, worker, "get_data", Kind.DATA)
        )

    async def _gather(
        self, futures: Any, errors: str = "raise", direct: Any = None, local_worker: Any = None
    ) -> Any:
        gather = super()._gather  # type: ignore[misc]  # of Dask's client, which comes behind
        try:
            return await gather(futures, errors, direct, local_worker)
        except (PolicyDenied, PayloadError) as error:
            unpacked, wanted = unpack_remotedata(futures, byte_keys=True)
            others = _TOGETHER.get(error, frozenset()) - {future.key for future in wanted}
            apart: dict[Any, Any] = {}
            if error.rule in _WRITTEN_THERE:
                apart = await self._typed_values(wanted, direct, skip=errors == "skip")
            if errors != "skip" and not others and not apart:
                raise
            rest = {future.key: future for future in wanted if future.key not in apart}
        token = _ALONE.set({})
        try:
            if errors != "skip":
                # Once: a cluster that converts one more value each time would be asked for ever.
                got = await gather(rest, errors, direct, local_worker) if rest else {}
                return pack_data(unpacked, {**got, **apart})
            came = await self._values(tuple(rest.values()), direct, local_worker) if rest else {}
            values = {**came, **apart}
        finally:
            _ALONE.reset(token)
        missing = {future.key: None for future in wanted if future.key not in values}
        if isinstance(unpacked, list):
            unpacked = [
                each for each in unpacked if not (isinstance(each, Hashable) and each in missing)
            ]
        return pack_data(unpacked, {**values, **missing})

    async def _typed_values(self, futures: Any, direct: Any, *, skip: bool) -> dict[Any, Any]:
        """Return by their keys the values of *futures* that a stock cluster can take apart.

        :param skip: leave out a value that is refused here, instead of raising why.
        """
        guard = self._guard  # type: ignore[attr-defined]  # of safeser.Client
        if guard is None:
            return {}  # a peer on safeser:// wrote that rule; no code is submitted on its word
        gather, write = super()._gather, write_value()  # type: ignore[misc]  # as above
        token = _ALONE.set({})
        try:
            source = await self._scatter(writer_source())  # type: ignore[attr-defined]  # of Dask's
            parts = {
                future.key: self.submit(write, future, source, key=f"taken-apart-{uuid4().hex}")  # type: ignore[attr-defined]  # as above
                for future in futures
            }
            got = await gather(parts, "skip", direct, None)
        except (PolicyDenied, PayloadError):
            return {}
        finally:
            _ALONE.reset(token)
        values = {}
        for key, arrays in got.items():
            try:
                if arrays is not None:
                    values[key] = await offload(rebuild_value, arrays, guard.policy.limits)
            except SafeserError as error:
                guard.note_refusal(error, self.scheduler.address)  # type: ignore[attr-defined]  # of Dask's
                if not skip:
                    raise
        return values

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


async def track_future(stock: Callable[[Any], Awaitable[None]], _: Any, future: Any) -> None:
    """Track *future* as ``as_completed``, *stock*, does, and hand out why its value did not come.

    Dask's own (distributed 2026.8.0, ``client.py``) ends in the background when a value does not
    come, and an iteration over it waits for that future for ever.
    """
    try:
        await stock(future)
    # What a scheduler says of its own failure, and a lost connection, as well as a refusal.
    except Exception as error:
        future._state.set_error(error, None)
        await stock(future)
