"""Determine which workers take whose tasks, by the contexts from a scheduler to workers.

The one rule: the contexts alone decide. A worker is given exactly the tasks that its own context
with the scheduler lets through: signed ones by the authors that the context lists, or tasks that
the scheduler pickled itself, as under ``submission: code``, where it takes pickles.
"""

from __future__ import annotations

from dataclasses import dataclass

from safeser.policy.policy import Policy
from safeser.policy.rules import COMPUTE, SUBMIT
from safeser.values import SEALED, UNKNOWN, Context, Kind

__all__ = ["UNSEALED", "Takes", "WorkerGroups"]

#: Stands for the author of tasks that a scheduler hands out in its own name. No principal has it.
UNSEALED = ""

_REGISTER = "register-worker"


@dataclass(frozen=True, slots=True)
class Takes:
    """Whose tasks one worker takes.

    :param authors: principals whose signed tasks it takes.
    :param unsealed: whether it takes tasks that the scheduler pickled in its own name.
    """

    authors: frozenset[str] = frozenset()
    unsealed: bool = False

    @classmethod
    def by(cls, policy: Policy, context: Context) -> Takes:
        """Return what a worker takes that is handed tasks in *context*."""
        if not policy.permits_operation(context).permitted:
            return cls()
        rule = policy.match(context)
        if rule is not None and rule.submission == SEALED:
            return cls(rule.authors)
        return cls(
            unsealed=all(
                policy.decide(context, "pickle", sealing=side).permitted for side in (True, False)
            )
        )

    def includes(self, author: str) -> bool:
        """Tell whether it takes tasks of *author*, or of :data:`UNSEALED`."""
        return self.unsealed if author == UNSEALED else author in self.authors


class WorkerGroups:
    """The principals that may be workers of one scheduler, and whose tasks each of them takes.

    A policy often lets nannies register like workers, so this says what may be, not what is there.

    :param policy: the policy that says so.
    :param scheduler: the scheduler's principal.
    """

    def __init__(self, policy: Policy, scheduler: str) -> None:
        self.policy = policy
        self.scheduler = scheduler
        self._authors: dict[str, str] = {}
        self.takes = {
            name: self._taken(name, scheduler)
            for name in sorted(self._handed(scheduler))
            if _registers(policy, name, scheduler)
        }

    def _handed(self, scheduler: str) -> frozenset[str]:
        """Return the listed principals to which some context lets the scheduler hand tasks."""
        rules = (
            rule
            for rule in self.policy.contexts
            if scheduler in rule.senders and COMPUTE in rule.operations
        )
        found: frozenset[str] = frozenset().union(*(rule.recipients for rule in rules))
        return found & self.policy.principals.keys()

    def _taken(self, name: str, scheduler: str) -> Takes:
        """Return what a worker of the principal *name* takes on this or on another machine."""
        each = [
            Takes.by(self.policy, _hop(scheduler, name, Kind.TASK, COMPUTE, same_host=same))
            for same in (True, False)
        ]
        authors = frozenset().union(*(takes.authors for takes in each))
        return Takes(authors, any(takes.unsealed for takes in each))

    def author_of(self, principal: str) -> str:
        """Return the author of the tasks of *principal*, as workers see it.

        That is :data:`UNSEALED` for one whose graphs the scheduler opens, and for the scheduler.
        """
        found = self._authors.get(principal)
        if found is None:
            found = self._authors[principal] = self._author_of(principal)
        return found

    def _author_of(self, principal: str) -> str:
        asked = (
            _hop(principal, self.scheduler, Kind.TASK, SUBMIT, same_host=same)
            for same in (True, False)
        )
        if principal in (self.scheduler, UNKNOWN) or any(
            rule is not None and rule.submission == "code" for rule in map(self.policy.match, asked)
        ):
            return UNSEALED
        return principal

    def of(self, author: str) -> frozenset[str]:
        """Return the worker principals that take tasks of *author*, or of :data:`UNSEALED`."""
        return frozenset(name for name, takes in self.takes.items() if takes.includes(author))


def _registers(policy: Policy, name: str, scheduler: str) -> bool:
    return any(
        policy.permits_operation(
            _hop(name, scheduler, Kind.ADMIN, _REGISTER, same_host=same)
        ).permitted
        for same in (True, False)
    )


def _hop(sender: str, recipient: str, kind: Kind, operation: str, *, same_host: bool) -> Context:
    return Context(sender, recipient, kind, operation, transport="safeser", same_host=same_host)
