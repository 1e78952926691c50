"""Graphs under ``submission: approved``: written out by who sends them, tasks and nothing else.

The one rule: what a scheduler opens is a mapping of keys to tasks over listed functions, and plain
annotations. Layers, expressions and collections write themselves out in the sender's process: on
the scheduler their code would run over operands of the sender's choice. docs/approved.md says what
that lets pass, docs/decisions/0016 why it is done so.
"""

from __future__ import annotations

import copyreg
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dask
from dask._expr import LLGExpr
from dask._task_spec import Alias, GraphNode, Task, TaskRef, convert_legacy_graph
from distributed.client import Future
from distributed.protocol.serialize import Serialized

from safeser import pickles
from safeser.channel import Link
from safeser.dask.annotations import check_annotation, require_small
from safeser.dask.approved_culprits import named_culprit
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.pickles.shims.labels import hide_memory_in_frames
from safeser.pickles.shims.standing import holds_functions, name_of, named, original
from safeser.policy import Policy
from safeser.values import Grant, Kind, Limits

__all__ = [
    "FAMILY",
    "SERIALIZATION",
    "WrittenOut",
    "as_granted",
    "grant_of",
    "handed_on",
    "hide_memory",
    "opened",
    "reduced",
    "write_out",
    "written",
]

#: Under this family Dask opens what safeser built in this very process, and nothing else.
FAMILY = "safeser-approved"

_TASKS, _ANNOTATIONS = "tasks", "annotations"


def hide_memory(policy: Policy) -> None:
    """Have frames of a worker under *policy* answer for no memory where its tasks are approved.

    Such tasks make labels of any text, by functions that are listed.
    """
    if any(context.submission == "approved" for context in policy.contexts):
        hide_memory_in_frames()


# -- where it is sent -----------------------------------------------------------------------------


def write_out(expr: Any) -> dict[str, Any]:
    """Return *expr* as the tasks that a scheduler would make of it, and their annotations."""
    tasks = {
        key: task if task.key == key else _renamed(task, key)
        for key, task in convert_legacy_graph(dict(expr.__dask_graph__())).items()
    }
    annotations = {name: dict(of) for name, of in expr.__dask_annotations__().items()}
    return {_TASKS: tasks, _ANNOTATIONS: annotations}


def _renamed(task: GraphNode, key: Any) -> GraphNode:
    """Return *task* under the key by which its graph has it: where `loc` takes a whole part, Dask
    writes an alias that is called as what it stands for, and goes by that name if it is renamed.
    """
    return Alias(key, task.target) if type(task) is Alias else task.substitute({}, key=key)


@contextmanager
def methods() -> Iterator[None]:
    """Have shuffles and rechunks written as tasks, unless Dask's configuration says how.

    Peer-to-peer ones hold functions that Dask makes on the spot, and write to workers' disks.
    """
    wanted = ("dataframe.shuffle.method", "array.rechunk.method")
    chosen = {name: "tasks" for name in wanted if dask.config.get(name, None) is None}
    with dask.config.set(chosen):
        yield


def grant_of(link: Link) -> Grant:
    """Return what may be submitted on *link*."""
    return link.policy.grant(link.outbound(Kind.TASK, "update-graph"), sealing=True)


def as_granted(expr: Any, link: Link, *, actors: Any) -> Any:
    """Return *expr* as it may leave on *link*: as it is, or written out where that is granted.

    :raises PolicyDenied: what the scheduler would refuse; it is recorded.
    """
    grant = grant_of(link)
    if grant.submission != "approved":
        return expr
    try:
        if actors:
            raise PolicyDenied(
                "an actor cannot be submitted: any of its methods could be called by name",
                rule="submission.actors",
                fix="Only 'submission: code' allows it, which lets whoever has it run any code.",
            )
        return written(expr, grant, link.policy.limits)
    except SafeserError as error:
        if not error.recorded:
            link.note_refusal(link.outbound(Kind.TASK, "update-graph"), error)
            error.recorded = True
        raise


def written(expr: Any, grant: Grant, limits: Limits) -> Serialized:
    """Return *expr* as *grant* lets it be submitted, for Dask to send as it is.

    :raises PolicyDenied: what the scheduler would refuse, with the name of what is to blame.
    """
    graph = write_out(expr)
    profile = pickles.Profile.granted(grant.profiles, grant.allow)
    buffers: list[Any] = []
    try:
        data = pickles.dumps(
            graph, buffer_callback=buffers.append, profile=profile, limits=limits, reduce=reduced
        )
    except SafeserError as refusal:
        raise named_culprit(
            graph, refusal, profile=profile, context=grant.context, reduce=reduced
        ) from None
    opened(graph)
    header = {"serializer": "pickle", "writeable": tuple(not b.raw().readonly for b in buffers)}
    return Serialized(header, [data, *(buffer.raw() for buffer in buffers)])


class _Attribute:
    """Stands for ``getattr`` in a task."""

    def __reduce__(self) -> tuple[Any, ...]:
        return named, ("builtins:getattr",)


_ATTRIBUTE = _Attribute()


def reduced(obj: Any) -> Any:
    """Return how a part of a graph is written by reference where pickle has no name for it."""
    if isinstance(obj, Future):
        return TaskRef, (obj.key,)  # a Future would look for a client where it is opened
    if type(obj) is Task and obj.func is getattr:
        names = obj.get_all_slots()
        state = dict(zip(names, obj.__getstate__(), strict=True)) | {"func": _ATTRIBUTE}
        return copyreg.__newobj__, (Task,), tuple(state[name] for name in names)  # type: ignore[attr-defined]
    # By getattr pickle writes methods, too.
    name = None if obj is getattr else name_of(obj)
    return NotImplemented if name is None else (named, (name,))


# -- where it is opened ---------------------------------------------------------------------------


class WrittenOut(LLGExpr):  # type: ignore[misc]  # dask ships no types
    """What Dask's scheduler gets in place of an expression: tasks that were checked, as they are.

    Derived from Dask's class for low-level graphs, of which the scheduler drops what no key needs.
    """

    def __new__(cls, tasks: Mapping[Any, GraphNode], annotations: Mapping[str, Any]) -> WrittenOut:
        # Not by Expr's constructor, which computes a token over all that is in the tasks.
        made: WrittenOut = object.__new__(cls)
        made.operands = [tasks]
        made._determ_token = None
        made.__dict__["_written"] = annotations
        return made

    def __init__(self, *_: Any) -> None:
        """Everything was done when it was made."""

    def __dask_graph__(self) -> dict[Any, GraphNode]:
        return dict(self.operands[0])

    def __dask_annotations__(self) -> dict[str, Any]:
        return dict(self.__dict__["_written"])


def opened(value: Any) -> Serialized:
    """Return what Dask's handler opens to the graph that *value* is, checked; nothing else is.

    :raises PayloadError: if a loaded payload is no graph that was written out.
    """
    match value:
        case {"tasks": dict() as tasks, "annotations": dict() as annotations} if len(value) == 2:
            pass
        case _:
            raise _malformed("it is not written out into tasks")
    for key, task in tasks.items():
        if not isinstance(task, GraphNode) or task.key != key:
            raise _malformed("it holds something else than tasks")
    sizes: Counter[Any] = Counter()  # by task
    checked: dict[tuple[str, int], int] = {}  # most tasks share what they are annotated with
    for name, of in annotations.items():
        if type(name) is not str or type(of) is not dict:
            raise _malformed("its annotations are none")
        for key, part in of.items():
            if key not in tasks:
                raise _malformed("an annotation is of no task")
            known = name, id(part)
            if known not in checked:
                checked[known] = check_annotation(name, part)
            sizes[key] += checked[known]
    require_small(max(sizes.values(), default=0))
    return Serialized({"serializer": FAMILY}, [_Built(WrittenOut(tasks, annotations))])


def is_opened(value: Any) -> bool:
    """Tell whether *value* is what :func:`opened` returned."""
    return type(value) is Serialized and type(value.frames[0]) is _Built


def _malformed(why: str) -> PayloadError:
    return PayloadError(
        f"the graph is not one that an approved submission may be: {why}",
        rule="submission.graph",
        fix="Submit it with safeser.Client, which writes it out.",
    )


# -- where it is handed on ------------------------------------------------------------------------


def handed_on(task: GraphNode) -> tuple[dict[str, Any], list[Any]]:
    """Return *task*, which was opened here, as a worker reads it by the same profile.

    Functions of safeser's own stand in it for listed ones; the worker's reader makes them again.

    :raises PayloadError: if it holds what pickle cannot name.
    """
    buffers: list[Any] = []
    data = pickles.dumps(task, buffer_callback=buffers.append, reduce=_restored)
    header = {"serializer": "pickle", "writeable": tuple(not b.raw().readonly for b in buffers)}
    return header, [data, *(buffer.raw() for buffer in buffers)]


def _restored(obj: Any) -> Any:
    """Return how *obj* is written with the functions that its own stand for."""
    found = reduced(obj)
    if not isinstance(obj, GraphNode) and not holds_functions(obj):
        return found
    if type(obj).__name__ == "curry":
        obj = _curried(obj)
    return _original(obj.__reduce_ex__(5) if found is NotImplemented else found)


def _curried(made: Any) -> Any:
    """Return a curried function like *made* over the original, by which toolz finds its name."""
    function, *args = map(_original, (made.func, *made.args))
    again = type(made)(function, *args, **_original(made.keywords))
    for name in ("__doc__", "__module__", "__name__", "__qualname__"):
        again.__dict__[name] = made.__dict__.get(name)
    return again


def _original(value: Any) -> Any:
    kind = type(value)
    if kind is tuple or kind is list:
        return kind(map(_original, value))
    if kind is dict:
        return {name: _original(each) for name, each in value.items()}
    own = original(value)
    return _ATTRIBUTE if own is getattr else own


class _Built:
    """What stands in place of bytes: no peer can send one, as bytes are all that a frame holds."""

    __slots__ = ("_graph",)

    def __init__(self, graph: WrittenOut) -> None:
        self._graph: WrittenOut | None = graph

    def take(self) -> WrittenOut:
        """Return the graph, once."""
        graph, self._graph = self._graph, None
        if graph is None:
            raise PayloadError("a graph is opened twice", rule="submission.graph")
        return graph


def _unwritten(_: Any) -> Any:
    raise NotImplementedError  # Dask's word for: try another family


def _taken(_: Any, frames: Any) -> WrittenOut:
    if len(frames) != 1 or type(frames[0]) is not _Built:
        raise PayloadError("no peer can send this family", rule="submission.graph")
    return frames[0].take()


#: How Dask opens :data:`FAMILY`: its functions to write and to read, and whether the first of them
#: takes a context. They are registered by :mod:`safeser.dask.patches`.
SERIALIZATION = (_unwritten, _taken, False)
