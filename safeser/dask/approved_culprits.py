"""Who is at fault where a graph may not be submitted, in words that its author understands.

The one rule: it only names. What is refused was refused before, by the reader that the scheduler
runs over the same bytes; here its reason gets a name and the line of policy that would change it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from safeser import pickles
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.policy.faults import shown

__all__ = ["RULE", "named_culprit"]

RULE = "submission.approved"

#: Instances of these libraries' classes are written by functions with names of their own.
_LIBRARIES = sys.stdlib_module_names | {
    "dask",
    "distributed",
    "numpy",
    "pandas",
    "pyarrow",
    "safeser",
    "scipy",
    "sklearn",
    "toolz",
}


class _FoundError(Exception):
    def __init__(self, denial: PolicyDenied) -> None:
        self.denial = denial


def named_culprit(
    graph: Any,
    refusal: SafeserError,
    *,
    profile: pickles.Profile,
    context: str,
    reduce: Callable[[Any], Any],
) -> PolicyDenied:
    """Return *refusal* of *graph* as one that names what is to blame, and what would allow it.

    :param context: the policy's name for where it would be allowed.
    :param reduce: how the graph is written.
    """

    def look(obj: Any) -> Any:
        _look(obj, profile, context)
        return reduce(obj)

    try:
        pickles.dumps(graph, reduce=look)
    except PayloadError as error:
        if isinstance(error.__cause__, _FoundError):
            return error.__cause__.denial
    return PolicyDenied(
        f"this cannot be submitted in context {context!r}: {refusal.message}",
        rule=RULE,
        where=refusal.where,
        fix=refusal.fix,
    )


def _look(obj: Any, profile: pickles.Profile, context: str) -> None:
    if isinstance(obj, types.FunctionType | type | types.BuiltinFunctionType | type(np.sum)):
        name = _name_of(obj)
        if name is not None and profile.get(name) is None:
            _found(obj, name, context, role="class" if isinstance(obj, type) else "reference")
    elif isinstance(obj, types.MethodType):
        owner = obj.__self__ if isinstance(obj.__self__, type) else type(obj.__self__)
        name = f"{owner.__module__}:{owner.__qualname__}.{obj.__name__}"
        if profile.get(name) is None:
            _found(obj, name, context, role="reference")
    elif type(obj).__module__.partition(".")[0] not in _LIBRARIES:
        name = f"{type(obj).__module__}:{type(obj).__qualname__}"
        if profile.get(name) is None:
            _found(type(obj), name, context, role="class", what="an instance of ")


def _name_of(obj: Any) -> str | None:
    module, qualname = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if isinstance(obj, types.BuiltinFunctionType) and not isinstance(
        obj.__self__, types.ModuleType | None
    ):
        return None  # a method of a value, which is written as such
    return f"{module}:{qualname}" if module and qualname else None


def _found(obj: Any, name: str, context: str, *, role: str, what: str = "") -> NoReturn:
    who = f"{what}{shown(name).strip(chr(39))}{_place(obj)}"
    if _is_importable(obj, name):
        line = f'pickle: {{allow: {{"{name}": {role}}}}}'
        raise _FoundError(
            PolicyDenied(
                f"{who} cannot be submitted: context {context!r} does not list it",
                rule=RULE,
                fix=f"The operator can allow it there: '{line}'. The risk: whoever submits chooses"
                " the arguments that the cluster calls it with.",
            )
        )
    bare = name.rpartition(":")[2].rpartition(".")[2].strip("<>")
    line = f'pickle: {{allow: {{"mylib:{bare}": {role}}}}}'
    raise _FoundError(
        PolicyDenied(
            f"{who} cannot be submitted: it has no name by which scheduler and workers could"
            f" import it, and context {context!r} lets no code through",
            rule=RULE,
            fix="Give it a name in a module that is installed there (mylib, say); then the operator"
            f" can allow it: '{line}'.",
        )
    )


def _is_importable(obj: Any, name: str) -> bool:
    module, _, qualname = name.partition(":")
    if module == "__main__":  # another process has another one
        return False
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is obj or (isinstance(obj, types.MethodType) and found == obj)


def _place(obj: Any) -> str:
    """Return where a function was written, which its name (``<lambda>``) may not say."""
    code = getattr(obj, "__code__", None)
    if not isinstance(code, types.CodeType) or _is_importable(obj, str(_name_of(obj))):
        return ""
    return f", defined in {shown(code.co_filename)}, line {code.co_firstlineno},"
