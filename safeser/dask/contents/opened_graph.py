"""Hand graphs of signed tasks to Dask's scheduler in the form that its handler deserializes.

The one rule: what the scheduler's handler opens was built in this process, from a graph that was
verified, decided and recorded. ``Scheduler.update_graph`` calls Dask's own ``deserialize`` for any
family; here it gets a family of safeser whose one frame is an object and no bytes.

Annotations beside the tasks (workers, priorities, retries, resources) are plain values, and fit
into the messages that the scheduler sends about them: it calls those that can be called, and a
priority of 2 ** 70 cannot be written into a message, so that the stream to each worker in turn
breaks with it. What it computes with them is Dask's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dask._expr import LLGExpr
from dask._task_spec import GraphNode
from distributed.protocol.serialize import Serialized

from safeser.errors import PayloadError, PolicyDenied

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


def own_functions(registered: Any) -> tuple[Any, ...]:
    """Return how Dask opens :data:`FAMILY`, of which nothing else has *registered* anything.

    Its functions to write and to read, and whether the first of them takes a context.
    """
    if registered is not None:
        raise ValueError(f"a serialization family {FAMILY} is registered already")
    return _unwritten, _read_tasks, False


# --- annotations ---------------------------------------------------------------------------------

_PLAIN = (str, bytes, int, float, bool, type(None), np.int64, np.float64, np.bool_)
#: Deeper than annotations nest in practice.
_MAX_NESTING = 8
#: Dask sends the negative of a priority; msgpack has 64 bits for both.
_INT63 = 1 << 63


def check_beside(fields: Mapping[str, Any]) -> None:
    """Refuse what steers the scheduler beside a graph, but for plain values."""
    for value in fields.values():
        check_plain(value)


def check_plain(value: Any, depth: int = 0) -> None:
    """Refuse anything but plain values: a scheduler calls annotations that can be called."""
    if type(value) in _PLAIN:
        if not is_sendable(value):
            raise PolicyDenied(
                f"an annotation holds a {type(value).__name__} that no message can hold",
                rule="submission.annotation",
                fix="Annotate with numbers of up to 63 bits and text of Unicode characters.",
            )
    elif depth < _MAX_NESTING and type(value) in (list, tuple, set, frozenset):
        for part in value:
            check_plain(part, depth + 1)
    elif depth < _MAX_NESTING and type(value) is dict:
        for key, part in value.items():
            check_plain(key, depth + 1)
            check_plain(part, depth + 1)
    else:
        raise PolicyDenied(
            f"an annotation holds a {type(value).__name__}, and annotations are plain values",
            rule="submission.annotation",
            fix="Annotate with numbers, text and lists of them.",
        )


def is_sendable(value: Any) -> bool:
    """Tell whether a number or text fits into messages, its negative too; all else does."""
    if type(value) is int:
        return -_INT63 < value < _INT63
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a pair that stands for a character
            return False
    return True
