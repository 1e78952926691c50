"""Ask a cluster's scheduler and workers for counts of what they serialized during a trace.

The one rule: counts are asked for by an operation of their own, which the policy of each process
grants or refuses, and whatever comes back is checked: text and numbers of this form and within
these bounds, or the process is listed among those that gave none.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, cast, get_args

from safeser.dask.messages.pending import COUNTS
from safeser.errors import SafeserError
from safeser.trace.counting import LONGEST, counting
from safeser.trace.probe import Action
from safeser.trace.records import Count, Group

__all__ = ["RemoteCounts", "counts_in"]

#: Pairs of action and family of one process, and processes of one cluster, in one answer.
_MOST_PAIRS = 256
_MOST_PROCESSES = 10_000

#: Characters of a family's name, of an address, and of the reason why there are no counts.
_LONGEST = 200

#: More than a process serializes: numbers above are inventions.
_MOST = 1 << 53

_ACTIONS = frozenset(get_args(Action))

#: RuntimeError: a client that was closed during the trace has no connections.
_NO_ANSWER = (SafeserError, OSError, RuntimeError)

Totals = dict[tuple[Action, str], Count]


class RemoteCounts:
    """The counts of one cluster during one trace.

    :param rpc: distributed's, of a client to its scheduler.
    """

    def __init__(self, rpc: Any, *, scheduler: bool, workers: bool) -> None:
        self._rpc = rpc
        self._scheduler, self._workers = scheduler, workers
        self._trace = secrets.token_hex(16)
        self._before: dict[str, Totals] = {}

    async def begin(self) -> None:
        """Have the cluster count from now on."""
        self._before, _ = await self._asked(LONGEST)

    async def end(self) -> tuple[dict[Group, Count], dict[str, str]]:
        """Return the counts since :meth:`begin`, and which processes gave none, and why."""
        found, missing = await self._asked(0)
        counts: dict[Group, Count] = {}
        for process, totals in found.items():
            before = self._before.get(process)
            if before is None:
                missing[process] = "it was not there, or did not answer, when the trace began"
                continue
            for (action, family), total in totals.items():
                counted = _since(before.get((action, family), Count()), total)
                if counted.number:
                    counts[Group(process, action, family)] = counted
        missing |= dict.fromkeys(set(self._before) - set(found) - set(missing), "it is gone")
        return counts, missing

    async def _asked(self, seconds: float) -> tuple[dict[str, Totals], dict[str, str]]:
        found: dict[str, Totals] = {}
        missing: dict[str, str] = {}
        asked = {"trace": self._trace, "seconds": seconds}
        for process, answer in [
            *([("scheduler", await self._answer(COUNTS, **asked))] if self._scheduler else ()),
            *(await self._of_workers(asked) if self._workers else ()),
        ]:
            totals = counts_in(answer)
            if isinstance(answer, Mapping) and answer.get("process") == counting.process:
                missing[process] = "it is part of this process, which counts it"
            elif totals is None:
                missing[process] = "its answer holds no counts"
                if isinstance(answer, SafeserError):
                    missing[process] = f"[{answer.rule}] {_printable(answer.message)}"
                elif isinstance(answer, BaseException):
                    missing[process] = type(answer).__name__
            else:
                found[process] = totals
        return found, missing

    async def _answer(self, operation: str, **asked: Any) -> Any:
        try:
            return await getattr(self._rpc, operation)(**asked)
        except _NO_ANSWER as error:
            return error

    async def _of_workers(self, asked: Mapping[str, Any]) -> list[tuple[str, Any]]:
        message = {"op": COUNTS, **asked}
        answers = await self._answer("broadcast", msg=message, on_error="return")
        if not isinstance(answers, Mapping) or len(answers) > _MOST_PROCESSES:
            return [("workers", answers if isinstance(answers, BaseException) else None)]
        return [(f"worker {_printable(address)}", each) for address, each in answers.items()]


def counts_in(answer: Any) -> Totals | None:
    """Return the totals in *answer*, or None if it holds anything else than an honest one does."""
    told = answer.get("counts") if isinstance(answer, Mapping) else None
    if not isinstance(told, list | tuple) or len(told) > _MOST_PAIRS:
        return None
    totals: Totals = {}
    try:
        for action, family, number, size, seconds in told:
            named = type(action) is str and action in _ACTIONS and type(family) is str
            counted = type(number) is type(size) is int and type(seconds) in (int, float)
            # NaN is in no range.
            if not (named and counted and all(0 <= n <= _MOST for n in (number, size, seconds))):
                return None
            group = cast(Action, action), _printable(family)
            totals[group] = Count(number, size, float(seconds))
    except (TypeError, ValueError):
        return None
    return totals


def _since(before: Count, total: Count) -> Count:
    """Return what was counted between two totals; a process that began anew counts from zero."""
    if total.number < before.number or total.size < before.size:
        return total
    seconds = max(0.0, total.seconds - before.seconds)
    return Count(total.number - before.number, total.size - before.size, seconds)


def _printable(text: Any) -> str:
    shown = text[:_LONGEST] if isinstance(text, str) else type(text).__name__
    return "".join(char if char.isprintable() else "?" for char in shown)
