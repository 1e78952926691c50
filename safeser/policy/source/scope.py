"""The names that a policy defines, for the contexts that use them.

The one rule: a policy is read from top to bottom, and later sections may use the names of earlier
ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from safeser.gate.values import FAMILIES, UNKNOWN
from safeser.policy.source.faults import UndefinedName, shown

__all__ = ["GROUP", "Scope", "Step"]

#: Prefix of a group's name where a principal may stand.
GROUP = "group:"

#: ``error`` is never listed: failures pass as plain data wherever msgpack does.
_LISTABLE = tuple(family for family in FAMILIES if family != "error")


class Step(NamedTuple):
    """A name of a principal or a group, as the file has it, with the principals that it means."""

    name: str
    members: frozenset[str]


class Scope:
    """Principals, groups and families of one policy, as far as it has been read.

    :ivar members: each text that may stand under ``sender`` or ``recipient``, and the principals
        that it means.
    :ivar own: families that the policy declares.
    """

    def __init__(self) -> None:
        self.members: Mapping[str, frozenset[str]] = {}
        self.own: frozenset[str] = frozenset()

    @property
    def listable(self) -> tuple[str, ...]:
        """The families that a context may list."""
        return (*_LISTABLE, *sorted(self.own))

    def define_principals(self, groups: Mapping[str, Collection[str]]) -> None:
        """Define the principals that are the keys of *groups*, and the groups that they are in."""
        found: dict[str, set[str]] = {}
        for name, listed in groups.items():
            for group in listed:
                found.setdefault(GROUP + group, set()).add(name)
        single = {name: frozenset({name}) for name in (*groups, UNKNOWN)}
        self.members = single | {group: frozenset(names) for group, names in found.items()}

    def principals(self, names: tuple[str, ...]) -> frozenset[str]:
        """Return the principals that *names* mean, each of which is defined."""
        if len(names) == 1:
            return self.members[names[0]]  # one set for all contexts that name the same group
        return frozenset().union(*(self.members[name] for name in names))

    def check_principal(self, name: str) -> str:
        """Return *name* if it means principals.

        :raises UndefinedName: if it does not.
        """
        if name in self.members:
            return name
        group = name.startswith(GROUP)
        raise UndefinedName(
            f"no principal is in {shown(name)}, so this never matches"
            if group
            else f"no principal is called {shown(name)}",
            rule="config.undefined",
            name=name,
            known=lambda: self._meant(name, group),
        )

    def _meant(self, name: str, group: bool) -> list[str]:
        """Return the names that *name* may be a misspelling of."""
        if GROUP + name in self.members:
            return [GROUP + name]
        return [each for each in self.members if each.startswith(GROUP) == group]
