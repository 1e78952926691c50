"""Advise which smallest policy addition would admit a refused pickle, and state its risk.

The one rule: the advice and the refusal come from the same judgment. The advice says so where only
a grant of code would suffice, and where an addition may amount to one.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

from safeser.allowed import refusal
from safeser.errors import PolicyDenied
from safeser.pickles.judge import Use, problem_under
from safeser.pickles.names import shown, spelled
from safeser.pickles.nodes import Call
from safeser.pickles.profiles import DATA_PROFILES, Profile

__all__ = ["MAX_READ", "NEVER", "deny", "older"]

#: How a fix begins that says that no policy but a grant of code helps.
NEVER = "It cannot be allowed"

_KEYS_SHOWN = 5
# The names are a sender's, and a refusal is one line.
_NAMES_SHOWN = 4
#: Characters of a line of policy that a fix says: it is given whole or not at all.
_LONGEST_LINE = 1000
_LONGEST_NAME = 200  # of one that a fix spells twice
_TOO_MANY = (
    "It names {count} globals that are not listed, too many for one message: write the values to a"
    " file, and 'safeser inspect FILE' lists them with the line of policy for each."
)
#: Kinds of additions that one fix says.
_MOST_PARTS = 3
#: Of the uses that are denied; each is judged by every profile.
MAX_READ = 200

# pandas 1.3 calls a partial of a function, which is named too.
_BESIDE = frozenset({"functools:partial", "<result of a call>"})

_ONLY_CODE = (
    "Only family cloudpickle, for a sender who is granted code, lets a pickle do this;"
    " such a sender can run anything."
)
_AN_ENUM = " Of an enum, the role is enum: nothing of it runs."
_OPENED = (
    "Load it first: of open_mfdataset, leave out parallel=True. Or where one task hands it to"
    " another, give it to each as an argument: inline_array=True in xr.open_dataset, Dataset.chunk,"
    " da.from_zarr or da.from_array. To read it opens a file of the sender's choice."
)
#: By beginnings of names, what serves instead of an object that no line of policy should let in.
_INSTEAD = {
    "xarray.backends": _OPENED,
    "zarr.": _OPENED,
    "partd": "Shuffle by 'p2p' or 'tasks': shuffle_method='tasks' for frames, shuffle='tasks' for"
    " bags. By 'disk', workers hand each other a folder in which the receiver reads and writes.",
}
_RISKS = {
    "reference": "loading never calls it, but what receives the object might.",
    "class": "its constructor runs with arguments, and its fields hold values, of the sender's"
    " choice.",
}


def deny(use: Use, *more: Use, profile: Profile) -> PolicyDenied:
    """Return the error for *use*, with the addition that would allow it and its risk.

    :param more: other uses that are refused with it; they are named, and advised on together.
    """
    name = shown(use.name)
    names = [each.name for each in (use, *more)]
    found = (says for begin, says in _INSTEAD.items() for each in names if each.startswith(begin))
    instead = next(found, "")
    others = list(dict.fromkeys(shown(other.name) for other in more if other.name != use.name))
    listed = ", ".join(others[:_NAMES_SHOWN])
    beyond = " and others" if len(others) > _NAMES_SHOWN else ""
    also = f"; refused too: {listed}{beyond}" if others else ""
    fix = instead or (_fix_all([use, *more], profile) if others else _fix(use, profile))
    every = profile.name.startswith("+".join(DATA_PROFILES))
    denies = "no profile allows" if every else f"profile {profile.name} does not allow"
    denial = PolicyDenied(
        f"{name} is {use.role}, and {denies} that: {use.problem}{also}",
        rule="pickle.global",
        where=f"byte {use.offset}",
        fix=fix,
    )
    denial.subject = name
    return denial


@cache
def _older() -> dict[str, str]:
    listed = resources.files("safeser.pickles").joinpath("listed", "older.toml")
    rows = tomllib.loads(listed.read_text("utf-8"))["older"]
    return {name: row["says"] for row in rows for name in row["names"]}


def older(*names: str) -> str:
    """Return what is to be done if only other releases have the globals *names*, else ``""``.

    It tells a reader to have the file loaded elsewhere: never where anything else is refused.
    """
    known, found = _older(), []
    for name in names:
        parts = name.partition(":")[0].split(".")
        packages = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        if name not in _BESIDE:
            found.append(next((known[each] for each in (name, *packages) if each in known), ""))
    return found[0] if found and all(found) else ""


def _fix_all(uses: list[Use], profile: Profile) -> str:
    """Return what lets all of *uses* pass together; nothing short of code if one needs that."""
    roles: dict[str, str] = {}
    parts: dict[str, None] = {}
    listed: list[Use] = []
    for use in _distinct(uses):
        role = _role(use, profile)
        if _profile_for(use):
            listed.append(use)
        elif role is None:
            parts[_fix(use, profile)] = None
        else:
            # A class may also be handed over by name.
            roles[use.name] = "class" if "class" in (role, roles.get(use.name)) else role
    old = older(*(use.name for use in uses if not _profile_for(use)))
    code = next((part for part in parts if part.endswith(_ONLY_CODE)), "")
    if old or code:
        return old or code
    if listed:
        parts = {_adding(_profiles_for(listed)): None, **parts}
    if roles:
        line = ", ".join(f'"{spelled(name)}": {role}' for name, role in roles.items())
        if len(line) > _LONGEST_LINE:
            return _TOO_MANY.format(count=len(roles))
        kinds = dict.fromkeys(roles.values())
        risks = " ".join(f"{f'for a {role}, ' * (len(kinds) > 1)}{_RISKS[role]}" for role in kinds)
        enum = _AN_ENUM if any(use.name in roles and _may_be_enum(use) for use in uses) else ""
        parts[
            f"Allow them: 'pickle: {{allow: {{{line}}}}}', in Python by Profile.allowing."
            f" The risk: {risks}{enum}{_beware(*roles)}"
        ] = None
    told = list(parts)
    more = ["More is refused beside that: ask again then."] if len(told) > _MOST_PARTS else []
    return " ".join(told[:_MOST_PARTS] + more)


def _distinct(uses: list[Use]) -> list[Use]:
    """Return one use of each kind: where a name may stand depends on the call that is given it."""
    kinds: dict[tuple[str, str, str, int], Use] = {}
    for use in uses:
        call, position = use.place or (None, -1)
        callee = "" if call is None else call.callee.name
        kinds.setdefault((use.name, use.role, callee, position), use)
    return list(kinds.values())


def _profiles_for(uses: list[Use]) -> list[str]:
    """Return profiles that together allow *uses*, none of which the others make needless."""
    first = {_profile_for(use) for use in uses}
    allowed = {
        name: {at for at, use in enumerate(uses) if not problem_under(use, Profile.named(name))}
        for name in DATA_PROFILES
        if name in first
    }
    chosen = list(allowed)
    # The last profiles are for Dask and for functions; a receiver of data should not grant them.
    for name in reversed(allowed):
        others = [allowed[other] for other in chosen if other != name]
        if len(set().union(*others)) == len(uses):
            chosen.remove(name)
    return chosen


def _adding(names: list[str]) -> str:
    what = "profile" if len(names) == 1 else "profiles"
    more = ", ".join(names)
    quoted = ", ".join(f'"{name}"' for name in names)
    return (
        f"Add the {what} {' and '.join(names)}: 'pickle: {{profile: [..., {more}]}}' in a policy,"
        f" or profile=[..., {quoted}] of pickles.loads."
        " Risk: the sender can fill your memory up to the limits."
    )


def _role(use: Use, profile: Profile) -> str | None:
    """Return the role in which allowing *use*'s global is all that it lacks."""
    if use.role == "persistent" or older(use.name) or _profile_for(use):
        return None
    if _second_role(use, profile):
        return None
    if use.role == "referenced":
        return None if refusal(use.name, "reference") else "reference"
    return None if profile.get(use.name) is not None or _is_code(use) else "class"


def _second_role(use: Use, profile: Profile) -> str:
    """Return the role that an operator's own entry lacks for *use*, if it has the other of two."""
    entry = profile.get(use.name)
    if entry is None or entry.make or entry.why:
        return ""
    if use.role == "referenced":
        lacks = entry.role == "class" and not refusal(use.name, "reference")
        return "reference" if lacks else ""
    return "class" if entry.role == "reference" and not _is_code(use) else ""


def _is_code(use: Use) -> bool:
    return use.name.startswith("<") or bool(refusal(use.name, "class"))


def _profile_for(use: Use) -> str:
    allows = [name for name in DATA_PROFILES if not problem_under(use, Profile.named(name))]
    # Estimators may hold functions; who sends functions alone has no use for estimators.
    return (allows or [""])[-1 if allows[:1] == ["sklearn"] else 0]


def _fix(use: Use, profile: Profile) -> str:
    if use.role == "persistent":
        return "Pass persistent_load, with the meaning that the writer's persistent_id has."
    listing = _profile_for(use)
    if listing or older(use.name):
        return _adding([listing]) if listing else older(use.name)
    entry, name = profile.get(use.name), spelled(use.name)
    role = _role(use, profile)
    second = _second_role(use, profile)
    if second and entry is not None:
        return (
            f"It is allowed as {entry.role} alone; allow both:"
            f" 'pickle: {{allow: {{\"{name}\": [{entry.role}, {second}]}}}}'."
            f" The risk: {_RISKS[second]}"
        )
    if role is None and entry is not None and entry.role == "class" and not entry.make:
        return _more(use, name)
    if role is None:
        why = refusal(use.name, "reference" if use.role == "referenced" else "class")
        return f"{NEVER}: {why}. {_ONLY_CODE}" if why else _ONLY_CODE
    python = f'profile.allowing({{"{name}": "{role}"}})'
    if len(name) > _LONGEST_NAME:
        python = "by Profile.allowing"
    condition = "If it is a class, allow it" if role == "class" else "Allow it"
    return (
        f"{condition}: 'pickle: {{allow: {{\"{name}\": {role}}}}}', in Python"
        f" {python}. The risk: {_RISKS[role]}"
        f"{_AN_ENUM if _may_be_enum(use) else ''}{_beware(use.name)}"
    )


def _may_be_enum(use: Use) -> bool:
    """Whether this is how pickle writes a member: a call with its value alone."""
    call = use.node
    return use.role == "called" and isinstance(call, Call) and len(call.args.items) == 1


def _beware(*names: str) -> str:
    """Return a warning about *names* with non-ASCII letters, or an empty string."""
    if all(map(str.isascii, names)):
        return ""
    return " A name holds letters beyond ASCII, which can look like those of another."


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
