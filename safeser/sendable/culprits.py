"""Find each part of an object that keeps it from being pickled, and the way that leads there.

The one rule: a culprit is an object that cannot be written although each of its parts can. All of
them are found, each once, however deep they are.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from safeser import pickles
from safeser.errors import SafeserError
from safeser.sendable.advice import advice, defined, is_too_deep, stays
from safeser.sendable.parts import Part, parts

__all__ = ["Culprit", "culprits", "culprits_among", "named_object"]

#: Objects that one search looks at, and culprits that it returns.
_MOST_OBJECTS = 20_000
_MOST_FOUND = 20

#: Steps at either end of a path that its line shows.
_STEPS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Culprit:
    """One object that cannot be sent.

    :param path: the steps to it, as ``"closure variable 'session'"``; none if it is the object.
    :param name: its class, ``module:qualname``; of a function or class its own name.
    :param defined: where it, or its class, was written, as ``"notebook cell 7"``; may be empty.
    :param reason: why it cannot be sent.
    :param fix: what to do.
    """

    path: tuple[str, ...]
    name: str
    defined: str
    reason: str
    fix: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason} {self.fix}".rstrip()

    @property
    def place(self) -> str:
        """The path and what is there, as one line; of a long path both ends."""
        steps = self.path
        if len(steps) > 2 * _STEPS_SHOWN:
            left = len(steps) - 2 * _STEPS_SHOWN
            steps = (*steps[:_STEPS_SHOWN], f"{left} more steps", *steps[-_STEPS_SHOWN:])
        written = f" ({self.defined})" if self.defined else ""
        return f"{' -> '.join((*steps, self.name))}{written}"


def culprits(x: Any) -> tuple[Culprit, ...]:
    """Return what keeps *x* from being pickled with its code; nothing if it can be.

    Its reducers run, as often as the search needs. Objects that a part shares with one that was
    looked at are not looked at again.
    """
    return culprits_among([("", x)])


def culprits_among(roots: Iterable[Part]) -> tuple[Culprit, ...]:
    """Return the same for several objects, as the tasks of a graph.

    :param roots: each with the first step of its path, or an empty one.
    """
    search = _Search()
    found = (each for word, x in roots for each in search.within(x, (word,) if word else ()))
    return tuple(islice(found, _MOST_FOUND))


@dataclass(slots=True)
class _Visit:
    """An object that cannot be written, while its parts are looked at.

    :param explained: whether a part that cannot be written either was found.
    """

    x: Any
    path: tuple[str, ...]
    left: Iterator[Part]
    error: BaseException
    explained: bool = False


def _visit(x: Any, path: tuple[str, ...], error: BaseException) -> _Visit:
    whole = stays(x) is not None or is_too_deep(error)
    return _Visit(x, path, iter(()) if whole else parts(x), error)


class _Search:
    """One search, depth first; without recursion, since chains of objects may be long."""

    def __init__(self) -> None:
        #: Every object that was looked at, and whether it can be written. The objects are kept, so
        #: that no other takes their addresses.
        self._seen: dict[int, tuple[Any, bool]] = {}

    def within(self, x: Any, path: tuple[str, ...]) -> Iterator[Culprit]:
        error = None if id(x) in self._seen else _error_of(x)
        if error is None:
            return
        self._seen[id(x)] = x, False
        stack = [_visit(x, path, error)]
        while stack:
            visit = stack[-1]
            deeper = self._deeper(visit)
            if deeper is not None:
                stack.append(deeper)
                continue
            stack.pop()
            if not visit.explained:
                reason, fix = advice(visit.x, visit.error)
                yield Culprit(visit.path, named_object(visit.x), defined(visit.x), reason, fix)

    def _deeper(self, visit: _Visit) -> _Visit | None:
        """Return the visit of the next part that cannot be written and was not looked at."""
        for word, part in visit.left:
            known = self._seen.get(id(part))
            if known is not None:
                visit.explained |= not known[1]
                continue
            if len(self._seen) >= _MOST_OBJECTS:
                return None
            error = _error_of(part)
            self._seen[id(part)] = part, error is None
            if error is not None:
                visit.explained = True
                return _visit(part, (*visit.path, word), error)
        return None


def _error_of(x: Any) -> BaseException | None:
    """Return what pickling *x* raises, or None."""
    try:
        pickles.dumps(x, code=True)
    except SafeserError as error:
        return error.__cause__ or error
    except RecursionError as error:
        return error
    return None


def named_object(x: Any) -> str:
    """Return ``module:qualname`` of a function, method or class, or of another object's class."""
    # A method may be bound to any callable, which need not have a name.
    of = x.__func__ if issubclass(type(x), types.MethodType) else x
    kind = of if issubclass(type(of), type | types.FunctionType) else type(x)
    return f"{kind.__module__}:{kind.__qualname__}"
