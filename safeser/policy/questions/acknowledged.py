"""Compare the paths of code that a policy has with those that it acknowledges.

The one rule: an acknowledgement is exact. It names each principal of a path, or groups of which all
members have it; what it names beside that is a finding, like a path that it does not name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from safeser.policy.policy import Policy
from safeser.policy.questions.code_paths import CodePath, code_paths_among
from safeser.policy.questions.difference_text import people
from safeser.policy.questions.domain import Domain
from safeser.policy.questions.lint_grants import Finding
from safeser.policy.source.model import AcknowledgedModel
from safeser.policy.source.scope import Step

__all__ = ["find_paths"]

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
