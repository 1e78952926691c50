"""Hostile values: one file for each group of types.

``HOSTILE`` of a file are payloads with the rule by which a receiver refuses each; ``UNSENT`` are
values that no sender sends, each with a word of the refusal that says why.
"""

from __future__ import annotations

import importlib
import pkgutil

__all__ = ["HOSTILE", "UNSENT"]

_MODULES = {
    found.name: importlib.import_module(f"{__name__}.{found.name}")
    for found in pkgutil.iter_modules(__path__)
}
HOSTILE = {
    f"{name}/{at} {row.name} {row.rule}": row
    for name, made in _MODULES.items()
    for at, row in enumerate(getattr(made, "HOSTILE", ()))
}
UNSENT = {
    f"{name}/{at}": row
    for name, made in _MODULES.items()
    for at, row in enumerate(getattr(made, "UNSENT", ()))
}
