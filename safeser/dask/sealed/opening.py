"""Opening a verified task: its tree read, its definitions unpickled, as Dask's own node.

Each task unpickles its definitions for itself: an object that two tasks shared could carry a change
from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, Task, TaskRef

from safeser.dask.sealed import form
from safeser.errors import PayloadError

__all__ = ["open_task"]


def open_task(
    key: Any,
    dependencies: Sequence[Any],
    tree: Any,
    definitions: Sequence[bytes],
    load: Callable[[bytes], Any],
) -> GraphNode:
    """Return the node that *tree* spells, under *key*.

    :param tree: as it was read from msgpack, lists as tuples.
    :param definitions: pickles of what it names, which *load* unpickles.
    :raises PayloadError: if it spells none, or another one than *key* and *dependencies* say.
    """
    opening = _Opening(dependencies, definitions, load)
    try:
        node = opening.value(tree)
    except (ValueError, TypeError, IndexError, RecursionError):
        raise _malformed("its tree") from None
    if not isinstance(node, GraphNode):
        raise _malformed("it is no task")
    if node.key != key:
        node = Alias(key, node.target) if type(node) is Alias else node.substitute({}, key=key)
    if node.dependencies != frozenset(dependencies):
        raise _malformed("its dependencies are others")
    return node


class _Opening:
    """One task while it is built."""

    def __init__(
        self,
        dependencies: Sequence[Any],
        definitions: Sequence[bytes],
        load: Callable[[bytes], Any],
    ) -> None:
        self._dependencies = dependencies
        self._definitions = definitions
        self._load = load
        self._loaded: dict[int, Any] = {}

    def value(self, tree: Any) -> Any:
        if type(tree) is not tuple:
            return tree
        tag, *parts = tree
        return self._READ[tag](self, *parts)

    def _dependency(self, place: int) -> TaskRef:
        return TaskRef(self._dependencies[place])

    def _definition(self, place: int) -> Any:
        if place not in self._loaded:
            self._loaded[place] = self._load(self._definitions[place])
        return self._loaded[place]

    def _task(self, key: Any, producer: bool, function: Any, args: Any, named: Any) -> Task:
        keywords = {named[at]: self.value(named[at + 1]) for at in range(0, len(named), 2)}
        return Task(
            key,
            self.value(function),
            *map(self.value, args),
            _data_producer=producer,
            **keywords,
        )

    def _gathered(self, kind: int, *items: Any) -> Any:
        cls = form.GATHERERS[kind]
        # Not by the class's own constructor, which takes one container for its items.
        made: Any = object.__new__(cls)
        Task.__init__(
            made,
            None,
            cls.to_container,  # type: ignore[attr-defined]  # dask ships no types
            *map(self.value, items),
            constructor=cls.constructor,  # type: ignore[attr-defined]  # as above
        )
        return made

    def _plain(self, kind: int, *items: Any) -> Any:
        cls = form.CONTAINERS[kind]
        values = [self.value(item) for item in items]
        if cls is dict:
            return dict(zip(values[::2], values[1::2], strict=True))
        return cls(values)

    def _alias(self, key: Any, target: Any) -> Alias:
        return Alias(key, target)

    def _data(self, key: Any, value: Any) -> DataNode:
        return DataNode(key, self.value(value))

    def _slice(self, *parts: Any) -> slice:
        start, stop, step = map(self.value, parts)
        return slice(start, stop, step)

    def _reference(self, key: Any) -> TaskRef:
        return TaskRef(key)

    #: In the order of the tags of form.py.
    _READ: Sequence[Callable[..., Any]] = (
        _dependency,
        _definition,
        _task,
        _gathered,
        _plain,
        _alias,
        _data,
        _slice,
        _reference,
    )


def _malformed(what: str) -> PayloadError:
    return PayloadError(f"a sealed task is malformed: {what}", rule="sealed.task")
