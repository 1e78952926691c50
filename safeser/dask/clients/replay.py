"""``recreate_error_locally``: run the task that failed here, and no other one.

The one rule: under sealed calls, which task runs in the client is decided by what its user asks for
and what they signed. The scheduler says which task it blames; that counts where the signed tasks
lead from the user's future to that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from distributed.client import Future, futures_of
from distributed.recreate_tasks import ReplayTaskClient

from safeser.dask.sealed.form import is_key, key_form, same_key
from safeser.dask.sealed.node import VerifiedTask
from safeser.dask.sealed.statement import ASK_OPERATOR
from safeser.errors import PolicyDenied
from safeser.gate.values import Kind
from safeser.tracebacks import methods_for_callers

__all__ = ["Replay"]

#: No graphs: where a client holds no future of a key, a task of any graph that it signed will do.
_ANY: frozenset[bytes] = frozenset()

#: Tasks on the way to the one that is blamed, and questions to the scheduler at a time.
_MOST = 10_000
_AT_ONCE = 100


@methods_for_callers("recreate_error_locally", "recreate_task_locally")
class Replay(ReplayTaskClient):  # type: ignore[misc]  # distributed ships no types
    """Gives a client ``recreate_error_locally`` and ``recreate_task_locally``."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        # Of tasks that are about to run: the graphs of which one has to be theirs.
        self._graphs: dict[Any, frozenset[bytes]] = {}

    async def _get_task_runspec(self, future: Any) -> Any:
        key = future.key if isinstance(future, Future) else future
        task = await super()._get_task_runspec(future)
        if self.client.seals:
            remembered = self._graphs.pop(key, _ANY)
            self._require_signed(task, self.client.graphs_behind(key) or remembered)
        return task

    async def _get_errored_future(self, future: Any) -> Any:
        cause = await super()._get_errored_future(future)
        if cause is None or not self.client.seals:
            return cause
        if not is_key(cause):
            raise self._refused("sealed.moved", "the scheduler blames what is no key of a task")
        failed = [key_form(each.key) for each in futures_of(future) if each.status == "error"]
        own = _is_among(cause, failed)
        first = cause if own else await self._leading(failed, cause)
        graphs = self.client.graphs_behind(first)
        if not own:
            await self._require_cause(cause, first, graphs)
        self._graphs[cause] = graphs
        return cause

    async def _require_cause(self, cause: Any, key: Any, graphs: frozenset[bytes]) -> None:
        """Refuse a *cause* that the task of *key* does not depend on; of None, none does.

        Dependencies are read from the signed tasks. What the scheduler says of them tells where to
        look, and proves nothing.

        :raises PolicyDenied: if that is so, or a task on the way is another author's.
        """
        seen = {key}
        for _ in range(_MOST):
            if key is None:
                break
            task = await self.scheduler.get_runspec(key=key)
            self._require_signed(task, graphs)
            if cause in task.dependencies and _is_among(cause, task.dependencies):
                return
            inputs = [each for each in task.dependencies if each not in seen]
            seen.update(inputs)
            key = await self._leading(inputs, cause)
        raise self._refused(
            "sealed.moved", "the scheduler blames a task that the failed one does not depend on"
        )

    async def _leading(self, keys: Sequence[Any], cause: Any) -> Any:
        """Return the first of *keys* for which the scheduler blames *cause*, or None."""
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            asked = (self.scheduler.get_error_cause(keys=[each]) for each in some)
            for key, blamed in zip(some, await asyncio.gather(*asked), strict=True):
                if same_key(blamed, cause):
                    return key
        return None

    def _require_signed(self, task: Any, graphs: frozenset[bytes]) -> None:
        """Refuse what is no signed task, or of another graph; if *graphs* is empty, any will do.

        Data could claim dependencies of its own: a table may have a column of that name.
        """
        if not isinstance(task, VerifiedTask):
            raise self._refused(
                "sealed.required",
                "what the scheduler hands out is no signed task",
                before="Data that was scattered has none. ",
            )
        if graphs and task.graph not in graphs:
            raise self._refused(
                "sealed.moved", "the task is one that was submitted before under the same key"
            )

    def _refused(self, rule: str, reason: str, *, before: str = "") -> PolicyDenied:
        """Record a refusal of what the scheduler said, and return it."""
        link = self.client._policy_link()
        context = link.inbound(Kind.DATA)
        refusal: PolicyDenied = link.refusal(context, rule, reason, fix=before + ASK_OPERATOR)
        return refusal


def _is_among(key: Any, keys: Iterable[Any]) -> bool:
    """Tell whether *key*, as it is spelled, is one of *keys*."""
    return any(same_key(key, each) for each in keys)
