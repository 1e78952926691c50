"""Explain to a user why a function may not be submitted under ``submission: approved``.

The one rule: an error names the function, where it was written, and what to do: the line of policy
that would allow it, or, where no policy should allow it, a function of one's own or a worker group.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

from safeser.allowed import refusal
from safeser.errors import PolicyDenied
from safeser.pickles.names import shown

__all__ = ["RULE", "name_of", "unlisted"]

RULE = "submission.approved"

#: Libraries whose own functions stand in the graphs of arrays, frames and bags.
_COLLECTIONS = frozenset({"dask", "distributed", "numpy", "pandas", "xarray"})

_GROUP = "For arrays, frames and lambdas ask for a worker group (docs/how-to/worker-groups.md)."


def name_of(function: Any, context: str) -> str:
    """Return the name by which other processes import *function*.

    :param context: the policy's name for where it would be allowed.
    :raises PolicyDenied: if there is none: a lambda, a local function, one of ``__main__``.
    """
    name = _spelled(function)
    if name is None or not _is_importable(function, name):
        raise _nameless(function, name, context)
    return name


def unlisted(function: Any, name: str, context: str) -> PolicyDenied:
    """Return the refusal of *function*, which *context* does not list."""
    return PolicyDenied(
        f"{name} cannot be submitted: context {context!r} does not list it",
        rule=RULE,
        where=shown(name),
        fix=_advice(function, name),
    )


def _advice(function: Any, name: str) -> str:
    """Return what to do instead; a function that runs any code is never advised to be allowed."""
    library = name.partition(":")[0].partition(".")[0]
    own = (
        "Write a function of a module installed on the workers that does what you need and no more;"
        " the operator can allow it:"
        " 'pickle: {allow: {\"mylib:NAME\": reference}}'."
    )
    if library in _COLLECTIONS:
        return f"No function of {library} can be allowed. {_GROUP} Or: {own}"
    why = refusal(name, "reference", approved=True)
    if why:
        return f"No operator can allow it: {why}. {own}"
    line = f'pickle: {{allow: {{"{name}": reference}}}}'
    called = "makes it of" if isinstance(function, type) else "calls it with"
    return (
        f"The operator can allow it there: '{line}'. The risk: you choose what the cluster"
        f" {called}."
    )


def _nameless(function: Any, name: str | None, context: str) -> PolicyDenied:
    kind = type(function)
    known = name or f"{kind.__module__}:{kind.__qualname__}"
    bare = known.rpartition(":")[2].rpartition(".")[2]
    bare = bare if bare.isidentifier() else "NAME"
    return PolicyDenied(
        f"{known}{_place(function)} cannot be submitted in context {context!r}: workers have no"
        " name to import it by",
        rule=RULE,
        where=shown(known),
        fix="Write it as a function of a module installed on the workers; the operator can allow"
        f" it: 'pickle: {{allow: {{\"mylib:{bare}\": reference}}}}'."
        f" {_GROUP}",
    )


def _spelled(function: Any) -> str | None:
    """Return ``module:qualname`` of a function, class or other object that has a name."""
    if isinstance(function, types.MethodType):
        return None
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if type(module) is not str or type(qualname) is not str:
        return None
    return f"{module}:{qualname}"


def _is_importable(function: Any, name: str) -> bool:
    module, _, qualname = name.partition(":")
    if module == "__main__":  # another process has another one
        return False
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is function


def _place(function: Any) -> str:
    """Return where a function was written, which its name (``<lambda>``) may not say."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return ""
    return f", defined in {Path(code.co_filename).name}, line {code.co_firstlineno},"
