"""Profiles: which globals a restricted load may use, and in which role. Data, not code.

The one rule: an entry is an exact ``module:qualname``, and what is done for it is a reviewed
function that the entry names (``make``). Nothing that a pickle says adds a name or an import.

Roles: ``callable`` and ``class`` are made by the entry's function, or for an operator's own class
by the class itself; ``reference`` is the global itself, handed over and never called;
``enum`` is a member looked up by value; ``constant`` is the global's value, which must be plain.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from safeser.allowed import Allowed, check_allowed
from safeser.errors import ConfigError, PayloadError
from safeser.pickles.live import Live
from safeser.pickles.names import check_name, shown

__all__ = ["DATA_PROFILES", "ROLES", "Entry", "Profile"]

ROLES = ("callable", "class", "enum", "constant", "reference")

#: Every profile but ``code``, in the order in which they are tried.
DATA_PROFILES = ("data", "numpy", "pandas", "scipy", "sklearn", "exceptions", "functions")


@dataclass(frozen=True, slots=True)
class Entry:
    """One global that a profile lists.

    :param name: exact ``module:qualname``.
    :param make: reviewed function that makes the object; empty where the role needs none.
    :param state: reviewed function that applies BUILD's state; empty where BUILD is refused.
    :param via: ``"called"`` (REDUCE), ``"instantiated"`` (NEWOBJ), or both.
    :param grows: ``"list"`` or ``"dict"`` where APPENDS or SETITEMS may fill the result.
    :param args: argument positions, and the globals that may stand there as a mere name;
        ``"@class"`` stands for each that the profile lists as ``class``.
    :param hashable: results may be dict keys and set members.
    :param referable: the global itself may also be handed over as a value.
    :param fields: of an operator's own class: attributes that BUILD may set.
    :param kwargs: names of the keyword arguments that it may be given (NEWOBJ_EX).
    :param returns: exact types of what is made; empty where it *varies*. A class makes itself
        where nothing else is said.
    :param varies: why nothing can be listed under *returns*.
    :param setstate: of an operator's own class: its own ``__setstate__`` is called for BUILD.
    :param reviewed: it is of a list that ships with safeser. Every other entry is the word of an
        operator or program, and held to what may be allowed: see :mod:`safeser.allowed`.
    """

    name: str
    role: str
    make: str = ""
    state: str = ""
    via: tuple[str, ...] = ("called",)
    grows: str = ""
    args: Mapping[int, frozenset[str]] = field(default_factory=dict)
    hashable: bool = False
    referable: bool = False
    fields: frozenset[str] = frozenset()
    why: str = ""
    kwargs: frozenset[str] = frozenset()
    returns: tuple[str, ...] = ()
    setstate: bool = False
    varies: str = ""
    reviewed: bool = False

    def __post_init__(self) -> None:
        module, _, qualname = self.name.partition(":")
        try:
            check_name(module, qualname, dotted=True, where="")
        except PayloadError:
            raise ConfigError(
                f"{shown(self.name)} is not an exact module:qualname",
                rule="config.profile",
                fix='Write it as in "mylib.models:Point".',
            ) from None
        if self.role in ("reference", "constant"):
            object.__setattr__(self, "referable", True)
        if self.role not in ROLES:
            raise ConfigError(
                f"the role of {shown(self.name)} must be one of {', '.join(ROLES)}",
                rule="config.profile",
            )
        if not self.reviewed:
            check_allowed(self.name, self.role, setstate=self.setstate)

    @property
    def buildable(self) -> bool:
        return bool(self.state or self.fields or self.setstate)

    def merged(self, other: Entry) -> Entry:
        """Return this entry, referable where *other* is: two profiles may list one class so."""
        if self.role in ("reference", "constant") and other.role not in ("reference", "constant"):
            return other.merged(self)
        return replace(self, referable=self.referable or other.referable)


#: What a shipped list may say of an entry.
_FIELDS = {each.name for each in fields(Entry)} - {"name", "reviewed"}
_ANY_CLASS = "@class"


def _with_classes(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Return *entries* with the names that :data:`_ANY_CLASS` stands for; it is none itself."""
    classes = frozenset(name for name, entry in entries.items() if entry.role == "class")
    for name, entry in entries.items():
        if any(_ANY_CLASS in names for names in entry.args.values()):
            args = {
                at: names | classes if _ANY_CLASS in names else names
                for at, names in entry.args.items()
            }
            entries[name] = replace(entry, args=MappingProxyType(args))
    return entries


class Profile:
    """A named, immutable set of entries. Make one with :meth:`named` and :meth:`allowing`."""

    __slots__ = ("_allowed", "_entries", "_name", "_resolved", "_returned")

    def __init__(self, name: str, entries: Iterable[Entry]) -> None:
        self._name = name
        self._entries = _with_classes({e.name: e for e in entries})
        self._allowed = frozenset(e.name for e in self._entries.values() if not e.reviewed)
        self._resolved: dict[str, Live] = {}
        self._returned: dict[str, tuple[type, ...]] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The listed entries, by name. The whole process shares profiles: read this only."""
        return MappingProxyType(self._entries)

    def __repr__(self) -> str:
        return f"Profile({self.name!r}, {len(self.entries)} globals)"

    @classmethod
    def of(cls, profile: str | Sequence[str] | Profile) -> Profile:
        """Return *profile* itself, or the profile of its name or names."""
        if isinstance(profile, Profile):
            return profile
        return _combined((profile,) if isinstance(profile, str) else tuple(profile))

    @classmethod
    def named(cls, *names: str) -> Profile:
        """Return the profiles that ship with safeser under *names*, as one."""
        return _combined(names)

    @staticmethod
    def granted(profiles: tuple[str, ...], allow: tuple[Allowed, ...] = ()) -> Profile:
        """Return the profile of a grant: its profiles, and the policy's additions."""
        return _granted(profiles, allow)

    def allowing(self, globals_: Mapping[str, Any] | Iterable[Allowed]) -> Profile:
        """Return this profile with *globals_* added.

        Names that are listed already stay as they were reviewed; at most they also become
        referable. For what the caller vouches for, see :class:`safeser.allowed.Allowed`.

        :param globals_: ``module:qualname`` to a role, or to a mapping of ``role`` and more:
            ``{"my:Point": {"role": "class", "fields": ["x", "y"], "hashable": True}}``; or to a
            list of either, ``["class", "reference"]``, one for each role.
        """
        allowed_ones = _allowed(globals_)
        entries = dict(self.entries)
        for allowed in allowed_ones:
            added, known = _own_entry(allowed), entries.get(allowed.name)
            entries[allowed.name] = known.merged(added) if known else added
        return Profile(f"{self.name} with what policy adds", entries.values())

    @property
    def allowed(self) -> frozenset[str]:
        """The names that an operator or program allowed, which no list that ships has."""
        return self._allowed

    def get(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def live(self, entry: Entry) -> Live:
        """Return the global of *entry*, looked up once and then kept.

        :raises PolicyDenied: if it is an allowed name that leads to another object.
        """
        found = self._resolved.get(entry.name)
        if found is None:
            live = Live(entry.name, allowed="" if entry.reviewed else entry.role)
            found = self._resolved.setdefault(entry.name, live)
        return found

    def returned(self, entry: Entry) -> tuple[type, ...]:
        """Return the exact types of what *entry* makes; none where it does not say."""
        found = self._returned.get(entry.name)
        if found is None:
            found = tuple(Live(name).found for name in entry.returns)
            found = self._returned.setdefault(entry.name, found)
        return found

    def object_of(self, entry: Entry) -> Any:
        """Return the live object of *entry*."""
        return self.live(entry).found


def _allowed(globals_: Mapping[str, Any] | Iterable[Allowed]) -> list[Allowed]:
    """Return the entries of *globals_*, or raise ConfigError for a name without a role."""
    if isinstance(globals_, Mapping):
        return [each for name, spec in globals_.items() for each in Allowed.each(name, spec)]
    listed = list(globals_) if isinstance(globals_, Iterable) else [globals_]
    if not all(isinstance(each, Allowed) for each in listed):
        raise ConfigError(
            "globals_ maps each module:qualname to a role",
            rule="config.allow",
            fix='Write {"my:Point": "class"}.',
        )
    return listed


def _own_entry(allowed: Allowed) -> Entry:
    if allowed.role not in ("class", "callable"):
        return Entry(allowed.name, allowed.role)
    plain = frozenset(("*",) if allowed.fields is None else allowed.fields)
    return Entry(
        allowed.name,
        allowed.role,
        via=("called", "instantiated") if allowed.role == "class" else ("called",),
        grows=allowed.grows,
        hashable=allowed.hashable,
        fields=plain if allowed.role == "class" else frozenset(),
        kwargs=frozenset(allowed.kwargs),
        returns=(allowed.returns,) if allowed.returns else (),
        setstate=allowed.setstate,
    )


@lru_cache(maxsize=256)
def _granted(profiles: tuple[str, ...], allow: tuple[Allowed, ...]) -> Profile:
    listed = _combined(profiles)
    return listed.allowing(allow) if allow else listed


@cache
def _combined(names: tuple[str, ...]) -> Profile:
    if not names:
        raise ConfigError("no profile is named", rule="config.profile")
    entries: dict[str, Entry] = {}
    for name in names:
        for entry in _shipped(name):
            known = entries.get(entry.name)
            entries[entry.name] = known.merged(entry) if known else entry
    return Profile("+".join(names), entries.values())


@cache
def _shipped(name: str) -> tuple[Entry, ...]:
    if name == "code":
        raise ConfigError(
            "profile code is not for restricted loads",
            rule="config.profile",
            fix="No pickle is loaded as code here. Send it through a channel as family cloudpickle,"
            " to a receiver whose policy grants code to you.",
        )
    if name not in DATA_PROFILES:
        raise ConfigError(
            f"there is no profile {shown(str(name))}",
            rule="config.profile",
            fix=f"Profiles are {', '.join(DATA_PROFILES)}.",
        )
    listed = resources.files("safeser.pickles").joinpath("listed", f"{name}.toml")
    document = tomllib.loads(listed.read_text("utf-8"))
    included = (entry for other in document.get("includes", ()) for entry in _shipped(other))
    return (*included, *_entries(document))


def _entries(document: Mapping[str, Any]) -> Iterable[Entry]:
    # What was reviewed of all entries of one role, for those that say nothing of their own.
    reviewed = document.get("reviewed", {})
    for name in document.get("references", ()):
        yield Entry(name, "reference", why=reviewed.get("reference", ""), reviewed=True)
    for group in document.get("alike", ()):
        fields = {name: value for name, value in group.items() if name != "names"}
        for name in group["names"]:
            yield _entry(name, fields, reviewed)
    for name, fields in document.get("entry", {}).items():
        yield _entry(name, fields, reviewed)


def _entry(name: str, fields: Mapping[str, Any], reviewed: Mapping[str, str]) -> Entry:
    unknown = set(fields) - _FIELDS
    if unknown:
        raise ConfigError(f"{name} has unknown fields {sorted(unknown)}", rule="config.profile")
    return Entry(
        name,
        fields["role"],
        make=fields.get("make", ""),
        state=fields.get("state", ""),
        via=tuple(fields.get("via", ("called",))),
        grows=fields.get("grows", ""),
        args=MappingProxyType(
            {int(at): frozenset(names) for at, names in fields.get("args", {}).items()}
        ),
        hashable=fields.get("hashable", False),
        referable=fields.get("referable", False),
        fields=frozenset(fields.get("fields", ())),
        why=fields.get("why", reviewed.get(fields["role"], "")),
        kwargs=frozenset(fields.get("kwargs", ())),
        returns=_returned(name, fields),
        setstate=fields.get("setstate", False),
        varies=fields.get("varies", ""),
        reviewed=True,
    )


def _returned(name: str, fields: Mapping[str, Any]) -> tuple[str, ...]:
    if fields["role"] not in ("callable", "class") or "varies" in fields:
        return ()
    if "returns" not in fields and fields["role"] == "callable":
        raise ConfigError(f"{name} does not say what it returns", rule="config.profile")
    returned = fields.get("returns", "itself")
    return (name,) if returned == "itself" else tuple(returned)
