"""Definitions of a graph, functions and constants, with their digests.

Each is pickled once and shared by content. A canonical digest is equal for one definition that two
processes wrote out.

The one rule: a canonical digest states what a definition does and never how it was pickled, or
there is none. Pickles of one function differ with hash seeds, line numbers and what is shared; see
tokens. A digest is stated by the author of the definition, and proves nothing to another author.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, Set, Task, TaskRef, _execute_subgraph

from safeser import pickles
from safeser.errors import TokenizationError
from safeser.gate.format import Buffer
from safeser.pickles.stock import Reductions, is_sent_by_value
from safeser.tokens import Tokenizer
from safeser.tokens.encoding import ORDERED_LEAVES
from safeser.tokens.graph import Form, Group, Undetermined, Walk
from safeser.tokens.kinds import describe, describe_dict_in_order, describe_other, kind_of
from safeser.tokens.reduction import Unordered
from safeser.tokens.references import class_name, importable, is_held, reference_of
from safeser.trace.probe import Done, is_traced, watch

__all__ = ["DIGEST_SIZE", "NO_DIGEST", "Definitions", "canonical_digest", "digest", "is_imported"]

DIGEST_SIZE = 32

#: Stands for the digest of what has no canonical form.
NO_DIGEST = b""

_DOMAIN = b"safeser sealed definition 2"

_NO_REDUCTIONS = Reductions()

#: Longer pickles have no canonical digest: describing many small objects takes ten times as long as
#: pickling them, and large arrays have equal pickles anyway.
_LONGEST_DESCRIBED = 1 << 18


def digest(definition: Buffer) -> bytes:
    """Return the SHA-256 by which a leaf names a definition."""
    return hashlib.sha256(definition).digest()


class Definitions:
    """The definitions of one graph while its author writes it out, each under its digest.

    An object that several tasks share is pickled once, and equal pickles are one definition.

    :param pickled: returns the pickle of an object that the same call has pickled already, or None.
    """

    def __init__(self, pickled: Callable[[Any], bytes | None] = lambda _: None) -> None:
        self._known = pickled
        #: Those that leaves name.
        self.by_digest: dict[bytes, bytes] = {}
        self._pickled: dict[bytes, bytes] = {}
        self._objects: dict[bytes, Any] = {}
        # The objects are kept, so that no other one takes an id meanwhile.
        self._by_id: dict[int, tuple[Any, bytes]] = {}
        self._coroutines: dict[int, tuple[Any, bool]] = {}
        self._reductions = Reductions()

    def is_coroutine(self, task: Task) -> bool:
        """Tell whether *task* calls a coroutine function.

        Each function is asked once: composed ones look through the signatures of their parts.
        """
        func = task.func
        known = self._coroutines.get(id(func))
        if known is None:
            known = self._coroutines[id(func)] = func, bool(task.is_coro)
        return known[1]

    def add(self, obj: Any) -> bytes:
        """Return the digest of *obj*'s pickle.

        :raises PayloadError: if it cannot be pickled.
        """
        known = self._by_id.get(id(obj))
        if known is not None:
            return known[1]
        pickled = self._written(obj)
        found = digest(pickled)
        self._pickled.setdefault(found, pickled)
        self._objects.setdefault(found, obj)
        self._by_id[id(obj)] = obj, found
        return found

    def _written(self, obj: Any) -> bytes:
        known = self._known(obj)
        if known is None:
            return pickles.dumps(obj, code=True, reductions=self._reductions)
        if is_traced():  # it was pickled for its key, and is sent now
            watch("serialize", lambda: known, lambda sent: Done(obj, "cloudpickle", len(sent)))
        return known

    def name(self, digests: Iterable[bytes]) -> None:
        """Record that a leaf names *digests*; a task that was begun anew leaves others behind."""
        for each in digests:
            self.by_digest[each] = self._pickled[each]

    def canonical(self) -> list[bytes]:
        """Return the canonical digest of each definition that leaves name, or nothing for it."""
        tokenizer = _tokenizer(self._reductions)
        return [
            _digest_by(tokenizer, self._objects[each])
            if len(pickled) <= _LONGEST_DESCRIBED
            else NO_DIGEST
            for each, pickled in self.by_digest.items()
        ]


# --- canonical digests ------------------------------------------------------------------------


def canonical_digest(obj: Any) -> bytes:
    """Return 32 bytes for the content of *obj*; the order of dictionaries counts."""
    return _digest_by(_tokenizer(Reductions()), obj)


def _tokenizer(reductions: Reductions) -> Tokenizer:
    return Tokenizer(partial(_describe, reductions=reductions), _DOMAIN, in_order=True)


def _digest_by(tokenizer: Tokenizer, obj: Any) -> bytes:
    try:
        token = tokenizer.token(obj, ensure_deterministic=True)
    except TokenizationError:
        return NO_DIGEST
    return bytes.fromhex(token)


def _describe(value: Any, reductions: Reductions = _NO_REDUCTIONS) -> Form:
    cls = type(value)
    if cls is FunctionType and is_imported(value):
        return Form(b"function by name" + _imported(value))
    kind = kind_of(cls)
    if kind is not None:
        seen = _SEEN.get(cls.__name__)
        return kind(value) if seen is None else seen(value)
    if issubclass(cls, GraphNode):
        return _node(value)
    counted = _NAMED_AT_RANDOM.get(class_name(cls))
    if counted is not None and reference_of(cls) is not None:
        return Form(b"named at random", [cls, *(value.__getstate__()[:counted] if counted else ())])
    return describe_other(value, reductions.get(value))


class _Imported(NamedTuple):
    """What is known of one function that workers import."""

    alive: weakref.ref[FunctionType]
    code: CodeType
    encoding: bytes


_functions: dict[int, _Imported] = {}


def is_imported(function: FunctionType) -> bool:
    """Tell whether workers import *function*, rather than receive it."""
    name = function.__module__
    return (
        is_held(function, name, function.__qualname__)
        and importable(function.__globals__)
        and not is_sent_by_value(name)
    )


def _imported(function: FunctionType) -> bytes:
    """Return the encoding of a function that workers import, made once for its code.

    What its module holds is never sent: to look at that again for each graph would tell nothing
    about what workers run.
    """
    key = id(function)
    known = _functions.get(key)
    if known is not None and known.alive() is function and known.code is function.__code__:
        return known.encoding
    # By a walk of its own, so that it is the same whatever refers to it.
    walk = Walk(_describe_content, ORDERED_LEAVES)
    encoding = walk.encode(function)
    if walk.undetermined and walk.find_cause(function) is not None:
        raise Undetermined("has no canonical form")  # two of these must not be taken for one
    alive = weakref.ref(function, lambda _: _functions.pop(key, None))
    _functions[key] = _Imported(alive, function.__code__, encoding)
    return encoding


def _describe_content(value: Any) -> Form:
    """Describe *value* by what it is made of, also if it is a function that workers import."""
    return describe(value) if type(value) is FunctionType else _describe(value)


def _array_form(array: np.ndarray[Any, Any]) -> Form:
    """Return the form of *array* with what a task sees of its memory and a pickle keeps."""
    form, dtype = describe(array), array.dtype
    turned = b"" if dtype.isnative else b" of turned bytes"
    columns = b" by columns" if array.flags.fnc else b""
    return form._replace(label=form.label + turned + columns)


def _frame_form(frame: Any) -> Form:
    form = describe(frame)
    unique = b"" if frame.flags.allows_duplicate_labels else b" of unique labels"
    return form._replace(label=form.label + unique)


def _index_form(index: Any) -> Form:
    """Return the form of *index* with its levels, of which a token takes those that it uses."""
    form = describe(index)
    return form._replace(values=[*form.values, list(index.levels)], steps=())


#: Types that have a kind, by name, of which tokens take for equal what a task can tell apart.
_SEEN: dict[str, Callable[[Any], Form]] = {
    "dict": describe_dict_in_order,
    "ndarray": _array_form,
    "DataFrame": _frame_form,
    "Series": _frame_form,
    "MultiIndex": _index_form,
}

#: Classes of libraries whose instances take a random name in each process, which their results do
#: not depend on, and how much of their state counts: locks, and what keeps files open.
_NAMED_AT_RANDOM = {
    ("dask.utils", "SerializableLock"): 0,
    ("xarray.backends.locks", "SerializableLock"): 0,
    ("xarray.backends.locks", "CombinedLock"): 0,
    ("xarray.backends.file_manager", "CachingFileManager"): 4,  # opener, arguments, mode, keywords
}


def _node(node: Any) -> Form:
    """Return the form of a task that is pickled whole, or is inside of one.

    Dask's own token of it ignores the order of dictionaries, and may be random. Keys of tasks
    inside of tasks do not count: they count up in each process.
    """
    if isinstance(node, Alias):
        return Form(b"alias", [TaskRef(node.target)])
    if isinstance(node, DataNode):
        return Form(b"data", [node.value])
    if isinstance(node, Set):
        return Form(b"set of tasks", [*node.args], Group.MEMBERS)
    args = _fused_arguments(*node.args) if node.func is _execute_subgraph else list(node.args)
    slots = type(node).get_all_slots()
    added = {name: getattr(node, name) for name in slots if name not in _TASK_SLOTS}
    return Form(b"task", [type(node), node.func, args, node.kwargs, node.data_producer, added])


def _fused_arguments(inner: Any, last: Any, names: Any, *inputs: Any) -> list[Any]:
    """Return the arguments of a fused task; Dask sorts its inputs by hashes of their names."""
    pairs = [each for pair in zip(names, inputs, strict=True) for each in pair]
    return [inner, last, Unordered(pairs, Group.PAIRS)]


_TASK_SLOTS = frozenset(Task.get_all_slots())
