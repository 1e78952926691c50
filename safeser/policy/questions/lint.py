"""Find what a policy permits against its own statements, and what it grants in vain.

The one rule: each finding compares two statements of the policy itself. A policy that merely
permits much has no findings.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence

from safeser.gate.decision import SUBMIT
from safeser.gate.values import Kind
from safeser.policy.policy import Policy
from safeser.policy.questions.code_paths import CodePath, code_paths_among
from safeser.policy.questions.difference_text import people
from safeser.policy.questions.domain import Domain
from safeser.policy.questions.lint_grants import (
    Finding,
    find_ends,
    find_grants,
    find_names,
    find_narrowed,
)
from safeser.policy.questions.readable import read_by
from safeser.policy.questions.task_workers import TaskWorkers, schedulers, task_workers
from safeser.policy.source.model import AcknowledgedModel
from safeser.policy.source.scope import Step

__all__ = ["Finding", "lint"]

_NONE = "none"


def lint(policy: Policy, *, today: datetime.date) -> list[Finding]:
    """Return the findings about *policy*, in the order of schedulers, checks and names.

    - ``lint.observe``: its contexts are only recorded.
    - ``lint.no-worker``: an author may submit, and no worker takes the author's tasks.
    - ``lint.confinement``: code of an author runs in a confined process and in another one.
    - ``lint.narrowed``: a context refuses what a later one permits where a fact is unknown.
    - ``lint.values``: 'values' keeps from an author what its code reads on the workers.

    Contexts that have ended count like others, beside the finding that they have.

    :param today: the day of UTC that dates are compared with.
    """
    if policy.written is not None:
        return [_OBSERVING, *lint(policy.written, today=today)]
    whole = policy.as_of(None)
    return [
        *find_paths(whole),
        *_workers(whole),
        *find_grants(whole),
        *find_narrowed(whole),
        *find_names(whole),
        *find_ends(whole, today=today),
    ]


def _workers(policy: Policy) -> list[Finding]:
    return [
        finding
        for scheduler in sorted(schedulers(policy))
        for workers in (task_workers(policy, scheduler),)
        if workers.takes
        for check in (_without_workers, _out_of_confinement, _read_in_workers)
        for finding in check(workers)
    ]


_OBSERVING = Finding(
    "lint.observe",
    "the policy only observes: every listed principal may run code in each process to which"
    " some context sends code",
    "Write 'mode: enforce' once its log has no 'shadow_rule' that you did not expect.",
)


def _without_workers(workers: TaskWorkers) -> Iterator[Finding]:
    """Yield the authors whose tasks the scheduler admits and every worker refuses."""
    for author in _submitters(workers):
        if not workers.of(author):
            yield Finding(
                "lint.no-worker",
                f"{author} may submit to {workers.scheduler}, and no worker takes tasks of"
                f" {author}",
                f"List {author} under 'authors' of a context from {workers.scheduler} to workers,"
                " or give no 'submission'.",
            )


def _out_of_confinement(workers: TaskWorkers) -> Iterator[Finding]:
    """Yield the authors whose confinement means nothing: their code runs outside as well."""
    principals = workers.policy.principals
    for author in _submitters(workers):
        run = _runs_code_in(workers, author)
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


def _read_in_workers(workers: TaskWorkers) -> Iterator[Finding]:
    """Yield the authors from whom 'values' keeps nothing: their code runs where the values are."""
    authors = _submitters(workers)
    for author in authors:
        own = {author} | read_by(workers.policy, author)
        kept = [name for name in authors if name not in own]
        run = _runs_code_in(workers, author)
        if kept and run:
            yield Finding(
                "lint.values",
                f"'values' keeps values of {', '.join(kept)} from {author}, whose code runs in"
                f" {', '.join(run)} and can read all that is there",
                f"Give {author} a cluster of its own (docs/how-to/worker-groups.md), or list"
                f" {', '.join(kept)} under 'values' of the context from {author} to"
                f" {workers.scheduler}.",
            )


def _submitters(workers: TaskWorkers) -> list[str]:
    """Return the listed principals that may submit tasks to the scheduler, no worker among them."""
    senders = [
        rule.senders
        for rule in workers.policy.contexts
        if workers.scheduler in rule.recipients
        and rule.submission != _NONE
        and SUBMIT in rule.operations
    ]
    submitting = frozenset().union(*senders) - workers.takes.keys()
    return [name for name in workers.policy.principals if name in submitting]


def _runs_code_in(workers: TaskWorkers, author: str) -> list[str]:
    """Return the worker principals in whose processes code of *author* runs."""
    signs = workers.policy.may_sign(author, workers.scheduler, Kind.TASK)
    return sorted(workers.of(author)) if workers.is_opened(author) or signs else []


# --- compare the paths of code that a policy has with those that it acknowledges ------------------
# The one rule: an acknowledgement is exact. It names each principal of a path, or groups of which
# all members have it; what it names beside that is a finding, like a path that it does not name.

_Class = tuple[str, ...]


def find_paths(policy: Policy) -> Iterator[Finding]:
    """Yield paths of code that are not acknowledged, and acknowledgements of none.

    - ``lint.code``: a holder of one principal's key can run code as another one.
    - ``lint.acknowledged``: a path that is acknowledged, and that no grants lead along.
    """
    classes = _classes(policy)
    paths = code_paths_among(policy, classes)
    for path in paths:
        if not any(_covers(each.path, path.steps) for each in policy.acknowledged):
            yield _unacknowledged(policy, path)
    chains = {path.steps for path in paths}
    for each in policy.acknowledged:
        stale = next((one for one in _named(each, classes) if one not in chains), None)
        if stale is not None:
            yield _stale(policy, each, stale)


def _classes(policy: Policy) -> list[_Class]:
    """Return the classes of principals that stand in the same places, acknowledgements included."""
    found: dict[tuple[_Class, tuple[bool, ...]], list[str]] = {}
    steps = [step for each in policy.acknowledged for step in each.path]
    for alike in Domain.of(policy).classes:
        for name in alike:
            named = tuple(name in step.members for step in steps)
            found.setdefault((alike, named), []).append(name)
    return list(map(tuple, found.values()))


def _covers(acknowledged: Sequence[Step], steps: Sequence[_Class]) -> bool:
    return len(acknowledged) == len(steps) and all(
        step.members.issuperset(names) for step, names in zip(acknowledged, steps, strict=True)
    )


def _named(
    acknowledged: AcknowledgedModel, classes: Sequence[_Class]
) -> Iterator[tuple[_Class, ...]]:
    """Yield each chain of classes that *acknowledged* names."""
    within = [
        [each for each in classes if step.members.issuperset(each)] for step in acknowledged.path
    ]
    for chain in itertools.product(*within):
        # One principal is no path by itself, as where both ends are groups that it is in.
        if all(len(each) >= chain.count(each) for each in chain):
            yield chain


def _unacknowledged(policy: Policy, path: CodePath) -> Finding:
    names = [people(policy, step) for step in path.steps]
    by = "; ".join(
        f"{one} -> {other} by {', '.join(contexts)}"
        for (one, other), contexts in zip(itertools.pairwise(names), path.contexts, strict=True)
    )
    return Finding(
        "lint.code",
        f"a holder of the key of {names[0]} can run code as {names[-1]}: {by}",
        "If that is meant, list it under 'acknowledge' with a reason:"
        f" {{path: [{', '.join(names)}], reason: ...}}. Otherwise take a grant out.",
    )


def _stale(policy: Policy, acknowledged: AcknowledgedModel, chain: tuple[_Class, ...]) -> Finding:
    names = " -> ".join(step.name for step in acknowledged.path)
    one = " -> ".join(people(policy, each) for each in chain)
    what = "" if one == names else f" for {one}"
    return Finding(
        "lint.acknowledged",
        f"the path of code {names} is acknowledged, and there is none{what}",
        "Take it out of 'acknowledge', or name only those that have it.",
    )
