"""The parts of one object that its pickle is made of, each with the words that lead to it.

The one rule: parts are those that cloudpickle writes. What it writes by name, as functions of
imported modules, has none.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Part", "named", "parts", "split_by"]

#: One step of a path, and the object there.
Part = tuple[str, Any]

#: Parts of one object: of a longer collection the first ones.
_MOST = 100_000

#: Characters of a key that a path shows.
_LONGEST = 40

_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_PROTOCOL = 5


def parts(x: Any) -> Iterator[Part]:
    """Yield the parts of *x*.

    What its own reducer raises is not raised here: such an object is to blame itself.
    """
    split = _EXACT.get(type(x))
    if split is None:
        split = next((split for kind, split in _BY_KIND if isinstance(x, kind)), _reduced)
    yield from split(x)


def named(key: Any, *, quoted: bool = True) -> str:
    """Return *key* as one short word of a path."""
    if isinstance(key, str) and not quoted:
        text = key
    elif isinstance(key, str | bytes | int | float | tuple | None):
        text = repr(key)
    else:
        text = f"a {type(key).__qualname__}"
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return "".join(char if char.isprintable() else "?" for char in text)


def _mapping(x: dict[Any, Any]) -> Iterator[Part]:
    for key, value in list(x.items())[:_MOST]:
        yield f"key {named(key)}", key
        yield f"[{named(key)}]", value


def _sequence(x: Any) -> Iterator[Part]:
    for at, value in enumerate(list(x)[:_MOST]):
        yield f"[{at}]", value


def _set(x: Any) -> Iterator[Part]:
    for value in list(x)[:_MOST]:
        yield "an element", value


def _function(x: types.FunctionType) -> Iterator[Part]:
    names = inspect.signature(x, follow_wrapped=False).parameters
    for name, cell in zip(x.__code__.co_freevars, x.__closure__ or (), strict=True):
        try:
            yield f"closure variable '{name}'", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in sorted(_globals_of(x.__code__)):
        if name in x.__globals__:
            yield f"global '{name}'", x.__globals__[name]
    positional = [each for each in names.values() if each.kind < inspect.Parameter.VAR_POSITIONAL]
    defaults = x.__defaults__ or ()
    for parameter, value in zip(
        positional[len(positional) - len(defaults) :], defaults, strict=True
    ):
        yield f"default of parameter '{parameter.name}'", value
    for name, value in (x.__kwdefaults__ or {}).items():
        yield f"default of parameter '{name}'", value
    for name, value in x.__annotations__.items():
        yield f"annotation of '{name}'", value
    for name, value in x.__dict__.items():
        yield f"attribute '{name}'", value


def _globals_of(code: types.CodeType) -> set[str]:
    """Return the globals that *code* and the functions in it name."""
    found = {str(each.argval) for each in dis.get_instructions(code) if each.opname in _GLOBALS}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _globals_of(constant)
    return found


def _method(x: types.MethodType) -> Iterator[Part]:
    yield "its instance", x.__self__
    yield "its function", x.__func__


def _wrapped(x: Any) -> Iterator[Part]:
    yield "its function", x.__func__


def _partial(x: functools.partial[Any]) -> Iterator[Part]:
    yield "its function", x.func
    for at, value in enumerate(x.args):
        yield f"argument {at}", value
    for name, value in x.keywords.items():
        yield f"argument '{name}'", value


def _class(x: type) -> Iterator[Part]:
    for base in x.__bases__:
        yield f"base '{base.__qualname__}'", base
    for name, value in list(vars(x).items()):
        if name not in ("__dict__", "__weakref__", "_abc_impl"):
            yield f"class attribute '{name}'", value


def _property(x: property) -> Iterator[Part]:
    for name in ("fget", "fset", "fdel"):
        if getattr(x, name) is not None:
            yield f"its {name}", getattr(x, name)


def _reduced(x: Any) -> Iterator[Part]:
    """Yield what the reducer of *x* hands to pickle."""
    try:
        reducer = copyreg.dispatch_table.get(type(x))
        made = reducer(x) if reducer is not None else x.__reduce_ex__(_PROTOCOL)
    except Exception:  # the object's own code may raise anything; then it is to blame itself
        return
    if not isinstance(made, tuple):  # the name of a global
        return
    function, args, state, items, pairs = (*made, None, None, None)[:5]
    own = (copyreg.__newobj__, copyreg.__newobj_ex__, copyreg._reconstructor)  # type: ignore[attr-defined]  # not in typeshed
    if function not in own:
        yield "its constructor", function
    for at, value in enumerate(args or ()):
        if value is not type(x):
            yield f"constructor argument {at}", value
        elif type(x).__module__ == "__main__" or "<locals>" in type(x).__qualname__:
            yield "its class", value
    yield from _state(state)
    for at, value in enumerate(items or ()):
        yield f"[{at}]", value
    for key, value in pairs or ():
        yield f"[{named(key)}]", value


def _state(state: Any) -> Iterator[Part]:
    if isinstance(state, tuple) and len(state) == 2 and all(type(s) in _DICTS for s in state):
        for half in state:
            yield from _state(half)
    elif isinstance(state, dict):
        for name, value in state.items():
            yield f"attribute '{named(name, quoted=False)}'", value
    elif state is not None:
        yield "its state", state


_DICTS = (dict, type(None))


def split_by(kind: type, split: Callable[[Any], Iterator[Part]]) -> None:
    """Have instances of *kind* taken apart by *split*, rather than by their reducer."""
    _BY_KIND.append((kind, split))


_BY_KIND: list[tuple[Any, Callable[[Any], Iterator[Part]]]] = [
    (types.FunctionType, _function),
    (types.MethodType, _method),
    (staticmethod | classmethod, _wrapped),
    (functools.partial, _partial),
    (property, _property),
    (type, _class),
    (types.ModuleType, lambda _: iter(())),
]

_EXACT: dict[type, Callable[[Any], Iterator[Part]]] = {
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
    set: _set,
    frozenset: _set,
}
