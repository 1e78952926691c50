"""Hand graphs of signed tasks to Dask's scheduler in the form that its handler deserializes.

The one rule: what the scheduler's handler opens was built in this process, from a graph that was
verified, decided and recorded. ``Scheduler.update_graph`` calls Dask's own ``deserialize`` for any
family; here it gets a family of safeser whose one frame is an object and no bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask._expr import LLGExpr
from dask._task_spec import GraphNode
from distributed.protocol.serialize import Serialized

from safeser.dask.contents.annotations import check_plain
from safeser.errors import PayloadError

__all__ = ["FAMILY", "SERIALIZATION", "is_opened", "number_of_tasks", "opened"]

#: Under this family Dask opens what safeser built in this very process, and nothing else.
FAMILY = "safeser-graph"


class _Tasks(LLGExpr):  # type: ignore[misc]  # dask ships no types
    """What Dask's scheduler gets in place of an expression: tasks that were checked, as they are.

    Derived from Dask's class for low-level graphs, of which the scheduler drops what no key needs.
    """

    def __new__(cls, tasks: Mapping[Any, GraphNode], annotations: Mapping[str, Any]) -> _Tasks:
        # Not by Expr's constructor, which computes a token over all that is in the tasks.
        made: _Tasks = object.__new__(cls)
        made.operands = [tasks]
        made._determ_token = None
        made.__dict__["_annotations"] = annotations
        return made

    def __init__(self, *_: Any) -> None:
        """Everything was done when it was made."""

    def __dask_graph__(self) -> dict[Any, GraphNode]:
        return dict(self.operands[0])

    def __dask_annotations__(self) -> dict[str, Any]:
        return dict(self.__dict__["_annotations"])


def opened(
    tasks: Mapping[Any, GraphNode], annotations: Mapping[str, Mapping[Any, Any]]
) -> Serialized:
    """Return what Dask's handler opens to the graph of *tasks*.

    :param annotations: by name and key, for keys of *tasks*.
    :raises PolicyDenied: if an annotation is none that a scheduler takes.
    """
    parts = (part for of in annotations.values() for part in of.values())
    for part in {id(part): part for part in parts}.values():  # most tasks share theirs
        check_plain(part)
    return Serialized({"serializer": FAMILY}, [_Built(_Tasks(tasks, annotations))])


def is_opened(value: Any) -> bool:
    """Tell whether *value* is what :func:`opened` returned."""
    return type(value) is Serialized and type(value.frames[0]) is _Built


def number_of_tasks(graph: object) -> int | None:
    """Return how many tasks a graph has of which nothing is computed to list them.

    None for a graph that Dask or a user made: listing its tasks may run any code.
    """
    return len(graph.operands[0]) if type(graph) is _Tasks else None


class _Built:
    """What stands in place of bytes: no peer can send one, as bytes are all that a frame holds."""

    __slots__ = ("_graph",)

    def __init__(self, graph: _Tasks) -> None:
        self._graph: _Tasks | None = graph

    def take(self) -> _Tasks:
        """Return the graph, once."""
        graph, self._graph = self._graph, None
        if graph is None:
            raise PayloadError("a graph is opened twice", rule="submission.graph")
        return graph


def _unwritten(_: Any) -> Any:
    raise NotImplementedError  # Dask's word for: try another family


def _read_tasks(_: Any, frames: Any) -> _Tasks:
    if len(frames) != 1 or type(frames[0]) is not _Built:
        raise PayloadError("no peer can send this family", rule="submission.graph")
    return frames[0].take()


#: How Dask opens :data:`FAMILY`: its functions to write and to read, and whether the first of them
#: takes a context. They are registered by :mod:`safeser.dask.patches`.
SERIALIZATION = (_unwritten, _read_tasks, False)
