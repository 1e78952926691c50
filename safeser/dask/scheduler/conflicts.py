"""Conflicts of a submission with keys that exist, and the errors and warnings about them.

The one rule: a text names both submitters and shows a key cut and printable; values are in it only
where one principal submitted both definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from distributed.scheduler import TaskState

from safeser.dask.equality.difference import Difference
from safeser.dask.scheduler.scattered import ScatteredData
from safeser.dask.wire import task_key
from safeser.errors import PolicyDenied

__all__ = ["FIX", "Conflict", "Origin", "Submission", "describe", "refusal", "shown_key"]

#: As much of a key as errors and records show.
_SHOWN = 60

FIX = "Name another key, leave key= out, or release all futures of the other one first."


class Origin(NamedTuple):
    """Who submitted a task, and in which graph: a digest of its bytes, if they are few."""

    principal: str
    graph: bytes = b""


@dataclass(frozen=True, slots=True)
class Submission:
    """The client whose graph or data the scheduler adds, its origin, and its link."""

    origin: Origin
    client: str
    link: Any = None

    @property
    def principal(self) -> str:
        return self.origin.principal


@dataclass(frozen=True, slots=True)
class Conflict:
    """One key that exists already, and how the submitted definition differs.

    :param difference: how the two definitions differ, if both are known.
    :param doubted: whether it cannot be told that they differ, so that nothing is refused for it.
    """

    task: TaskState | ScatteredData
    rule: str
    owner: str
    difference: Callable[[], Difference] | None = None
    doubted: bool = False


def refusal(submission: Submission, conflicts: Sequence[Conflict]) -> PolicyDenied:
    """Return the error of a submission that *conflicts* refuse; the caller records them."""
    rule = conflicts[0].rule
    error = PolicyDenied(
        describe(submission, conflicts, "Nothing of this submission was added."), rule=rule, fix=FIX
    )
    error.recorded = True
    return error


def describe(submission: Submission, conflicts: Sequence[Conflict], outcome: str) -> str:
    """Return one sentence about the first of *conflicts*, and *outcome*."""
    first = conflicts[0]
    others = f" and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
    what = "another definition" if first.rule == "key.definition" else "the same definition"
    if first.doubted:
        what = "a definition that could not be compared"
    if first.difference is not None:
        # Both values only where one principal submitted both.
        own = first.owner == submission.principal
        what += f" ({first.difference().text(values=own)})"
    return (
        f"key {shown_key(first)!r}{others}, submitted by {submission.principal!r}, was first"
        f" submitted by {first.owner!r} with {what}. {outcome}"
    )


def shown_key(conflict: Conflict) -> str:
    """Return a readable key, which the client that submitted it chose."""
    return task_key.shown_key(conflict.task.key, _SHOWN)
