"""Explain a decision to people: the context that decides, the reason, and the edit to change it.

The one rule: the answer comes from :meth:`Policy.decide`; nothing is decided a second time here.
"""

from __future__ import annotations

from dataclasses import dataclass

from safeser.errors import PolicyDenied
from safeser.gate.values import UNKNOWN, Context, Decision
from safeser.policy.policy import Policy
from safeser.policy.source.context import Rule
from safeser.policy.source.faults import shown

__all__ = ["Explanation", "explain"]

_HOSTS = {True: "the same host", False: "another host", None: "a host that is not known"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One decision with the way to it.

    :param question: what was asked, on one line.
    :param decision: the answer.
    :param steps: what was checked, in order, one line each.
    :param refusal: the error that a process raises for it; None where it is permitted.
    """

    question: str
    decision: Decision
    steps: tuple[str, ...]
    refusal: PolicyDenied | None = None

    @property
    def text(self) -> str:
        lines = [self.question, *(f"  {step}" for step in self.steps)]
        if self.refusal is None:
            lines.append(f"permitted [{self.decision.rule}]: {self.decision.reason}")
        else:
            lines.append(f"denied: {self.refusal}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text


def explain(
    policy: Policy,
    context: Context,
    family: str | None,
    *,
    sealing: bool = False,
    author: str | None = None,
) -> Explanation:
    """Return why *policy* permits or denies *family* in *context*, and the edit that changes it."""
    decision = policy.decide(context, family, sealing=sealing, author=author)
    operation = f", operation {shown(context.operation)}" if context.operation is not None else ""
    written = f", written by {author}" if author is not None else ""
    question = (
        f"may {context.sender} hand {context.recipient} {context.kind.value}"
        f" as {shown(str(family))}{operation}{written}{_transport_text(context)}"
        f" ({'sealing' if sealing else 'opening'}), under {policy.name} revision {policy.revision}?"
    )
    steps = _strangers(policy, context) + _walk(policy, context)
    denied = not decision.permitted
    refusal = policy.refusal(context, decision, sealing=sealing) if denied else None
    return Explanation(question, decision, tuple(steps), refusal)


def _transport_text(context: Context) -> str:
    """Say how the message came, as far as that is known."""
    over = f", over {context.transport}" if context.transport is not None else ""
    return over + ("" if context.same_host is None else f", from {_HOSTS[context.same_host]}")


def _strangers(policy: Policy, context: Context) -> list[str]:
    return [
        f"{name} is not listed under 'principals' and counts as unknown"
        for name in dict.fromkeys((context.sender, context.recipient))
        if name not in policy.principals and name != UNKNOWN
    ]


def _walk(policy: Policy, context: Context) -> list[str]:
    matched = policy.match(context)
    steps = []
    for rule in policy.contexts:
        if rule is matched:
            steps.append(f"{rule.place}, {rule.name}: matches; nothing below is checked")
            steps.extend(f"  {each}" for each in rule.explanations())
            return steps
        steps.append(f"{rule.place}, {rule.name}: {_mismatch(policy, context, rule)}")
    return [*steps, "no context is left: deny"]


def _mismatch(policy: Policy, context: Context, rule: Rule) -> str:
    sender = context.sender if context.sender in policy.principals else UNKNOWN
    recipient = context.recipient if context.recipient in policy.principals else UNKNOWN
    if sender not in rule.senders:
        return f"not for sender {sender}"
    if recipient not in rule.recipients:
        return f"not for recipient {recipient}"
    if context.kind not in rule.kinds:
        return f"not for kind {context.kind.value}"
    if context.transport not in rule.transports:
        return f"not for transport {context.transport or 'unknown'}"
    return f"not for {_HOSTS[context.same_host]}"
