"""Determine what one author may sign: code, or listed functions.

The one rule: the author's own contexts to the scheduler decide. A worker asks the same contexts as
the scheduler, so that the policy states in one place what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from safeser.policy.rules import APPROVED, SUBMIT
from safeser.policy.source.context import Rule
from safeser.values import SEALED, Kind

__all__ = ["Signable"]

_REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Signable:
    """What one author may sign.

    :param code: definitions are pickles, which may be any code.
    :param functions: names of the functions that definitions may refer to.
    """

    code: bool = False
    functions: frozenset[str] = frozenset()

    @classmethod
    def by(cls, rules: Iterable[Rule], kind: Kind = Kind.TASK) -> Signable:
        """Return what any of *rules*, by which the author hands something to a scheduler, permits.

        :param kind: of the message that carries it; tasks come from graphs, which are granted.
        """
        permitting = [each for each in rules if kind is not Kind.TASK or SUBMIT in each.operations]
        return cls(
            any(each.submission == SEALED for each in permitting),
            frozenset().union(*map(_functions, permitting)),
        )


def _functions(rule: Rule) -> frozenset[str]:
    """Return the names that *rule* lists for tasks to call."""
    if rule.submission != APPROVED:
        return frozenset()
    return frozenset(each.name for each in rule.allow if each.role == _REFERENCE)
