"""Find what a policy permits against its own statements, and what it grants in vain.

The one rule: each finding compares two statements of the policy itself. A policy that merely
permits much has no findings.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator

from safeser.policy.policy import Policy
from safeser.policy.questions.acknowledged import find_paths
from safeser.policy.questions.lint_grants import (
    Finding,
    find_ends,
    find_grants,
    find_names,
    find_narrowed,
)
from safeser.policy.questions.readable import groups_of, read_by, schedulers
from safeser.policy.questions.worker_groups import UNSEALED, WorkerGroups
from safeser.policy.rules import SUBMIT
from safeser.policy.source.context import Rule
from safeser.values import Kind

__all__ = ["Finding", "lint"]

_NONE = "none"


def lint(policy: Policy, *, today: datetime.date) -> list[Finding]:
    """Return the findings about *policy*, in the order of schedulers, checks and names.

    - ``lint.observe``: its contexts are only recorded.
    - ``lint.no-worker``: an author may submit, and no worker takes the author's tasks.
    - ``lint.confinement``: code of an author runs in a confined process and in another one.
    - ``lint.narrowed``: a context refuses what a later one permits where a fact is unknown.
    - ``lint.values``: code of an author runs in a process that may read values which the author
      may not gather.

    Contexts that have ended count like others, beside the finding that they have.

    :param today: the day of UTC that dates are compared with.
    """
    if policy.written is not None:
        return [*_observing(policy), *lint(policy.written, today=today)]
    whole = policy.as_of(None)
    return [
        *find_paths(whole),
        *_groups(whole),
        *find_grants(whole),
        *find_narrowed(whole),
        *find_names(whole),
        *find_ends(whole, today=today),
    ]


def _groups(policy: Policy) -> list[Finding]:
    return [
        finding
        for scheduler in sorted(schedulers(policy))
        for groups in (groups_of(policy, scheduler),)
        if groups.takes
        for check in (_without_workers, _out_of_confinement, _read_in_workers)
        for finding in check(groups)
    ]


def _observing(policy: Policy) -> Iterator[Finding]:
    yield Finding(
        "lint.observe",
        "the policy only observes: every listed principal may run code in every other's processes",
        "Write 'mode: enforce' once its log has no 'shadow_rule' that you did not expect.",
    )


def _without_workers(groups: WorkerGroups) -> Iterator[Finding]:
    """Yield the authors whose graphs the scheduler admits and then refuses."""
    for author in _submitters(groups):
        if not groups.of(groups.author_of(author)):
            yield Finding(
                "lint.no-worker",
                f"{author} may submit to {groups.scheduler}, and no worker takes tasks of {author}",
                f"List {author} under 'authors' of a context from {groups.scheduler} to workers,"
                " or give no 'submission'.",
            )


def _out_of_confinement(groups: WorkerGroups) -> Iterator[Finding]:
    """Yield the authors whose confinement means nothing: their code runs outside as well."""
    principals = groups.policy.principals
    for author in _submitters(groups):
        run = _runs_code_in(groups, author)
        free = [name for name in run if principals[name].confined is None]
        if free and len(free) < len(run):
            confined = ", ".join(name for name in run if name not in free)
            yield Finding(
                "lint.confinement",
                f"code of {author} runs in {confined}, which is confined,"
                f" and in {', '.join(free)}, which is not",
                f"Take {author} from 'authors' of the contexts to {', '.join(free)}, or confine"
                " those as well.",
            )


def _read_in_workers(groups: WorkerGroups) -> Iterator[Finding]:
    """Yield the authors whose code may read values in a worker that they may not read."""
    policy = groups.policy
    authors = _submitters(groups)
    for author in authors:
        own = {author} | read_by(policy, author)
        for worker in _runs_code_in(groups, author):
            more = [name for name in authors if name in read_by(policy, worker) - own]
            if more:
                yield Finding(
                    "lint.values",
                    f"code of {author} runs in {worker}, which may read values of"
                    f" {', '.join(more)}; {author} may not",
                    f"Give the tasks of {author} workers of their own, or list"
                    f" {', '.join(more)} under 'values' of the context from {author} to"
                    f" {groups.scheduler}.",
                )


def _submitters(groups: WorkerGroups) -> list[str]:
    """Return the listed principals that may submit tasks to the scheduler, no worker among them."""
    return [
        name
        for name in groups.policy.principals
        if name not in groups.takes and any(_submissions(groups, name))
    ]


def _submissions(groups: WorkerGroups, name: str) -> Iterable[Rule]:
    return (
        rule
        for rule in groups.policy.contexts
        if name in rule.senders
        and groups.scheduler in rule.recipients
        and rule.submission != _NONE
        and SUBMIT in rule.operations
    )


def _runs_code_in(groups: WorkerGroups, author: str) -> list[str]:
    """Return the worker principals in whose processes code of *author* runs."""
    signs = groups.author_of(author)
    if signs != UNSEALED and not groups.policy.signable(author, groups.scheduler, Kind.TASK).code:
        return []
    return sorted(groups.of(signs))
