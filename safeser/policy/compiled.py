"""The contexts of a policy, compiled into the frozen table that the gate decides by.

The one rule: nothing here decides. :class:`safeser.gate.decision.Table` does, and keeps the floors
whatever it is given; this module names the context behind a row, and makes the advice of denials.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from safeser.errors import ConfigError
from safeser.gate.decision import Query, Row, Steps, Table, first_denial, masks
from safeser.gate.values import SEALED, Context
from safeser.operations import NAMES
from safeser.policy import advice
from safeser.policy.rules import SEALED_IN
from safeser.policy.source.context import Rule

__all__ = ["Compiled"]

#: Pairs of classes of principals that loading compares at most: a fifth of a second.
_MOST_PAIRS = 1_000_000


class Compiled:
    """The contexts of one policy, and the table that they are compiled into.

    :param rules: in the order of the file.
    :param principals: names that the policy lists; every other name counts as ``unknown``.
    :param own: families that the policy declares beyond those built in.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        principals: Collection[str],
        *,
        own: frozenset[str] = frozenset(),
    ) -> None:
        self.own = own
        self.rules = tuple(rules)
        self.lets_keys_be_taken = any(rule.key_conflicts.definition == "warn" for rule in rules)
        rows = [_row(rule) for rule in rules]
        self._rule_of: dict[Row | None, Rule] = dict(zip(rows, self.rules, strict=True))
        self.table = Table(rows, principals, own=own, operations=NAMES, advise=self._advise)
        #: What :class:`safeser.policy.Policy` and other modules derived, by the question.
        self.remembered: dict[tuple[object, ...], Any] = {}

    def at(self, moment: float) -> Compiled:
        """Return what is left when the contexts have ended whose dates have passed at *moment*."""
        rules = [rule.after_end() if rule.end <= moment else rule for rule in self.rules]
        return Compiled(rules, self.table.principals, own=self.own)

    def match(self, context: Context) -> Rule | None:
        """Return the first context of the policy that matches *context*, or None."""
        return self._rule_of.get(self.table.match(self.table.hop(context)))

    def _advise(self, name: str, query: Query, row: Row | None, steps: Steps) -> str:
        def judge(query: Query, rule: Rule) -> str | None:
            denial = first_denial(query, _row(rule), steps)
            return None if denial is None else denial.rule

        return advice.fix(name, query, self._rule_of.get(row), judge)

    def shadowed(self) -> Rule | None:
        """Return the first context that earlier ones leave nothing to match, or None.

        :raises ConfigError: if contexts overlap in too many ways to find out.
        """
        # Principals that the same contexts list are one class: groups of thousands cost one.
        senders = _classes([rule.senders for rule in self.rules])
        recipients = _classes([rule.recipients for rule in self.rules])
        kinds = masks([rule.kinds for rule in self.rules])
        transports = masks([rule.transports for rule in self.rules])
        hosts = masks([rule.same_host for rule in self.rules])
        budget = itertools.count()
        for index, rule in enumerate(self.rules):
            ways = itertools.product(
                {kinds[kind] for kind in rule.kinds},
                {transports[name] for name in rule.transports},
                {hosts[same] for same in rule.same_host},
            )
            # Of those that come one way, the contexts above this one that match that way.
            above = {functools.reduce(operator.and_, found) & (1 << index) - 1 for found in ways}
            found = (senders[rule.senders], recipients[rule.recipients])
            if not any(_is_left(*found, mask, budget) for mask in above):
                return rule
        return None


def _row(rule: Rule) -> Row:
    return Row(
        **{name: getattr(rule, name) for name in _AS_WRITTEN},
        own_classes=rule.classes == "own",
        sealed=SEALED_IN if rule.submission == SEALED else frozenset(),
        ended=str(rule.until) if rule.ended else "",
    )


_AS_WRITTEN = {each.name for each in fields(Row)} - {"own_classes", "sealed", "ended"}


def _classes(sets: Sequence[frozenset[str]]) -> Mapping[frozenset[str], frozenset[int]]:
    """Return, for each of *sets*, the different masks that its members have."""
    found = masks(sets)
    return {names: frozenset(found[name] for name in names) for names in dict.fromkeys(sets)}


def _is_left(
    senders: Iterable[int], recipients: Iterable[int], above: int, budget: Iterator[int]
) -> bool:
    """Tell whether some sender and recipient share none of the contexts in *above*."""
    ones = sorted({mask & above for mask in senders}, key=int.bit_count)
    others = sorted({mask & above for mask in recipients}, key=int.bit_count)
    for one in ones:
        for other in others:
            if not one & other:
                return True
            if next(budget) > _MOST_PAIRS:
                raise ConfigError(
                    "contexts overlap in too many ways to tell whether each can be reached",
                    rule="config.size",
                    fix="Use fewer groups in contexts, or list principals in fewer of them.",
                )
    return False
