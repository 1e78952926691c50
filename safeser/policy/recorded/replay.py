"""Ask what a policy would have refused of what audit logs say was permitted.

The one rule: each answer is :meth:`Policy.decide` about a recorded message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from safeser.policy.policy import Policy
from safeser.policy.recorded.traffic import Message, Seen, Traffic
from safeser.values import Decision

__all__ = ["Refusal", "as_json", "replay"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Messages of one sort that the policy refuses.

    :param message: what they were.
    :param decision: the decision on them.
    """

    message: Message
    seen: Seen
    decision: Decision


def replay(policy: Policy, traffic: Traffic) -> list[Refusal]:
    """Return what *policy* refuses of *traffic*, by rule and principal, the most frequent first."""
    found = []
    for message, seen in traffic.messages.items():
        decision = policy.decide(message.context, message.family, author=message.author)
        if not decision.permitted:
            found.append(Refusal(message, seen, decision))
    by_rule: dict[str, int] = {}
    for each in found:
        by_rule[each.decision.rule] = by_rule.get(each.decision.rule, 0) + each.seen.times
    return sorted(
        found,
        key=lambda each: (
            -by_rule[each.decision.rule],
            each.decision.rule,
            each.message.sender,
            each.message.recipient,
            -each.seen.times,
            str(each.message),
        ),
    )


def as_json(policy: Policy, traffic: Traffic, refusals: list[Refusal]) -> Mapping[str, Any]:
    """Return the answer as plain values, for programs."""
    return {
        "policy": {"name": policy.name, "revision": policy.revision, "sha256": policy.sha256},
        "messages": traffic.times,
        "skipped": traffic.skipped,
        "refused": [
            {
                **each.message._asdict(),
                "kind": each.message.kind.value,
                "rule": each.decision.rule,
                "context": each.decision.context,
                "times": each.seen.times,
                "first": each.seen.first,
                "last": each.seen.last,
                "example": {} if each.seen.example is None else each.seen.example._asdict(),
                "fix": each.decision.fix,
            }
            for each in refusals
        ],
    }
