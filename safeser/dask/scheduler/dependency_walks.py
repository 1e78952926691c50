"""Walk from tasks to what they depend on, and visit each task once.

The one rule: what a walk costs is bounded by the tasks that are there, and it changes nothing but
tasks that failed.

Dask's scheduler visits a task once for each path that leads to it (distributed 2026.8.0,
``Scheduler.get_call_stack`` and ``Scheduler.stimulus_retry``, docs/explanation/upstream.md): forty
levels of two tasks, each of which needs both tasks of the level before, have 2**40 paths, and one
request holds the event loop for days. ``stimulus_retry`` also releases and computes anew any key
that it is told, of any client: data that a client scattered is lost, and futures of it are
cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

__all__ = ["computed_for", "retry"]


def retry(
    tasks: Mapping[Any, Any], stock: Callable[..., Any], keys: Collection[Any], client: str | None
) -> tuple[Any, ...]:
    """Do what ``Scheduler.stimulus_retry``, *stock*, does, for those of *keys* that failed."""
    failed = {key for key in keys if key in tasks and _has_failed(tasks[key])}
    visited = _visited((tasks[key] for key in failed), _failed_dependencies)
    stock([task.key for task in visited if not _failed_dependencies(task)], client)
    # Dask's client looks for a future of each of them, and has those that it named.
    return tuple(failed)


def computed_for(tasks: Mapping[Any, Any], keys: Iterable[Any]) -> list[Any]:
    """Return the keys of *tasks* that are computed, of *keys* and what they wait for."""
    visited = _visited((tasks[key] for key in keys), _awaited_dependencies)
    return [task.key for task in visited if task.state == "processing"]


def _visited(first: Iterable[Any], following: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the tasks *first* and all that *following* leads to from them, each once."""
    visited = {task.key: task for task in first}
    ahead = list(visited.values())
    while ahead:
        for task in following(ahead.pop()):
            if task.key not in visited:
                visited[task.key] = task
                ahead.append(task)
    return list(visited.values())


def _has_failed(task: Any) -> bool:
    return bool(task.state == "erred")


def _failed_dependencies(task: Any) -> list[Any]:
    return [each for each in task.dependencies if _has_failed(each)]


def _awaited_dependencies(task: Any) -> list[Any]:
    return list(task.dependencies) if task.state == "waiting" else []
