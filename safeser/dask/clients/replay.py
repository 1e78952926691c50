"""``recreate_error_locally``: run the task that failed here, and no other one.

The one rule: under sealed calls, which task runs in the client is decided by what its user asks for
and what they signed. The scheduler says which task it blames; that counts where the signed tasks
lead from the user's future to that one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from distributed.client import futures_of
from distributed.recreate_tasks import ReplayTaskClient

from safeser.dask.sealed.node import VerifiedTask
from safeser.errors import PolicyDenied
from safeser.values import Kind

__all__ = ["Replay"]

#: Tasks looked at beside the failed ones, to find the way to the one that is blamed.
_MOST = 10_000

_ASK = "ask the operator whether the scheduler's key was stolen."


class Replay(ReplayTaskClient):  # type: ignore[misc]  # distributed ships no types
    """Gives a client ``recreate_error_locally`` and ``recreate_task_locally``."""

    async def _get_task_runspec(self, future: Any) -> Any:
        """Return the task that is asked for, as its author signed it.

        :raises PolicyDenied: if the scheduler hands out anything else. Of data it could say itself
            what that depends on: a table may have a column ``dependencies``.
        """
        task = await super()._get_task_runspec(future)
        if self.client.seals and not isinstance(task, VerifiedTask):
            raise _refused(
                self.client,
                rule="sealed.required",
                reason="what the scheduler hands out is no signed task",
                fix="Data that was scattered has none. Otherwise " + _ASK,
            )
        return task

    async def _get_errored_future(self, future: Any) -> Any:
        cause = await super()._get_errored_future(future)
        if cause is not None and self.client.seals:
            failed = [each.key for each in futures_of(future) if each.status == "error"]
            if cause not in failed:
                await self._require_cause(cause, failed)
        return cause

    async def _require_cause(self, cause: Any, failed: list[Any]) -> None:
        """Refuse a *cause* that none of the *failed* tasks depends on.

        Dependencies are read of the signed tasks. What the scheduler says of them tells where to
        look, and proves nothing.

        :raises PolicyDenied: if that is so or is not found out, or a task on the way is another
            author's.
        """
        # The scheduler blames a task for the first of the failed that it knows a task to blame for.
        waiting, seen = failed[::-1], set(failed)
        most = len(seen) + _MOST
        while waiting and len(seen) <= most:
            task = await self._get_task_runspec(waiting.pop())
            inputs = [each for each in task.dependencies if each not in seen]
            if cause in inputs:
                return
            seen.update(inputs)
            asked = (self.scheduler.get_error_cause(keys=[each]) for each in inputs)
            blamed = await asyncio.gather(*asked)
            waiting += [each for each, by in zip(inputs, blamed, strict=True) if by == cause]
        if waiting:
            reason = f"of {_MOST:,} tasks that were looked at, none leads from the failed task to"
            reason += " the one that the scheduler blames"
            fix = "recreate_task_locally runs any task of your own, by its key."
        else:
            reason = "the scheduler blames a task that the failed one does not depend on"
            fix = "If it happens again, " + _ASK
        raise _refused(self.client, rule="sealed.moved", reason=reason, fix=fix)


def _refused(client: Any, *, rule: str, reason: str, fix: str) -> PolicyDenied:
    """Record a refusal of what the scheduler of *client* said, and return it."""
    link = client._policy_link()
    refusal: PolicyDenied = link.refusal(link.inbound(Kind.DATA), rule, reason, fix=fix)
    return refusal
