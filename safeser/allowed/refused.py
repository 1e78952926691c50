"""Names that cannot be allowed, with the reason: the standard library, tools, and ``refused.toml``.

The one rule: the answer depends on the text of a name alone. Nothing is imported for it, so a
policy means the same on a machine where the library is not installed.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

__all__ = ["packages_of", "refusal"]

_STDLIB = (
    "it is of the standard library, of which much runs, imports or opens what it is told;"
    " profiles list what is safe of it"
)

#: Roles whose global is called, or handed to code that may call it.
_FUNCTIONS = frozenset({"callable", "reference"})

#: Parts of packages that developers and shells run. Their functions write files, start processes
#: and import by name, in every library.
_TOOLING_WORDS = (
    "__main__ _build _build_utils _cli _test _testing _tests _testutils cli cmdline commandline "
    "conftest test testing tests testutils"
)
_TOOLING = frozenset(_TOOLING_WORDS.split())


class _Row(NamedTuple):
    roles: str
    why: str

    def covers(self, role: str, *, setstate: bool) -> bool:
        if self.roles == "every":
            return True
        return self.roles == "functions" and (setstate or role in _FUNCTIONS)


_TOOL = _Row("functions", "its module is of the tests, the build or the command line of a package")


def refusal(name: str, role: str, *, setstate: bool = False) -> str:
    """Return why *name* cannot be allowed in *role*, or the empty string.

    :param name: ``module:qualname``.
    :param role: one of :data:`~safeser.allowed.ALLOWED_ROLES`.
    :param setstate: whether its own ``__setstate__`` is called with what a sender wrote.
    """
    module = name.partition(":")[0]
    if module.partition(".")[0] in sys.stdlib_module_names:
        return _STDLIB
    for row in _rows_of(name, module):
        if row.covers(role, setstate=setstate):
            return row.why
    return ""


def _rows_of(name: str, module: str) -> Iterator[_Row]:
    """Yield the rows that *name* falls under, those of the innermost package first."""
    rows = _rows()
    yield from (rows[key] for key in (name, *packages_of(module)) if key in rows)
    # The first part names a whole package, which may be a program's own "tests" or "__main__".
    if not _TOOLING.isdisjoint(module.split(".")[1:]):
        yield _TOOL


def packages_of(module: str) -> Iterator[str]:
    """Yield *module* and the packages that it is in, the innermost first."""
    while module:
        yield module
        module = module.rpartition(".")[0]


@cache
def _rows() -> Mapping[str, _Row]:
    listed = resources.files("safeser.allowed").joinpath("refused.toml").read_text("utf-8")
    return {
        name: _Row(entry["roles"], entry["why"])
        for entry in tomllib.loads(listed)["refused"]
        for name in entry["names"]
    }
