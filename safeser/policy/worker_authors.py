"""Workers that sign tasks: only for workers of their own principal or group.

The one rule: a worker's key runs nothing on workers of others. A worker signs what its tasks submit
(``worker_client``); where contexts towards other workers listed it as an author, one stolen
worker's key would run code on all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from safeser.policy.rules import COMPUTE, SUBMIT, Principal, Rule
from safeser.values import SEALED, Kind

__all__ = ["ForeignAuthor", "find_foreign_author"]


class ForeignAuthor(NamedTuple):
    """A worker that may sign tasks for another principal's worker."""

    #: Which of the policy's contexts lists it.
    place: int
    author: str
    worker: str


def find_foreign_author(
    rules: Sequence[Rule], principals: Mapping[str, Principal]
) -> ForeignAuthor | None:
    """Return the first worker that signs for one with which it has no group in common."""
    handing = [(index, rule) for index, rule in enumerate(rules) if _passes(rule, COMPUTE)]
    workers = frozenset().union(*(rule.recipients for _, rule in handing))
    groups = _Groups(principals)
    for index, rule in handing:
        signing = {
            author
            for submitting in rules
            if _passes(submitting, SUBMIT) and submitting.recipients & rule.senders
            for author in submitting.senders & rule.authors & workers
        }
        for author in sorted(signing):
            others = rule.recipients - groups.around(author)
            if others:
                return ForeignAuthor(index, author, min(others))
    return None


def _passes(rule: Rule, operation: str) -> bool:
    sealed = rule.submission == SEALED and Kind.TASK in rule.kinds
    return sealed and operation in rule.operations


class _Groups:
    """Who has a group in common with whom."""

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._principals = principals
        self._members: dict[str, set[str]] = {}
        self._known: dict[frozenset[str], frozenset[str]] = {}
        for name, principal in principals.items():
            for group in principal.groups:
                self._members.setdefault(group, set()).add(name)

    def around(self, name: str) -> frozenset[str]:
        """Return *name* and all that are in a group with it."""
        groups = self._principals[name].groups
        if groups not in self._known:
            self._known[groups] = frozenset().union(*(self._members[each] for each in groups))
        return self._known[groups] | {name}
