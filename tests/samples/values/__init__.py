"""Honest values: one file for each group of types.

``examples()`` of a file are small, since ``verification.malformed`` changes one to three places of
each; ``others()`` come beside them in ``tests/families/test_samples.py``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.util import find_spec
from types import ModuleType

__all__ = ["collect", "collect_all"]

Uses = Callable[[object], Iterable[Callable[[], object]]]


def collect(files: Collection[str] = ()) -> tuple[dict[str, object], list[Uses]]:
    """Return every example as ``file/name``, and the files' own ways to use a value.

    :param files: only these; none means all.
    """
    examples: dict[str, object] = {}
    uses: list[Uses] = []
    for name, module in _modules():
        if hasattr(module, "examples") and (not files or name in files):
            examples |= {f"{name}/{part}": value for part, value in module.examples().items()}
            uses += [module.uses] if hasattr(module, "uses") else []
    return examples, uses


def collect_all() -> dict[str, list[object]]:
    """Return every honest value, those of one file and one type together."""
    found: dict[str, list[object]] = {}
    for name, module in _modules():
        values: list[object] = []
        for make in ("examples", "others"):
            made = getattr(module, make, list)()
            values += made.values() if isinstance(made, dict) else made
        for value in values:
            found.setdefault(f"{name}/{type(value).__name__}", []).append(value)
    return found


def _modules() -> Iterator[tuple[str, ModuleType]]:
    for name in sorted(found.name for found in pkgutil.iter_modules(__path__)):
        if name == "tensors" and find_spec("torch") is None:
            continue  # the one library that is too large for every development environment
        yield name, importlib.import_module(f"{__name__}.{name}")
