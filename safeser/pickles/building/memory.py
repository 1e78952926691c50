"""Measure the bytes that the objects of one load hold, counting each piece of memory once.

The one rule: the measure is of the objects themselves, not of what their constructors promise.
Objects are traversed as the garbage collector traverses them, which runs no code of any class;
arrays and Arrow's buffers, which it does not see, are identified by the memory that they own.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from safeser.pickles.reading.layout import HEAP_TYPE

__all__ = ["Memory"]

#: Set in the flags of classes whose instances the garbage collector follows.
_FOLLOWED = 1 << 14
#: Of an object beside what its class says: what the garbage collector puts before it.
_HEADER = 16
#: Of an object that is counted: its place among those.
_COUNTED = 96
#: Text and bytes up to this size are part of the object that holds them.
_SHORT = 64
#: What no text, bytes or integer takes that is part of the object that holds it.
_LONG_LEAF = 160
#: Of more elements than this, only those leaves are counted that are large.
_FEW = 64

#: Objects that belong to the process, or are too small to count.
_SHARED = frozenset(
    (
        *(type, type(None), bool, float, complex, type(...), type(NotImplemented)),
        *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType),
        *(types.MethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
        *(types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType),
    )
)
_LEAVES = frozenset((int, str, bytes))
_HOLDERS = frozenset((tuple, list, dict))

#: Returns how many bytes a value holds beside the objects that it refers to: data, objects.
_Counter = Callable[["Memory", Any], tuple[int, int]]


class _Kind(NamedTuple):
    """The rule by which instances of one class are counted.

    :param counted: what counts one; None where all have the same *size*.
    :param followed: they refer to others, which the garbage collector sees.
    """

    counted: _Counter | None
    size: int
    followed: bool


class Memory:
    """The objects counted so far in one load, kept alive so that no address is reused."""

    __slots__ = ("_buffers", "_counted", "_given")

    def __init__(self) -> None:
        self._counted: dict[int, Any] = {}
        self._given: Sequence[Any] = ()
        #: By address, as Arrow makes a new object for a buffer each time that it is asked.
        self._buffers: dict[int, Any] = {}

    def added(self, value: Any, given: Sequence[Any] = ()) -> tuple[int, int]:
        """Return the bytes of *value* that were not counted before: of data, and of objects.

        Data are the contents of arrays, buffers and text; objects, what Python keeps around them.

        :param given: what it was made of; bytes and text among these, or one level below, came
            with the message.
        """
        self._given = given
        count, size, followed = _KINDS.get(type(value)) or _kind(type(value))
        if not followed:
            return (0, size) if count is None else count(self, value)
        data, objects, counted, level = 0, 0, self._counted, [value]
        while level:
            found = []
            for part in level:
                count, size, followed = _KINDS.get(type(part)) or _kind(type(part))
                if followed and id(part) in counted:
                    continue
                if count is not None:
                    more, size = count(self, part)
                    data += more
                objects += size
                if followed:
                    counted[id(part)] = part
                    objects += _COUNTED
                    found.append(part)
            level = [part for part in gc.get_referents(*found) if type(part) not in _SHARED]
            if len(level) > _FEW:
                level = [
                    part
                    for part in level
                    if type(part) not in _LEAVES or part.__sizeof__() > _LONG_LEAF
                ]
        return data, objects

    def forget(self, value: Any) -> None:
        """Count *value* again when it is met next, as it is about to change."""
        self._counted.pop(id(value), None)

    def owned(self, owner: Any, size: int) -> int:
        """Return *size*, the bytes that *owner* holds, unless they were counted before."""
        if id(owner) in self._counted:
            return 0
        self._counted[id(owner)] = owner
        return 0 if self._came(owner) else size

    def _came(self, owner: Any) -> bool:
        """Tell whether *owner* is the memory of an argument of the call."""
        for part in self._given:
            held: Any = (part,)
            if type(part) in _HOLDERS and len(part) <= _FEW:
                held = part.values() if type(part) is dict else part
            for each in held:
                if each is owner or (type(each) is memoryview and each.obj is owner):
                    return True
        return False

    def located(self, address: int, size: int, keeper: Any) -> int:
        """Return *size*, the bytes at *address* that *keeper* keeps, unless they were counted."""
        if address in self._buffers:
            return 0
        self._buffers[address] = keeper
        return size


# -- what one object holds beside the objects that it refers to -----------------------------------


def _elements(_: Memory, value: Any) -> tuple[int, int]:
    return sys.getsizeof(value), 0


def _text(memory: Memory, value: str | bytes) -> tuple[int, int]:
    return (memory.owned(value, len(value)), 0) if len(value) > _SHORT else (0, 0)


def _integer(_: Memory, value: int) -> tuple[int, int]:
    size = value.bit_length() >> 3
    return (size, 0) if size > _SHORT else (0, 0)


def _view(memory: Memory, value: memoryview) -> tuple[int, int]:
    return memory.owned(value.obj, value.nbytes), _HEADER


def _array(memory: Memory, value: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Count the memory behind an array, whichever array or buffer owns it."""
    base = value.base
    while isinstance(base, np.ndarray):
        value, base = base, base.base
    if base is None:
        owner, held, taken = value, value.nbytes, _ARRAY
    elif type(base) is memoryview:
        owner, held, taken = base.obj, base.nbytes, 2 * _ARRAY + _VIEW
    else:
        owner, held, taken = base, value.nbytes, 2 * _ARRAY
    if held <= _SHORT:
        return 0, taken + held
    size = memory.owned(owner, held)
    # Elements that are objects were made elsewhere; pointers to them count as objects do.
    return (0, size + taken) if value.dtype.hasobject else (size, taken + _COUNTED)


def _dtype(_: Memory, value: np.dtype[Any]) -> tuple[int, int]:
    return 0, _ARRAY + _FIELD * len(value.names or ())


def _scalar(memory: Memory, value: np.generic) -> tuple[int, int]:
    if value.nbytes > _SHORT:
        return memory.owned(value, value.nbytes), _ARRAY
    # A record is a view of an array of its own.
    return 0, 3 * _ARRAY if isinstance(value, np.void) else value.__sizeof__() + _HEADER


def _hash_table(_: Memory, value: Any) -> tuple[int, int]:
    return int(value.sizeof()), 0


def _random_bits(_: Memory, value: Any) -> tuple[int, int]:
    return 0, sys.getsizeof(value) + _LOCKED


def _arrow_buffer(memory: Memory, value: Any) -> tuple[int, int]:
    return memory.located(value.address, value.size, value), _ARROW


def _arrow_array(memory: Memory, value: Any) -> tuple[int, int]:
    size, buffers = 0, value.buffers()
    for buffer in buffers:
        if buffer is not None:
            size += memory.located(buffer.address, buffer.size, value)
    if hasattr(value, "dictionary"):
        size += _arrow_array(memory, value.dictionary)[0]
    # Each part of a nested one is an array of its own, of one to three buffers.
    return size, _ARROW * (1 + len(buffers) // 2) + _HEADER * len(buffers)


def _arrow_arrays(memory: Memory, value: Any) -> tuple[int, int]:
    """Count a chunked array, a batch or a table: the arrays that it is made of."""
    size = objects = 0
    for part in value.chunks if hasattr(value, "chunks") else value.columns:
        count = _arrow_arrays if hasattr(part, "chunks") else _arrow_array
        more, held = count(memory, part)
        size, objects = size + more, objects + held
    return size, objects + _ARROW


def _arrow_scalar(memory: Memory, value: Any) -> tuple[int, int]:
    if hasattr(value, "as_buffer") and value.is_valid:
        buffer = value.as_buffer()
        return memory.located(buffer.address, buffer.size, value), _ARROW
    # What holds others holds an array of them; its values were charged before they were taken.
    return 0, 2 * _ARROW


def _function(_: Memory, __: Any) -> tuple[int, int]:
    return 0, _FUNCTION


def _arrow_fields(_: Memory, value: Any) -> tuple[int, int]:
    return 0, _ARROW + _FIELD * len(value)


def _arrow_type(_: Memory, value: Any) -> tuple[int, int]:
    return 0, _ARROW + _FIELD * value.num_fields


#: Of an array, or a buffer that it is over, beside the elements.
_ARRAY = 160
#: A view of a buffer, and the view that it was cast from.
_VIEW = 320
#: Of one field of a record, structure or schema: its name, its type and its place in a table.
_FIELD = 160
#: What an object of Arrow's takes in C++.
_ARROW = 256
#: NumPy's function of elements, with its tables of loops.
_FUNCTION = 1024
#: A lock, a capsule and the sequence that seeded it.
_LOCKED = 1024

#: By name, so that nothing is imported for it.
_COUNTERS: dict[str, _Counter] = {
    "array:array": _elements,
    "builtins:bytearray": _elements,
    "builtins:bytes": _text,
    "builtins:int": _integer,
    "builtins:memoryview": _view,
    "builtins:str": _text,
    "numpy:dtype": _dtype,
    "numpy:generic": _scalar,
    "numpy:ndarray": _array,
    "numpy:ufunc": _function,
    "numpy.random.bit_generator:BitGenerator": _random_bits,
    "pandas._libs.hashtable:HashTable": _hash_table,
    "pyarrow.lib:Array": _arrow_array,
    "pyarrow.lib:Buffer": _arrow_buffer,
    "pyarrow.lib:ChunkedArray": _arrow_arrays,
    "pyarrow.lib:DataType": _arrow_type,
    "pyarrow.lib:KeyValueMetadata": _arrow_fields,
    "pyarrow.lib:Scalar": _arrow_scalar,
    "pyarrow.lib:Schema": _arrow_fields,
    "pyarrow.lib:_Tabular": _arrow_arrays,
}
#: Lead to nothing, or to nothing but what was counted when it was made.
_ENDS = {
    "builtins:slice": 64,
    "pandas._libs.internals:BlockValuesRefs": 320,
    "pandas:Flags": 320,
    "safeser.pickles.shims.pandas.frames:_Blocks": 128,
}
_KINDS = dict.fromkeys(_SHARED, _Kind(None, 0, followed=False))


def _kind(kind: type) -> _Kind:
    """Return how instances of *kind* count: as its nearest known class, else by their layout."""
    if issubclass(kind, type):
        made = _KINDS[type]
    else:
        names = [f"{base.__module__}:{base.__qualname__}" for base in kind.__mro__]
        made = _laid_out(kind, next(filter(None, map(_COUNTERS.get, names)), None))
        if names[0] in _ENDS:
            made = _Kind(None, _ENDS[names[0]], followed=False)
    _KINDS[kind] = made
    return made


def _laid_out(kind: type, count: _Counter | None) -> _Kind:
    compiled = next(base for base in kind.__mro__ if not base.__flags__ & HEAP_TYPE)
    # Asked of the class in C, past what subclasses say of themselves.
    size_of: Any = compiled.__sizeof__
    # What has as many items as it likes, as a tuple, says so by object's own.
    if count is None and (size_of is not object.__sizeof__ or kind.__itemsize__):

        def count(_: Memory, value: Any) -> tuple[int, int]:
            return 0, size_of(value) + _HEADER

    return _Kind(count, kind.__basicsize__ + _HEADER, bool(kind.__flags__ & _FOLLOWED))
