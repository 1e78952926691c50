"""The parts of one object that its pickle is made of, each with the words that lead to it.

The one rule: parts are those that cloudpickle writes. What it writes by name, as functions of
imported modules, has none.
"""

from __future__ import annotations

import copyreg
import dataclasses
import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from safeser.gate.refusals import shortened
from safeser.sendable.advice import defined

__all__ = ["Part", "graph_of", "its_function", "named", "parts", "tasks_of"]

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

    What its own code raises is not raised here: such an object is to blame itself.
    """
    try:
        yield from _split_of(x)(x)
    except Exception:  # a reducer, or an attribute that a class defines anew, may raise anything
        return


def _split_of(x: Any) -> Callable[[Any], Iterator[Part]]:
    exact = _EXACT.get(type(x))
    if exact is not None:
        return exact
    for kind, split in _BY_KIND:
        if issubclass(type(x), kind):
            return split
    for base in type(x).__mro__:
        named_split = _BY_NAME.get(f"{base.__module__}:{base.__qualname__}")
        if named_split is not None:
            return named_split
    # Asked of the class: an object may answer any name.
    return _collection if hasattr(type(x), "__dask_graph__") else _reduced


def named(key: Any, *, quoted: bool = True) -> str:
    """Return *key* as one short word of a path."""
    if isinstance(key, str) and not quoted:
        text = key
    elif isinstance(key, str | bytes | int | float | tuple | None):
        text = _spelled(key)
    else:
        text = f"a {type(key).__qualname__}"
    text = shortened(text, _LONGEST)
    return "".join(char if char.isprintable() else "?" for char in text)


def _spelled(key: Any) -> str:
    try:
        return repr(key)
    except Exception:  # an integer of many digits, or what a tuple holds
        return f"a {type(key).__qualname__}"


def its_function(function: Any) -> str:
    """Return the words for the function of a task; of one of a program or notebook with its place.

    Its key tells a function of a module; all lambdas of a program are called the same.
    """
    own = isinstance(function, types.FunctionType) and function.__module__ == "__main__"
    place = defined(function) if own else ""
    return f"its function ({place})" if place else "its function"


def _mapping(x: Mapping[Any, Any]) -> Iterator[Part]:
    for key, value in list(islice(x.items(), _MOST)):
        yield f"key {named(key)}", key
        yield f"[{named(key)}]", value


def _sequence(x: Any) -> Iterator[Part]:
    for at, value in enumerate(list(islice(x, _MOST))):
        yield f"[{at}]", value


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
    reducer = copyreg.dispatch_table.get(type(x))
    made = reducer(x) if reducer is not None else x.__reduce_ex__(_PROTOCOL)
    if not isinstance(made, tuple):  # the name of a global
        return
    function, args, state, items, pairs = (*made, None, None, None)[:5]
    own = (copyreg.__newobj__, copyreg.__newobj_ex__, copyreg._reconstructor)  # type: ignore[attr-defined]  # not in typeshed
    if function not in own:
        yield "its constructor", function
    names = _fields(x) if function is copyreg.__newobj__ else ()  # type: ignore[attr-defined]  # as above
    for at, value in enumerate(args or ()):
        if value is not type(x):
            yield names[at - 1] if 0 < at <= len(names) else f"constructor argument {at}", value
        elif type(x).__module__ == "__main__" or "<locals>" in type(x).__qualname__:
            yield "its class", value
    if type(state) is list and dataclasses.is_dataclass(x):  # one that has slots and is frozen
        names = [f"attribute '{each.name}'" for each in dataclasses.fields(x)]
        if len(names) == len(state):
            yield from zip(names, state, strict=True)
            return
    yield from _state(state)
    for at, value in enumerate(items or ()):
        yield f"[{at}]", value
    for key, value in pairs or ():
        yield f"[{named(key)}]", value


def _fields(x: Any) -> list[str]:
    """Return the words for the elements of a named tuple; none of another object."""
    fields = getattr(type(x), "_fields", ()) if issubclass(type(x), tuple) else ()
    if not isinstance(fields, tuple):
        return []
    return [f"attribute '{named(name, quoted=False)}'" for name in fields]


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


def _collection(x: Any) -> Iterator[Part]:
    yield from tasks_of(graph_of(x) or {})
    yield from _reduced(x)


def graph_of(x: Any) -> dict[Any, Any] | None:
    """Return the graph of the collection *x*; None if it is none, or its graph cannot be made."""
    made = getattr(x, "__dask_graph__", None)
    if made is None or issubclass(type(x), type):
        return None
    try:
        graph = made()
        return None if graph is None else dict(graph)
    except Exception:  # the collection's own code may raise anything
        return None


def tasks_of(graph: Mapping[Any, Any]) -> Iterator[Part]:
    """Yield the tasks of *graph*."""
    for key, node in graph.items():
        yield f"task {named(key)}", node


def _task(task: Any) -> Iterator[Part]:
    yield its_function(task.func), task.func
    for at, value in enumerate(task.args):
        yield f"argument {at}", value
    for name, value in task.kwargs.items():
        yield f"argument '{name}'", value


def _array(x: Any) -> Iterator[Part]:
    """Yield the elements of an array of objects by their index."""
    if x.dtype.kind != "O":
        yield from _reduced(x)
        return
    shape = x.shape
    for at, value in enumerate(islice(x.flat, _MOST)):
        yield f"[{', '.join(map(str, _index(at, shape)))}]", value


def _index(at: int, shape: tuple[int, ...]) -> list[int]:
    """Return the index of the element at place *at* of an array, in the order of C."""
    index = []
    for length in reversed(shape):
        at, position = divmod(at, length)
        index.append(position)
    return index[::-1]


def _frame(x: Any) -> Iterator[Part]:
    """Yield the columns of objects by their names, and then what else the frame holds."""
    for at, (name, dtype) in enumerate(zip(x.columns[:_MOST], x.dtypes, strict=False)):
        if dtype.kind == "O":
            yield f"column {named(name)}", x.iloc[:, at].to_numpy()
    yield from _reduced(x)


def _series(x: Any) -> Iterator[Part]:
    if x.dtype.kind == "O":
        yield from _array(x.to_numpy())
    yield from _reduced(x)


_BY_KIND: tuple[tuple[Any, Callable[[Any], Iterator[Part]]], ...] = (
    (types.FunctionType, _function),
    (
        types.MethodType,
        lambda x: iter([("its instance", x.__self__), ("its function", x.__func__)]),
    ),
    (staticmethod | classmethod, lambda x: iter([("its function", x.__func__)])),
    (functools.partial, _partial),
    (property, _property),
    (type, _class),
    (types.ModuleType, lambda _: iter(())),
)

#: Parts of objects of libraries, which are not imported for it.
_BY_NAME: dict[str, Callable[[Any], Iterator[Part]]] = {
    "numpy:ndarray": _array,
    **dict.fromkeys(("pandas:DataFrame", "pandas.core.frame:DataFrame"), _frame),
    **dict.fromkeys(("pandas:Series", "pandas.core.series:Series"), _series),
    "dask._task_spec:DataNode": lambda node: iter([("its value", node.value)]),
    "dask._task_spec:NestedContainer": lambda node: _sequence(node.args),
    "dask._task_spec:Task": _task,
    "dask.highlevelgraph:HighLevelGraph": lambda graph: tasks_of(dict(graph)),
}

_EXACT: dict[type, Callable[[Any], Iterator[Part]]] = {
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
    **dict.fromkeys(
        (set, frozenset), lambda x: (("an element", value) for value in list(islice(x, _MOST)))
    ),
    types.MappingProxyType: _mapping,
    types.CellType: lambda cell: iter([("its content", cell.cell_contents)]),
    **dict.fromkeys((type({}.keys()), type({}.values()), type({}.items())), _sequence),
}
