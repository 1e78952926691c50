"""Open a verified task: read its tree, unpickle its definitions, build Dask's own node.

Each task unpickles its definitions for itself: an object that two tasks shared could carry a change
from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dask._task_spec import Alias, DataNode, Dict, GraphNode, Task, TaskRef, _execute_subgraph

from safeser.dask.sealed import form
from safeser.dask.wire.reader import check_hashes
from safeser.errors import PayloadError

__all__ = ["malformed_task", "open_task", "under"]


def open_task(
    key: Any,
    dependencies: Sequence[Any],
    tree: Any,
    definitions: Sequence[bytes],
    load: Callable[[bytes], Any],
) -> GraphNode:
    """Return the node that *tree* spells, under *key*.

    :param tree: as it was read from msgpack, lists as tuples.
    :param definitions: of what it names, which *load* opens.
    :raises PayloadError: if it spells none, or another one than *key* and *dependencies* say.
    """
    opening = _Opening(dependencies, definitions, load)
    try:
        node = opening.value(tree)
    except (_MalformedError, ValueError, TypeError, RecursionError):
        raise malformed_task("its tree") from None
    if not isinstance(node, GraphNode):
        raise malformed_task("it is no task")
    node = under(key, node)
    needed = map(form.key_form, node.dependencies)
    if {*map(form.spelling, needed)} != {*map(form.spelling, dependencies)}:
        raise malformed_task("its dependencies are others")
    return node


def under(key: Any, node: GraphNode) -> GraphNode:
    """Return *node* by the name *key* that its graph has for it; it may have another one."""
    named = node.key is key or (
        node.key is not None and form.same_key(form.key_form(node.key), form.key_form(key))
    )
    if named:
        return node
    return Alias(key, node.target) if type(node) is Alias else node.substitute({}, key=key)


class _MalformedError(Exception):
    """A tree is not what :mod:`safeser.dask.sealed.writing` writes."""


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
            _require(type(tree) in form.SCALARS)
            return tree
        tag, *parts = tree
        return _at(self._READ, tag)(self, *parts)

    def _dependency(self, place: Any) -> TaskRef:
        return TaskRef(_at(self._dependencies, place))

    def _definition(self, place: Any) -> Any:
        definition: bytes = _at(self._definitions, place)
        if place not in self._loaded:
            self._loaded[place] = self._load(definition)
        return self._loaded[place]

    def _task(self, key: Any, producer: Any, function: Any, args: Any, named: Any) -> Task:
        _require(key is None or form.is_key(key))
        _require(type(producer) is bool and type(args) is type(named) is tuple)
        names = named[::2]
        _require(all(type(name) is str for name in names) and len(set(names)) == len(names))
        values = map(self.value, named[1::2])
        keywords = dict(zip(names, values, strict=True))
        _require(type(function) is tuple and len(function) == 2 and function[0] == form.DEFINITION)
        called, arguments = self._definition(function[1]), [self.value(each) for each in args]
        if called is _execute_subgraph and len(arguments) > 2 and type(arguments[2]) is tuple:
            _check_table(arguments[2])  # names of its inputs
        return Task(key, called, *arguments, _data_producer=producer, **keywords)

    def _gathered(self, kind: Any, *items: Any) -> Any:
        cls = _at(form.GATHERERS, kind)
        _require(cls is not Dict or not len(items) % 2)
        # Not by the class's own constructor, which takes one container for its items.
        made: Any = object.__new__(cls)
        Task.__init__(
            made, None, cls.to_container, *map(self.value, items), constructor=cls.constructor
        )
        return made

    def _plain(self, kind: Any, *items: Any) -> Any:
        cls = _at(form.CONTAINERS, kind)
        values = [self.value(item) for item in items]
        if cls is dict:
            keys = values[::2]
            _check_table(keys)
            return dict(zip(keys, values[1::2], strict=True))
        if cls in (set, frozenset):
            _check_table(values, members=True)
        return cls(values)

    def _alias(self, key: Any, target: Any) -> Alias:
        _require(form.is_key(key) and form.is_key(target))
        return Alias(key, target)

    def _data(self, key: Any, value: Any) -> DataNode:
        _require(form.is_key(key))
        return DataNode(key, self.value(value))

    def _slice(self, *parts: Any) -> slice:
        start, stop, step = map(self.value, parts)
        return slice(start, stop, step)

    def _reference(self, key: Any) -> TaskRef:
        _require(form.is_key(key))
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


def _require(sound: bool) -> None:
    if not sound:
        raise _MalformedError


#: So many keys may share a hash; see families.keys.
_FEW = 64


def _check_table(keys: Sequence[Any], *, members: bool = False) -> None:
    """Refuse keys that were made to collide: a scheduler reads trees, too; see outline.py."""
    if len(keys) > _FEW:
        check_hashes("a key in a task", keys, members=members)


def _at(items: Sequence[Any], place: Any) -> Any:
    """Return the item at *place*, which counts from 0 and is no bool."""
    _require(type(place) is int and 0 <= place < len(items))
    return items[place]


def malformed_task(what: str) -> PayloadError:
    """Return the error about *what* of a sealed task no author writes."""
    return PayloadError(f"a sealed task is malformed: {what}", rule="sealed.task")
