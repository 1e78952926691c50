"""Write a graph out: each task as a leaf that its author signs.

A leaf is two pieces of msgpack. The scheduler reads the *head*: key, dependencies, flags, digests
of definitions and, for a shuffle's barrier, the plan of the shuffle. Workers alone read the *tree*
of the call; see form.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import chain
from types import FunctionType, MappingProxyType, MethodType
from typing import Any, NamedTuple

import msgpack
from dask._task_spec import Alias, DataNode, GraphNode, Set, Task, TaskRef
from distributed.shuffle._core import P2PBarrierTask, barrier_key

from safeser.dask.contents.shuffle_plans import write_plan
from safeser.dask.sealed import form
from safeser.dask.sealed.definitions import Definitions, canonical_digest, is_imported
from safeser.dask.wire.reader import packed
from safeser.dask.wire.task_key import shown_key
from safeser.errors import PayloadError
from safeser.gate.format import Buffer
from safeser.gate.values import Limits
from safeser.pickles.reading.layout import layout

#: Flags of a head: the function is a coroutine function; the task produces data from nothing; what
#: it returns is an actor.
COROUTINE, PRODUCER, ACTOR = 1, 2, 4

#: All of them.
FLAGS = COROUTINE | PRODUCER | ACTOR

#: Levels of a tree; what is nested deeper, or in longer containers, is pickled as one definition.
_DEEPEST = 24
_LONGEST = 64

#: Characters or bytes of a text in a tree; a longer one is a value, and pickled as a definition.
_LONGEST_TEXT = 1 << 10

#: The same, and the items of a container, where the trees of a graph are too large otherwise.
_COMPACT_TEXT, _COMPACT_ITEMS = 1 << 5, 0

#: Characters of a key that an error shows.
_SHOWN = 80

#: Elements that a reader counts for one value of a tree, at most, with room for the head.
_COST = 8

_GATHERED = {cls: number for number, cls in enumerate(form.GATHERERS)}
_PLAIN = {cls: number for number, cls in enumerate(form.CONTAINERS)}
_MUTABLE = frozenset({list, set, dict})
_SETS = frozenset({set, frozenset})
_TEXTS = frozenset({str, bytes})
_NO_NAMES: Mapping[Any, Any] = MappingProxyType({})

#: Objects inside of those of one task that are looked at.
_MOST_LOOKED_AT = 10_000

_IMMUTABLE = frozenset({tuple, frozenset, partial, MethodType, FunctionType})

#: Packages of whose objects nothing is looked at inside.
_WHOLE = frozenset({"builtins", "types", "numpy", "pandas", "pyarrow", "scipy", "polars", "torch"})


class Leaf(NamedTuple):
    """One task in the bytes that are signed."""

    head: bytes
    tree: bytes


def leaf_parts(graph: bytes, head: Buffer, tree: Buffer) -> tuple[Buffer, ...]:
    """Return what is hashed into the tree: no two graphs or leaves give the same bytes."""
    return graph + len(head).to_bytes(4, "big"), head, tree


def require_own_plan(key: Any, spec: Any) -> None:
    """Refuse a shuffle's barrier under another key than the one that Dask gives it.

    Dask acts upon the id in the plan, and authority is derived from the task under the key.

    :raises PayloadError: naming no id: another author may have chosen it.
    """
    if type(spec.id) is not str or not form.same_key(key, barrier_key(spec.id)):
        raise PayloadError(
            "the barrier of a shuffle stands under the key of another one, or its plan names"
            " another one",
            rule="shuffle.plan",
            fix="Leave the keys of shuffles as Dask made them.",
        )


class TaskWriter:
    """Writes the tasks of one graph as leaves.

    :param definitions: gets their functions and values.
    :param limits: those of the scheduler.
    :param names: the keys of the graph, as they are spelled there: a reference may have another
        number that is equal.
    :param compact: whether all values are definitions, and trees hold calls and short scalars.
    """

    def __init__(
        self,
        definitions: Definitions,
        limits: Limits,
        names: Mapping[Any, Any] = _NO_NAMES,
        *,
        compact: bool = False,
    ) -> None:
        self._definitions = definitions
        self._names = names
        self._limits = limits
        self._spelled = (_COMPACT_TEXT, _COMPACT_ITEMS) if compact else (_LONGEST_TEXT, _LONGEST)
        # Each list of a tree counts as itself and its items, each of them as one more.
        self._most = limits.elements // _COST
        # To make a packer takes longer than to pack a task.
        self.pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True).pack

    def write(self, key: Any, node: GraphNode, *, actor: bool = False) -> Leaf:
        """Return the leaf of *node*, which the graph has under *key*.

        :param actor: whether what it returns is to be an actor.
        :raises PayloadError: if something in it cannot be pickled.
        """
        definitions, pack = self._definitions, self.pack
        inputs = [(form.key_form(self._names.get(key, key)), key) for key in node.dependencies]
        written = _Task(inputs, definitions, self._most, *self._spelled)
        try:
            tree = pack(written.value(node, 0))
            _require_apart(written.objects, written.containers)
        except (_NoTreeError, RecursionError, ValueError, OverflowError):
            written = _Task(inputs, definitions, self._most, *self._spelled)
            tree = pack(written.definition(node))
        definitions.name(written.digests)
        is_coro = definitions.is_coroutine(node) if isinstance(node, Task) else node.is_coro
        flags = COROUTINE * bool(is_coro) | PRODUCER * bool(node.data_producer) | ACTOR * actor
        head = [form.key_form(key), written.dependencies, flags, b"".join(written.digests)]
        if isinstance(node, P2PBarrierTask):
            require_own_plan(form.key_form(key), node.spec)
            head.append(write_plan(node.spec, self._limits))
        return Leaf(pack(head), tree)


class _NoTreeError(Exception):
    """A task has more levels or items than a reader takes, or has an object in two places."""


class _Task:
    """One task while it is written: its dependencies and definitions, in the order of their use.

    :param dependencies: each as it is spelled, and as the task names it.
    :param most: elements of its tree, *longest* characters of a text there, and *items* of a
        container.
    """

    def __init__(
        self,
        dependencies: list[tuple[Any, Any]],
        definitions: Definitions,
        most: int,
        longest: int,
        items: int,
    ) -> None:
        named = _in_order(dependencies)
        self._places = {key: place for place, (_, key) in enumerate(named)}
        self.dependencies = [key for key, _ in named]
        self._definitions = definitions
        self._left = most
        self._longest, self._items = longest, items
        self.containers: set[int] = set()
        self.objects: list[Any] = []
        self._defined: dict[int, int] = {}
        self.digests: list[bytes] = []

    def definition(self, obj: Any) -> list[Any]:
        """Return the place of *obj* among the definitions.

        Two objects of equal pickles have two places, so that they are two objects on the worker.
        """
        place = self._defined.get(id(obj))
        if place is None:
            place = self._defined[id(obj)] = len(self.digests)
            self.digests.append(self._definitions.add(obj))
            self.objects.append(obj)
        return [form.DEFINITION, place]

    def value(self, obj: Any, depth: int, *, literal: bool = False) -> Any:
        """Return the tree of *obj*; what has no spelling of its own is pickled.

        :param literal: it is part of a plain container, in which Dask puts no result in the place
            of a future.
        """
        kind = type(obj)
        self._left -= 1
        if kind in form.SCALARS and form.fits(obj, kind):
            if kind in _TEXTS and len(obj) > self._longest:
                return self.definition(obj)
            return obj
        if depth >= _DEEPEST or self._left < 0:
            raise _NoTreeError
        if kind is TaskRef or (isinstance(obj, TaskRef) and not literal):  # or a future of Dask's
            place = self._places.get(obj.key)
            if place is None:
                return [form.REFERENCE, form.key_form(obj.key)]
            return [form.DEPENDENCY, place]
        write = _SPELLED.get(kind)
        if write is None or (kind in _PLAIN and not _is_spelled(obj, kind, self._items)):
            return self.definition(obj)
        return write(self, obj, depth + 1)

    def _alias(self, alias: Alias, _: int) -> list[Any]:
        return [form.ALIAS, form.key_form(alias.key), form.key_form(alias.target)]

    def _data(self, node: DataNode, depth: int) -> list[Any]:
        return [form.DATA, form.key_form(node.key), self.value(node.value, depth)]

    def _slice(self, obj: slice, depth: int) -> list[Any]:
        parts = (obj.start, obj.stop, obj.step)
        return [form.SLICE, *(self.value(part, depth) for part in parts)]

    def _gathered(self, obj: Any, depth: int) -> list[Any]:
        args = _members(obj.args) if type(obj) is Set else obj.args
        return [form.GATHERED, _GATHERED[type(obj)], *(self.value(each, depth) for each in args)]

    def _call(self, task: Task, depth: int) -> list[Any]:
        self._left -= 1  # for the function
        named: list[Any] = []
        for name, argument in task.kwargs.items():
            named += (name, self.value(argument, depth))
        return [
            form.TASK,
            None if task.key is None else form.key_form(task.key),
            bool(task.data_producer),
            self.definition(task.func),
            [self.value(argument, depth) for argument in task.args],
            named,
        ]

    def _container(self, obj: Any, depth: int) -> list[Any]:
        if type(obj) in _MUTABLE:
            if id(obj) in self.containers:
                raise _NoTreeError  # one object in two places stays one
            self.containers.add(id(obj))
        items = chain.from_iterable(obj.items()) if type(obj) is dict else obj
        if type(obj) in _SETS:
            items = _members(obj)
        spelled = (self.value(item, depth, literal=True) for item in items)
        return [form.PLAIN, _PLAIN[type(obj)], *spelled]


def _require_apart(objects: Sequence[Any], containers: Collection[int]) -> None:
    """Refuse *objects*, each pickled alone, of which one holds what another one is or holds.

    In one pickle that stays one object, which a task may compare or change. What functions name
    beside their closures, and what libraries keep inside of arrays and frames, does not count.

    :param containers: ids of those whose items are among *objects*, or are scalars.
    """
    if len(objects) + len(containers) < 2:
        return
    seen = dict.fromkeys(containers, -1)
    left = _MOST_LOOKED_AT
    for number, root in enumerate(objects):
        ahead = [root]
        while ahead and left:
            obj = ahead.pop()
            known = seen.get(id(obj))
            if known == number or type(obj) in form.SCALARS:
                continue
            parts = _parts(obj)
            is_mutable = type(obj).__hash__ is None or parts is not None
            if known is not None and is_mutable and type(obj) not in _IMMUTABLE:
                raise _NoTreeError
            seen[id(obj)] = number
            left -= 1
            if parts and not form.SCALARS.issuperset(map(type, parts)):
                ahead += parts


def _parts(obj: Any) -> list[Any] | None:
    """Return what *obj* holds, by the interpreter's own means; None for what is looked at whole."""
    kind = type(obj)
    if kind in _PLAIN:
        return [*obj, *obj.values()] if kind is dict else [*obj]
    if kind is partial:
        return [obj.func, *obj.args, *obj.keywords.values()]
    if kind is MethodType:
        return [obj.__self__, obj.__func__]
    held: list[Any] = []
    if kind is FunctionType:
        for cell in () if is_imported(obj) else obj.__closure__ or ():
            with suppress(ValueError):  # it is empty
                held.append(cell.cell_contents)
        return held
    package = str(kind.__module__).partition(".")[0]
    if package in _WHOLE or issubclass(kind, type | Enum):
        return None
    known = layout(kind)
    if known.fields is not None:
        held += known.fields.__get__(obj).values()
    for slot in known.slots.values():
        with suppress(AttributeError):  # it was never set
            held.append(slot.__get__(obj))
    return held


_SPELLED: dict[type, Callable[[_Task, Any, int], list[Any]]] = {
    Task: lambda written, task, depth: written._call(task, depth),
    Alias: _Task._alias,
    DataNode: _Task._data,
    slice: _Task._slice,
    **dict.fromkeys(_GATHERED, _Task._gathered),
    **dict.fromkeys(_PLAIN, _Task._container),
}


def _is_spelled(obj: Any, kind: type, most: int) -> bool:
    """Tell whether the items of a container are written one by one: few of them, or tasks."""
    if len(obj) <= most:
        return True
    # Of some 100,000 items there are few types, which C code finds; a type's own hash is not asked.
    types = list(map(type, obj.values() if kind is dict else obj))
    by_id = dict(zip(map(id, types), types, strict=True))
    return any(issubclass(each, GraphNode | TaskRef) for each in by_id.values())


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is tuple:
        return all(map(_is_plain, value))
    return kind in form.SCALARS and form.fits(value, kind)


def _members(items: Iterable[Any]) -> list[Any]:
    """Return the members of a set, in an order that is the same in all processes."""
    return [each for _, each in _in_order([(_order(each), each) for each in items])]


def _order(member: Any) -> Any:
    """Return the sort key of *member*: its own value, or that of its node."""
    if isinstance(member, TaskRef):
        return [form.REFERENCE, form.key_form(member.key)]
    return member if _is_plain(member) else [form.DEFINITION, canonical_digest(member)]


def _in_order(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Sort by the bytes of each pair's first: hashes, and so sets, have an order per process."""
    if len(pairs) < 2:
        return pairs
    return sorted(pairs, key=lambda pair: packed(pair[0]))


def unwritable(key: Any, error: PayloadError) -> PayloadError:
    """Return *error*, which names the task that it is about."""
    return PayloadError(
        f"task {shown_key(key, _SHOWN)!r} cannot be sealed: {error.message}",
        rule=error.rule,
        where=error.where,
        fix=error.fix,
    )
