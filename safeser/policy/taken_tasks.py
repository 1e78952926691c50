"""Whose tasks a worker takes, and the check that all workers of one scheduler take the same.

The one rule: workers of one scheduler are one trust group. The scheduler gives a task to any of
them, and each of them reads every value; so two of them that take tasks of different authors would
be two groups that share a cluster, and such a policy does not load.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from safeser.gate.decision import ANYWHERE, COMPUTE
from safeser.gate.values import SEALED, Context, Decision, Grant, Kind
from safeser.policy.compiled import Compiled
from safeser.policy.rules import Principal
from safeser.policy.source.context import Rule
from safeser.policy.source.faults import fault
from safeser.policy.source.loader import Document

__all__ = ["Takes", "anywhere", "check_one_group"]

_REGISTER = "register-worker"

#: Names that the error shows of each worker's authors.
_SHOWN = 5


class _Decides(Protocol):
    """What this module asks of a table of contexts, or of a policy."""

    def permits_operation(self, context: Context) -> Decision: ...
    def grant(self, context: Context) -> Grant | None: ...
    def decide(self, context: Context, family: str | None, *, sealing: bool = ...) -> Decision: ...


@dataclass(frozen=True, slots=True)
class Takes:
    """Whose tasks one worker takes.

    :param authors: principals whose signed tasks it takes.
    :param unsealed: whether it takes tasks that the scheduler pickled in its own name.
    """

    authors: frozenset[str] = frozenset()
    unsealed: bool = False

    @classmethod
    def by(cls, decides: _Decides, context: Context) -> Takes:
        """Return what a worker takes that is handed tasks in *context*."""
        if not decides.permits_operation(context).permitted:
            return cls()
        grant = decides.grant(context)
        assert grant is not None  # or its operation would not be granted
        if grant.submission == SEALED:
            return cls(grant.authors)
        return cls(
            unsealed=all(
                decides.decide(context, "pickle", sealing=side).permitted for side in (True, False)
            )
        )

    def __str__(self) -> str:
        if self.unsealed:
            return "tasks that the scheduler opens"
        names = sorted(self.authors)
        more = ", ..." if len(names) > _SHOWN else ""
        return f"sealed tasks of {', '.join(names[:_SHOWN])}{more}"


def anywhere(
    sender: str,
    recipient: str,
    operation: str,
    kind: Kind = Kind.ADMIN,
    *,
    hosts: Iterable[bool | None] = (True, False),
) -> Iterator[Context]:
    """Yield the contexts of an operation on ``safeser://``, wherever the peer will turn out to be.

    One that says nothing of it would match none that asks, and so another than the real one.
    """
    for same_host in hosts:
        yield Context(sender, recipient, kind, operation, transport="safeser", same_host=same_host)


def check_one_group(
    compiled: Compiled,
    rules: Sequence[Rule],
    principals: Mapping[str, Principal],
    document: Document,
) -> None:
    """Refuse a policy in which two workers of one scheduler take tasks of different authors."""
    for scheduler in sorted({name for rule in rules for name in _handing(rule)}):
        first: tuple[str, Takes] | None = None
        for name, context in _handed(_workers(compiled.table, principals, scheduler), scheduler):
            takes = Takes.by(compiled.table, context)
            if takes == Takes():
                continue
            if first is None:
                first = name, takes
            elif takes != first[1]:
                rule = compiled.match(context)
                assert rule is not None
                raise fault(
                    f"context {rule.name!r}: {name} takes {takes}, and {first[0]} takes {first[1]};"
                    " all workers of one scheduler trust each other and take the same tasks",
                    source=document.source,
                    place=document.place(("contexts", list(rules).index(rule))),
                    rule="config.one-group",
                    fix="Write two policies, each with a scheduler, workers and users of one group,"
                    " and start a cluster for each: 'safeser up --group NAME', or"
                    " docs/how-to/worker-groups.md for several machines. A nanny is no worker once"
                    " it is granted nanny-reports in place of cluster.",
                )


def _handing(rule: Rule) -> frozenset[str]:
    return rule.senders if COMPUTE in rule.operations else frozenset()


def _handed(names: Sequence[str], scheduler: str) -> Iterator[tuple[str, Context]]:
    """Yield *names* with the contexts that hand them tasks, wherever they are."""
    for name in names:
        for context in anywhere(scheduler, name, COMPUTE, Kind.TASK, hosts=ANYWHERE):
            yield name, context


def _workers(table: _Decides, names: Iterable[str], scheduler: str) -> list[str]:
    """Return which of *names* may register workers with *scheduler*: a nanny that may is one."""

    def registers(name: str) -> bool:
        asked = anywhere(name, scheduler, _REGISTER, hosts=ANYWHERE)
        return any(table.permits_operation(each).permitted for each in asked)

    return [name for name in names if name != scheduler and registers(name)]
