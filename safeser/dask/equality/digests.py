"""Canonical digests of what definitions are made of: functions, arguments, data.

The one rule: two values with one digest were made alike, and what has no digest is equal to
nothing. Nothing of a value is called but what pickling calls, which Dask's scheduler does with each
task that it hands to a worker; no ``__eq__``, ``__hash__`` or ``__dask_tokenize__`` runs.

The walk is that of tokens. The forms differ, since both values are in this process and one of them
may be hostile:

- What a module here holds counts by its name: no two objects are held under one name.
- All that a task can tell apart counts: the order of dictionaries, an array's memory order.
- Objects of libraries count by their pickles. The forms that tokens have for them copy what several
  columns or labels share, so that their cost is a product of two sizes that a peer chose.
- Each value is paid for before it is digested, once however often it is referred to.
"""

from __future__ import annotations

import importlib
from abc import ABCMeta
from collections.abc import Iterable
from itertools import chain
from pickle import PickleBuffer
from sys import getsizeof
from types import FunctionType
from typing import Any

import numpy as np
from dask._task_spec import GraphNode, NestedContainer, Task

from safeser.dask.equality.outline import Unopened
from safeser.tokens.definitions import describe_class, describe_function
from safeser.tokens.encoding import ATOMS, ORDERED_LEAVES, Encoding, Leaves, pack
from safeser.tokens.graph import Exhausted, Form, Group, Walk
from safeser.tokens.kinds import BUILT_IN, describe_dict_in_order
from safeser.tokens.reduction import Unordered, describe_reduced, reduce
from safeser.tokens.references import class_name, is_held

__all__ = ["MOST", "Digests"]

_toolz: Any = importlib.import_module("toolz.functoolz")
_mro_of = type.__dict__["__mro__"].__get__

#: What the comparison of one graph may cost: a value 1, a reference in it a sixteenth, a KiB 1.
MOST = 2_000_000
_KIB = 10
#: What those that are there may cost beyond what arrived: honest definitions have equal parts.
_FREE = 50_000
_FOR_EACH = 10
#: Values whose digests are known are forgotten from here on.
_MOST_KEPT = 100_000

#: Larger texts and numbers are digested once for all that refer to them.
_SMALL = 1 << 10
_FEW = 8
_PLAIN = ATOMS | {id(bytes)}
_HOLDERS = (list, tuple, set, frozenset, dict)


def _write_text(value: Any) -> Encoding | None:
    return pack(value) if len(value) <= _SMALL else None


def _write_number(value: int) -> Encoding | None:
    return pack(value) if value.bit_length() <= _SMALL else None


def _write_key(value: tuple[Any, ...]) -> Encoding | None:
    """Write a tuple as those that Dask's keys are, or nothing."""
    if len(value) > _FEW:
        return None
    for each in value:
        write = _LEAVES.get(id(type(each)))
        if type(each) is tuple or write is None or write(each) is None:
            return None
    return pack(value)


_LEAVES: Leaves = {
    id(tuple): _write_key,
    **dict.fromkeys(map(id, (type(None), bool, float, complex, type(...))), pack),
    **dict.fromkeys(map(id, (str, bytes)), _write_text),
    id(int): _write_number,
}

#: Caches that objects of these libraries fill when they are used. A sender without code could
#: forge them: in its objects they are checked, or left out.
_CACHES = {
    "pandas": frozenset(("_cache",)),
    "scipy": frozenset(("_has_canonical_format", "_has_sorted_indices")),
}

#: What tasks say of themselves, and what of it decides what they do, also where they are values.
#: Keys of tasks inside of tasks count up in each process.
_SLOTS = frozenset(NestedContainer.get_all_slots()) | {"typ"}
_COUNTED = frozenset(("func", "args", "kwargs"))
#: Where the state of an object is in what a reducer returns.
_STATE = 2


class Digests:
    """Digests of the values of two graphs, one that is there and one that arrived.

    :param most: what all of them may cost.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._spent = {False: 0, True: 0}
        self._arrived = False
        self._without = 0
        self._walk = self._new_walk()

    def _new_walk(self) -> Walk:
        return Walk(self._describe, _LEAVES, self._spend)

    def of(self, value: Any, *, arrived: bool) -> Encoding:
        """Return the digest of *value*; what has no canonical form has one like no other.

        :param arrived: whether it is of the graph that arrived, which others have to be worth.
        :raises Exhausted: if that costs more than is left.
        """
        write = _LEAVES.get(id(type(value)))
        leaf = None if write is None else write(value)
        if leaf is not None:
            return leaf
        self._arrived = arrived
        if len(self._walk) > _MOST_KEPT:
            self._walk = self._new_walk()
        walk, self._walk = self._walk, self._new_walk()  # in case that it ends half way
        encoding = walk.encode(value)
        if walk.undetermined:  # deeper than what pickle writes, or a cycle that was made to be slow
            self._most = 0
        self.spend(0, arrived=arrived)
        self._walk = walk
        return encoding

    def differing(self, first: Any, second: Any) -> tuple[str, Any, Any] | None:
        """Return the name of the first part that differs of two objects of one kind, and both."""
        forms = self._describe(first), self._describe(second)
        if forms[0].label != forms[1].label:
            return None
        for step, *pair in zip(forms[0].steps, forms[0].values, forms[1].values, strict=False):
            x, y = (self.of(each, arrived=True) for each in pair)
            if x != y:
                return (step, *pair)
        return None

    def spend(self, cost: int, *, arrived: bool) -> None:
        """Take *cost* from what is left.

        :raises Exhausted: if that is less.
        """
        self._spent[arrived] += cost
        here = self._spent[True]
        if here >= self._most or self._spent[False] > _FREE + _FOR_EACH * here:
            raise Exhausted

    def _spend(self, cost: int) -> None:
        self.spend(cost, arrived=self._arrived)

    def _describe(self, value: Any) -> Form:
        try:
            return self._form(value, type(value))
        except (MemoryError, Exhausted):
            raise
        except Exception:  # it cannot be pickled: an object's own code may raise anything
            self._without += 1
            return Form(b"undetermined" + pack(self._without))

    def _form(self, value: Any, cls: type) -> Form:
        form = self._plain(value, cls)
        if form is not None:
            return form
        if cls is np.ndarray or cls in _BYTES:
            self._spend((value if cls is np.ndarray else memoryview(value)).nbytes >> _KIB)
        kind = _KINDS.get(id(cls))
        if kind is not None:
            return kind(value)
        if type in _mro_of(cls):
            return _class(value)
        return _node(value) if GraphNode in _mro_of(cls) else _reduced(value)

    def _plain(self, value: Any, cls: type) -> Form | None:
        """Return the form of a large text or number, or of a container of plain values."""
        write = ORDERED_LEAVES.get(id(cls))
        if write is None:
            return None
        parts: Iterable[Any] = (value,)
        if cls is dict:
            parts = [*chain.from_iterable(value.items())]
        elif cls in _HOLDERS:
            parts = value
        if not _PLAIN.issuperset(map(id, map(type, parts))):
            return None
        # That of a text in memory grows when it is pickled.
        sizes = [len(each) if type(each) is str else getsizeof(each) for each in parts]
        if cls in _HOLDERS and max(sizes, default=0) > _SMALL:
            return None  # others may hold the same text
        self._spend(sum(sizes) >> _KIB)
        encoding = write(value)
        return None if encoding is None else Form(b"plain" + encoding)


def _function(value: Any) -> Form:
    name = value.__module__, value.__qualname__
    if is_held(value, *name):
        return Form(b"by name" + pack(name))
    form = describe_function(value)
    # In which it looks up what no module defines: those of this process, or its own.
    return form._replace(label=form.label + pack(id(value.__builtins__)))


def _class(value: Any) -> Form:
    name = class_name(value)
    if is_held(value, *name):
        return Form(b"by name" + pack(name))
    form = describe_class(value)
    abstract = vars(value).get("__abstractmethods__")  # which may be none of those that are defined
    return form._replace(values=[*form.values, abstract])


def _array(array: np.ndarray[Any, Any]) -> Form:
    """Return the form of an array: its memory once, however its fields overlap."""
    if array.dtype.hasobject:
        return Form(b"array", array.__reduce_ex__(4)[1:])
    data: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.nbytes else b""
    order = b"F" if array.flags.fnc else b"C"
    return Form(b"ndarray" + order + pack(array.shape), [array.dtype, PickleBuffer(data)])


def _curry(value: Any) -> Form:
    # Not what it knows of its signature, which it leaves out of a pickle as well.
    attributes = {**vars(value), "_sigspec": None}
    return Form(b"curry", [Unordered([*chain(*attributes.items())], Group.PAIRS)])


def _node(value: Any) -> Form:
    cls = type(value)
    counted = _COUNTED if isinstance(value, Task) else {*_COUNTED, "key"}
    slots = [name for name in cls.get_all_slots() if name in counted or name not in _SLOTS]
    return Form(b"node", [cls, *(getattr(value, name) for name in slots)])


def _reduced(value: Any) -> Form:
    reduced = reduce(value)
    module = class_name(type(value))[0]
    caches = _CACHES.get(module.partition(".")[0]) if type(module) is str else None
    if caches is not None and type(reduced) is tuple and len(reduced) > _STATE:
        state = _lacking(caches, reduced[_STATE])
        reduced = (*reduced[:_STATE], state, *reduced[_STATE + 1 :])
    return describe_reduced(value, reduced, in_order=True)


def _lacking(caches: frozenset[str], state: Any) -> Any:
    """Return a *state* without *caches*: an array of dates fills one at the first access."""
    if type(state) is tuple:
        parts = [_lacking(caches, each) for each in state]
        return tuple(each for each in parts if type(each) is not dict or each)
    if type(state) is dict:
        return {name: each for name, each in state.items() if name not in caches}
    return state


_BYTES = (bytearray, PickleBuffer)
_KINDS = {
    **BUILT_IN,
    id(dict): describe_dict_in_order,
    id(FunctionType): _function,
    **dict.fromkeys((id(type), id(ABCMeta)), _class),
    # Objects by their pickles, in which a mark that is nothing but itself is one more of its kind.
    **dict.fromkeys((id(object), id(type(iter(set())))), _reduced),
    id(Unopened): lambda value: Form(
        b"unopened" + (value.canonical or b"by its bytes" + value.digest)
    ),
    id(np.ndarray): _array,
    id(_toolz.curry): _curry,
}
