"""Canonical forms of code: functions, classes, modules, and wrappers of functions.

The one rule: a definition is what decides its results. That is code, constants, defaults, closures,
and those globals that the code names; never file names and line numbers, so that a cell that is run
again, or a function that moved down the file, stays the same definition.
"""

from __future__ import annotations

import dis
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from enum import EnumType
from types import (
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any

from safeser.tokens.encoding import ATOMS, Encoding, digest, pack, text
from safeser.tokens.graph import Form, Undetermined
from safeser.tokens.references import (
    class_name,
    importable,
    is_held,
    library_of,
    module_reference,
    plain_name,
    reference_of,
    space_of,
)

__all__ = ["Encoded", "describe_class", "describe_code", "describe_function", "describe_module"]

_GLOBAL_NAMES = frozenset(
    {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
)
#: Set by the interpreter or by caches, or the same for every class.
_NOT_DEFINED = frozenset(
    {
        "__abstractmethods__",  # follows from the methods
        "__annotate_func__",
        "__annotations_cache__",
        "__dict__",
        "__firstlineno__",
        "__module__",  # part of the name
        "__slotnames__",  # copyreg's cache
        "__static_attributes__",  # in the order of a set
        "__weakref__",
        "_abc_impl",
    }
)  # fmt: skip
_EMPTY_CELL = b"\x0b"


@dataclass(eq=False, slots=True)
class Encoded:
    """An encoding that takes the place of an object."""

    encoding: Encoding


@dataclass(frozen=True, slots=True)
class _Code:
    """What is known of one code object; it never changes."""

    alive: weakref.ref[CodeType]
    encoding: Encoding
    names: frozenset[str]
    attributes: frozenset[str]


_codes: dict[int, _Code] = {}


def _code(code: CodeType) -> _Code:
    known = _codes.get(id(code))
    if known is not None and known.alive() is code:
        return known
    inner = [_code(each) for each in code.co_consts if type(each) is CodeType]
    key = id(code)
    known = _Code(
        weakref.ref(code, lambda _: _codes.pop(key, None)),
        _encode_code(code),
        frozenset(_global_names(code)).union(*(each.names for each in inner)),
        frozenset(map(text, code.co_names)).union(*(each.attributes for each in inner)),
    )
    _codes[key] = known
    return known


def _encode_code(code: CodeType) -> Encoding:
    return digest(
        (
            (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
            code.co_code,
            tuple(map(text, code.co_names)),
            tuple(map(text, code.co_varnames)),
            tuple(map(text, code.co_freevars)),
            tuple(map(text, code.co_cellvars)),
            text(code.co_name),
            text(code.co_qualname),
            code.co_exceptiontable,
            [_constant(each) for each in code.co_consts],
        )
    )


def _constant(value: Any) -> Encoding:
    """Encode what the compiler keeps as a constant; its nesting is that of the source."""
    kind = type(value)
    if kind is CodeType:
        return _code(value).encoding
    if kind is tuple:
        return digest((b"tuple", [_constant(each) for each in value]))
    if kind is frozenset:
        return digest((b"frozenset", sorted(_constant(each) for each in value)))
    if kind is slice:
        parts = (value.start, value.stop, value.step)
        return digest((b"slice", [_constant(each) for each in parts]))
    if id(kind) not in ATOMS and kind is not bytes:
        raise ValueError
    return pack(value)


def _global_names(code: CodeType) -> Iterator[str]:
    for each in dis.get_instructions(code):
        if each.opname in _GLOBAL_NAMES:
            yield text(each.argval)


def _known(code: CodeType) -> _Code:
    try:
        return _code(code)
    except (ValueError, RecursionError) as error:  # made by hand: no compiler makes such constants
        raise Undetermined("has constants that no compiler makes") from error


def describe_code(code: CodeType) -> Form:
    return Form(b"code" + _known(code).encoding)


class ModuleUse:
    """A module of one's own, and those of its names that some code uses.

    :param uses: the other modules that the same code uses, by identity; modules import each other.
    """

    __slots__ = ("module", "names", "uses")

    def __init__(
        self, module: ModuleType, names: frozenset[str], uses: dict[int, ModuleUse]
    ) -> None:
        self.module = module
        self.names = names
        self.uses = uses
        uses[id(module)] = self

    def part(self, value: Any) -> Any:
        """Return *value*, or what the same code uses of it if it is a module of one's own."""
        return _used(value, self.names, self.uses)


def describe_function(function: FunctionType) -> Form:
    """Return the form of a function that no installed library holds under its name."""
    code = _known(function.__code__)
    values: list[Any] = [
        (function.__module__, function.__name__, function.__qualname__, function.__doc__),
        function.__defaults__,
        function.__kwdefaults__,
        function.__annotations__,
        vars(function),
    ]
    steps = ["name", "defaults", "keyword defaults", "annotations", "attributes"]
    uses: dict[int, ModuleUse] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        values.append(_content(cell, code.attributes, uses))
        steps.append(f"closure variable {name!r}")
    own = len(values)
    space = function.__globals__
    names = used = sorted(name for name in code.names if name in space)
    library = library_of(space)
    if library is not None:
        # What a library holds follows from its version, but for its caches. A function that
        # cloudpickle rebuilt has a namespace of its own, with some of the same objects.
        used = [name for name in names if not library.holds(name, space[name])]
    version = library and (library.version, library.name)
    values += [_used(space[name], code.attributes, uses) for name in used]
    steps += [f"global {name!r}" for name in used]
    label = b"function" + pack((code.encoding, own, version, tuple(names), tuple(used)))
    if is_held(function, function.__module__, function.__qualname__):
        own = 0
    return Form(label, values, steps=steps, own=own if importable(space) else None)


def _content(cell: CellType, names: frozenset[str], uses: dict[int, ModuleUse]) -> Any:
    try:
        content = cell.cell_contents
    except ValueError:
        return Encoded(_EMPTY_CELL)
    return _used(content, names, uses)


def _used(value: Any, names: frozenset[str], uses: dict[int, ModuleUse]) -> Any:
    """Return *value*, or of a module of one's own what some code can name of it."""
    if type(value) is ModuleType and module_reference(value) is None:
        return uses.get(id(value)) or ModuleUse(value, names, uses)
    return value


def describe_module_use(use: ModuleUse) -> Form:
    space = space_of(use.module)
    names = sorted(name for name in use.names if name in space and name[:2] != "__")
    values = [use.part(space[name]) for name in names]
    name = space.get("__name__")
    label = b"module" + pack((name if type(name) is str else None, tuple(names)))
    own = 0 if importable(space) else None
    return Form(label, values, steps=[f"name {each!r}" for each in names], own=own)


def describe_module(module: ModuleType) -> Form:
    """Return the form of a module: by name and version, or by all that it holds."""
    encoding = module_reference(module)
    if encoding is not None:
        return Form(b"module" + encoding)
    return describe_module_use(ModuleUse(module, frozenset(map(text, space_of(module))), {}))


def describe_class(cls: type) -> Form:
    """Return the form of a class: by name and version, or by all that its statement defines."""
    encoding = reference_of(cls)
    if encoding is not None:
        return Form(b"class" + encoding)
    space = dict(type.__dict__["__dict__"].__get__(cls))
    if issubclass(type(cls), EnumType):
        space = _without_members(cls, space)
    if "__dataclass_fields__" in space and _is_generated(space.get("__doc__"), cls):
        del space["__doc__"]
    inherited = _inherited(cls)
    names = sorted(
        name
        for name, value in space.items()
        if name not in _NOT_DEFINED
        and (name != "__annotations__" or value)  # asking for them makes an empty dictionary
        and not (type(value) is MemberDescriptorType and value.__objclass__ is cls)
        and not (type(value) is GetSetDescriptorType and value.__objclass__ is cls)
        and (name not in inherited or inherited[name] is not value)
    )
    bases = space.get("__orig_bases__", type.__dict__["__bases__"].__get__(cls))
    # cloudpickle keeps the name of a class without the function that it was defined in.
    values: list[Any] = [(class_name(cls)[0], plain_name(cls)), type(cls), bases]
    values += [_defined(name, space[name]) for name in names]
    steps = ["name", "metaclass", "bases", *(f"attribute {name!r}" for name in names)]
    label = b"class" + pack(tuple(map(text, names)))
    return Form(label, values, steps=steps, own=3 if is_held(cls, *class_name(cls)) else None)


def _inherited(cls: type) -> dict[str, Any]:
    """Return what the bases define themselves: the same again is no definition (cloudpickle)."""
    made: dict[str, Any] = {}
    for base in reversed(type.__dict__["__bases__"].__get__(cls)):
        made.update(type.__dict__["__dict__"].__get__(base))
    return made


def _is_generated(doc: Any, cls: type) -> bool:
    """Say whether a dataclass wrote its own description, by ``repr`` of its defaults.

    That of a set is in another order in each process, and that of a function has an address in it.
    """
    return type(doc) is str and doc.startswith(f"{cls.__name__}(")


def _defined(name: str, value: Any) -> Any:
    if name == "__dataclass_fields__" and type(value) is dict:
        return list(value.items())  # their order is that of the arguments
    return value


def _without_members(cls: Any, space: dict[str, Any]) -> dict[str, Any]:
    """Return an enum's dictionary with its members by name and value, in their order.

    The rest of what EnumType adds follows from them. A copy by cloudpickle has aliases as plain
    attributes, so that these are taken from where they are.
    """
    mapping = space.get("_member_map_", {})
    members = [(name, each._value_) for name, each in mapping.items() if each._name_ == name]
    aliases = {name: each._name_ for name, each in mapping.items() if each._name_ != name}
    rest: dict[str, Any] = {}
    for name, value in space.items():
        if type(value) is cls:
            if value._name_ != name:
                aliases[name] = value._name_
        elif name not in mapping and not _is_machinery(name, value):
            rest[name] = value
    return {**rest, "_members_": members, "_aliases_": aliases}


def _is_machinery(name: str, value: Any) -> bool:
    if name in ("__new__", "__new_member__"):  # the second is the class's own __new__, if any
        return name == "__new__" or type(value) is not FunctionType
    return name[:1] == "_" and name[-1:] == "_" and name[:2] != "__" and name != "_missing_"
