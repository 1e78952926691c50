"""Who is at fault where a graph may not be submitted, in words that its author understands.

The one rule: it only names. What is refused was refused before, by the reader that the scheduler
runs over the same bytes; here its reason gets a name and the line of policy that would change it.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from safeser import pickles
from safeser.allowed import refusal
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.pickles.names import shown

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


class _Seen:
    """What a graph holds that is not listed, in the order in which it is written."""

    def __init__(self, profile: pickles.Profile) -> None:
        self.profile = profile
        self.nameless: list[tuple[Any, str, str]] = []
        self.unlisted: list[tuple[Any, str, str]] = []

    def look(self, obj: Any) -> bool:
        """Note *obj* if it is to blame; tell whether it cannot be written at all."""
        name, role = _name_of(obj), "class" if isinstance(obj, type) else "reference"
        if name is None:
            kind = type(obj)
            name, role = f"{kind.__module__}:{kind.__qualname__}", "class"
            module = kind.__module__.partition(".")[0]
            if module in _LIBRARIES or module.startswith("_cython"):
                return False
            obj = kind
        if self.profile.get(name) is None:
            importable = _is_importable(obj, name)
            (self.unlisted if importable else self.nameless).append((obj, name, role))
            return not importable and isinstance(obj, types.FunctionType)
        return False


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
    seen = _Seen(profile)

    def look(obj: Any) -> Any:
        return (str, ()) if seen.look(obj) else reduce(obj)

    with contextlib.suppress(PayloadError):  # whatever else cannot be written
        pickles.dumps(graph, reduce=look)
    if seen.nameless:
        return _nameless(*seen.nameless[0], context)
    for obj, name, role in seen.unlisted:
        # Names that a library's own pickles hold may be listed under others.
        if name in refusal.message or name.split(":")[0] not in _listed_modules(profile):
            return _unlisted(obj, name, role, context)
    what = refusal.message.partition(", of type ")[2] or refusal.message
    return PolicyDenied(
        f"this cannot be submitted in context {context!r}: {what}",
        rule=RULE,
        where=refusal.where.replace("obj['tasks']", "task", 1),
        fix=refusal.fix,
    )


def _listed_modules(profile: pickles.Profile) -> set[str]:
    return {name.partition(":")[0] for name in profile.entries}


def _name_of(obj: Any) -> str | None:
    """Return the name of a function, class or method; None of what is none of them."""
    if isinstance(obj, types.MethodType):
        owner = obj.__self__ if isinstance(obj.__self__, type) else type(obj.__self__)
        return f"{owner.__module__}:{owner.__qualname__}.{obj.__name__}"
    if isinstance(obj, types.BuiltinFunctionType):
        bound = not isinstance(obj.__self__, types.ModuleType | None)
        return None if bound else f"{obj.__module__}:{obj.__qualname__}"
    if isinstance(obj, types.FunctionType | type | type(np.sum)):
        return f"{obj.__module__}:{obj.__qualname__}"
    return None


def _unlisted(obj: Any, name: str, role: str, context: str) -> PolicyDenied:
    return PolicyDenied(
        f"{name} cannot be submitted: context {context!r} does not list it",
        rule=RULE,
        where=shown(name),
        fix=_instead(obj, name, role),
    )


def _instead(obj: Any, name: str, role: str) -> str:
    """Return what helps who submitted *obj*: nobody is told to allow what may run any code."""
    library = name.partition(":")[0].partition(".")[0]
    own = "Write a function of a module that is installed there (mylib, say) which does what you"
    allowed = "the operator can allow it: 'pickle: {allow: {\"mylib:NAME\": reference}}'."
    why = refusal(name, role, approved=True)
    if why and library not in ("dask", "distributed"):
        return f"No operator can allow it: {why}. {own} need with it and no more; {allowed}"
    if name.startswith("distributed.shuffle."):
        return (
            "Shuffle and rechunk by tasks: method='tasks', shuffle_method='tasks', or the settings"
            " 'dataframe.shuffle.method' and 'array.rechunk.method'."
        )
    if library in ("dask", "distributed"):
        return (
            "It is a part of Dask that no profile lists: docs/approved.md says what works. Do it in"
            f" the client, outside of tasks. Or: {own[0].lower()}{own[1:]} need; {allowed}"
        )
    line = f'pickle: {{allow: {{"{name}": {role}}}}}'
    return (
        f"The operator can allow it there: '{line}'. The risk: whoever submits chooses what"
        f" the cluster {'makes it of' if isinstance(obj, type) else 'calls it with'}."
    )


def _nameless(obj: Any, name: str, role: str, context: str) -> PolicyDenied:
    bare = name.rpartition(":")[2].rpartition(".")[2]
    bare = bare if bare.isidentifier() else "NAME"
    line = f'pickle: {{allow: {{"mylib:{bare}": {role}}}}}'
    return PolicyDenied(
        f"{name}{_place(obj)} cannot be submitted: scheduler and workers have no name to import"
        f" it by, and context {context!r} lets no code through",
        rule=RULE,
        where=shown(name),
        fix="Write it as a function or class of a module that is installed there (mylib, say); then"
        f" the operator can allow it: '{line}'.",
    )


def _is_importable(obj: Any, name: str) -> bool:
    module, _, qualname = name.partition(":")
    if module == "__main__":  # another process has another one
        return False
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    # Each look at a method makes a new object.
    return found is obj or isinstance(obj, types.MethodType)


def _place(obj: Any) -> str:
    """Return where a function was written, which its name (``<lambda>``) may not say."""
    code = getattr(obj, "__code__", None)
    if not isinstance(code, types.CodeType):
        return ""
    return f", defined in {Path(code.co_filename).name}, line {code.co_firstlineno},"
