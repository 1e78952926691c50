"""Determine whose values a client may read, its own and those that the policy grants, or change.

The one rule: a client reads its own values and those of the authors that its context lists under
``values``. The author of a value is the principal that submitted its key or scattered it. Workers
and schedulers of a cluster read every value, since they hold them all; so does a client that may
read the values of every other user.
"""

from __future__ import annotations

from collections.abc import Iterable

from safeser.gate.decision import COMPUTE, SUBMIT
from safeser.gate.values import SEALED, Context, Kind
from safeser.policy.policy import Policy
from safeser.policy.questions.task_workers import schedulers, task_workers
from safeser.policy.rules import READING
from safeser.policy.taken_tasks import Takes

__all__ = ["BRINGING", "read_by", "readable", "reads_all", "runs_code"]

#: By these a user brings data to a cluster.
BRINGING = frozenset({"scatter", "update_data", "update-data"})

_NONE = "none"


def readable(policy: Policy, context: Context) -> frozenset[str]:
    """Return the authors whose values the sender of *context* may read from its recipient."""
    rule = policy.match(context)
    if rule is None:
        return frozenset()
    known = policy.remembered
    asked = ("readable", context.sender, rule.name)
    found: frozenset[str] | None = known.get(asked)
    if found is None:
        found = rule.values | (policy.principals.keys() & {context.sender})
        servers, users = _servers(policy), _users(policy)
        if context.sender in servers or (users and users <= found):
            found |= servers | users
        known[asked] = found
    return found


def reads_all(policy: Policy, context: Context) -> bool:
    """Tell whether the sender of *context* may read the values of every author."""
    everyone = _servers(policy) | _users(policy)
    return bool(everyone) and everyone <= readable(policy, context)


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


def runs_code(policy: Policy, context: Context, schedulers: Iterable[str]) -> bool:
    """Tell whether the sender of *context* may run code in the worker that is its recipient.

    :param schedulers: principals that may hand on what the sender signed.
    """
    submission = policy.bound(context).submission
    if submission != SEALED:
        return submission == "code"
    return any(_is_author(policy, context, each) for each in schedulers)


def _is_author(policy: Policy, context: Context, scheduler: str) -> bool:
    handed = Context(scheduler, context.recipient, Kind.TASK, COMPUTE, transport="safeser")
    listed = policy.decide(handed, SEALED, author=context.sender).permitted
    return listed and policy.may_sign(context.sender, scheduler, Kind.TASK)


def _servers(policy: Policy) -> frozenset[str]:
    """Return the schedulers of *policy* that have workers, and these."""
    found: set[str] = set()
    for each in schedulers(policy):
        takes = task_workers(policy, each).takes
        workers = {name for name, taken in takes.items() if taken != Takes()}
        found |= {each, *workers} if workers else workers
    return frozenset(found)


def _users(policy: Policy) -> frozenset[str]:
    """Return the principals that submit or bring values to a scheduler, no server among them."""
    servers = _servers(policy)
    users = (
        rule.senders & policy.principals.keys()
        for rule in policy.contexts
        if rule.recipients & servers
        and (BRINGING & rule.operations or (SUBMIT in rule.operations and rule.submission != _NONE))
    )
    return frozenset().union(*users) - servers
