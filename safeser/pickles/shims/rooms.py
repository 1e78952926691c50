"""Which file holds which of the reviewed functions that make objects.

The one rule: a name from our own lists picks the file; nothing that a peer wrote ever comes here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from safeser.errors import PayloadError

__all__ = ["not_installed", "shim"]

_ROOMS = {
    "arrow": "safeser.pickles.shims.arrow",
    "arrow_types": "safeser.pickles.shims.arrow_types",
    "pandas": "safeser.pickles.shims.pandas",
    "pandas_arrays": "safeser.pickles.shims.pandas_arrays",
    "pandas_indexes": "safeser.pickles.shims.pandas_indexes",
    "pandas_times": "safeser.pickles.shims.pandas_times",
    "plain": "safeser.pickles.shims.plain",
    "holders": "safeser.pickles.shims.holders",
    "records": "safeser.pickles.shims.records",
    "functions": "safeser.pickles.shims.functions",
    "numpy_random": "safeser.pickles.shims.numpy_random",
    "numpy_kinds": "safeser.pickles.shims.numpy_kinds",
    "exceptions": "safeser.pickles.shims.exceptions",
    "numpy": "safeser.pickles.shims.numpy",
    "scipy": "safeser.pickles.shims.scipy",
    "sklearn": "safeser.pickles.shims.sklearn",
}


_INSTALL = {
    "pandas": "Install safeser with the extra [arrow].",
    "pyarrow": "Install safeser with the extra [arrow].",
    "sklearn": "Install scikit-learn here, in the version of the sender.",
}


@cache
def shim(name: str) -> Callable[..., Any]:
    """Return the reviewed function that an entry names, as ``room.function``."""
    room, _, function = name.partition(".")
    try:
        registry: dict[str, Callable[..., Any]] = importlib.import_module(_ROOMS[room]).SHIMS
    except ImportError as error:
        missing = error.name or room
        library = room if missing.startswith("safeser") else missing.partition(".")[0]
        if room == "sklearn" and find_spec(room) is None:
            library = room  # whose own requirements come with it, SciPy among them
        raise not_installed(library) from None
    return registry[function]


def not_installed(library: str) -> PayloadError:
    """Return the refusal of a pickle that needs *library*, which cannot be imported here."""
    return PayloadError(
        f"what this pickle holds needs {library}, which is not installed here",
        rule="pickle.unresolved",
        fix=_INSTALL.get(library, f"Install {library} here, in the version of the sender."),
    )
