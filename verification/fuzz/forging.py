"""Pickles of real objects with other parts at chosen places of what they are made of.

The one rule: an object is reduced as pickle reduces it, and only the arguments, state, items or
pairs of a reduction change; so a forged pickle reaches the code behind each entry.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from verification.fuzz.mutations import mutated

__all__ = ["changed", "forged"]

_PLAIN = (list, tuple, dict)
_LONG = 50

#: (number of the reduction, which part of it, path in that part ...)
Path = tuple[Any, ...]


class Forger(pickle.Pickler):
    """Pickles an object with other parts at some *places*, and lists the places that it has.

    :param places: path to what makes the new value of the old.
    :param owns: whether the parts of an object may change.
    :param deep: how far below an argument or a state.
    """

    def __init__(
        self,
        file: Any,
        places: dict[Path, Callable[[Any], Any]],
        owns: Callable[[Any], bool],
        *,
        protocol: int = 5,
        deep: int = 3,
        buffer_callback: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(file, protocol, buffer_callback=buffer_callback)
        self.places, self.owns = places, owns
        self.protocol, self.deep = protocol, deep
        self.seen: list[Path] = []
        self.count = 0

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) or not self.owns(value):
            return NotImplemented
        own = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(self.protocol) if own is None else own(value)
        if isinstance(reduced, str):
            return reduced
        parts: list[Any] = list(reduced)
        number, self.count = self.count, self.count + 1
        for at in range(1, min(len(parts), 5)):
            if parts[at] is not None:
                held = parts[at] if at < 3 else list(parts[at])
                made = self._changed(held, (number, at), parts[0])
                parts[at] = made if at < 3 else iter(made)
        return tuple(parts)

    def _changed(self, value: Any, path: Path, maker: Any) -> Any:
        # The pickler itself holds the class of a new object against that of the old.
        fixed = maker is copyreg.__newobj__ and isinstance(value, type)  # type: ignore[attr-defined]
        if not fixed and (len(path) > 2 or path[1] == 2):
            self.seen.append(path)
            if path in self.places:
                return self.places[path](value)
        if len(path) >= 2 + self.deep or not isinstance(value, _PLAIN) or len(value) > _LONG:
            return value
        if isinstance(value, dict):
            parts = {key: self._changed(part, (*path, key), maker) for key, part in value.items()}
            return {key: part for key, part in parts.items() if part is not Ellipsis}
        items = [self._changed(part, (*path, at), maker) for at, part in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)


def forged(
    value: Any, places: dict[Path, Any], owns: Callable[[Any], bool], **options: Any
) -> tuple[bytes, list[Path]]:
    """Return the pickle of *value*, changed at *places*, and every place that it has."""
    file = io.BytesIO()
    forger = Forger(file, places, owns, **options)
    forger.dump(value)
    return file.getvalue(), forger.seen


def changed(
    value: Any, chance: Random, strangers: list[Any], owns: Callable[[Any], bool], **options: Any
) -> tuple[bytes, list[str]]:
    """Return the pickle of *value* with one to three parts changed or left out, and which."""
    changes: list[str] = []

    def change(path: Path) -> Callable[[Any], Any]:
        def made(old: Any) -> Any:
            new = ... if chance.random() < 0.05 else mutated(old, chance, strangers)
            changes.append(f"{path}: {_brief(old)} -> {_brief(new)}")
            return new

        return made

    _, places = forged(value, {}, owns, **{**options, "buffer_callback": None})
    chosen = chance.sample(places, min(chance.choice((1, 1, 1, 2, 2, 3)), len(places)))
    data, _ = forged(value, {path: change(path) for path in chosen}, owns, **options)
    return data, changes


def _brief(value: Any) -> str:
    """Return a few words on *value* that need no look at what it holds."""
    if isinstance(value, np.ndarray):
        return f"array{value.shape} {value.dtype.char}"
    if isinstance(value, int | float | str | bytes | list | tuple | dict):
        try:
            return repr(value)[:80]
        except ValueError:  # an integer of too many digits
            return type(value).__name__
    return type(value).__name__
