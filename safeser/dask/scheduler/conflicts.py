"""Who submitted which task, and the errors and warnings about conflicts of submissions.

The one rule: a text names both submitters and shows a key cut and printable; values are in it only
where one principal submitted both definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from distributed.scheduler import TaskState

from safeser.dask.equality.difference import Difference
from safeser.dask.scheduler.scattered import ScatteredData
from safeser.dask.scheduler.weak_task_dict import WeakTaskDict
from safeser.dask.servers import Part, link_of
from safeser.dask.wire.task_key import shown_key
from safeser.errors import PolicyDenied
from safeser.gate.values import UNKNOWN

__all__ = ["FIX", "Conflict", "Origin", "Owners", "Submission", "describe", "refusal"]

#: As much of a key as errors and records show.
_SHOWN = 60

FIX = "Name another key, leave key= out, or release all futures of the other one first."


class Origin(NamedTuple):
    """Who submitted a task, and in which graph: a digest of its bytes, if they are few."""

    principal: str
    graph: bytes = b""


#: Of a task that no submission created.
_UNKNOWN = Origin(UNKNOWN)


class Owners(Part):
    """The principals behind the tasks and the clients of one scheduler."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Forgets a task when Dask does: then its key is free.
        self._origins: WeakTaskDict[Origin] = WeakTaskDict()

    def note(self, task: TaskState, origin: Origin) -> None:
        """Record on whose behalf *task* was just created."""
        self._origins[task] = origin

    def origin_of(self, task: TaskState) -> Origin:
        """Return where *task* came from."""
        return self._origins.get(task, _UNKNOWN)

    def of(self, task: TaskState) -> str:
        """Return the principal that submitted *task*, or scattered its value."""
        return self._origins.get(task, _UNKNOWN).principal

    def of_tasks(self, tasks: Iterable[TaskState]) -> dict[Any, str]:
        """Return whose *tasks* are, by their keys."""
        return {task.key: self.of(task) for task in tasks}

    def of_client(self, client: str) -> str | None:
        """Return the principal of *client*; None of one that left, and of Dask's own."""
        link = link_of(self._server.client_comms.get(client))
        return self._known.client_ids.owner(client) if link is None else str(link.peer)


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

    @property
    def key(self) -> str:
        """A readable key, which the client that submitted it chose."""
        return shown_key(self.task.key, _SHOWN)


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
        f"key {first.key!r}{others}, submitted by {submission.principal!r}, was first"
        f" submitted by {first.owner!r} with {what}. {outcome}"
    )
