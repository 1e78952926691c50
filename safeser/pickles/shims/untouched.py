"""What approved tasks are given stays as it was: no function of theirs writes into it.

The one rule: nothing is called with an argument that names an array, a frame or a mapping to write
into, and what Dask's own functions set parts of is a copy. Other tasks hold the same objects, those
of other users among them, and other threads compute with them at the same time: ``bincount`` looks
for the largest number first, and counts into memory that is not its own if another one is written
meanwhile.
"""

from __future__ import annotations

import copy
import inspect
import types
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from safeser.errors import PolicyDenied

__all__ = ["INTO", "SETTING", "apart", "untouched", "untouched_by", "untouched_by_method"]

#: Where results go, or what is said not to be needed any more.
INTO = ("out", "inplace", "overwrite_input", "overwrite_a")
#: Where the functions are that set parts of what they are given.
SETTING = ("dask.array.", "dask.dataframe.")
#: Write into their first argument unless they copy it; for others, no copy is a view.
_COPYING = ("numpy:nan_to_num", "numpy.ma.core:fix_invalid", "numpy.ma.core:masked_")
#: NumPy tells nobody what ``dot`` takes, and of the others that they take no ``dtype`` before it.
_UNSAID: Mapping[Any, tuple[tuple[int, str], ...]] = {
    np.dot: ((2, "out"),),
    np.ndarray.all: ((3, "out"),),
    np.ndarray.any: ((3, "out"),),
}
_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    type(np.sum),
)


def untouched(kwargs: Mapping[str, Any]) -> None:
    """Refuse among *kwargs* whatever would be written into.

    :raises PolicyDenied: if there is something.
    """
    if kwargs:
        for name in INTO:
            _check(name, kwargs.get(name))


def untouched_by(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse it among what *function* is called with, by name or by position."""
    untouched(kwargs)
    inputs = getattr(
        function, "nin", None
    )  # of NumPy's functions of elements, and Dask's like them
    if type(inputs) is int:
        for value in args[inputs:]:
            _check("out", value)
    # Others may be hashed by what they hold. What those call is looked at in turn.
    elif isinstance(function, _FUNCTIONS):
        copies = _copies(function)
        for at, name in _places(function):
            if at < len(args) and (copies or name != "copy"):
                _check(name, args[at])
        if copies and "copy" in kwargs:
            _check("copy", kwargs["copy"])


def untouched_by_method(
    value: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Refuse it for an array's method *name*; masked arrays hand theirs on."""
    for kind in (type(value), np.ndarray):
        untouched_by(getattr(kind, name, None), (None, *args), kwargs)


def apart(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return what one of Dask's functions is called with, so that it may set parts of it.

    They give frames another index (dask 2026.8.0, ``merge_chunk``, ``describe_numeric_aggregate``),
    set elements of lists (``setitem``, ``concat_pandas``), and draw from generators.
    """
    return [*map(_own, args)], {name: _own(value) for name, value in kwargs.items()}


def _own(value: Any) -> Any:
    """Return *value*, or one like it with the same elements that is nobody else's."""
    kind = type(value)
    if kind in _SET or isinstance(value, np.random.BitGenerator):
        return copy.copy(value)
    if kind.__module__ == "pandas" and kind.__name__ in ("DataFrame", "Series"):
        return value.copy(deep=False)
    return value


#: Asked for what it does not hold, the last one holds it from then on.
_SET = frozenset((list, dict, defaultdict))


def _check(name: str, value: Any) -> None:
    if name == "copy":
        fine = value is True
    elif type(value) is tuple:
        fine = all(part is None for part in value)
    else:
        fine = value is None or value is False
    if not fine:
        raise PolicyDenied(
            f"the option {name} has a task write into what it is given, which an approved one"
            " may not",
            rule="submission.writing",
            fix=f"Leave {name} out, and take what the function returns.",
        )


@cache
def _places(function: Any) -> tuple[tuple[int, str], ...]:
    """Return which arguments by position are written into, and by which names."""
    unsaid = _UNSAID.get(function, ())
    try:
        found = inspect.signature(inspect.unwrap(function)).parameters.values()
    except ValueError:
        return unsaid
    said = (
        (at, each.name)
        for at, each in enumerate(found)
        if each.name in (*INTO, "copy")
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    )
    return (*said, *unsaid)


@cache
def _copies(function: Any) -> bool:
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    # Of arrays that pandas has beside NumPy's. A column's ``values`` are the column's own.
    filling = name.startswith("pandas.") and name.endswith(".fillna")
    return filling or name.startswith(_COPYING)
