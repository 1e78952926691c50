"""Say what an object is made of: one function for each kind, and pickle's protocol for the rest.

The one rule: nothing of an object runs that pickling it would not run, but ``__dask_tokenize__``,
which a class defines for this purpose. Kinds go by the exact type; what a class says of itself by
``__class__``, ``__eq__`` or ``__hash__`` is not asked.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import importlib
import os
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pickle import PickleBuffer
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, TypeVar, cast

from safeser.tokens.definitions import (
    Encoded,
    ModuleUse,
    describe_class,
    describe_code,
    describe_function,
    describe_module,
    describe_module_use,
)
from safeser.tokens.encoding import digest_buffer, pack, text
from safeser.tokens.graph import Form, Group, Undetermined
from safeser.tokens.reduction import Unordered, describe_reduced
from safeser.tokens.references import installed, reference, reference_of

Describe = Callable[[Any], Form]

#: By the id of an exact type, and of a type whose subclasses count as well.
_KINDS: dict[int, Describe] = {}
_FAMILIES: dict[int, Describe] = {}
#: The types themselves: an id is one as long as its object lives.
_alive: list[type] = []

#: Libraries whose types have kinds of their own, and which module knows them.
_LIBRARIES = {
    "numpy": "arrays",
    "numpy.ma": "masked",
    "scipy.sparse": "sparse",
    "pandas": "frames",
    "pyarrow": "arrow",
}

_mro_of = type.__dict__["__mro__"].__get__
_dict_of = type.__dict__["__dict__"].__get__


def register(kind: Describe, *types: type, subclasses: bool = False) -> None:
    """Use *kind* for objects of exactly these *types*, or for those of their subclasses, too."""
    for each in types:
        _alive.append(each)
        _KINDS[id(each)] = kind
        if subclasses:
            _FAMILIES[id(each)] = kind


def use_loaded_libraries() -> None:
    """Register kinds of libraries that this process has imported; none is imported for it."""
    for name in [each for each in _LIBRARIES if each in sys.modules]:
        spec = vars(sys.modules[name]).get("__spec__")
        if not getattr(spec, "_initializing", False):  # another thread is importing it
            importlib.import_module(f"safeser.tokens.{_LIBRARIES[name]}")
            _LIBRARIES.pop(name, None)


def describe(value: Any) -> Form:
    """Return what *value* is made of, or raise Undetermined."""
    kind = _KINDS.get(id(type(value)))
    return describe_other(value) if kind is None else kind(value)


def is_known(cls: type) -> bool:
    """Tell whether objects of exactly *cls* have a kind of their own."""
    return id(cls) in _KINDS


def kind_of(cls: type) -> Describe | None:
    """Return what describes objects of exactly *cls*, if they have a kind of their own."""
    return _KINDS.get(id(cls))


def describe_other(value: Any, reduced: Any = None) -> Form:
    """Return what *value*, of a type that has no kind of its own, is made of.

    :param reduced: what its reducer returned, where that is known.
    """
    cls = type(value)
    mro = _mro_of(cls)
    if type in mro:
        return describe_class(value)
    family: Describe = describe_reduced
    for base in mro:
        if "__dask_tokenize__" in _dict_of(base):
            own = type(value).__dask_tokenize__(value)
            if _names_address(own, value):
                raise Undetermined("has a __dask_tokenize__ that contains its address in memory")
            return Form(b"dask", [type(value), own], steps=("class", "__dask_tokenize__()"))
        if family is describe_reduced:
            family = _FAMILIES.get(id(base), describe_reduced)
    return describe_reduced(value, reduced) if family is describe_reduced else family(value)


def describe_as(label: bytes, *names: str) -> Describe:
    """Return the kind of objects that a few attributes make up."""

    def kind(value: Any) -> Form:
        return Form(label, [getattr(value, name) for name in names], steps=names)

    return kind


def _names_address(own: Any, value: Any) -> bool:
    if type(own) in (list, tuple):
        return any(type(each) in (str, int) and _names_address(each, value) for each in own)
    if type(own) is str:
        return hex(id(value))[2:] in own
    return type(own) is int and own == id(value)


def describe_dict_in_order(value: dict[Any, Any]) -> Form:
    """Return the form of a dictionary whose order counts."""
    return Form(b"dict", [each for item in value.copy().items() for each in item])


def _describe_ordered(value: OrderedDict[Any, Any]) -> Form:
    # The attributes of an instance are part of its pickle.
    items = [each for item in list(value.items()) for each in item]
    return Form(b"OrderedDict", [vars(value), *items])


def _describe_memoryview(value: memoryview) -> Form:
    try:
        data = value if value.c_contiguous and value.ndim == 1 else value.tobytes()
    except ValueError as error:
        raise Undetermined("is released") from error
    return Form(b"memoryview" + digest_buffer(data) + pack((value.format, value.shape)))


def _describe_buffer(value: PickleBuffer) -> Form:
    try:
        return Form(b"buffer" + digest_buffer(value.raw()))
    except BufferError:
        return Form(b"buffer" + digest_buffer(memoryview(value).tobytes()))


def _describe_object(value: object) -> Form:
    raise Undetermined("has nothing but its identity")


def _describe_named(value: FunctionType) -> Form:
    encoding = reference_of(value)
    return describe_function(value) if encoding is None else Form(b"function" + encoding)


def _describe_builtin(value: Any) -> Form:
    """A function of C, or one bound to an object."""
    owner = value.__self__
    if owner is None or type(owner) is ModuleType:
        module = value.__module__ or getattr(owner, "__name__", None)
        encoding = reference(value, module, value.__qualname__)
        if encoding is not None:
            return Form(b"builtin" + encoding)
        # C code that is hidden in its module, or under the name of another: all there is is a name.
        return Form(b"builtin", [installed(module), module, value.__qualname__])
    return Form(b"builtin method" + pack(value.__name__), [owner], steps=("__self__",))


def _describe_descriptor(value: Any) -> Form:
    label = b"descriptor " + type(value).__name__.encode()
    return Form(label + pack(text(value.__name__)), [value.__objclass__], steps=("__objclass__",))


def _describe_partial(value: functools.partial[Any]) -> Form:
    steps = ("func", "args", "keywords", "attributes")
    return Form(b"partial", [value.func, value.args, value.keywords, vars(value)], steps=steps)


def _describe_lru_cache(value: Any) -> Form:
    """A cached function: what is cached does not count, and workers never receive it."""
    names = [vars(value).get(name) for name in ("__module__", "__qualname__")]
    encoding = reference(value, *names)
    if encoding is not None:
        return Form(b"lru_cache" + encoding)
    return Form(b"lru_cache", [vars(value)], steps=("attributes",))


def _describe_cell(value: CellType) -> Form:
    try:
        return Form(b"cell", [value.cell_contents], steps=("contents",))
    except ValueError:
        return Form(b"empty cell")


def _describe_set_iterator(value: Any) -> Form:
    raise Undetermined("iterates over a set, in an order of this process")


register(lambda value: Form(b"list", value[:]), list)
register(lambda value: Form(b"tuple", value), tuple)
register(lambda value: Form(b"set", list(value), Group.MEMBERS), set)
register(lambda value: Form(b"frozenset", list(value), Group.MEMBERS), frozenset)
register(lambda value: describe_dict_in_order(value)._replace(group=Group.PAIRS), dict)
register(_describe_ordered, OrderedDict)
register(
    lambda value: Form(b"view " + type(value).__name__.encode(), list(value), Group.MEMBERS),
    *(type({}.keys()), type({}.items())),
    *(type(OrderedDict().keys()), type(OrderedDict().items())),
)
register(
    lambda value: Form(b"view values", list(value)),
    *(type({}.values()), type(OrderedDict().values())),
)
register(lambda value: Form(b"bytearray" + digest_buffer(value)), bytearray)
register(_describe_memoryview, memoryview)
register(_describe_buffer, PickleBuffer)
register(_describe_object, object)
register(describe_as(b"slice", "start", "stop", "step"), slice)
register(describe_as(b"range", "start", "stop", "step"), range)
register(describe_as(b"NotImplemented"), type(NotImplemented))
register(lambda value: Form(b"unordered", value.values, value.group), Unordered)
register(
    lambda value: Form(b"WeakSet", [type(value), Unordered(list(value), Group.MEMBERS)]),
    weakref.WeakSet,
)
register(_describe_set_iterator, type(iter(set())))
register(lambda value: Form(b"mappingproxy", [dict(value)]), MappingProxyType)
register(
    # It is a process's own, and differs between all of them.
    lambda value: Form(b"environ") if value is os.environ else describe_reduced(value),
    type(os.environ),
)

register(_describe_named, FunctionType)
register(describe_code, CodeType)
register(describe_module, ModuleType, subclasses=True)
register(describe_module_use, ModuleUse)
register(describe_class, type, abc.ABCMeta)
register(_describe_builtin, BuiltinFunctionType)
register(describe_as(b"method wrapper", "__self__", "__name__"), MethodWrapperType)
register(
    _describe_descriptor,
    *(WrapperDescriptorType, MethodDescriptorType, ClassMethodDescriptorType),
    *(GetSetDescriptorType, MemberDescriptorType),
)
register(describe_as(b"method", "__func__", "__self__"), MethodType)
register(_describe_partial, functools.partial)
register(_describe_lru_cache, type(functools.lru_cache(len)))
register(describe_as(b"cached_property", "func", "attrname"), functools.cached_property)
register(describe_as(b"staticmethod", "__func__"), staticmethod)
register(describe_as(b"classmethod", "__func__"), classmethod)
register(describe_as(b"property", "fget", "fset", "fdel", "__doc__"), property)
register(_describe_cell, CellType)
register(lambda value: Form(b"encoded" + value.encoding), Encoded)
_names = ("__name__", "__bound__", "__constraints__", "__covariant__", "__contravariant__")
register(describe_as(b"TypeVar", *_names), TypeVar)
register(
    lambda value: Form(b"dataclass field " + pack(value.name)),
    type(cast(Any, dataclasses)._FIELD),
)
