"""What stands in place of functions that approved tasks may call, so that no element is left out.

The one rule: nothing that is returned holds memory that nobody has written. Others have used it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from safeser.errors import PolicyDenied
from safeser.pickles.names import shown
from safeser.pickles.shims.filling import no_gaps_in, without_gaps
from safeser.pickles.shims.untouched import SETTING, apart, untouched_by

__all__ = ["Ufunc", "Whole", "everywhere", "refuse"]


def refuse(what: str, name: object) -> PolicyDenied:
    text = shown(name) if isinstance(name, str) else f"a {type(name).__name__}"
    return PolicyDenied(
        f"{what} {text} is not one that an approved task may ask for",
        rule="submission.method",
        fix="Put the call into a function of your own, which the policy lists by name.",
    )


def everywhere(kwargs: Mapping[str, Any]) -> None:
    """Refuse to compute some elements: the others are memory that others have used."""
    if kwargs.get("where", True) is not True:
        raise refuse("the option", "where")


class Ufunc:
    """Calls one of NumPy's functions of elements, for all of them.

    Stands in place of the function itself, which leaves out whatever ``where`` says.
    """

    __slots__ = ("ufunc",)
    func = property(lambda self: self)  # tells Dask how to name the task

    def __init__(self, ufunc: np.ufunc) -> None:
        self.ufunc = ufunc

    @property
    def __name__(self) -> str:
        return str(self.ufunc.__name__)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        everywhere(kwargs)
        untouched_by(self.ufunc, args, kwargs)
        no_gaps_in((*args, *kwargs.values()))
        made = self.ufunc(*args, **kwargs)
        for part in made if isinstance(made, tuple) else (made,):
            without_gaps(part)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Ufunc, (self.ufunc,)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "safeser-ufunc", self.__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ufunc) and other.ufunc is self.ufunc

    def __hash__(self) -> int:
        return hash(self.ufunc)


class Whole:
    """Calls a listed function, which is given no elements with gaps and makes no array of them.

    Stands in place of the function, which a task may tell any type of elements.
    """

    __slots__ = ("function",)
    func = property(lambda self: self)  # tells Dask how to name the task

    def __init__(self, function: Any) -> None:
        self.function = function

    @property
    def __name__(self) -> str:
        function = self.function
        while isinstance(function, partial):
            function = function.func
        return str(getattr(function, "__name__", type(function).__name__))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        untouched_by(self.function, args, kwargs)
        no_gaps_in((*args, *kwargs.values()))
        module = f"{getattr(self.function, '__module__', '')}."
        if module.startswith(SETTING) or any(type(value) is defaultdict for value in args):
            own, named = apart(args, kwargs)
            made = without_gaps(self.function(*own, **named))
        else:
            made = without_gaps(self.function(*args, **kwargs))
        for part in made if isinstance(made, list | tuple) else ():
            without_gaps(part)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Whole, (self.function,)

    def __dask_tokenize__(self) -> tuple[str, Any]:
        return "safeser-whole", self.function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Whole) and bool(other.function == self.function)

    def __hash__(self) -> int:
        return hash(self.function)
