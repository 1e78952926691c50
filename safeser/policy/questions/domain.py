"""The finite domain of a policy: all hops, with those that have the same answers taken together.

The one rule: principals that stand in the same places of every policy are one class, so that a
group of thousands costs as much as one principal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from safeser.gate.decision import ANY_TRANSPORT, ANYWHERE
from safeser.gate.values import UNKNOWN, Context, Kind
from safeser.policy.policy import Policy

__all__ = ["WAYS", "Domain", "Hops", "Way"]

T = TypeVar("T")

#: Transport and host of a message, as contexts match them.
Way = tuple[str | None, bool | None]

WAYS: tuple[Way, ...] = tuple(
    itertools.product(sorted(ANY_TRANSPORT, key=str), sorted(ANYWHERE, key=str))
)


class Hops(NamedTuple):
    """Hops that every policy of a domain answers alike.

    :param senders: a class of principals.
    :param recipients: a class of principals.
    :param ways: transports and hosts that every context matches alike.
    """

    senders: tuple[str, ...]
    recipients: tuple[str, ...]
    kind: Kind
    ways: tuple[Way, ...]

    @property
    def context(self) -> Context:
        """One of them, which names no operation."""
        transport, same_host = self.ways[0]
        ends = (self.senders[0], self.recipients[0])
        return Context(*ends, self.kind, transport=transport, same_host=same_host)


@dataclass(frozen=True, slots=True)
class Domain:
    """All hops among the principals of some policies.

    :param classes: the principals, and ``unknown``, those in the same places together.
    :param ways: the ways that a message can come, those that all contexts match alike together.
    """

    classes: tuple[tuple[str, ...], ...]
    ways: tuple[tuple[Way, ...], ...]

    @classmethod
    def of(cls, *policies: Policy) -> Domain:
        """Return the domain of *policies*."""
        names = {UNKNOWN}.union(*(policy.principals for policy in policies))
        places = {name: tuple(_places(each, name) for each in policies) for name in names}
        routes = {way: tuple(_routes(each, way) for each in policies) for way in WAYS}
        return cls(_alike(sorted(names), places), _alike(WAYS, routes))

    def hops(self) -> Iterator[Hops]:
        """Yield all hops, those with the same answers as one."""
        pairs = itertools.product(self.classes, self.classes, Kind, self.ways)
        return itertools.starmap(Hops, pairs)

    def authors(self, sender: str) -> Mapping[str, tuple[str, ...]]:
        """Return one other principal than *sender* of each class, with its class.

        Nothing passes as what an unknown author wrote.
        """
        others = {
            next((name for name in each if name != sender), UNKNOWN): each for each in self.classes
        }
        others.pop(UNKNOWN, None)
        return others


def _places(policy: Policy, name: str) -> tuple[object, ...]:
    """Return where *name* stands in *policy*; a name that it does not list is unknown there."""
    known = name if name in policy.principals else UNKNOWN
    return (
        known == UNKNOWN,
        *(
            (known in r.senders, known in r.recipients, known in r.authors, known in r.values)
            for r in policy.contexts
        ),
    )


def _routes(policy: Policy, way: Way) -> tuple[object, ...]:
    transport, same_host = way
    return tuple((transport in r.transports, same_host in r.same_host) for r in policy.contexts)


def _alike(each: Sequence[T], by: Mapping[T, object]) -> tuple[tuple[T, ...], ...]:
    found: dict[object, list[T]] = {}
    for one in each:
        found.setdefault(by[one], []).append(one)
    return tuple(map(tuple, found.values()))
