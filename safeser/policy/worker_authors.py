"""Refuse policies by which one worker's key runs code on workers of other groups.

The one rule: a worker signs tasks and functions only for workers of its own principal or group. A
worker signs what its tasks submit (``worker_client``); if contexts to other workers listed it as an
author, one stolen worker's key would run code on all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from safeser.operations.groups import PARTS
from safeser.policy.rules import COMPUTE, SUBMIT, WEAKEST, Principal
from safeser.policy.source.context import Rule
from safeser.values import SEALED

__all__ = ["ForeignAuthor", "find_foreign_author"]


#: What carries signed code to a scheduler, and from there to workers.
_CODE = PARTS["worker-run"] | PARTS["worker-plugins"]
_SUBMITTED, _HANDED = _CODE | {SUBMIT}, _CODE | {COMPUTE}


class ForeignAuthor(NamedTuple):
    """A worker that may sign what runs on another principal's worker."""

    #: Which of the policy's contexts lists it.
    place: int
    author: str
    worker: str


def find_foreign_author(
    rules: Sequence[Rule], principals: Mapping[str, Principal]
) -> ForeignAuthor | None:
    """Return the first worker that signs for one with which it has no group in common."""
    workers = frozenset().union(*(rule.recipients for rule in rules if _passes(rule, {COMPUTE})))
    groups = _Groups(principals)
    for index, rule in enumerate(rules):
        if not _passes(rule, _HANDED):
            continue
        signing = {
            author
            for submitting in rules
            if _passes(submitting, _SUBMITTED) and submitting.recipients & rule.senders
            for author in submitting.senders & rule.authors & workers
        }
        for author in sorted(signing):
            others = (rule.recipients & workers) - groups.group_members(author)
            if others:
                return ForeignAuthor(index, author, min(others))
    return None


def _passes(rule: Rule, operations: Collection[str]) -> bool:
    """Tell whether one of *operations*, sealed, passes by *rule*."""
    passing = rule.operations.intersection(operations) if rule.submission == SEALED else ()
    return any(WEAKEST[each] in rule.kinds for each in passing)


class _Groups:
    """The principals that have a group in common with each principal."""

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        self._principals = principals
        self._members: dict[str, set[str]] = {}
        self._known: dict[frozenset[str], frozenset[str]] = {}
        for name, principal in principals.items():
            for group in principal.groups:
                self._members.setdefault(group, set()).add(name)

    def group_members(self, name: str) -> frozenset[str]:
        """Return *name* and all that are in a group with it."""
        groups = self._principals[name].groups
        if groups not in self._known:
            self._known[groups] = frozenset().union(*(self._members[each] for each in groups))
        return self._known[groups] | {name}
