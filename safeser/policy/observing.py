"""The decision table of a policy with ``mode: observe``: record everything, refuse only the floors.

The one rule: it is a table like any other, and :class:`safeser.policy.decide.Table` alone decides
by it. What it adds is one context, above those of the file, that matches listed principals and
permits them everything; ``unknown`` is no listed principal.
"""

from __future__ import annotations

from collections.abc import Collection

from safeser.operations import NAMES
from safeser.policy.decide import Table
from safeser.policy.rules import ANY_TRANSPORT, ANYWHERE, PROFILES
from safeser.policy.source.context import PickleModel, Rule
from safeser.values import FAMILIES, UNKNOWN, KeyConflicts, Kind

__all__ = ["CONTEXT", "observing"]

#: The name of the context that permits everything; no context of such a file may have it.
CONTEXT = "observe"


def observing(written: Table, principals: Collection[str]) -> Table:
    """Return the table that permits all that *written* permits or refuses, save for the floors."""
    rules = written.rules
    listed = frozenset(principals)
    families = (*(family for family in FAMILIES if family != "error"), *sorted(written.own))
    allow = {(each.name, each.role): each for rule in rules for each in rule.allow}
    everything = Rule.model_construct(
        name=CONTEXT,
        senders=listed,
        recipients=listed,
        kinds=frozenset(Kind),
        # What the file wants encrypted stays encrypted while it is only observed.
        suite=max((rule.suite for rule in rules), default=written.suite),
        transports=ANY_TRANSPORT,
        same_host=ANYWHERE,
        authors=listed,
        values=listed,
        serializers=families,
        deserializers=families,
        pickle=PickleModel.model_construct(profile=PROFILES, allow=tuple(allow.values())),
        types=frozenset().union(*(rule.types for rule in rules)),
        classes="own" if any(rule.classes == "own" for rule in rules) else "registered",
        submission="code",
        key_conflicts=KeyConflicts(definition="warn", principal="warn"),
        operations=NAMES,
    )
    strangers = [rule for rule in rules if UNKNOWN in rule.senders | rule.recipients]
    return Table(
        [everything, *strangers],
        listed,
        own=written.own,
        suite=max(written.suite, everything.suite),
    )
