"""Describe Dask collections without their graphs: kind, name, chunks or divisions, empty meta.

The one rule: a graph is code and never travels as data. A description is inert; a receiver builds a
collection of it over results that its keys already have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import numpy as np

from safeser.errors import PayloadError
from safeser.families import Node, Parts, Typed, registry
from safeser.families.errors.failures import shown
from safeser.gate.values import Limits

__all__ = ["ADVICE", "Described", "describe", "register", "results_of"]

KINDS = ("array", "frame", "bag", "item", "delayed")

#: Kinds whose names Dask prints unescaped.
_SHOWN_BY_NAME = ("array", "frame", "bag")

_MAX_NAME = 500
#: Reason and fix of the error where a user sends a graph.
ADVICE = (
    "a Dask collection is a graph, which is code still to run",
    "Send .compute() or .persist() of it, or submit it where a policy grants that.",
)
#: The same where a method such as recreate_error_locally has the cluster send a task.
_TASK = (
    "a task is code, which would run where it is sent",
    "Have its result and its error sent, not the task itself.",
)


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """One collection of Dask's, as far as it is data.

    :param kind: ``array``, ``frame`` (also of one column or an index), ``bag``, ``item`` (one
        value made of a bag) or ``delayed``.
    :param name: first part of each key, or the key itself of ``item`` and ``delayed``.
    :param meta: an empty NumPy array, or an empty pandas object; None of other kinds.
    :param parts: chunks of an array, divisions of a frame, number of partitions of a bag.
    """

    kind: str
    name: str
    meta: Any = None
    parts: Any = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or type(self.name) is not str or len(self.name) > _MAX_NAME:
            _refuse("its kind or name is none")
        if self.kind in _SHOWN_BY_NAME and shown(self.name) != self.name:
            _refuse("its name holds characters that would control a terminal")
        {"array": _check_array, "frame": _check_frame, "bag": _check_bag}.get(
            self.kind, _check_delayed
        )(self.meta, self.parts)

    @property
    def _shape(self) -> tuple[int, ...]:
        """How many parts it has along each axis by which keys number them."""
        if self.kind == "array":
            return tuple(map(len, self.parts))
        if self.kind == "frame":
            return (len(self.parts) - 1,)
        return (self.parts,) if self.kind == "bag" else ()

    @property
    def count(self) -> int:
        """How many keys it has."""
        return math.prod(self._shape)

    def keys(self) -> Iterator[Any]:
        """Yield the keys whose results it consists of."""
        if self.kind in ("item", "delayed"):
            yield self.name
            return
        for place in itertools.product(*map(range, self._shape)):
            yield (self.name, *place)

    def collection(self, result: Callable[[Any], Any]) -> Any:
        """Return the collection over what *result* returns for each key: a result or a future.

        With a client, ``lambda key: distributed.Future(key, client)`` stands for what the cluster
        has under these keys. The author of the description chose the keys.
        """
        graph = {key: result(key) for key in self.keys()}
        if self.kind == "array":
            from dask.array import Array  # noqa: PLC0415 - Dask's parts take long to import

            return Array(graph, self.name, chunks=self.parts, meta=self.meta)
        if self.kind == "frame":
            from dask.dataframe.dask_expr import from_graph  # noqa: PLC0415 - as above

            return from_graph(graph, self.meta, self.parts, list(graph), self.name)
        if self.kind == "bag":
            from dask.bag import Bag  # noqa: PLC0415 - as above

            return Bag(graph, self.name, self.parts)
        if self.kind == "item":
            from dask.bag.core import Item  # noqa: PLC0415 - as above

            return Item(graph, self.name)
        from dask.delayed import Delayed  # noqa: PLC0415 - as above

        return Delayed(self.name, graph)


def _refuse(problem: str) -> NoReturn:
    raise PayloadError(f"that describes no Dask collection: {problem}", rule="families.dask")


def _check_array(meta: Any, chunks: Any) -> None:
    if type(meta) is not np.ndarray or type(chunks) is not tuple or meta.ndim != len(chunks):
        _refuse("an array has meta and chunks of as many dimensions")
    for sizes in chunks:
        if type(sizes) is not tuple or not all(map(_is_size, sizes)):
            _refuse("a chunk has no size")
    if meta.size > (meta.ndim == 0):
        _refuse("its meta is not empty")


def _is_size(size: Any) -> bool:
    # Dask writes NaN where it will only know after computing.
    return (type(size) is int and 0 <= size < 1 << 62) or (type(size) is float and size != size)  # noqa: PLR0124


def _check_frame(meta: Any, divisions: Any) -> None:
    kind = type(meta)
    named = kind.__name__ in ("DataFrame", "Series") or kind.__name__.endswith("Index")
    if kind.__module__.partition(".")[0] != "pandas" or not named:
        _refuse("a frame has meta of pandas")
    if len(meta) or type(divisions) is not tuple or len(divisions) < 2:
        _refuse("its meta is not empty, or it has no divisions")


def _check_bag(meta: Any, partitions: Any) -> None:
    if meta is not None or type(partitions) is not int or not 0 < partitions < 1 << 62:
        _refuse("a bag has a number of partitions")


def _check_delayed(meta: Any, parts: Any) -> None:
    if meta is not None or parts is not None:
        _refuse("a delayed value has a key alone")


_SINGLE = {"dask.delayed.Delayed": "delayed", "dask.bag.core.Item": "item"}


def describe(collection: Any) -> Described:
    """Return what *collection* is without its graph.

    :raises PayloadError: for other collections, and meta that is neither NumPy's nor pandas'.
    """
    kind = f"{type(collection).__module__}.{type(collection).__qualname__}"
    if kind == "dask.array.core.Array":
        meta = collection._meta
        empty = meta if type(meta) is np.ndarray else None
        return Described("array", collection.name, empty, collection.chunks)
    if kind.startswith("dask.dataframe.dask_expr._collection."):
        name = _name_of_frame(collection)
        return Described("frame", name, collection._meta, tuple(collection.divisions))
    if kind == "dask.bag.core.Bag":
        return Described("bag", collection.name, None, collection.npartitions)
    if kind in _SINGLE and type(collection.key) is str:
        return Described(_SINGLE[kind], collection.key)
    _refuse("it is of no kind that safeser knows")


def _name_of_frame(collection: Any) -> str:
    """Return the first part of each key under which a frame's results are, or will be."""
    # Results have the keys of the graph that was persisted; the expression over them has its own,
    # which is that of its lowered form.
    over = _is_over_results(collection.expr)
    keys = list(collection.expr.operand("keys")) if over else collection.__dask_keys__()
    name = keys[0][0]
    if keys != [(name, number) for number in range(len(keys))]:
        _refuse("the keys of its results are not numbered")
    return str(name)


def _is_over_results(expr: Any) -> bool:
    return f"{type(expr).__module__}.{type(expr).__qualname__}" == _FROM_GRAPH


_FROM_GRAPH = "dask.dataframe.dask_expr.io.io.FromGraph"


def results_of(collection: Any) -> Mapping[Any, Any]:
    """Return what stands in the graph of *collection* for each key; nothing of a frame to come."""
    expr: Any = getattr(collection, "expr", None)
    if _is_over_results(expr):
        return cast(Mapping[Any, Any], expr.operand("layer"))
    if type(expr).__module__.startswith("dask.dataframe."):
        return {}
    return cast(Mapping[Any, Any], collection.__dask_graph__())


# -- as typed values -----------------------------------------------------------------------------


def _encode(x: Described, limits: Limits) -> Parts:
    return Parts({"kind": x.kind, "name": x.name}, (), [(".meta", x.meta), (".parts", x.parts)])


def _check(node: Node, limits: Limits) -> None:
    kind, name = node.expect("kind", "name", children=2)
    if type(kind) is not str or kind not in KINDS or type(name) is not str:
        node.refuse("its kind or name is none", "families.header")
    parts = {"array": "tuple", "frame": "tuple", "bag": "int"}.get(kind, "NoneType")
    if node.children[1].yields != f"builtins:{parts}":
        node.refuse("its parts are not those of its kind", "families.child-type")
    node.value = limits


def _decode(node: Node, values: list[Any]) -> Described:
    made = Described(node.meta["kind"], node.meta["name"], *values)
    # A user of the collection makes a key and a future for each.
    if made.count > node.value.elements:
        node.refuse("it has more keys than max_memory allows", "families.too-large")
    return made


def _load() -> None:
    from dask._expr import Expr  # noqa: PLC0415 - imported for the first object of Dask's
    from dask._task_spec import GraphNode  # noqa: PLC0415 - as above
    from dask.base import DaskMethodsMixin  # noqa: PLC0415 - as above
    from dask.highlevelgraph import HighLevelGraph  # noqa: PLC0415 - as above

    for cls in (DaskMethodsMixin, HighLevelGraph, Expr):
        registry.advise(cls, *ADVICE)
    registry.advise(GraphNode, *_TASK)


def register() -> None:
    """Register descriptions, and the advice for graphs; a second call does nothing."""
    if not registry.knows("safeser.dask:Described"):
        registry.register(Typed("safeser.dask:Described", (Described,), _encode, _check, _decode))
        registry.register_lazy("dask", (), _load)


# Also for processes that describe or receive one without a client, and so without safeser://.
register()
