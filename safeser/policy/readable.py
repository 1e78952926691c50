"""Whose values a principal may read: its own, and those of the authors that the policy says.

The one rule: who may run an author's tasks may read that author's values, since it computes them
anyway; everyone else reads its own values and those of the authors that its context lists under
``values``. The author of a value is the principal that submitted its key or scattered it.
"""

from __future__ import annotations

from safeser.policy.policy import Policy
from safeser.policy.rules import COMPUTE
from safeser.policy.worker_groups import WorkerGroups
from safeser.values import Context

__all__ = ["is_worker", "may_read", "readable", "run_by"]


def may_read(policy: Policy, context: Context, author: str | None) -> bool:
    """Tell whether the sender of *context* may read a value of *author* from its recipient.

    :param author: None where it is not known: then only for processes of the same principal.
    """
    return context.sender == context.recipient or author in readable(policy, context)


def readable(policy: Policy, context: Context) -> frozenset[str]:
    """Return the authors whose values the sender of *context* may read from its recipient."""
    rule = policy.match(context)
    if rule is None:
        return frozenset()
    known = policy.remembered
    asked = ("readable", context.sender, rule.name)
    found: frozenset[str] | None = known.get(asked)
    if found is None:
        listed = policy.principals.keys() & {context.sender}
        found = known[asked] = rule.values | run_by(policy, context.sender) | listed
    return found


def run_by(policy: Policy, worker: str) -> frozenset[str]:
    """Return the authors whose tasks workers of the principal *worker* may run, by any scheduler.

    Among them are users whose tasks no worker runs: what they scatter belongs to no group.
    """
    asked = ("run-by", worker)
    found: frozenset[str] | None = policy.remembered.get(asked)
    if found is None:
        each = (_run_for(policy, scheduler, worker) for scheduler in _schedulers(policy, worker))
        found = policy.remembered[asked] = frozenset().union(*each)
    return found


def _schedulers(policy: Policy, worker: str) -> frozenset[str]:
    """Return the listed principals that may hand tasks to *worker*."""
    handing = (
        rule.senders
        for rule in policy.contexts
        if worker in rule.recipients and COMPUTE in rule.operations
    )
    return frozenset().union(*handing) & policy.principals.keys()


def is_worker(policy: Policy, name: str) -> bool:
    """Tell whether workers of the principal *name* may register with some scheduler."""
    return any(name in _groups(policy, each).takes for each in _schedulers(policy, name))


def _groups(policy: Policy, scheduler: str) -> WorkerGroups:
    asked = ("groups", scheduler)
    found: WorkerGroups | None = policy.remembered.get(asked)
    if found is None:
        found = policy.remembered[asked] = WorkerGroups(policy, scheduler)
    return found


def _run_for(policy: Policy, scheduler: str, worker: str) -> frozenset[str]:
    groups = _groups(policy, scheduler)
    takes = groups.takes.get(worker)
    if takes is None:
        return frozenset()
    return frozenset(
        name
        for name in policy.principals
        for author in (groups.author_of(name),)
        if takes.includes(author) or not (groups.of(author) or name in groups.takes)
    )
