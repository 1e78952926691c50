"""Names that cannot be allowed, with the reason: the standard library, and ``refused.toml``.

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

__all__ = ["refusal"]

_STDLIB = (
    "it is of the standard library, of which much runs, imports or opens what it is told;"
    " profiles list what is safe of it"
)

#: Roles whose global is called, or handed to code that may call it.
_FUNCTIONS = frozenset({"callable", "reference"})


class _Row(NamedTuple):
    roles: str
    why: str

    def covers(self, role: str, *, approved: bool) -> bool:
        if self.roles == "every" or approved:
            return True
        return self.roles == "functions" and role in _FUNCTIONS


def refusal(name: str, role: str, *, approved: bool = False) -> str:
    """Return why *name* cannot be allowed in *role*, or the empty string.

    :param name: ``module:qualname``.
    :param role: one of :data:`~safeser.allowed.ALLOWED_ROLES`.
    :param approved: whether senders without code may have it called: ``submission: approved``.
    """
    module = name.partition(":")[0]
    if module.partition(".")[0] in sys.stdlib_module_names:
        return _STDLIB
    rows = _rows()
    for key in (name, *_modules(module)):
        row = rows.get(key)
        if row is not None and row.covers(role, approved=approved):
            return row.why
    return ""


def _modules(module: str) -> Iterator[str]:
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
