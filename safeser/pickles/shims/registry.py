"""Look up a reviewed function by the name in a profile entry, and import its module.

The one rule: names come from safeser's own profile lists; no text of a peer is looked up here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from safeser.errors import PayloadError

__all__ = ["not_installed", "shim"]

#: Modules of reviewed functions, by the prefix of the names in profile entries.
_MODULES = {
    "arrow": "safeser.pickles.shims.arrow.arrays",
    "arrow_types": "safeser.pickles.shims.arrow.types",
    "pandas": "safeser.pickles.shims.pandas.frames",
    "pandas_arrays": "safeser.pickles.shims.pandas.arrays",
    "pandas_indexes": "safeser.pickles.shims.pandas.indexes",
    "pandas_times": "safeser.pickles.shims.pandas.times",
    "plain": "safeser.pickles.shims.stdlib.plain",
    "holders": "safeser.pickles.shims.stdlib.holders",
    "records": "safeser.pickles.shims.stdlib.records",
    "functions": "safeser.pickles.shims.stdlib.functions",
    "numpy_random": "safeser.pickles.shims.numpy.random",
    "numpy_kinds": "safeser.pickles.shims.numpy.kinds",
    "exceptions": "safeser.pickles.shims.stdlib.exceptions",
    "numpy": "safeser.pickles.shims.numpy.arrays",
    "scipy": "safeser.pickles.shims.scipy",
    "sklearn": "safeser.pickles.shims.sklearn.estimators",
}


_INSTALL = {
    "pandas": "Install safeser with the extra [arrow].",
    "pyarrow": "Install safeser with the extra [arrow].",
    "sklearn": "Install scikit-learn here, in the version of the sender.",
}


@cache
def shim(name: str) -> Callable[..., Any]:
    """Return the reviewed function that an entry names, as ``module.function``."""
    module, _, function = name.partition(".")
    try:
        registry: dict[str, Callable[..., Any]] = importlib.import_module(_MODULES[module]).SHIMS
    except ImportError as error:
        missing = error.name or module
        library = module if missing.startswith("safeser") else missing.partition(".")[0]
        if module == "sklearn" and find_spec(module) is None:
            library = module  # installing it installs what it requires, SciPy included
        raise not_installed(library) from None
    return registry[function]


def not_installed(library: str) -> PayloadError:
    """Return the error for a pickle that needs *library*, which is not importable here."""
    return PayloadError(
        f"what this pickle holds needs {library}, which is not installed here",
        rule="pickle.unresolved",
        fix=_INSTALL.get(library, f"Install {library} here, in the version of the sender."),
    )
