"""Where annotated tasks may run: looked up once for all tasks that share an annotation.

The one rule: what becomes of a task is what Dask's scheduler would have made of it. That one looks
each worker up and makes a set of them for each task anew (distributed 2026.8.0,
``Scheduler._apply_annotations``): a thousand tasks that share one list of thirty thousand took a
scheduler more than two minutes and two gigabytes, in a graph of a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from distributed.scheduler import Scheduler

__all__ = ["restrict_together"]

#: The annotations by which Dask restricts tasks to workers.
_WHERE = ("restrictions", "workers")


def restrict_together(scheduler: Any) -> None:
    """Have *scheduler* look up workers once for each annotation; once or more."""
    if isinstance(scheduler, Scheduler) and "_apply_annotations" not in vars(scheduler):
        scheduler._apply_annotations = _Restricted(scheduler).apply


class _Restricted:
    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._apply = scheduler._apply_annotations

    def apply(
        self,
        tasks: Iterable[Any],
        annotations_by_type: Mapping[str, Mapping[Any, Any]],
        global_annotations: Mapping[str, Any] | None = None,
    ) -> set[Any]:
        everywhere = global_annotations or {}
        named = [name for name in _WHERE if name in annotations_by_type or name in everywhere]
        if not named:
            return self._apply(tasks, annotations_by_type, global_annotations)  # type: ignore[no-any-return]
        tasks = tuple(tasks)
        annotated: set[Any] = self._apply(tasks, _others(annotations_by_type), _others(everywhere))
        looked_up: dict[int, tuple[Any, set[str], set[str]]] = {}
        for name in named:
            of, for_all = annotations_by_type.get(name, {}), everywhere.get(name)
            for task in tasks:
                value = of.get(task.key)
                if value is None:
                    if name not in everywhere:
                        continue
                    value = for_all(task.key) if callable(for_all) else for_all
                if id(value) not in looked_up:
                    # With the value, so that its id is no other one's meanwhile.
                    looked_up[id(value)] = value, *self._look_up(value)
                _, hosts, workers = looked_up[id(value)]
                task.annotations = {**(task.annotations or {}), name: value}
                annotated.add(task.key)
                # Dask replaces these sets, and changes none.
                task.host_restrictions = hosts or task.host_restrictions
                task.worker_restrictions = workers or task.worker_restrictions
        return annotated

    def _look_up(self, value: Any) -> tuple[set[str], set[str]]:
        hosts, workers = set(), set()
        for each in value if isinstance(value, list | tuple | set) else [value]:
            try:
                workers.add(self._scheduler.coerce_address(each))
            except ValueError:  # no address, but perhaps the name of a host
                hosts.add(each)
        return hosts, workers


def _others(annotations: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in annotations.items() if name not in _WHERE}
