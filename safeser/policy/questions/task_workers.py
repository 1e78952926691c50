"""Determine the workers of a scheduler, and whose tasks they take, by the contexts of a policy.

The one rule: the contexts alone decide. A worker is given exactly the tasks that its own context
with the scheduler lets through: signed ones by the authors that the context lists, or tasks that
the scheduler pickled itself, as under ``submission: code``, where it takes pickles.
"""

from __future__ import annotations

from safeser.gate.decision import COMPUTE, SUBMIT
from safeser.gate.values import UNKNOWN, Kind
from safeser.policy.policy import Policy
from safeser.policy.taken_tasks import Takes, anywhere

__all__ = ["TaskWorkers", "schedulers", "task_workers"]

_REGISTER = "register-worker"


class TaskWorkers:
    """The principals that may be workers of one scheduler, and whose tasks each of them takes.

    A policy often lets nannies register like workers, so this says what may be, not what is there.

    :param policy: the policy that says so.
    :param scheduler: the scheduler's principal.
    """

    def __init__(self, policy: Policy, scheduler: str) -> None:
        self.policy = policy
        self.scheduler = scheduler
        #: Whose tasks each of them takes.
        self.takes = {
            name: self._taken(name) for name in sorted(self._handed()) if self._registers(name)
        }

    def _handed(self) -> frozenset[str]:
        """Return the listed principals to which some context lets the scheduler hand tasks."""
        rules = (rule for rule in self.policy.contexts if COMPUTE in rule.operations)
        found = (rule.recipients for rule in rules if self.scheduler in rule.senders)
        return (frozenset().union(*found) & self.policy.principals.keys()) - {self.scheduler}

    def _registers(self, name: str) -> bool:
        asked = anywhere(name, self.scheduler, _REGISTER)
        return any(self.policy.permits_operation(each).permitted for each in asked)

    def _taken(self, name: str) -> Takes:
        """Return what a worker of the principal *name* takes on this or on another machine."""
        contexts = anywhere(self.scheduler, name, COMPUTE, Kind.TASK)
        each = [Takes.by(self.policy, context) for context in contexts]
        authors = frozenset().union(*(takes.authors for takes in each))
        return Takes(authors, any(takes.unsealed for takes in each))

    def is_opened(self, principal: str) -> bool:
        """Tell whether the scheduler opens graphs of *principal*, and pickles their tasks."""
        rules = map(self.policy.match, anywhere(principal, self.scheduler, SUBMIT, Kind.TASK))
        return principal in (self.scheduler, UNKNOWN) or any(
            rule is not None and rule.submission == "code" for rule in rules
        )

    def of(self, author: str) -> frozenset[str]:
        """Return the worker principals that take tasks of *author*."""
        if self.is_opened(author):
            return frozenset(name for name, takes in self.takes.items() if takes.unsealed)
        return frozenset(name for name, takes in self.takes.items() if author in takes.authors)


def schedulers(policy: Policy) -> frozenset[str]:
    """Return the listed principals that may hand tasks to some worker."""
    handing = (rule.senders for rule in policy.contexts if COMPUTE in rule.operations)
    return frozenset().union(*handing) & policy.principals.keys()


def task_workers(policy: Policy, scheduler: str) -> TaskWorkers:
    """Return the workers of *scheduler*, worked out once for each policy."""
    asked = ("task-workers", scheduler)
    found: TaskWorkers | None = policy.remembered.get(asked)
    if found is None:
        found = policy.remembered[asked] = TaskWorkers(policy, scheduler)
    return found
