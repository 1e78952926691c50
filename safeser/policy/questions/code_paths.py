"""Find who can run code where: a principal that is granted code in a process can act as it.

The one rule: a path is a chain of grants of the policy itself. A holder of the first principal's
key runs code in the second's process, reads its key there, and goes on as that principal.
"""

from __future__ import annotations

from collections.abc import Mapping

from safeser.policy.policy import Policy
from safeser.policy.questions.readable import groups_of, schedulers
from safeser.policy.questions.worker_groups import UNSEALED
from safeser.policy.rules import CODE_OPERATIONS, WEAKEST
from safeser.values import Context, Kind

__all__ = ["code_paths", "runs_code_in"]

_HOSTS = (True, False)


def runs_code_in(policy: Policy) -> Mapping[str, frozenset[str]]:
    """Return for each principal the others in whose processes a grant lets it run code."""
    found = {
        name: {
            other for other in policy.principals if other != name and _opens(policy, name, other)
        }
        for name in policy.principals
    }
    for scheduler in schedulers(policy):
        groups = groups_of(policy, scheduler)
        for name in policy.principals:
            author = groups.author_of(name)
            if author != UNSEALED and policy.signable(name, scheduler, Kind.TASK).code:
                found[name] |= groups.of(author) - {name}
    return {name: frozenset(others) for name, others in found.items()}


def _opens(policy: Policy, sender: str, recipient: str) -> bool:
    """Tell whether *recipient* opens code of *sender*, or carries out an operation that is code."""
    for kind in (Kind.DATA, Kind.TASK, Kind.CONTROL):
        for near in _HOSTS:
            context = Context(sender, recipient, kind, transport="safeser", same_host=near)
            rule = policy.match(context)
            if rule is None:
                continue
            if policy.decide(context, "cloudpickle").permitted:
                return True
            asked = CODE_OPERATIONS & rule.operations if rule.submission == "code" else ()
            if any(WEAKEST[name].strength <= kind.strength for name in asked):
                return True
    return False


def code_paths(policy: Policy) -> list[tuple[str, ...]]:
    """Return the shortest chain of grants from each principal to each that it can act as."""
    edges = runs_code_in(policy)
    found: list[tuple[str, ...]] = []
    for start in sorted(edges):
        reached: dict[str, tuple[str, ...]] = {start: (start,)}
        queue = [start]
        for name in queue:
            for other in sorted(edges[name] - reached.keys()):
                reached[other] = (*reached[name], other)
                queue.append(other)
        found += [path for end, path in reached.items() if end != start]
    return found
