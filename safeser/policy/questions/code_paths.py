"""Find who can run code where: a principal that is granted code in a process can act as it.

The one rule: a path is a chain of grants of the policy itself. A holder of the first principal's
key runs code in the second's process, reads its key there, and goes on as that principal.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from safeser.gate.decision import COMPUTE, SUBMIT
from safeser.gate.values import SEALED, Context, Kind
from safeser.operations.groups import PARTS
from safeser.policy.policy import Policy
from safeser.policy.questions.domain import Domain, Way
from safeser.policy.questions.task_workers import schedulers, task_workers
from safeser.policy.rules import CODE_OPERATIONS, SESSION_TRANSPORTS, WEAKEST

__all__ = ["CodePath", "code_paths", "code_paths_among"]

_KINDS = (Kind.DATA, Kind.TASK, Kind.CONTROL)
_SIGNED = PARTS["worker-run"] | PARTS["worker-plugins"]

#: Principals that stand for a class: one, and another to which the first may be granted code.
_STANDING = 2

#: The contexts that grant code, by who runs it in whose process.
_Edges = Mapping[str, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class CodePath:
    """One chain of grants of code.

    :param steps: classes of principals in the same places; each can run code as the next.
    :param contexts: for each step but the first, the contexts that grant it.
    """

    steps: tuple[tuple[str, ...], ...]
    contexts: tuple[tuple[str, ...], ...]

    @property
    def ends(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.steps[0], self.steps[-1]


def code_paths(policy: Policy) -> list[CodePath]:
    """Return the shortest chain from each class of principals to each that it can act as."""
    return code_paths_among(policy, Domain.of(policy).classes)


def code_paths_among(policy: Policy, classes: Collection[tuple[str, ...]]) -> list[CodePath]:
    """Return the shortest chains between *classes*, whose members stand in the same places."""
    listed = [each for each in sorted(classes) if each[0] in policy.principals]
    of = {name: each for each in listed for name in each[:_STANDING]}
    edges = _granted(policy, [*of])
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], CodePath] = {}
    for start in of:
        for chain in _chains(edges, start):
            contexts = tuple(edges[one][other] for one, other in itertools.pairwise(chain))
            path = CodePath(tuple(of[name] for name in chain), contexts)
            found.setdefault(path.ends, path)
    return list(found.values())


def _chains(edges: _Edges, start: str) -> Iterator[tuple[str, ...]]:
    """Yield the shortest chain from *start* to each other name that it reaches."""
    reached: dict[str, tuple[str, ...]] = {start: (start,)}
    queue = [start]
    for name in queue:
        for other in sorted(edges[name].keys() - reached.keys()):
            reached[other] = (*reached[name], other)
            queue.append(other)
            yield reached[other]


def _granted(policy: Policy, names: Sequence[str]) -> _Edges:
    ways = _ways(policy)
    found: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in names}
    for one, other in itertools.permutations(names, 2):
        by = dict.fromkeys((*_opened(policy, one, other, ways), *_relayed(policy, one, other)))
        if by:
            found[one][other] = tuple(by)
    return found


def _ways(policy: Policy) -> list[Way]:
    """Return one of each sort of ways that lead to a session, in which principals are proven."""
    proven = (
        next((each for each in ways if each[0] in SESSION_TRANSPORTS and each[1] is not None), None)
        for ways in Domain.of(policy).ways
    )
    return [way for way in proven if way is not None]


def _opened(policy: Policy, sender: str, recipient: str, ways: Sequence[Way]) -> Iterator[str]:
    """Yield the contexts by which *recipient* opens code of *sender*, or runs what it asks for."""
    signed = _SIGNED if _opens_signed(policy, recipient) else frozenset()
    for (transport, near), kind in itertools.product(ways, _KINDS):
        context = Context(sender, recipient, kind, transport=transport, same_host=near)
        rule = policy.match(context)
        if rule is None:
            continue
        asked = [
            replace(context, operation=name)
            for name in CODE_OPERATIONS & rule.operations
            if WEAKEST[name].strength <= kind.strength
        ]
        if policy.decide(context, "cloudpickle").permitted or any(
            policy.permits_operation(each).permitted
            if rule.submission == "code"
            else each.operation in signed and policy.decide(each, SEALED).permitted
            for each in asked
        ):
            yield rule.name


def _opens_signed(policy: Policy, name: str) -> bool:
    """Tell whether processes of *name* open signed functions; a scheduler passes them on."""
    handing = [
        rule for rule in policy.contexts if COMPUTE in rule.operations and rule.submission != "none"
    ]
    is_worker = any(name in rule.recipients for rule in handing)
    return is_worker or not any(name in rule.senders for rule in handing)


def _relayed(policy: Policy, author: str, worker: str) -> Iterator[str]:
    """Yield the contexts by which *worker* runs what *author* signed and a scheduler relays."""
    for scheduler in schedulers(policy) - {author, worker}:
        workers = task_workers(policy, scheduler)
        tasks = (
            not workers.is_opened(author)
            and worker in workers.of(author)
            and policy.may_sign(author, scheduler, Kind.TASK)
        )
        if policy.may_sign(author, scheduler, Kind.CONTROL):
            for operation in sorted(_SIGNED):
                yield from _both(policy, (author, scheduler, worker), operation, operation)
        if tasks:
            yield from _both(policy, (author, scheduler, worker), SUBMIT, COMPUTE)


def _both(policy: Policy, chain: tuple[str, str, str], asked: str, handed: str) -> Iterator[str]:
    """Yield the contexts of both hops, where sealed calls pass *asked* and then *handed*."""
    author, scheduler, worker = chain
    first = [
        rule.name
        for context in _hops(author, scheduler, asked)
        if (rule := policy.match(context)) and policy.decide(context, SEALED).permitted
    ]
    then = [
        rule.name
        for context in _hops(scheduler, worker, handed)
        if (rule := policy.match(context))
        and policy.decide(context, SEALED, author=author).permitted
    ]
    if first and then:
        yield from (*first, *then)


def _hops(sender: str, recipient: str, operation: str) -> list[Context]:
    kind = max(WEAKEST[operation], Kind.TASK, key=lambda each: each.strength)
    return [
        Context(sender, recipient, kind, operation, transport="safeser", same_host=near)
        for near in (True, False)
    ]
