"""What would let a refused pickle pass: the smallest addition, and what it would risk.

The one rule: advice comes from the same judgment as the refusal, and where an addition would let
the sender run code, it says so instead of spelling it.
"""

from __future__ import annotations

import sys

from safeser.errors import PolicyDenied
from safeser.pickles.judge import Use, problem_under
from safeser.pickles.names import shown
from safeser.pickles.nodes import Call
from safeser.pickles.profiles import DATA_PROFILES, Profile

__all__ = ["deny"]

_KEYS_SHOWN = 5

_ONLY_CODE = (
    "Only family cloudpickle, for a sender who is granted code, lets a pickle do this;"
    " such a sender can run anything."
)


def deny(use: Use, profile: Profile) -> PolicyDenied:
    """Return the refusal of *use*, with what would allow it and what that would risk."""
    return PolicyDenied(
        f"{shown(use.name)} is {use.role}, and profile {profile.name} does not allow that:"
        f" {use.problem}",
        rule="pickle.global",
        where=f"byte {use.offset}",
        fix=_fix(use, profile),
    )


def _fix(use: Use, profile: Profile) -> str:
    if use.role == "persistent":
        return "Pass persistent_load, with the meaning that the writer's persistent_id has."
    for name in DATA_PROFILES:
        if not problem_under(use, Profile.named(name)):
            return (
                f"Add the profile {name}: 'pickle: {{profile: [..., {name}]}}'. The risk: its"
                " sender can then make this process hold any such values within the limits."
            )
    entry, name = profile.get(use.name), shown(use.name)
    top = use.name.partition(":")[0].partition(".")[0]
    if use.role == "referenced":
        return (
            f"Allow it: 'pickle: {{allow: {{\"{name}\": reference}}}}'. The risk: loading never"
            " calls it, but what receives the object might."
        )
    if entry is not None and entry.role == "class" and not entry.make:
        return _more(use, name)
    if entry is not None or use.name.startswith("<") or top in sys.stdlib_module_names:
        return _ONLY_CODE
    return (
        f"If it is a class, allow it: 'pickle: {{allow: {{\"{name}\": class}}}}'. The risk: its"
        " constructor runs with arguments, and its fields hold values, of the sender's choice."
    )


def _more(use: Use, name: str) -> str:
    """Return what to say beside its role of a class that is allowed already."""
    call = use.node
    if not isinstance(call, Call):
        return _ONLY_CODE
    if use.role == "built":
        return (
            "List the fields that may be set where the class is allowed. The risk: they hold values"
            " of the sender's choice."
        )
    keys = [] if call.kwargs is None else call.kwargs.items[: 2 * _KEYS_SHOWN : 2]
    words = [shown(key) for key in keys if type(key) is str]
    more = (
        f"kwargs: [{', '.join(words)}]" if words else "grows: dict" if call.pairs else "grows: list"
    )
    return (
        f"Say so where it is allowed: '{{\"{name}\": {{role: class, {more}}}}}'. The risk: the"
        " class's own methods run with what the sender chose."
    )
