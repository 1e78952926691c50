"""What is mutated: one file for each group of types; see ``verification.malformed``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable

__all__ = ["collect"]

Uses = Callable[[object], Iterable[Callable[[], object]]]


def collect(files: Collection[str] = ()) -> tuple[dict[str, object], list[Uses]]:
    """Return every example as ``file/name``, and the files' own ways to use a value.

    :param files: only these; none means all.
    """
    examples: dict[str, object] = {}
    uses: list[Uses] = []
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if files and found.name not in files:
            continue
        module = importlib.import_module(f"{__name__}.{found.name}")
        try:
            made = module.examples()
        except ModuleNotFoundError:
            continue
        examples |= {f"{found.name}/{name}": value for name, value in made.items()}
        if hasattr(module, "uses"):
            uses.append(module.uses)
    return examples, uses
