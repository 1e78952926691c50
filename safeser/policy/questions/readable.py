"""Determine whose values a principal may read: its own, and those that the policy grants.

The one rule: a principal that may run an author's tasks may read that author's values, since it
computes them anyway; every other principal reads its own values and those of the authors that its
context lists under ``values``. The author of a value is the principal that submitted its key or
scattered it.
"""

from __future__ import annotations

from safeser.policy.policy import Policy
from safeser.policy.questions.worker_groups import WorkerGroups
from safeser.policy.rules import COMPUTE, READING
from safeser.values import Context, Kind

__all__ = ["groups_of", "is_worker", "may_read", "read_by", "readable", "run_by", "schedulers"]


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


def read_by(policy: Policy, name: str) -> frozenset[str]:
    """Return the authors whose values the listed principal *name* may read from some holder."""
    holders = (
        rule.recipients & policy.principals.keys()
        for rule in policy.contexts
        if name in rule.senders and READING & rule.operations
    )
    asked = (
        readable(policy, Context(name, holder, Kind.DATA, "get_data"))
        for holder in frozenset().union(*holders)
    )
    return frozenset().union(*asked)


def run_by(policy: Policy, worker: str) -> frozenset[str]:
    """Return the authors whose tasks workers of the principal *worker* may run, by any scheduler.

    Among them are users whose tasks no worker runs: what they scatter belongs to no group.
    """
    asked = ("run-by", worker)
    found: frozenset[str] | None = policy.remembered.get(asked)
    if found is None:
        each = (_run_for(policy, scheduler, worker) for scheduler in schedulers(policy, worker))
        found = policy.remembered[asked] = frozenset().union(*each)
    return found


def schedulers(policy: Policy, worker: str | None = None) -> frozenset[str]:
    """Return the listed principals that may hand tasks to *worker*; None for any worker."""
    handing = (
        rule.senders
        for rule in policy.contexts
        if COMPUTE in rule.operations and (worker is None or worker in rule.recipients)
    )
    return frozenset().union(*handing) & policy.principals.keys()


def is_worker(policy: Policy, name: str) -> bool:
    """Tell whether workers of the principal *name* may register with some scheduler."""
    return any(name in groups_of(policy, each).takes for each in schedulers(policy, name))


def groups_of(policy: Policy, scheduler: str) -> WorkerGroups:
    """Return the worker groups of *scheduler*, worked out once for each policy."""
    asked = ("groups", scheduler)
    found: WorkerGroups | None = policy.remembered.get(asked)
    if found is None:
        found = policy.remembered[asked] = WorkerGroups(policy, scheduler)
    return found


def _run_for(policy: Policy, scheduler: str, worker: str) -> frozenset[str]:
    groups = groups_of(policy, scheduler)
    takes = groups.takes.get(worker)
    if takes is None:
        return frozenset()
    return frozenset(
        name
        for name in policy.principals
        for author in (groups.author_of(name),)
        if takes.includes(author) or not (groups.of(author) or name in groups.takes)
    )
