"""Reviewed functions for Dask's graphs: tasks, layers, expressions and collections.

The one rule: nothing of a graph is called or computed while it is loaded, and whoever computes it
later can reach listed functions alone. Each object is filled field by field, with copies of its
containers, and every value in it is plain data, a part of the graph, or a listed function.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.pickles.budget import over
from safeser.pickles.names import shown
from safeser.pickles.nodes import GlobalRef
from safeser.pickles.shims.calls import GUARDED, METHODS, UNNAMED
from safeser.pickles.shims.dask_values import (
    MAX_NESTING,
    called,
    function_of,
    own,
    profile_of,
    resolved,
    value_of,
)
from safeser.pickles.shims.site import Draft, Site, bad, plain
from safeser.pickles.shims.standing import named

__all__ = ["SHIMS"]

#: Untyped on purpose: Dask is an extra, and brings toolz. Its own classes are resolved by the names
#: that the lists give, when a pickle holds one, and never before.
_toolz: Any = importlib.import_module("toolz.functoolz")
if importlib.util.find_spec("dask") is None:
    raise ModuleNotFoundError("Dask is not installed", name="dask")

_TOKEN = re.compile(r"[0-9a-f]{32}\Z")
_CURRIED = frozenset(("__doc__", "__name__", "__module__", "__qualname__", "_has_unknown_args"))


# -- keys and tasks -------------------------------------------------------------------------------


def _key(site: Site, value: Any) -> Any:
    if type(value) is tuple and not _is_flat(value):
        # A tuple of twice itself, thirty levels deep, is 200 bytes, and each level doubles the work
        # of whoever looks at it or hashes it.
        site.check_hashable(value)
    return _checked_key(site, value, 0)


def _is_flat(key: tuple[Any, ...]) -> bool:
    return len(key) <= _SMALL_KEY and tuple not in map(type, key)


#: Parts of a key that is looked at without being charged for: a name and numbers, as nearly all.
_SMALL_KEY = 16


def _checked_key(site: Site, value: Any, depth: int) -> Any:
    if type(value) is tuple and depth < MAX_NESTING:
        return tuple(_checked_key(site, part, depth + 1) for part in value)
    if type(value) is str and not value.isascii():
        site.charge_text(value)  # one text can stand in many places
    # What no message can hold breaks the streams on which the scheduler sends it; what is not equal
    # to itself is another key wherever it arrives.
    if (
        (type(value) is int and not -(1 << 63) <= value < 1 << 64)
        or (type(value) is str and not _is_text(value))
        or (type(value) is float and math.isnan(value))
    ):
        raise bad("values", "a key is none that a message can hold")
    return plain(value, str, bytes, int, float, *_INTEGERS)


def _is_text(value: str) -> bool:
    try:
        # All ASCII is, which strings know of themselves: encoding would copy a long one each time.
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


_INTEGERS = (np.int64, np.int32, np.uint64)


def _reference(site: Site, _: str, key: Any) -> Any:
    return resolved("dask._task_spec:TaskRef")(_key(site, key))


def _alias(site: Site, _: str, key: Any, target: Any = None) -> Any:
    named = None if target is None else _key(site, target)
    return resolved("dask._task_spec:Alias")(_key(site, key), named)


def _data(site: Site, _: str, key: Any, value: Any) -> Any:
    return resolved("dask._task_spec:DataNode")(_key(site, key), value_of(site, value))


def _begin(_: Site, name: str) -> Draft:
    return Draft(name)


def _drafted(draft: Any) -> Any:
    if type(draft) is not Draft:
        raise bad("build-twice", "a part of a graph is built twice")
    return object.__new__(resolved(draft.kind))


def _named_values(site: Site, kwargs: Any) -> dict[str, Any]:
    return {plain(name, str): value_of(site, part) for name, part in plain(kwargs, dict).items()}


_SLOTS = (
    "_data_producer",
    "_dependencies",
    "_is_coro",
    "_repr",
    "_token",
    "args",
    "func",
    "key",
    "kwargs",
)


def _task(site: Site, draft: Any, state: Any) -> Any:
    """Fill a task's slots; containers of tasks have their class's function, whatever is sent."""
    made = _drafted(draft)
    names = made.get_all_slots()
    if len(plain(state, tuple, list)) != len(names):
        raise bad("state", "a task has not the fields of this Dask's")
    given = dict(zip(names, state, strict=True))
    # One set of keys can stand in many tasks, each of which the scheduler ties to all of them.
    site.charge(_TIES * len(plain(given["_dependencies"], frozenset)))
    container = isinstance(made, resolved("dask._task_spec:NestedContainer"))
    fields = {
        "_data_producer": plain(given["_data_producer"], bool),
        "_dependencies": _dependencies(site, given["_dependencies"]),
        # Left to be worked out: what is said to be a coroutine runs in its worker's event loop.
        **dict.fromkeys(_WORKED_OUT),
        "args": tuple(value_of(site, part) for part in plain(given["args"], tuple)),
        "func": made.to_container if container else called(site, given["func"]),
        "key": None if given["key"] is None else _key(site, given["key"]),
        "kwargs": {
            plain(k, str): value_of(site, v) for k, v in plain(given["kwargs"], dict).items()
        },
    }
    for name, kind in _WORKED_OUT.items():
        plain(given[name], kind, type(None))
    if fields["_dependencies"] != _needed(fields):
        raise bad("values", "a task does not wait for what it is made of")
    if container:
        fields["kwargs"] = {"constructor": type(made).constructor}
    for name in _SLOTS:
        setattr(made, name, fields[name])
    return made


def _dependencies(site: Site, keys: frozenset[Any]) -> frozenset[Any]:
    """Return *keys*, each checked; one set for all tasks that have one in the pickle."""
    place = id(keys), 0, "_dependencies"
    known = site.remade.get(place)
    if known is None:
        known = site.remade[place] = keys, frozenset(_key(site, key) for key in keys)
    checked: frozenset[Any] = known[1]
    return checked


#: What it takes to look at a key that a task waits for, to order it, to compare it and to note it.
_TIES = 4
_WORKED_OUT = {"_is_coro": bool, "_repr": str, "_token": str}


def _needed(fields: dict[str, Any]) -> set[Any]:
    """Return what a task needs: one that waits for more may never run, and one for less fails."""
    needed: set[Any] = set()
    for part in (*fields["args"], *fields["kwargs"].values()):
        if isinstance(part, resolved("dask._task_spec:TaskRef")):
            needed.add(part.key)
        elif isinstance(part, resolved("dask._task_spec:GraphNode")):
            needed |= part.dependencies
    return needed


# -- layers and graphs ----------------------------------------------------------------------------


_COMPUTED = frozenset(
    ("_dims", "_cached_dict", "has_legacy_tasks", "_to_dict", "_all_external_keys")
)


def _filled(site: Site, draft: Any, state: Any, *names: str) -> tuple[Any, dict[str, Any]]:
    made, given = _drafted(draft), plain(state, dict)
    # What a layer has computed already is computed anew.
    kept = {name: part for name, part in given.items() if name not in _COMPUTED}
    if set(kept) != set(names):
        raise bad("state", f"{draft.kind} has not the fields of this Dask's")
    checked = {name: value_of(site, part) for name, part in kept.items()}
    made.__dict__.update(checked)
    return made, checked


def _layer(site: Site, draft: Any, state: Any) -> Any:
    names = ("annotations", "collection_annotations", "mapping")
    made, fields = _filled(site, draft, state, *names)
    # Tuples that begin with a function are tasks too; the function was checked like all others.
    for key in plain(fields["mapping"], dict):
        _key(site, key)
    _check_annotations(fields)
    return made


def _check_annotations(fields: dict[str, Any]) -> None:
    for name in ("annotations", "collection_annotations"):
        plain(fields[name], dict, type(None))


def _blockwise(site: Site, draft: Any, state: Any) -> Any:
    made, fields = _filled(site, draft, state, *_BLOCKWISE)
    _check_annotations(fields)
    if type(fields["task"]) is not resolved("dask._task_spec:Task"):
        raise bad("values", "the task of a layer is none")
    plain(fields["output"], str)
    sizes: dict[str, int] = {}
    for name, axes in plain(fields["indices"], tuple):
        if axes is not None:
            for axis, size in zip(plain(axes, tuple), fields["numblocks"][name], strict=True):
                sizes[plain(axis, str)] = max(sizes.get(axis, 1), plain(size, int))
    for axis, size in plain(fields["new_axes"], dict).items():
        sizes[plain(axis, str)] = len(size) if type(size) is tuple else 1
    # A few bytes stand for as many tasks as there are blocks; the scheduler writes them all out.
    if math.prod(sizes.values()) > site.limits.max_refs:
        raise over("max-refs", "a layer stands for more tasks than allowed")
    if any(axis not in sizes for axis in plain(fields["output_indices"], tuple)):
        raise bad("values", "a layer has an axis of no size")
    return made


_BLOCKWISE = (
    "annotations",
    "collection_annotations",
    "concatenate",
    "indices",
    "io_deps",
    "new_axes",
    "numblocks",
    "output",
    "output_blocks",
    "output_indices",
    "task",
)


def _dependency(site: Site, draft: Any, state: Any) -> Any:
    names = {"chunks", "numblocks", "produces_tasks"} | _MORE.get(draft.kind, set())
    made, _ = _filled(site, draft, state, *names)
    return made


_MORE = {"dask.layers:ArraySliceDep": {"starts"}, "dask.layers:ArrayValuesDep": {"values"}}


def _graph(site: Site, draft: Any, state: Any) -> Any:
    made, fields = _filled(site, draft, state, "layers", "dependencies", "key_dependencies")
    for name, part in plain(fields["layers"], dict).items():
        plain(name, str)
        if not isinstance(part, resolved("dask.highlevelgraph:Layer")):
            raise bad("values", "a graph holds something else than layers")
    for name in ("dependencies", "key_dependencies"):
        for names in plain(fields[name], dict).values():
            plain(names, set, frozenset)
    return made


# -- functions made of functions ------------------------------------------------------------------


def _curry(  # noqa: PLR0917 - the arguments are those of the pickle
    site: Site, _: str, kind: Any, function: Any, args: Any, kwargs: Any, fields: Any, outer: Any
) -> Any:
    """Make a curried function; toolz itself would import whatever a text names."""
    plain(kind, GlobalRef)
    if type(function) is str:
        function = _named(site, function, decorated=plain(outer, bool))
        if outer:
            return function
    inner = function_of(site, function)
    given = tuple(value_of(site, part) for part in plain(args, tuple))
    named = _named_values(site, kwargs)
    made = _toolz.curry(inner, *given, **named)
    for field, value in plain(fields, tuple):
        if field not in _CURRIED:
            raise bad("state", "a curried function has no such field")
        made.__dict__[field] = plain(value, str, type(None))
    return made


def _named(site: Site, name: str, *, decorated: bool) -> Any:
    entry = profile_of(site).get(name)
    if entry is None or entry.role != "reference":
        raise bad("function", f"{shown(name)} is not a listed function")
    found = own().object_of(entry)
    if type(found) is not _toolz.curry:
        raise bad("function", f"{shown(name)} is not a curried function")
    return found if decorated else found.func


def _method(_: Site, name: str, method: Any) -> Any:
    if plain(method, str) not in METHODS:
        raise bad("function", f"the method {shown(method)} is not one that only computes")
    return resolved(name)(method)


def _item(_: Site, name: str, index: Any) -> Any:
    return resolved(name)(plain(index, str, int, tuple, list))


def _named_function(_: Site, __: str, name: Any) -> Any:
    if plain(name, str) not in UNNAMED and name not in GUARDED:
        raise bad("function", f"{shown(name)} is not a listed function")
    return named(name)


def _frompyfunc(site: Site, name: str, function: Any, inputs: Any, outputs: Any) -> Any:
    if not 0 < plain(inputs, int) <= _OPERANDS or not 0 < plain(outputs, int) <= _OPERANDS:
        raise bad("arguments", "a function has no such number of operands")
    return resolved(name)(function_of(site, function), inputs, outputs)


#: Of NumPy's ufuncs, and more than enough.
_OPERANDS = 32


def _compose(site: Site, draft: Any, state: Any) -> Any:
    made = _drafted(draft)
    first, others = plain(state, tuple)
    made.first = called(site, first)
    made.funcs = tuple(called(site, part) for part in plain(others, tuple))
    return made


# -- expressions and collections ------------------------------------------------------------------


def _expression(site: Site, _: str, kind: Any, *parts: Any) -> Any:
    """Make an expression as it was, without its constructor.

    That would compute a token over all operands, and for singletons hand over whatever object of
    this process has the same token. What was computed already (the last part) is computed anew.
    """
    *operands, token, computed = parts
    plain(computed, dict)
    if token is not None and not _TOKEN.match(plain(token, str)):
        raise bad("values", "the token of an expression is none")
    made = object.__new__(resolved(plain(kind, GlobalRef).name))
    made._determ_token = token
    made.operands = [value_of(site, part) for part in operands]
    if len(made._parameters) > len(operands):
        raise bad("arguments", "an expression lacks an operand")
    return made


def _backend(site: Site, name: str, frame: Any) -> Any:
    if type(frame).__module__.partition(".")[0] != "pandas":
        raise bad("arguments", "the data of a frame are no frame")
    return resolved(name)(value_of(site, frame))


def _collection(_: Site, name: str, expression: Any) -> Any:
    """Make the collection that Dask makes of *expression*, from what its columns would be.

    That works out types over frames without rows, so no function may stand among the operands.
    """
    if not type(expression).__module__.startswith("dask.dataframe.dask_expr."):
        raise bad("arguments", "a collection is of something else than a frame")
    pending: list[Any] = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, resolved("dask._expr:Expr")):
            pending.extend(part.operands)
        elif type(part) in (list, tuple, set, frozenset):
            pending.extend(part)
        elif type(part) is dict:
            pending.extend(part.values())
        elif callable(part):
            raise bad("function", "a frame that is to be loaded by itself holds a function")
    return resolved(name)(expression)


def _dask_array(  # noqa: PLR0917 - as above
    site: Site, name: str, graph: Any, key: Any, chunks: Any, dtype: Any, meta: Any
) -> Any:
    if type(graph) is not resolved("dask.highlevelgraph:HighLevelGraph") or not isinstance(
        dtype, np.dtype
    ):
        raise bad("arguments", "an array is not made of a graph")
    for axis in plain(chunks, tuple):
        for size in plain(axis, tuple):
            if not plain(size, int, float) >= 0 and not math.isnan(size):
                raise bad("arguments", "a chunk of an array has no size")
    if plain(meta, np.ndarray).size > 1:
        raise bad("arguments", "what an array is like holds elements")
    return resolved(name)(graph, plain(key, str), chunks, dtype=dtype, meta=meta)


def _delayed(site: Site, draft: Any, state: Any) -> Any:
    made = _drafted(draft)
    nothing, given = plain(state, tuple)
    names = {"_key", "_dask", "_length", "_layer"}
    if nothing is not None or set(plain(given, dict)) != names:
        raise bad("state", "a delayed value has not the fields of this Dask's")
    graph = given["_dask"]
    if (
        type(graph) is not resolved("dask.highlevelgraph:HighLevelGraph")
        or given["_layer"] not in graph.layers
    ):
        raise bad("values", "a delayed value is not made of a graph")
    for name, part in given.items():
        object.__setattr__(made, name, value_of(site, part))
    return made


SHIMS: dict[str, Callable[..., Any]] = {
    "alias": _alias,
    "array": _dask_array,
    "backend": _backend,
    "begin": _begin,
    "blockwise": _blockwise,
    "collection": _collection,
    "compose": _compose,
    "curry": _curry,
    "data": _data,
    "delayed": _delayed,
    "dependency": _dependency,
    "expression": _expression,
    "frompyfunc": _frompyfunc,
    "graph": _graph,
    "item": _item,
    "layer": _layer,
    "method": _method,
    "named": _named_function,
    "reference": _reference,
    "task": _task,
}
